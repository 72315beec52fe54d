"""Lines beside the rows of a run: in the same order, and kept while an earlier one is missing."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dagengine.data.early_rows import EarlyRows
from dagengine.data.json_lines import JsonLines, line_of


class LinesInOrder:
    """One file of lines, made when there is a first one; every method raises OSError."""

    def __init__(self, path: Path, *, emptied: bool = True) -> None:
        """A file that is not `emptied`, whose lines are whole, is continued."""
        self.path = path
        self._emptied = emptied
        self._lines: JsonLines | None = None
        self._early: EarlyRows | None = None

    def write(self, index: int, line: Mapping[str, Any]) -> None:
        """Write the line of the row with this index, which is the next."""
        if self._lines is None:
            self._lines = JsonLines(self.path, emptied=self._emptied)
        self._lines.write(line)
        if self._early is not None:
            self._early.take(index)
            self._early.forget()

    def keep(self, index: int, line: Mapping[str, Any]) -> None:
        """Let a line wait for earlier ones, in a file beside this one."""
        if self._early is None:
            self._early = EarlyRows(self.path)
        self._early.keep(index, line_of(line))

    def close(self) -> None:
        """Close the files."""
        for file in (self._lines, self._early):
            if file is not None:
                file.close()
