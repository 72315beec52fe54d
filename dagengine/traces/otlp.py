"""OTLP as JSON: what a file of the Collector, of an exporter or of protobuf's own JSON says.

Ids are hex in OTLP's JSON and base64 in protobuf's; the length tells which. Names are in camel or
in snake case, numbers of 64 bits are texts, and enums are numbers or names. The specification:
https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

# What reading something damaged raises.
DAMAGES = (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError)
# Hex digits of the ids, and the characters that base64 needs for as many bytes.
_TRACE, _SPAN = (32, 24), (16, 12)


@dataclass(slots=True)
class RawSpan:
    """One span as it was written, with its attributes as plain data; times are nanoseconds."""

    trace_id: str
    span_id: str
    parent_id: str | None = None
    name: str = ""
    start: int = 0
    end: int = 0
    failed: bool = False
    message: str = ""
    attributes: dict[str, Any] = field(default_factory=dict)
    events: list[tuple[str, dict[str, Any]]] = field(default_factory=list)


@dataclass(slots=True)
class RawLog:
    """One log record that belongs to a span: the name of its event, and what it says."""

    trace_id: str
    span_id: str
    event: str = ""
    time: int = 0
    attributes: dict[str, Any] = field(default_factory=dict)


RawRecord = RawSpan | RawLog
T = TypeVar("T")


def is_otlp(value: Any) -> bool:
    """Whether a JSON value is an export of spans or of logs (or of metrics, which say nothing)."""
    return isinstance(value, Mapping) and any(
        name in value
        for signal in ("Spans", "Logs", "Metrics")
        for name in (f"resource{signal}", f"resource_{signal.lower()}")
    )


LeaveOut = Callable[[Exception], object]
"""Takes note of something that is damaged, and so left out, by what was wrong."""


def _refuse(error: Exception) -> None:
    raise error


def records_of(value: Mapping[str, Any], leave_out: LeaveOut = _refuse) -> Iterator[RawRecord]:
    """The spans and the log records of an export; those that are damaged are left out, alone.

    Raises one of DAMAGES for them if nobody takes note.
    """
    for signal, (names, read) in _SIGNALS.items():
        resources = _lists([value], leave_out, f"resource{signal}", f"resource_{signal.lower()}")
        scopes = _lists(resources, leave_out, f"scope{signal}", f"scope_{signal.lower()}")
        for record in readable(_lists(scopes, leave_out, *names), read, leave_out):
            if record.span_id:  # what no span said belongs to no trace
                yield record


def _lists(holders: Iterable[Any], leave_out: LeaveOut, *names: str) -> Iterator[Any]:
    """Items of the lists of this name; what holds other lists, and not this one, is damaged."""

    def items_of(holder: Mapping[str, Any]) -> list[Any]:
        items = _list(holder, *names)
        strange = [name for name, value in holder.items() if value and isinstance(value, list)]
        if strange and not items and not names[0].startswith("resource"):  # there, other signals
            raise ValueError(f"{strange[0]} stands where {names[0]} must be")
        return items

    for items in readable(holders, items_of, leave_out):
        yield from items


def readable(items: Iterable[Any], read: Callable[[Any], T], leave_out: LeaveOut) -> Iterator[T]:
    """Items that can be read: the one way to read what others wrote."""
    for item in items:
        try:
            result = read(item)
        except DAMAGES as error:
            leave_out(error)
        else:
            yield result


def span_of(value: Mapping[str, Any]) -> RawSpan:
    """One span of an export; raises ValueError without ids."""
    status = value.get("status") or {}
    parent = _id(_first(value, "parentSpanId", "parent_span_id"), _SPAN)
    trace = _id(_first(value, "traceId", "trace_id"), _TRACE)
    span = _id(_first(value, "spanId", "span_id"), _SPAN)
    if not trace or not span:
        raise ValueError("a span has no traceId or no spanId")
    return RawSpan(
        trace,
        span,
        parent or None,
        str(value.get("name") or ""),
        int(_first(value, "startTimeUnixNano", "start_time_unix_nano") or 0),
        int(_first(value, "endTimeUnixNano", "end_time_unix_nano") or 0),
        status.get("code") in (2, "STATUS_CODE_ERROR", "ERROR"),
        str(status.get("message") or ""),
        attributes_of(value.get("attributes")),
        [
            (str(event.get("name") or ""), attributes_of(event.get("attributes")))
            for event in _list(value, "events")
        ],
    )


def _log_of(value: Mapping[str, Any]) -> RawLog:
    attributes = attributes_of(value.get("attributes"))
    body = _plain(value.get("body"))
    time = _first(value, "timeUnixNano", "time_unix_nano")
    observed = _first(value, "observedTimeUnixNano", "observed_time_unix_nano")
    event = _first(value, "eventName", "event_name") or attributes.get("event.name")
    return RawLog(
        _id(_first(value, "traceId", "trace_id"), _TRACE),
        _id(_first(value, "spanId", "span_id"), _SPAN),
        str(event or ""),
        int(time or 0) or int(observed or 0),  # old exporters write only the second
        {**attributes, **of_type(body, dict, {})},
    )


_SIGNALS: dict[str, tuple[tuple[str, ...], Callable[[Any], RawRecord]]] = {
    "Spans": (("spans",), span_of),
    "Logs": (("logRecords", "log_records"), _log_of),
}


def attributes_of(value: Any) -> dict[str, Any]:
    """Attributes as plain data, from a list of keys and typed values or from a plain mapping."""
    if isinstance(value, Mapping):
        return dict(value)
    return {str(pair["key"]): _plain(pair.get("value")) for pair in value or ()}


def _plain(value: Any) -> Any:
    """Plain value of a typed one."""
    if not isinstance(value, Mapping) or not value:
        return None
    kind, inner = next(iter(value.items()))
    match kind.replace("_v", "V").replace("_V", "V"):
        case "intValue":
            return int(inner)
        case "arrayValue":
            return [_plain(item) for item in inner.get("values") or ()]
        case "kvlistValue":
            return attributes_of(inner.get("values"))
        case _:
            return inner


def _id(value: Any, lengths: tuple[int, int]) -> str:
    """An id as lower-case hex; empty for none. Raises ValueError for anything else."""
    if not value:
        return ""
    digits, characters = lengths
    text = str(value)
    try:
        if len(text) == characters:
            return base64.b64decode(text, validate=True).hex()
        if len(text) == digits:
            return bytes.fromhex(text).hex()
    except (ValueError, binascii.Error):
        pass
    raise ValueError(f"{text!r:.60} is not an id of {digits} hex digits")


def of_type(value: Any, kind: Any, otherwise: Any) -> Any:
    """The value if it is of a kind, which may be a union of types; else another one."""
    return value if isinstance(value, kind) else otherwise


def id_text(value: Any) -> str:
    """An id of any form as a text that a database takes: half a character is replaced."""
    return str(value).encode(errors="replace").decode()


def _first(value: Mapping[str, Any], camel: str, snake: str) -> Any:
    return value[camel] if camel in value else value.get(snake)


def _list(value: Mapping[str, Any], *names: str) -> list[Any]:
    """The list of this name, empty without one; raises ValueError for anything else."""
    items: Any = next((value[name] for name in names if value.get(name)), [])
    if not isinstance(items, list):
        raise ValueError(f"{names[0]} is no list")
    return items
