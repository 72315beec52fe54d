"""Rows that are finished in any order, and are handed on in the order of the cases."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from dagengine.results import CaseResult


class RowsInOrder:
    """Hands on rows in order, each once.

    Rows come in parts: a single row, or the rows of a chunk of neighbouring cases. `next` is
    the index of the first row that is not handed on yet, `parts` counts those handed on.
    """

    def __init__(self, on_row: Callable[[CaseResult], None], first: int = 0) -> None:
        self._on_row = on_row
        self._waiting: dict[int, Sequence[CaseResult]] = {}
        self.next = first
        self.parts = 0

    @property
    def waiting(self) -> int:
        """The number of parts that wait for an earlier one."""
        return len(self._waiting)

    def add(self, first: int, rows: Sequence[CaseResult]) -> None:
        """Take a part, whose first row has the index `first`."""
        self._waiting[first] = rows
        while self.next in self._waiting:
            ready = self._waiting.pop(self.next)
            self.next += len(ready)
            self.parts += 1
            self._hand_on(ready)

    def rest(self) -> None:
        """After an interrupt: rows that wait for earlier ones are kept, too."""
        for first in sorted(self._waiting):
            self._hand_on(self._waiting.pop(first))

    def _hand_on(self, rows: Iterable[CaseResult]) -> None:
        for row in rows:
            self._on_row(row)
