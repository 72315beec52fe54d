"""What arrives in a folder of OTLP files that grow and rotate, until a trace of it is ready.

A file is known by its place on the disk and by the last line that was read of it. So a file that
was renamed goes on where it was, and one that was emptied, or replaced, begins anew. Reading a line
twice does no harm: what was decided about a trace stays decided (see `Pending`).
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from dagengine.data.json_lines import value_of
from dagengine.errors import InputError
from dagengine.system.regular_files import open_to_read
from dagengine.traces.records import RawRecord, RawSpan, is_otlp, of_type, records_of
from dagengine.traces.trace_cases import pack_record, temporary_database, unpack_record

_CACHE = 16 * 1024  # KiB of the database in memory
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
        for item in of_type(value, list, [value]):
            if is_otlp(item):
                yield from records_of(
                    item, lambda error: self._leave_out(DAMAGED, f"{path.name}: {error!s:.120}")
                )
            else:
                self._leave_out("neither resourceSpans nor resourceLogs", path.name)

    def _leave_out(self, flaw: str, source: str) -> None:
        self.flaws[flaw] += 1
        self.first.setdefault(flaw, source)


class Pending:
    """Records of traces in any order, given back trace by trace when one is ready.

    They, and the ids of traces that were decided, are in a temporary database of sqlite, so memory
    does not grow with the stream. It is gone with the process. After a restart the ids come from
    the record of the run, and what no row is about is read again. `late` counts records of traces
    that were decided before they came.
    """

    def __init__(self) -> None:
        self._file = temporary_database(
            self,
            """
            CREATE TABLE decided (trace TEXT PRIMARY KEY, here INTEGER) WITHOUT ROWID;
            CREATE TABLE traces (trace TEXT PRIMARY KEY, seen REAL, ended INTEGER) WITHOUT ROWID;
            CREATE INDEX ready ON traces (ended, seen);
            CREATE TABLE records (trace TEXT, body BLOB);
            CREATE INDEX of_trace ON records (trace);
            """,
            _CACHE,
        )
        self.late = 0

    def close(self) -> None:
        """Remove the database."""
        self._file.close()

    def add(self, records: Iterable[RawRecord], now: float) -> int:
        """Take records that came at a time in seconds; how many of them belong to open traces."""
        count = 0
        for record in records:
            trace = record.trace_id
            query = "SELECT here FROM decided WHERE trace = ?"
            decided = self._file.execute(query, (trace,)).fetchone()
            if decided:
                self.late += decided[0]
                continue
            # The end of a root may come before its children, or after them: once ended stays ended.
            is_root = isinstance(record, RawSpan) and not record.parent_id and record.end > 0
            self._file.execute(
                "INSERT INTO traces VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET "
                "seen = excluded.seen, ended = max(ended, excluded.ended)",
                (trace, now, is_root),
            )
            self._file.execute("INSERT INTO records VALUES (?, ?)", (trace, pack_record(record)))
            count += 1
        return count

    def take(self, quiet_since: float, most: int) -> Iterator[tuple[str, list[RawRecord]]]:
        """Traces whose root has ended and that were quiet since then; they are decided with it."""
        rows = self._file.execute(
            # The oldest first, so that none waits for good behind newer ones.
            "SELECT trace FROM traces WHERE ended AND seen <= ? ORDER BY seen LIMIT ?",
            (quiet_since, most),
        ).fetchall()
        for (trace,) in rows:
            query = "SELECT body FROM records WHERE trace = ?"
            bodies = self._file.execute(query, (trace,)).fetchall()
            self._file.execute("DELETE FROM records WHERE trace = ?", (trace,))
            self._file.execute("DELETE FROM traces WHERE trace = ?", (trace,))
            self.decide(trace, here=True)
            yield trace, [unpack_record(body) for (body,) in bodies]

    def decide(self, trace: str, *, here: bool = False) -> None:
        """Note that a trace has its row, or is not judged: what comes of it is left out.

        If that was decided `here` it is late; else it is only read once more.
        """
        self._file.execute("INSERT OR IGNORE INTO decided VALUES (?, ?)", (trace, here))

    def count(self, *, ended: bool) -> int:
        """Number of traces that wait: for quiet, or for the end of their root."""
        query = "SELECT count(*) FROM traces WHERE ended = ?"
        return int(self._file.execute(query, (ended,)).fetchone()[0])
