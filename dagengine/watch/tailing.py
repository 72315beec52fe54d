"""What arrives in a folder of OTLP files that grow and rotate, and is not read yet.

A file is known by its place on the disk and by the last line that was read of it. So a file that
was renamed goes on where it was, and one that was emptied, or replaced, begins anew. Reading a line
twice does no harm: what was decided about a trace stays decided (see `pending`).
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from dagengine.data.json_lines import value_of
from dagengine.errors import InputError
from dagengine.regular_files import open_to_read
from dagengine.traces.otlp import RawRecord, is_otlp, records_of

_AT_ONCE = 8 << 20  # bytes of one file that are read before traces are looked at
_KNOWN = 16 << 10  # bytes at the begin and the end of a line by which a file is known
DAMAGED = "damaged"
_SUFFIXES = frozenset({".jsonl", ".json"})


@dataclass(slots=True)
class _Place:
    """How far a file is read: its lines before `offset`, of which the last begins at `line`.

    `digest` is what that line is known by. The line after it may still grow: it has no end before
    `seen`. `size` is that of the last look, `tried` that at which this line was read all the same.
    """

    offset: int = 0
    line: int = 0
    digest: bytes = b""
    seen: int = 0
    size: int = -1
    tried: int = -1

    def known_by(self, file: BinaryIO) -> bytes:
        """The digest of the last line in a file, of its begin and its end if it is long."""
        file.seek(self.line)
        begin = file.read(min(_KNOWN, self.offset - self.line))
        file.seek(max(self.line, self.offset - _KNOWN))
        return hashlib.sha256(begin + file.read(min(_KNOWN, self.offset - self.line))).digest()

    def end_of_lines(self, file: BinaryIO, size: int) -> int:
        """The end of the lines that came since the last look; 0 if none has an end."""
        # What is known to have no end of a line is not looked at again, however long it gets.
        file.seek(self.seen)
        end = 0
        while not end and (data := file.read(_AT_ONCE)):
            end = self.seen + data.rfind(b"\n") + 1 if b"\n" in data else 0
            self.seen += len(data)
        # A file may end without a line break; what did not grow since may be such an end.
        if not end and self.offset < size == self.size != self.tried:
            self.tried = size
            file.seek(size - 1)
            end = size if file.read(1) in (b"}", b"]") else 0
        return end


class Folder:
    """The OTLP files of a folder (.jsonl and .json), read as they grow.

    `flaws` counts what was left out, by what is wrong with it: lines, and of lines that were read
    the spans and log records that are DAMAGED. `first` is the file where that was seen first. It is
    `behind` when the last poll has left something: spans of traces that seem quiet may be in there.
    """

    def __init__(self, path: Path) -> None:
        """Raises InputError for what is no folder."""
        if not path.is_dir():
            raise InputError(
                f"{path} is not a folder: watch takes the folder in which files of traces grow, "
                "or receives spans (--listen PORT)"
            )
        self.path = path
        self.flaws = Counter[str]()
        self.first: dict[str, str] = {}
        self.behind = False
        self._places: dict[tuple[int, int], _Place] = {}

    def poll(self) -> Iterator[RawRecord]:
        """The records that are new in every file, of each at most some MB."""
        seen: set[tuple[int, int]] = set()
        self.behind = False
        for path in sorted(self.path.iterdir()):
            if path.suffix in _SUFFIXES and path.is_file() and not path.is_symlink():
                try:
                    with open_to_read(path) as file:
                        status = os.fstat(file.fileno())
                        name = status.st_dev, status.st_ino
                        seen.add(name)
                        data = self._new(name, file, status.st_size)
                except FileNotFoundError:
                    continue  # it was rotated away since
                for line in data:
                    yield from self._records(path, line)
        for name in self._places.keys() - seen:
            del self._places[name]

    def _new(self, name: tuple[int, int], file: BinaryIO, size: int) -> list[bytes]:
        """The whole lines of a file that were not there before."""
        place = self._places.get(name)
        if place is None or size < place.seen or place.digest != place.known_by(file):
            place = self._places[name] = _Place()
        end = place.end_of_lines(file, size)
        place.size = size
        file.seek(place.offset)
        *lines, rest = file.read(max(0, end - place.offset)).split(b"\n")
        with suppress(ValueError):  # half a line, which the rest may follow
            lines += [rest] if rest and value_of(rest) else []
        for line in lines:
            place.line = place.offset if line.strip() else place.line
            place.offset = min(end, place.offset + len(line) + 1)
        place.seen = max(place.seen, place.offset)
        place.digest = place.known_by(file)
        self.behind = self.behind or place.seen < size
        return [line for line in lines if line.strip()]

    def _records(self, path: Path, line: bytes) -> Iterator[RawRecord]:
        """The records in a line; what is damaged is counted."""
        try:
            value = value_of(line)
        except ValueError:  # a Collector that is killed leaves half a line
            self._leave_out("not JSON", path.name)
            return
        for item in value if isinstance(value, list) else [value]:
            if is_otlp(item):
                yield from records_of(
                    item, lambda error: self._leave_out(DAMAGED, f"{path.name}: {error!s:.120}")
                )
            else:
                self._leave_out("neither resourceSpans nor resourceLogs", path.name)

    def _leave_out(self, flaw: str, source: str) -> None:
        self.flaws[flaw] += 1
        self.first.setdefault(flaw, source)
