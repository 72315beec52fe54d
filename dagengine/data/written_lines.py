"""JSON lines as they are written: every line whole, at whatever moment the process ends.

Rows that are finished before an earlier one wait in a file beside the results until it is there.
So a file of results keeps the order of the data, and a run that is killed loses no row that it
had finished. Readers take both files for one.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json

from dagengine.errors import InputError
from dagengine.prompts.json_in_text import shallow_value
from dagengine.system.file_locks import lock_file
from dagengine.system.safe_files import ends_whole, open_to_read, open_to_write, write_all

T = TypeVar("T")
_Line = tuple[int, int, bytes]  # its number from 1, its offset, and it with its end
_JSON = json.JSONEncoder(ensure_ascii=False, default=str, allow_nan=False)
_LONG = 1 << 20  # bytes from which on a file that nobody needs is emptied


def line_of(row: Mapping[str, Any]) -> bytes:
    """The line of one object, with its end; a number that is not finite is null."""
    try:
        text = _JSON.encode(row)
    except ValueError:
        text = _JSON.encode(finite(row))
    # A lone surrogate comes out as the JSON escape it needs to be.
    return f"{text}\n".encode(errors="backslashreplace")


def finite(value: Any) -> Any:
    """A value of JSON with null in the place of the numbers that JSON has no form for."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        return {key: finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return list(map(finite, value))
    return None if isinstance(value, float) and not math.isfinite(value) else value


