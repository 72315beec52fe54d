"""What an instrumented application just did, as a test case: for tests, without files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from dagengine.errors import InputError
from dagengine.test_case import InvalidCase, TestCase
from dagengine.traces.mapping import Unit, cases_of
from dagengine.traces.otlp import RawLog, RawRecord, RawSpan


def case_of_spans(spans: Iterable[Any], logs: Iterable[Any] = ()) -> TestCase:
    """The test case of one trace, from finished spans of OpenTelemetry's SDK.

    `spans` are those of an `InMemorySpanExporter` (`get_finished_spans()`), `logs` those of an
    `InMemoryLogRecordExporter`, for instrumentations that write the texts there. Raises InputError
    if there is no span, if the spans are of several traces, and if no texts were captured.
    """
    records: list[RawRecord] = [_span(span) for span in spans]
    traces = {record.trace_id for record in records}
    if len(traces) != 1:
        words = f"of {len(traces)} traces" if traces else "none"
        raise InputError(
            f"a case is made of the spans of one trace, and these are {words}: clear the exporter "
            "before each test, and flush the provider after it"
        )
    records += [log for log in map(_log, logs) if log.trace_id in traces]
    (case,) = cases_of(records, Unit())
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
    body = _plain(record.body) if isinstance(record.body, Mapping) else {}
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
    return [_plain(item) for item in value] if isinstance(value, tuple | list) else value
