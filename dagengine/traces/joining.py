"""Spans and log records of many traces, in any order, put together trace by trace.

They are copied into a temporary database of sqlite, which is as large as the files. It is gone with
the cases that are read from it, and with the process, also when that is killed. So memory is
bounded by one trace (of `session`: one session) and by the longest line. The file is in the folder
that `SQLITE_TMPDIR` names, else in /var/tmp.
"""

from __future__ import annotations

import itertools
import marshal
import sqlite3
import weakref
from collections.abc import Iterable, Iterator

from dagengine.traces.otlp import RawLog, RawRecord, RawSpan, id_text

_AT_ONCE = 1000  # records that are inserted by one statement
_CACHE = 32 * 1024  # KiB
_SESSION = (
    *("session.id", "gen_ai.conversation.id", "langfuse.session.id", "mlflow.trace.session"),
    "traceloop.association.properties.session_id",
)


def temporary_database(owner: object, tables: str, cache: int) -> sqlite3.Connection:
    """A database that is gone with its owner; of it at most `cache` KiB are in memory."""
    # An empty name is a file of sqlite's own, without a place in any folder.
    database = sqlite3.connect("", check_same_thread=False)
    # Cases are read lazily and again, so nobody could say when they are read for the last time.
    weakref.finalize(owner, database.close)
    database.executescript(
        f"""
        PRAGMA journal_mode = off;
        PRAGMA synchronous = off;
        PRAGMA cache_size = -{cache};
        {tables}
        """
    )
    return database


class Joined:
    """The records of traces, each trace whole, in the order in which traces were first seen."""

    def __init__(self, records: Iterable[RawRecord]) -> None:
        self._file = temporary_database(
            self,
            """
            CREATE TABLE traces (number INTEGER PRIMARY KEY, id TEXT UNIQUE, session TEXT);
            CREATE TABLE records (trace INTEGER, is_span INTEGER, body BLOB);
            """,
            _CACHE,
        )
        # The first record that names a session decides for its trace: a trace is in one session.
        remaining = iter(records)
        while batch := list(itertools.islice(remaining, _AT_ONCE)):
            self._file.executemany(
                "INSERT OR IGNORE INTO traces (id) VALUES (?)",
                [(record.trace_id,) for record in batch],
            )
            self._file.executemany(
                "INSERT INTO records SELECT number, ?, ? FROM traces WHERE id = ?",
                [
                    (isinstance(record, RawSpan), pack_record(record), record.trace_id)
                    for record in batch
                ],
            )
            self._file.executemany(
                "UPDATE traces SET session = ? WHERE id = ? AND session IS NULL",
                [(session, record.trace_id) for record in batch if (session := session_of(record))],
            )
        # Made afterwards it is written in one go; kept up to date, pages would be read again.
        self._file.execute("CREATE INDEX by_trace ON records (trace)")

    def count_traces(self) -> int:
        """The number of traces that have a span."""
        query = "SELECT count(DISTINCT trace) FROM records WHERE is_span"
        return int(self._file.execute(query).fetchone()[0])

    def traces(self) -> Iterator[list[RawRecord]]:
        """The records of every trace."""
        for (number,) in self._file.execute("SELECT number FROM traces ORDER BY number"):
            yield self._records(number)

    def sessions(self) -> Iterator[list[list[RawRecord]]]:
        """The records of every session, trace by trace; traces without a session are left out."""
        rows = self._file.execute(
            "SELECT group_concat(number) FROM traces WHERE session IS NOT NULL "
            "GROUP BY session ORDER BY min(number)"
        )
        for (numbers,) in rows:
            yield [self._records(int(number)) for number in numbers.split(",")]

    def count_sessions(self) -> int:
        """The number of sessions."""
        query = "SELECT count(DISTINCT session) FROM traces"
        return int(self._file.execute(query).fetchone()[0])

    def _records(self, number: int) -> list[RawRecord]:
        bodies = self._file.execute("SELECT body FROM records WHERE trace = ?", (number,))
        return [unpack_record(body) for (body,) in bodies]


def session_of(record: RawRecord) -> str | None:
    """The session or conversation that a record says it belongs to."""
    values = record.attributes
    return next((id_text(values[name]) for name in _SESSION if values.get(name)), None)


# Marshalled, a record takes a third of the time of JSON; nobody else reads it.
def pack_record(record: RawRecord) -> bytes:
    """A record as bytes for a temporary file; see `unpack_record`."""
    fields = tuple(getattr(record, name) for name in type(record).__slots__)
    return marshal.dumps((isinstance(record, RawSpan), fields))


def unpack_record(body: bytes) -> RawRecord:
    """The record of `pack_record`."""
    is_span, fields = marshal.loads(body)
    return RawSpan(*fields) if is_span else RawLog(*fields)
