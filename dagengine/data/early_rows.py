"""Rows that are finished before an earlier one: in a file beside the results until it is there.

So a file of results keeps the order of the data, and a run that is killed loses no row that it
had finished. Readers take both files for one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dagengine.regular_files import is_there, open_to_read, open_to_write, write_all

_LONG = 1 << 20  # bytes from which on a file that nobody needs is emptied


def beside(results: Path) -> Path:
    """The file of the early rows of a file of results."""
    return results.with_name(f"{results.name}.early")


class EarlyRows:
    """Lines that wait; each is on its way to the disk when `keep` returns."""

    def __init__(self, results: Path) -> None:
        """Makes the file again."""
        self._path = beside(results)
        self._file = open_to_write(self._path)
        self._places: dict[int, tuple[int, int]] = {}
        self._end = 0

    def __len__(self) -> int:
        return len(self._places)

    def keep(self, index: int, line: bytes) -> None:
        """Let the line of the row with this index wait; raises OSError."""
        write_all(self._file, line)
        self._places[index] = self._end, len(line)
        self._end += len(line)

    def take(self, index: int) -> bytes | None:
        """The line of a row that waits no longer; None when it never did."""
        if index not in self._places:
            return None
        offset, length = self._places.pop(index)
        # The file is read and written through one handle. It has to stand at its end again, also
        # when reading fails, or the next row that is kept would be written over another one.
        self._file.seek(offset)
        try:
            return self._file.read(length)
        finally:
            self._file.seek(self._end)

    def forget(self) -> None:
        """Now and then, when nothing waits and all is in the results: begin the file again."""
        if not self._places and self._end > _LONG:
            self._file.seek(0)
            self._file.truncate()
            self._end = 0

    def close(self) -> None:
        """Remove the file, unless rows in it have no other place."""
        self._file.close()
        if not self._places:
            self._path.unlink(missing_ok=True)


def early_lines(results: Path, last: int) -> Iterator[tuple[str, bytes]]:
    """Rows that a killed run left waiting, by index, from behind the index `last` on.

    A line is given with its place. Half a line at the end, or one that is none, is left out. Raises
    InputError for what is no regular file.
    """
    path = beside(results)
    if not is_there(path):
        return
    waiting: dict[int, tuple[str, bytes]] = {}
    with open_to_read(path) as file:
        for number, line in enumerate(file, 1):
            index = index_of(line)
            if index is not None and index > last:
                waiting[index] = f"{path} line {number}", line
    for index in sorted(waiting):
        yield waiting[index]


def index_of(line: bytes) -> int | None:
    """The index of the row in a line; None if that is not a whole row."""
    if not line.endswith(b"\n"):
        return None
    try:
        row: Any = json.loads(line)
    except (ValueError, RecursionError):
        return None
    index = row.get("index") if isinstance(row, dict) else None
    return index if isinstance(index, int) else None
