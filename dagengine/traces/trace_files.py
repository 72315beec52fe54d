"""Cases from files of traces, and of what an instrumented application just did.

Spans and log records of many traces, in any order, are put together trace by trace. They are copied
into a temporary database of sqlite, which is as large as the files. It is gone with the cases that
are read from it, and with the process, also when that is killed. So memory is bounded by one trace
(of `session`: one session) and by the longest line. The file is in the folder that
`SQLITE_TMPDIR` names, else in /var/tmp.
"""

from __future__ import annotations

import itertools
import json
import marshal
import re
import sqlite3
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from dagengine.data.cases import Cases
from dagengine.data.column_mapping import Converter
from dagengine.data.row_readers import CHECKED, Record, Table, open_content, require_file, suffix_of
from dagengine.data.written_lines import value_of
from dagengine.errors import InputError
from dagengine.system.terminal_text import counted
from dagengine.test_case import ConversationalTestCase, InvalidCase, LLMTestCase, TestCase
from dagengine.traces.formats import RawLog, RawRecord, RawSpan, of_type, records_of_any, session_of
from dagengine.traces.instrumentations import steps_of
from dagengine.traces.spans_to_cases import (
    CaseParts,
    CaseUnit,
    conversation_of,
    mapping_lines,
    parts_in,
    trace_case,
)

_FIRST = 20  # cases of which the largest is shown
_TURNS = 3  # traces of a session that are shown
_OPENINGS = (b"[", b"{")  # first lines of JSON that is indented
_LOOKED = 1000  # traces whose kinds of spans are named
_AT_ONCE = 1000  # records that are inserted by one statement
_CACHE = 32 * 1024  # KiB of the temporary database in memory
_EXPECTED = (
    'traces are OTLP JSON lines ({"resourceSpans": …} or {"resourceLogs": …}), or an export of '
    "Jaeger, Langfuse or Phoenix"
)


class TraceCases(Cases):
    """Cases that are read from traces, and how one of the traces became a case."""

    def __init__(self, traces: Traces, name: str) -> None:
        table = Table(traces.read, CHECKED, traces.count, name)
        super().__init__(table, Converter({}, {}, False, True))
        self._traces = traces

    def mapping(self) -> list[str]:
        """Lines that show of the largest of the first cases which field is from which span."""
        first = list(itertools.islice(self._traces.parts(), _FIRST))
        if not first:
            return []
        largest = max(first, key=lambda parts: sum(len(part.steps) for part in parts))
        lines = [line for part in largest[:_TURNS] for line in mapping_lines(part)]
        if self._traces.unit.is_session:
            lines.insert(0, f"session {largest[0].session} ({counted(len(largest), 'trace')}):")
            if (extra := len(largest) - _TURNS) > 0:
                lines.append(f"and {counted(extra, 'more trace')}")
        cases = list(map(self._traces.case, first))
        silent = [case for case in cases if isinstance(case, InvalidCase) and case.nothing_to_judge]
        if silent:
            lines.append(f"{len(silent)} of the first {len(cases)} are skipped: {silent[0]}")
        return lines


