"""Prompts as they were sent, in compressed blocks in the order of the texts."""

from __future__ import annotations

from collections.abc import Sequence

from dagengine.record.prompts import Prompts, RowKeys
from dagengine.report.page.texts import Blocks, starts_of


class PromptBlocks:
    """Collects what every row asked, and reads as many prompts as there is room for."""

    def __init__(self, prompts: Prompts | None) -> None:
        """Without `prompts` nothing is collected."""
        self._prompts = prompts
        self._keys: list[RowKeys] = []

    def add(self, keys: RowKeys) -> None:
        """Add the next row."""
        if self._prompts is not None:
            self._keys.append(keys)

    def close(self, slots: Sequence[int], room: int) -> tuple[list[str], list[int]]:
        """Blocks of at most `room` characters, and the slots they start at.

        `slots` are those of the rows among the texts. The first of them have their prompts. The
        line of a slot lists prompts by metric and step.
        """
        filled = Blocks(room)
        asked = any(key for row in self._keys for steps in row for key in steps)
        if self._prompts is None or not asked:
            return [], []
        placed = sorted((slot, row) for row, slot in enumerate(slots) if slot >= 0)
        for _, row in placed:
            if filled.size > room:
                break
            filled.add(self._prompts.of(self._keys[row]))
        blocks, counts = filled.within(room)
        return blocks, starts_of(counts)
