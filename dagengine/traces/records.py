"""Spans and log records as files have them: OTLP as JSON, and exports of other tools.

Ids are hex in OTLP's JSON and base64 in protobuf's; the length tells which. Names are in camel or
in snake case, numbers of 64 bits are texts, and enums are numbers or names. The specification:
https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding
Exports of Jaeger, Phoenix and Langfuse become spans in the attributes of OpenInference.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from typing import Any, TypeVar

from pydantic.alias_generators import to_snake

from dagengine.prompts.json_values import shallow_value

# What reading something damaged raises.
DAMAGES = (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError)
# Hex digits of the ids, and the characters that base64 needs for as many bytes.
_TRACE, _SPAN = (32, 24), (16, 12)
# Attributes that Phoenix gives as lists, and OpenInference writes flat.
_SPREAD = ("llm.input_messages", "llm.output_messages", "retrieval.documents")
_snake = cache(to_snake)  # protobuf's JSON has names in camel case, and some write snake case
# The one list that an export has; metrics say nothing of what was done.
_EXPORTED = ("resourceSpans", "resourceLogs", "resourceMetrics")
_EXPORTS = {*_EXPORTED, *map(_snake, _EXPORTED)}
_SESSION = (
    *("session.id", "gen_ai.conversation.id", "langfuse.session.id", "mlflow.trace.session"),
    "traceloop.association.properties.session_id",
)


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
    """Whether a JSON value is an export of spans, of logs or of metrics."""
    return isinstance(value, Mapping) and not value.keys().isdisjoint(_EXPORTS)


LeaveOut = Callable[[Exception], object]
"""Takes note of something that is damaged, and so left out, by what was wrong."""


def _refuse(error: Exception) -> None:
    raise error


def records_of(value: Mapping[str, Any], leave_out: LeaveOut = _refuse) -> Iterator[RawRecord]:
    """The spans and the log records of an export; those that are damaged are left out, alone.

    Raises one of DAMAGES for them if nobody takes note.
    """
    for signal, (name, read) in _SIGNALS.items():
        resources = _lists([value], leave_out, f"resource{signal}")
        scopes = _lists(resources, leave_out, f"scope{signal}")
        for record in readable(_lists(scopes, leave_out, name), read, leave_out):
            if record.span_id:  # what no span said belongs to no trace
                yield record


def _lists(holders: Iterable[Any], leave_out: LeaveOut, name: str) -> Iterator[Any]:
    """Items of the lists of this name; what holds other lists, and not this one, is damaged."""

    def items_of(holder: Mapping[str, Any]) -> list[Any]:
        items = _list(holder, name)
        strange = [key for key, value in holder.items() if value and isinstance(value, list)]
        if strange and not items and not name.startswith("resource"):  # there, other signals
            raise ValueError(f"{strange[0]} stands where {name} must be")
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
    parent = _id(_field(value, "parentSpanId"), _SPAN)
    trace, span = _id(_field(value, "traceId"), _TRACE), _id(_field(value, "spanId"), _SPAN)
    if not trace or not span:
        raise ValueError("a span has no traceId or no spanId")
    return RawSpan(
        trace,
        span,
        parent or None,
        _text(value, "name"),
        int(_field(value, "startTimeUnixNano") or 0),
        int(_field(value, "endTimeUnixNano") or 0),
        status.get("code") in (2, "STATUS_CODE_ERROR", "ERROR"),
        _text(status, "message"),
        attributes_of(value.get("attributes")),
        [
            (_text(event, "name"), attributes_of(event.get("attributes")))
            for event in _list(value, "events")
        ],
    )


def _log_of(value: Mapping[str, Any]) -> RawLog:
    attributes = attributes_of(value.get("attributes"))
    body = _plain(value.get("body"))
    time, observed = _field(value, "timeUnixNano"), _field(value, "observedTimeUnixNano")
    return RawLog(
        _id(_field(value, "traceId"), _TRACE),
        _id(_field(value, "spanId"), _SPAN),
        str(_field(value, "eventName") or attributes.get("event.name") or ""),
        int(time or 0) or int(observed or 0),  # old exporters write only the second
        {**attributes, **of_type(body, dict, {})},
    )


_SIGNALS: dict[str, tuple[str, Callable[[Any], RawRecord]]] = {
    "Spans": ("spans", span_of),
    "Logs": ("logRecords", _log_of),
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
            return list(map(_plain, inner.get("values") or ()))
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


def session_of(record: RawRecord) -> str | None:
    """The session or conversation that a record says it belongs to."""
    values = record.attributes
    return next((id_text(values[name]) for name in _SESSION if values.get(name)), None)


def first_of(value: Mapping[str, Any], *names: str) -> Any:
    """The first of the values of these names that is there; None without one."""
    return next((value[name] for name in names if value.get(name) is not None), None)


def _field(value: Mapping[str, Any], name: str) -> Any:
    """The value of a name in camel case, or in snake case; None without one."""
    return first_of(value, name, _snake(name))


def _list(value: Mapping[str, Any], name: str) -> list[Any]:
    """The list of this name, empty without one; raises ValueError for anything else."""
    items: Any = value.get(name) or value.get(_snake(name)) or []
    if not isinstance(items, list):
        raise ValueError(f"{name} is no list")
    return items


def records_of_any(value: Any, leave_out: LeaveOut) -> Iterator[RawRecord]:
    """The records in a value of a file, or in an array of such values.

    What is damaged (an error in the place of a value), or no span of a tool that is known, is left
    out, alone.
    """
    items = of_type(value, list, [value])
    if isinstance(value, Exception):
        leave_out(value)
        return
    if isinstance(value, Mapping) and isinstance(value.get("data"), list):
        items = value["data"]
    for item in items:
        if is_otlp(item):
            yield from records_of(item, leave_out)
        else:
            for spans in readable([item], lambda item: _spans_of(item, leave_out), leave_out):
                yield from spans


def _spans_of(item: Any, leave_out: LeaveOut) -> list[RawRecord]:
    """The spans in an item of an export; raises one of DAMAGES for anything else."""
    if not isinstance(item, Mapping):
        raise ValueError(f"{item!r:.60} is no span")
    if "traceID" in item:
        return list(readable(item["spans"], _jaeger, leave_out))
    if "context.span_id" in item or isinstance(item.get("context"), Mapping):
        return [_phoenix(item)]
    if "observations" in item or "traceId" in item or "sessionId" in item:
        return list(_langfuse(item, leave_out))
    raise ValueError(f"its keys are {', '.join(map(str, item))!s:.120}")


def _jaeger(value: Mapping[str, Any]) -> RawSpan:
    tags = _tags(value.get("tags"))
    parent = None
    for reference in value.get("references") or ():
        if reference.get("refType") == "CHILD_OF" and parent is None:
            parent = str(reference["spanID"]).lower().zfill(16)
    events = [_tags(log.get("fields")) for log in value.get("logs") or ()]
    start = int(value["startTime"]) * 1000
    return RawSpan(
        id_text(value["traceID"]).lower().zfill(32),  # it leaves out zeros at the beginning
        id_text(value["spanID"]).lower().zfill(16),
        parent,
        _text(value, "operationName"),
        start,
        start + int(value.get("duration") or 0) * 1000,
        tags.get("error") in (True, "true") or tags.get("otel.status_code") == "ERROR",
        _text(tags, "otel.status_description"),
        tags,
        [(_text(event, "event"), event) for event in events],
    )


def _text(value: Mapping[str, Any], name: str) -> str:
    """A field as text; empty where it is missing or null."""
    return str(value.get(name) or "")


def _tags(value: Any) -> dict[str, Any]:
    return {tag["key"]: tag.get("value") for tag in value or ()}


def _phoenix(value: Mapping[str, Any]) -> RawSpan:
    """A span of Phoenix: from its table of spans, or as its server answers."""
    context = value.get("context") or {}
    attributes = dict(of_type(value.get("attributes"), Mapping, {}))
    attributes |= {
        name.removeprefix("attributes."): cell
        for name, cell in value.items()
        if name.startswith("attributes.") and cell is not None
    }
    for name in _SPREAD:
        if isinstance(attributes.get(name), list | tuple):
            attributes |= _spread(name, attributes.pop(name))
    if value.get("span_kind"):
        attributes.setdefault("openinference.span.kind", value["span_kind"])
    events = [
        (_text(event, "name"), dict(event.get("attributes") or {}))
        for event in value.get("events") or ()
    ]
    return RawSpan(
        id_text(context.get("trace_id") or value["context.trace_id"]),
        id_text(context.get("span_id") or value["context.span_id"]),
        value.get("parent_id") or None,
        _text(value, "name"),
        _nanoseconds(value.get("start_time")),
        _nanoseconds(value.get("end_time")),
        value.get("status_code") == "ERROR",
        _text(value, "status_message"),
        attributes,
        events,
    )


def _spread(name: str, value: Any) -> dict[str, Any]:
    """Lists and mappings as attributes of one level, whose names are the way to a value."""
    items: Any = enumerate(value) if isinstance(value, list | tuple) else None
    if isinstance(value, Mapping):
        items = value.items()
    if items is None:
        return {} if value is None else {name: value}
    flat: dict[str, Any] = {}
    for key, inner in items:
        flat |= _spread(f"{name}.{key}", inner)
    return flat


def _langfuse(value: Mapping[str, Any], leave_out: LeaveOut) -> Iterator[RawSpan]:
    """A trace of Langfuse with its observations, or one observation of a table."""
    if value.get("traceId"):
        yield _observation(value)
        return
    observations = list(readable(value.get("observations") or (), _observation, leave_out))
    start = _nanoseconds(value.get("timestamp"))
    trace = id_text(value["id"])
    attributes = _values(value) | {"openinference.span.kind": "CHAIN"}
    if value.get("sessionId"):
        attributes["session.id"] = str(value["sessionId"])
    # Scores on the trace itself have no observation: its own id says so.
    end = max([start, *(span.end for span in observations)])
    yield RawSpan(trace, trace, None, _text(value, "name"), start, end, False, "", attributes)
    for span in observations:
        span.parent_id = span.parent_id or trace
        yield span


def _observation(value: Mapping[str, Any]) -> RawSpan:
    attributes = _values(value)
    kind = str(value.get("type") or "span").lower()
    attributes["langfuse.observation.type"] = kind
    if kind == "generation":
        prompt, reply = _data(value.get("input")), _data(value.get("output"))
        prompt = of_type(prompt, Mapping, {}).get("messages", prompt)
        if isinstance(prompt, str):
            prompt = [{"role": "user", "content": prompt}]
        if isinstance(reply, str):
            reply = {"role": "assistant", "content": reply}
        attributes["gen_ai.input.messages"] = of_type(prompt, list, [prompt])
        attributes["gen_ai.output.messages"] = of_type(reply, list, [reply])
        usage = value.get("usageDetails") or value.get("usage") or {}
        attributes["gen_ai.usage.input_tokens"] = usage.get("input")
        attributes["gen_ai.usage.output_tokens"] = usage.get("output")
    return RawSpan(
        id_text(value["traceId"]),
        id_text(value["id"]),
        value.get("parentObservationId") or None,
        _text(value, "name"),
        _nanoseconds(value.get("startTime")),
        _nanoseconds(value.get("endTime")),
        value.get("level") == "ERROR",
        _text(value, "statusMessage"),
        attributes,
    )


def _values(value: Mapping[str, Any]) -> dict[str, Any]:
    """`input` and `output` as attributes, and whether they are text."""
    attributes: dict[str, Any] = {}
    for side in ("input", "output"):
        data = _data(value.get(side))
        if data is not None:
            is_text = isinstance(data, str)
            attributes[f"{side}.value"] = data if is_text else json.dumps(data, ensure_ascii=False)
            attributes[f"{side}.mime_type"] = "text/plain" if is_text else "application/json"
    return attributes


def _data(value: Any) -> Any:
    """Value of a cell, which may be JSON text."""
    if isinstance(value, str):
        try:
            return shallow_value(value)
        except ValueError:
            return value
    return value


def _nanoseconds(value: Any) -> int:
    """A time as nanoseconds since 1970; 0 for none."""
    if isinstance(value, str) and value:
        value = datetime.fromisoformat(value)
    if isinstance(value, datetime):
        moment = value if value.tzinfo else value.replace(tzinfo=UTC)
        return round(moment.timestamp() * 1e6) * 1000
    return int(of_type(value, int | float, 0))
