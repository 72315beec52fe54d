"""Records from a folder of OTLP files that grow and rotate, kept until a trace of them is ready.

A file is known by its inode and by the last line that was read of it. So reading continues in a
file that was renamed, and begins anew in one that was emptied or replaced. Reading a line twice
does no harm: what was decided about a trace stays decided (see `Pending`).
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

from dagengine.data.written_lines import value_of
from dagengine.errors import InputError
from dagengine.system.safe_files import open_to_read
from dagengine.traces.formats import RawRecord, RawSpan, is_otlp, of_type, otlp_records
from dagengine.traces.trace_files import pack_record, temporary_database, unpack_record

DAMAGED = "damaged"
_SUFFIXES = frozenset({".jsonl", ".json"})
_AT_ONCE = 8 << 20  # bytes that are searched for the end of a line in one step
_DIGESTED = 16 << 10  # bytes at the beginning and at the end of a line that its digest is of
_CACHE = 16 * 1024  # KiB of the database in memory


@dataclass(slots=True)
class _Position:
    """How far a file is read: its lines before the byte `offset`; the last of them is at `last`.

    `digest` is that of the last line. The next line may still grow: up to `searched` it has no end.
    `size` is that of the file at the last look, `tried` that at which a line break was not needed.
    """

    offset: int = 0
    last: int = 0
    digest: bytes = b""
    searched: int = 0
    size: int = -1
    tried: int = -1

    def digest_in(self, file: BinaryIO) -> bytes:
        """The digest of the last line as a file has it; of a long one, of its two ends."""
        length = min(_DIGESTED, self.offset - self.last)
        file.seek(self.last)
        beginning = file.read(length)
        file.seek(self.offset - length)
        return hashlib.sha256(beginning + file.read(length)).digest()

    def end_of_lines(self, file: BinaryIO, size: int) -> int:
        """Look for the end of the lines that came since the last look; 0 if none has an end."""
        # A line that grows is searched only where it is new, however long it gets.
        file.seek(self.searched)
        end = 0
        while not end and (data := file.read(_AT_ONCE)):
            end = self.searched + data.rfind(b"\n") + 1 if b"\n" in data else 0
            self.searched += len(data)
        # A file may end without a line break. One that did not grow since the last look, and ends
        # as JSON does, is taken to be such a file: once for each size.
        if not end and self.offset < size == self.size != self.tried:
            self.tried = size
            file.seek(size - 1)
            end = size if file.read(1) in (b"}", b"]") else 0
        return end


class Folder:
    """The OTLP files of a folder (.jsonl and .json), read as they grow.

    `flaws` counts what was left out, by what is wrong with it: whole lines, or as DAMAGED single
    spans and log records. `first` names the file where each flaw was first. The folder is `behind`
    if the last poll left bytes unread: they may contain spans of traces that seem quiet.
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
        self._positions: dict[tuple[int, int], _Position] = {}

    def poll(self) -> Iterator[RawRecord]:
        """The records that are new in every file, of each file at most some MB."""
        inodes: set[tuple[int, int]] = set()
        self.behind = False
        for path in sorted(self.path.iterdir()):
            if path.suffix in _SUFFIXES and path.is_file() and not path.is_symlink():
                try:
                    with open_to_read(path) as file:
                        status = os.fstat(file.fileno())
                        inode = status.st_dev, status.st_ino
                        inodes.add(inode)
                        lines = self._new_lines(inode, file, status.st_size)
                except FileNotFoundError:
                    continue  # it was rotated away since
                for line in lines:
                    yield from self._records(path, line)
        for inode in self._positions.keys() - inodes:
            del self._positions[inode]

    def _new_lines(self, inode: tuple[int, int], file: BinaryIO, size: int) -> list[bytes]:
        """The lines of a file that are whole since the last look, without blank ones."""
        position = self._positions.get(inode, _Position())
        if size < position.searched or position.digest_in(file) != position.digest:
            position = _Position()  # the file is new, emptied or replaced
        self._positions[inode] = position
        end = position.end_of_lines(file, size)
        position.size = size
        file.seek(position.offset)
        *lines, unended = file.read(max(0, end - position.offset)).split(b"\n")
        with suppress(ValueError):  # only a part of a line yet
            if unended and value_of(unended):
                lines.append(unended)
        for line in lines:
            if line.strip():
                position.last = position.offset
            position.offset = min(end, position.offset + len(line) + 1)
        position.searched = max(position.searched, position.offset)
        position.digest = position.digest_in(file)
        self.behind = self.behind or position.searched < size
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
                yield from otlp_records(
                    item, lambda error: self._leave_out(DAMAGED, f"{path.name}: {error!s:.120}")
                )
            else:
                self._leave_out("neither resourceSpans nor resourceLogs", path.name)

    def _leave_out(self, flaw: str, source: str) -> None:
        self.flaws[flaw] += 1
        self.first.setdefault(flaw, source)


class Pending:
    """Records that come in any order, given back trace by trace. A trace is decided once.

    Records, and ids of decided traces, are in a temporary database of sqlite, so memory does not
    grow with the stream. It is gone with the process. After a restart the ids come from the record
    of the run, and traces without a row are read again. `late` counts records that came after
    their trace was decided in this process.
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
        """Take records that came `now`, in seconds; return how many are of undecided traces."""
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
        """Take out and decide traces whose root has ended, without a record after `quiet_since`."""
        rows = self._file.execute(
            # The oldest first: otherwise newer ones could keep it waiting for ever.
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
        """Note that a trace has its row, or is not judged: further records of it are left out.

        If it was decided `here`, in this process, they are late; else they are only read again.
        """
        self._file.execute("INSERT OR IGNORE INTO decided VALUES (?, ?)", (trace, here))

    def count(self, *, ended: bool) -> int:
        """The number of traces that wait: if `ended` for quiet, else for the end of their root."""
        query = "SELECT count(*) FROM traces WHERE ended = ?"
        return int(self._file.execute(query, (ended,)).fetchone()[0])
