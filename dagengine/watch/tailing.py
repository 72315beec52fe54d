"""What arrives in a folder of OTLP files that grow and rotate, and is not read yet.

A file is known by its place on the disk and by its first bytes. So a file that was renamed goes on
where it was, and one that was emptied, or replaced, begins anew. Reading a line twice does no harm:
what was decided about a trace stays decided (see `pending`).
"""

from __future__ import annotations

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
from dagengine.traces.otlp import DAMAGES, RawRecord, is_otlp, records_of

_AT_ONCE = 8 << 20  # bytes of one file that are read before traces are looked at
_HEAD = 128  # bytes by which a file is known
_SUFFIXES = frozenset({".jsonl", ".json"})


@dataclass(slots=True)
class _Place:
    """How far a file is read; `rest` is a last line without an end, which may still grow."""

    head: bytes
    offset: int = 0
    rest: bytes = b""


class Folder:
    """The OTLP files of a folder (.jsonl and .json), read as they grow.

    `flaws` counts lines that hold no spans, by what is wrong with them; `first` is the file where
    that was seen first. It is `behind` when the last poll has left something: spans of traces that
    seem quiet may be in there.
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
        head = file.read(_HEAD)
        place = self._places.get(name)
        if place is None or size < place.offset or not head.startswith(place.head):
            place = self._places[name] = _Place(head)
        place.head = head
        file.seek(place.offset)
        data = file.read(_AT_ONCE)
        while data and b"\n" not in data and (more := file.read(_AT_ONCE)):  # a long line
            data += more
        end = data.rfind(b"\n") + 1
        lines, rest = data[:end].split(b"\n"), data[end:]
        place.offset += end
        # A file may end without a line break; what did not grow since may be such an end.
        if rest and rest == place.rest and place.offset + len(rest) == size:
            with suppress(ValueError):  # half a line, which the rest may follow
                value_of(rest)
                lines.append(rest)
                place.offset += len(rest)
                rest = b""
        place.rest = rest
        self.behind = self.behind or place.offset + len(rest) < size
        return [line for line in lines if line.strip()]

    def _records(self, path: Path, line: bytes) -> list[RawRecord]:
        flaw = "not JSON"
        try:
            value = value_of(line)
            flaw = "neither resourceSpans nor resourceLogs"
            if is_otlp(value):
                flaw = "a damaged export"
                return list(records_of(value))
        except DAMAGES:
            pass  # a Collector that is killed leaves half a line
        self.flaws[flaw] += 1
        self.first.setdefault(flaw, path.name)
        return []