class Traces:
    """Files of spans and logs that are joined when they are first read, and once."""

    def __init__(self, files: Sequence[Path], unit: CaseUnit) -> None:
        self._files, self.unit = files, unit
        self._flaws: list[InvalidCase] = []
        self._joined: Joined | None = None

    def join_records(self) -> Joined:
        """The traces; raises InputError for a file that cannot be read or has no traces."""
        if self._joined is None:
            try:
                self._joined = Joined(self._records())
            except sqlite3.OperationalError as error:
                hint = "set SQLITE_TMPDIR to a folder with more"
                raise InputError(f"no room for the traces ({error}): {hint}") from None
            if not self._joined.count() and not self._flaws:
                raise InputError(f"{self._files[0]} has no spans; {_EXPECTED}")
        return self._joined

    def _records(self) -> Iterator[RawRecord]:
        for path in self._files:
            for position, value in _values(path):
                flaws, count = list[Exception](), 0
                for record in records_of_any(value, flaws.append):
                    count += 1
                    yield record
                if flaws:
                    words = f"no traces ({flaws[0]}); {_EXPECTED}"
                    if count:
                        words = f"{len(flaws)} of its parts are left out ({flaws[0]})"
                    self._flaws.append(InvalidCase(position, words))

    def parts(self) -> Iterator[list[CaseParts]]:
        """Parts of each case: one element, or of a session the traces in their order.

        Raises InputError if nothing is of the unit.
        """
        joined, unit = self.join_records(), self.unit
        if unit.is_session and not joined.count(sessions=True):
            raise InputError(
                f"no span in {self._files[0]} has a session.id or gen_ai.conversation.id: "
                "read the traces one by one (--unit trace)"
            )
        none = True
        for traces in joined.traces(of_sessions=unit.is_session):
            parts = list(itertools.chain.from_iterable(parts_in(each, unit) for each in traces))
            none &= not parts
            if unit.is_session and parts:
                yield sorted(parts, key=lambda part: part.root.raw.start)
            elif not unit.is_session:
                yield from ([part] for part in parts)
        if none and unit.kind:
            looked = itertools.islice(joined.traces(), _LOOKED)
            kinds = {step.span.kind for (records,) in looked for step in steps_of(records)}
            raise InputError(
                f"no span in {self._files[0]} is of the kind {unit.kind!r}; there are "
                f"{', '.join(sorted(kinds)) or 'no spans'}"
            )

    def case(self, parts: list[CaseParts]) -> LLMTestCase | ConversationalTestCase | InvalidCase:
        """The case that is made of these."""
        return conversation_of(parts) if self.unit.is_session else trace_case(parts[0])

    def read(self) -> Iterator[Record]:
        """The cases; a line that is no export becomes an invalid one at the end."""
        for case in itertools.chain(map(self.case, self.parts()), self._flaws):
            yield Record(case.name or "", case)

    def count(self) -> int | None:
        """The number of cases; None if only reading them would tell."""
        if self.unit.kind:
            return None
        return self.join_records().count(sessions=self.unit.is_session) + len(self._flaws)


def read_traces(*files: str | Path, unit: str = "trace") -> TraceCases:
    """Test cases from files of traces, lazily, with the ids of their traces and spans.

    Several files are joined by the ids of traces: spans of one trace may be in many lines and
    files, and the texts in a file of logs. They are copied into a temporary database as large as
    the files (in the folder that `SQLITE_TMPDIR` names, else /var/tmp), so memory is bounded by
    the largest trace. `unit` is what a case is: `trace`, `session` (a conversation), or
    `span:KIND` (every span of a kind, for instance `span:tool`).

    A trace without texts is a case that is skipped, with a message that says so. Raises InputError
    for a file that is not there, for files without traces and for an unknown unit.
    """
    if not files:
        raise InputError("read_traces takes one file at least")
    paths = list(map(Path, files))
    for path in paths:
        require_file(path)
    return TraceCases(Traces(paths, CaseUnit(unit)), ", ".join(map(str, paths)))


def _values(path: Path) -> Iterator[tuple[str, Any]]:
    """JSON values or rows of a file, each with its place; a ValueError for a damaged line."""
    if path.suffix.lower() == ".parquet":
        from dagengine.data.parquet import parquet_rows

        for number, row in enumerate(parquet_rows(path)):
            yield f"{path} row {number}", row
        return
    named_json = suffix_of(path) == ".json"
    number = 0
    try:
        with open_content(path) as file:
            first = file.readline()
            lines: Iterable[bytes] = itertools.chain([first], file)
            is_long = first.strip() in _OPENINGS
            # One value over many lines, as `json.dump` indents it, whatever the name of the file
            if is_long or (named_json and isinstance(_value(first), ValueError)):
                text = first + file.read()
                if not isinstance(value := _value(text), ValueError):
                    yield str(path), value
                    return
                # Several values over many lines, one behind the other, as consoles show them
                lines = re.split(rb"(?<=\n\})\r?\n", text) if is_long else text.splitlines()
            for line in lines:
                number += 1
                if line.strip():
                    yield f"{path} line {number}", _value(line)
                number += line.count(b"\n", 0, -1)
    except InputError as error:
        yield f"{path} line {number + 1}", ValueError(f"the file is damaged: {error}")


def _value(text: bytes) -> Any:
    try:
        return value_of(text)
    except ValueError as error:
        return ValueError(f"not JSON: {error}")


