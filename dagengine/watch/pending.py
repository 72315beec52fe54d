"""Traces that are not ready yet, and the ids of those that were decided.

Both are in a temporary database of sqlite, so memory does not grow with the stream. It is gone with
the process. After a restart the ids come from the record of the run, and what no row is about is
read again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dagengine.traces.joining import pack_record, temporary_database, unpack_record
from dagengine.traces.otlp import RawRecord, RawSpan

_CACHE = 16 * 1024  # KiB


class Pending:
    """Records of traces in any order, given back trace by trace when one is ready.

    `late` counts records of traces that were decided before they came.
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
