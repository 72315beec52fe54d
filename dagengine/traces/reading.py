"""Cases from files of traces: `read_traces`."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from dagengine.data.cases import Cases
from dagengine.data.converter import Converter
from dagengine.data.json_lines import value_of
from dagengine.data.records import CHECKED, Record, Table
from dagengine.errors import InputError
from dagengine.regular_files import is_there
from dagengine.test_case import InvalidCase
from dagengine.traces.foreign import records_of_export
from dagengine.traces.joining import Joined
from dagengine.traces.mapping import Unit, cases_of, conversation_of, mapping_lines
from dagengine.traces.otlp import RawRecord, is_otlp, records_of
from dagengine.traces.spans import steps_of

_FIRST = 20  # traces of which the largest is shown
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
        """Lines that show of the largest of the first traces which field is from which span."""
        steps = (steps_of(records) for records in self._traces.joined().traces())
        largest = max(itertools.islice(filter(None, steps), _FIRST), key=len, default=None)
        return [] if largest is None else mapping_lines(largest)


class Traces:
    """Files of spans and logs that are joined when they are first read, and once."""

    def __init__(self, files: Sequence[Path], unit: Unit) -> None:
        self._files, self._unit = files, unit
        self._flaws: list[InvalidCase] = []
        self._joined: Joined | None = None

    def joined(self) -> Joined:
        """The traces; raises InputError for a file that cannot be read or has no traces."""
        if self._joined is None:
            self._joined = Joined(self._records())
            if not self._joined.count_traces() and not self._flaws:
                raise InputError(f"{self._files[0]} has no spans; {_EXPECTED}")
        return self._joined

    def _records(self) -> Iterator[RawRecord]:
        for path in self._files:
            for place, value in _values(path):
                try:
                    if isinstance(value, ValueError):
                        raise value
                    yield from records_of(value) if is_otlp(value) else records_of_export(value)
                except (ValueError, TypeError, KeyError, AttributeError) as error:
                    self._flaws.append(InvalidCase(place, f"no traces ({error}); {_EXPECTED}"))

    def read(self) -> Iterator[Record]:
        """The cases; a line that is no export becomes an invalid one at the end."""
        joined = self.joined()
        if self._unit.is_session:
            made: Iterable[Any] = itertools.starmap(conversation_of, joined.sessions())
            if not joined.count_sessions():
                raise InputError(
                    f"no span in {self._files[0]} has a session.id or gen_ai.conversation.id: "
                    "read the traces one by one (--unit trace)"
                )
        else:
            of_traces = (cases_of(records, self._unit) for records in joined.traces())
            made = itertools.chain.from_iterable(of_traces)
        for case in itertools.chain(made, self._flaws):
            if case is not None:
                yield Record(case.name or "", case)

    def count(self) -> int | None:
        """The number of cases; None if only reading them would tell."""
        if self._unit.kind:
            return None
        joined = self.joined()
        cases = joined.count_sessions() if self._unit.is_session else joined.count_traces()
        return cases + len(self._flaws)


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
    paths = [Path(file) for file in files]
    for path in paths:
        if not is_there(path) and not path.exists():
            raise InputError(f"there is no file {path}")
        if path.is_dir():
            raise InputError(f"{path} is a folder; choose a file in it")
    return TraceCases(Traces(paths, Unit(unit)), ", ".join(map(str, paths)))


def _values(path: Path) -> Iterator[tuple[str, Any]]:
    """What a file holds, each JSON value or row with its place; a ValueError for a damaged line."""
    if path.suffix.lower() == ".parquet":
        from dagengine.data.parquet import parquet_rows

        for number, row in enumerate(parquet_rows(path)):
            yield f"{path} row {number}", row
        return
    if path.suffix.lower() == ".json":
        value = _value(path.read_bytes())
        if not isinstance(value, ValueError):  # else lines of JSON, in spite of the name
            yield str(path), value
            return
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.isspace():
                yield f"{path} line {number}", _value(line)


def _value(text: bytes) -> Any:
    try:
        return value_of(text)
    except (ValueError, RecursionError) as error:
        return ValueError(f"not JSON: {error}")