def case_of_spans(spans: Iterable[Any], logs: Iterable[Any] = ()) -> TestCase:
    """The test case of one trace, from finished spans of OpenTelemetry's SDK.

    `spans` are those of an `InMemorySpanExporter` (`get_finished_spans()`), `logs` those of an
    `InMemoryLogRecordExporter`, for instrumentations that write the texts there. Raises InputError
    if there is no span, if the spans are of several traces, and if no texts were captured.
    """
    records: list[RawRecord] = list(map(_span, spans))
    traces = {record.trace_id for record in records}
    if len(traces) != 1:
        words = f"of {len(traces)} traces" if traces else "none"
        raise InputError(
            f"a case is made of the spans of one trace, and these are {words}: clear the exporter "
            "before each test, and flush the provider after it"
        )
    records += [log for log in map(_log, logs) if log.trace_id in traces]
    (case,) = map(trace_case, parts_in(records, CaseUnit()))
    if isinstance(case, InvalidCase):
        raise InputError(str(case))
    return case


def _span(span: Any) -> RawSpan:
    status = span.status
    return RawSpan(
        f"{span.context.trace_id:032x}",
        f"{span.context.span_id:016x}",
        None if span.parent is None else f"{span.parent.span_id:016x}",
        span.name,
        span.start_time or 0,
        span.end_time or 0,
        status.status_code.name == "ERROR",
        status.description or "",
        _plain(span.attributes or {}),
        [(event.name, _plain(event.attributes or {})) for event in span.events],
    )


def _log(log: Any) -> RawLog:
    record = log.log_record
    body = of_type(_plain(record.body), dict, {})
    return RawLog(
        f"{record.trace_id or 0:032x}",
        f"{record.span_id or 0:016x}",
        record.event_name or "",
        record.timestamp or record.observed_timestamp or 0,
        {**_plain(record.attributes or {}), **body},
    )


def _plain(value: Any) -> Any:
    """Attributes with lists in the place of tuples."""
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    return list(map(_plain, value)) if isinstance(value, tuple | list) else value


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
                [(isinstance(r, RawSpan), pack_record(r), r.trace_id) for r in batch],
            )
            self._file.executemany(
                "UPDATE traces SET session = ? WHERE id = ? AND session IS NULL",
                [(session, record.trace_id) for record in batch if (session := session_of(record))],
            )
        # Made afterwards it is written in one go; kept up to date, pages would be read again.
        self._file.execute("CREATE INDEX by_trace ON records (trace)")

    def count(self, *, sessions: bool = False) -> int:
        """The number of traces that have a span, or of sessions."""
        query = "SELECT count(DISTINCT trace) FROM records WHERE is_span"
        if sessions:
            query = "SELECT count(DISTINCT session) FROM traces"
        return int(self._file.execute(query).fetchone()[0])

    def traces(self, *, of_sessions: bool = False) -> Iterator[list[list[RawRecord]]]:
        """The records of every trace, alone or with those of its session.

        Of sessions, traces that have none are left out.
        """
        query = "SELECT number FROM traces ORDER BY number"
        if of_sessions:
            query = (
                "SELECT group_concat(number) FROM traces WHERE session IS NOT NULL "
                "GROUP BY session ORDER BY min(number)"
            )
        for (numbers,) in self._file.execute(query):
            yield [*map(self._records, map(int, str(numbers).split(",")))]

    def _records(self, number: int) -> list[RawRecord]:
        bodies = self._file.execute("SELECT body FROM records WHERE trace = ?", (number,))
        return [unpack_record(body) for (body,) in bodies]


# Marshalled, a record takes a third of the time of JSON; nobody else reads it.
def pack_record(record: RawRecord) -> bytes:
    """A record as bytes for a temporary file; see `unpack_record`."""
    is_span = isinstance(record, RawSpan)
    fields = tuple(getattr(record, name) for name in type(record).__slots__)
    try:
        return marshal.dumps((is_span, fields))
    except ValueError:  # a date or a decimal of Parquet, which JSON has as its text
        return marshal.dumps((is_span, json.loads(json.dumps(fields, default=str))))


def unpack_record(body: bytes) -> RawRecord:
    """The record of `pack_record`."""
    is_span, fields = marshal.loads(body)
    return RawSpan(*fields) if is_span else RawLog(*fields)