def without_nulls(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values that are not None, which says nothing."""
    return {name: value for name, value in values.items() if value is not None}


def value_of(line: bytes) -> Any:
    """The value in a line; raises ValueError for text that is not JSON, or nested too deeply."""
    try:
        return from_json(line)
    except ValueError:  # lone surrogates, which it refuses and this project writes
        return shallow_value(line)


class JsonLines:
    """Writes one JSON object per line; every line is complete, even when the process is killed.

    What JSON has no form for is written as its text.
    """

    def __init__(self, path: Path, *, emptied: bool = True, locked: bool = False) -> None:
        """A file that is not `emptied` is continued; a line that a kill cut off stays by itself.

        One that is `locked` is waited for until nobody else has it.
        """
        self._file = open_to_write(path, emptied=emptied)
        if locked:
            lock_file(self._file.fileno(), wait=True)
        self.size = 0 if emptied else path.stat().st_size  # bytes of whole rows
        self._name = str(path)
        if not ends_whole(self._file):
            self.write_line(b"\n")

    def write(self, row: Mapping[str, Any], *, synced: bool = False) -> None:
        """Write one object, `synced` to the disk; after an OSError lines before it are whole."""
        self.write_line(line_of(row), synced=synced)

    def write_line(self, line: bytes, *, synced: bool = False) -> None:
        """Write what `line_of` has made of an object; raises OSError as `write` does."""
        try:
            write_all(self._file, line)
            if synced:
                os.fsync(self._file.fileno())
        except OSError as error:
            # Half a line would become one with the next, and both would be lost to readers.
            with suppress(OSError):
                self._file.truncate(self.size)
            error.filename = self._name  # which the system does not say of a full disk
            raise
        self.size += len(line)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def lines_in(file: BinaryIO, *, whole: bool, first: int = 1, start: int = 0) -> Iterator[_Line]:
    """The lines that are not blank of a file, which stands at line `first`, offset `start`.

    Unless it is `whole`, a half line at its end is none; else it gets its end.
    """
    for number, line in enumerate(file, first):
        complete = line if line.endswith(b"\n") or not whole else line + b"\n"
        if not line.isspace() and complete.endswith(b"\n"):
            yield number, start, complete
        start += len(line)


def complete_lines(path: Path, *, whole: bool) -> Iterator[tuple[str, bytes]]:
    """The lines of a file, see `lines_in`, each after its place; none without a file.

    Raises InputError for what is no regular file.
    """
    with suppress(FileNotFoundError, NotADirectoryError), open_to_read(path) as file:
        for number, _, line in lines_in(file, whole=whole):
            yield f"{path} line {number}", line


def read_models(path: Path, kind: type[T], what: str, *, whole: bool) -> Iterator[T]:
    """The lines of a file as values of a kind, see `complete_lines`.

    Raises InputError, which names the line, for one that is not `what` it should be.
    """
    read = TypeAdapter(kind).validate_json
    for position, line in complete_lines(path, whole=whole):
        try:
            yield read(line)
        except ValidationError as error:
            raise InputError(f"{position}: not {what}: {error.errors()[0]['msg']}") from None


def all_lines(path: Path, *, whole: bool) -> Iterator[tuple[str, bytes]]:
    """The lines of a file, see `complete_lines`, then those that wait beside it."""
    line = b""
    for position, line in complete_lines(path, whole=whole):
        yield position, line
    # What waited may have been written since, and its file not yet be emptied: not twice.
    yield from early_lines(path, index_of(line))


def values_in(path: Path, what: str, *, whole: bool) -> Iterator[tuple[str, Any]]:
    """The JSON of every line, after its place; raises InputError for a line that is no `what`."""
    for position, line in all_lines(path, whole=whole):
        try:
            value = value_of(line)
        except ValueError as error:
            raise InputError(f"{position}: no {what} of a run (not JSON: {error})") from None
        yield position, value


@cache
def adapter_of(kind: type[Any]) -> TypeAdapter[Any]:
    """Return what reads plain data as values of a kind; it is made once, when it is first used."""
    return TypeAdapter(kind)


def beside(results: Path) -> Path:
    """The file of the early rows of a file of results."""
    return results.with_name(f"{results.name}.early")


class LinesInOrder:
    """A file of JSON lines by their indices; a line waits beside it while an earlier is missing.

    It is made when there is a first line, and then replaces what waited for an earlier run. Every
    method raises OSError.
    """

    def __init__(self, path: Path, *, emptied: bool = True) -> None:
        """A file that is not `emptied`, whose lines are whole, is continued."""
        self.path = path
        self._emptied = emptied
        self._lines: JsonLines | None = None
        self._early: BinaryIO | None = None
        self._places: dict[int, tuple[int, int]] = {}
        self._end, self._last = 0, -1

    @property
    def size(self) -> int:
        """The bytes of the lines so far, which is where the next one begins."""
        return 0 if self._lines is None else self._lines.size

    @property
    def waiting(self) -> int:
        """The number of lines that wait."""
        return len(self._places)

    def _open(self) -> JsonLines:
        if self._lines is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._lines = JsonLines(self.path, emptied=self._emptied)
            beside(self.path).unlink(missing_ok=True)
        return self._lines

    def write(self, index: int, row: Callable[[], Mapping[str, Any]]) -> None:
        """Write the line with this index, which is the next."""
        lines, early = self._open(), self._early
        if early is None or index not in self._places:
            lines.write_line(line_of(row()))
        else:
            offset, length = self._places.pop(index)
            # The file beside is read and written through one handle. It has to stand at its end
            # again, also when reading fails, or the next line that is kept would be written over
            # another one.
            early.seek(offset)
            try:
                line = early.read(length)
            finally:
                early.seek(self._end)
            lines.write_line(line)
        self._last = index
        # Now and then, when nothing waits and all is in the file: begin the other one again.
        if early is not None and not self._places and self._end > _LONG:
            early.seek(0)
            early.truncate()
            self._end = 0

    def keep(self, index: int, row: Callable[[], Mapping[str, Any]]) -> None:
        """Let a line wait for earlier ones, on its way to the disk; nothing for one written."""
        if index <= self._last:
            return
        self._open()
        if self._early is None:
            self._early = open_to_write(beside(self.path))
        line = line_of(row())
        write_all(self._early, line)
        self._places[index] = self._end, len(line)
        self._end += len(line)

    def close(self) -> None:
        """Close the files; the one beside stays if lines in it have no other place."""
        if self._lines is not None:
            self._lines.close()
        if self._early is not None:
            self._early.close()
            if not self._places:
                beside(self.path).unlink(missing_ok=True)


def early_lines(results: Path, last: int) -> Iterator[tuple[str, bytes]]:
    """Rows that a killed run left waiting, by index, from behind the index `last` on.

    A line is given with its place. Half a line at the end, or one that is none, is left out. Raises
    InputError for what is no regular file.
    """
    waiting: dict[int, tuple[str, bytes]] = {}
    for position, line in complete_lines(beside(results), whole=False):
        index = index_of(line)
        if index > last:
            waiting[index] = position, line
    for index in sorted(waiting):
        yield waiting[index]


def index_of(line: bytes) -> int:
    """The index of the row in a line; -1 if that is not a whole row."""
    with suppress(ValueError, RecursionError):
        row: Any = json.loads(line) if line.endswith(b"\n") else None
        if isinstance(row, dict) and isinstance(row.get("index"), int):
            return int(row["index"])
    return -1
