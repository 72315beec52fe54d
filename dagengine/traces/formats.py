"""Spans and log records as files have them: OTLP as JSON, and exports of other tools.

OTLP's own JSON has ids in hex, JSON of generic protobuf libraries in base64; the length tells
which. Names are in camel or in snake case, numbers of 64 bits are texts, and enums are numbers or
names. The specification: https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding
Exports of Jaeger, Phoenix and Langfuse become spans with the attributes of OpenInference.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache, partial
from typing import Any, TypeVar

from pydantic.alias_generators import to_snake

from dagengine.prompts.json_in_text import shallow_value
from dagengine.system.terminal_text import utf8

# What reading something damaged raises.
DAMAGES = (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError)
# Lengths of the ids: hex digits, and the characters that base64 needs for as many bytes.
_TRACE_ID, _SPAN_ID = (32, 24), (16, 12)
# Attributes that Phoenix gives as lists, and OpenInference writes flat; see `_flat`.
_LISTS = ("llm.input_messages", "llm.output_messages", "retrieval.documents")
_snake = cache(to_snake)  # protobuf's JSON has names in camel case, and some write snake case
# Lists at the top of an export, of which it has at least one, in both spellings.
_TOP_LISTS = ("resourceSpans", "resourceLogs", "resourceMetrics")
_TOP_KEYS = {*_TOP_LISTS, *map(_snake, _TOP_LISTS)}
# Attributes that tools write the session or the conversation of a record to.
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
LeaveOut = Callable[[Exception], object]
"""A function that notes the error of something damaged, which is left out."""
T = TypeVar("T")


def records_of_any(value: Any, leave_out: LeaveOut) -> Iterator[RawRecord]:
    """The records in a value of a file: an export of any tool, or an array of exports.

    Left out, each alone, are damaged records, and what is no export of a tool that is known. A
    `value` that could not be read is its error.
    """
    if isinstance(value, Exception):
        leave_out(value)
        return
    items = of_type(value, list, [value])
    if isinstance(value, Mapping) and isinstance(value.get("data"), list):
        items = value["data"]  # as servers of these tools answer
    for records in readable(items, partial(_records_in, leave_out=leave_out), leave_out):
        yield from records


def _records_in(item: Any, leave_out: LeaveOut) -> Iterable[RawRecord]:
    """The records in one export, by the keys of its tool; raises one of DAMAGES for others."""
    if is_otlp(item):
        return otlp_records(item, leave_out)
    if not isinstance(item, Mapping):
        raise ValueError(f"{item!r:.60} is no span")
    if "traceID" in item:
        return list(readable(item["spans"], _jaeger, leave_out))
    if "context.span_id" in item or isinstance(item.get("context"), Mapping):
        return [_phoenix(item)]
    if _field(item, "spanId"):  # without the lists around it
        return [_otlp_span(item)]
    if "observations" in item or {"traceId", "type"} <= item.keys() or "sessionId" in item:
        return list(_langfuse(item, leave_out))
    raise ValueError(f"its keys are {', '.join(map(str, item))!s:.120}")


def is_otlp(value: Any) -> bool:
    """Whether a JSON value is an export of spans, of logs or of metrics."""
    return isinstance(value, Mapping) and not value.keys().isdisjoint(_TOP_KEYS)


def otlp_records(value: Mapping[str, Any], leave_out: LeaveOut) -> Iterator[RawRecord]:
    """The spans and the log records of an OTLP export, without those that are damaged."""
    # Lists in lists: resourceSpans, in each of these scopeSpans, and in each of these spans.
    readers: dict[str, tuple[str, Callable[[Any], RawRecord]]] = {
        "Spans": ("spans", _otlp_span),
        "Logs": ("logRecords", _otlp_log),
    }
    for signal, (name, read) in readers.items():
        resources = _items_of_lists([value], f"resource{signal}", leave_out)
        scopes = _items_of_lists(resources, f"scope{signal}", leave_out)
        for record in readable(_items_of_lists(scopes, name, leave_out), read, leave_out):
            if record.span_id:  # a log record without a span belongs to no trace
                yield record


def _items_of_lists(holders: Iterable[Any], name: str, leave_out: LeaveOut) -> Iterator[Any]:
    """The items of the list `name` of each holder; a holder with another list only is damaged."""

    def items_of(holder: Mapping[str, Any]) -> list[Any]:
        items = _list(holder, name)
        lists = [key for key, value in holder.items() if value and isinstance(value, list)]
        # At the top (resource…) each signal has a list of its own, and any of them may be missing.
        if lists and not items and not name.startswith("resource"):
            raise ValueError(f"{lists[0]} stands where {name} must be")
        return items

    for items in readable(holders, items_of, leave_out):
        yield from items


def readable(items: Iterable[Any], read: Callable[[Any], T], leave_out: LeaveOut) -> Iterator[T]:
    """The results of `read`; an item for which it raises one of DAMAGES is left out."""
    for item in items:
        try:
            result = read(item)
        except DAMAGES as error:
            leave_out(error)
        else:
            yield result


def _otlp_span(value: Mapping[str, Any]) -> RawSpan:
    """One span of an export; raises ValueError without ids."""
    status = value.get("status") or {}
    parent = _id(_field(value, "parentSpanId"), _SPAN_ID)
    trace, span = _id(_field(value, "traceId"), _TRACE_ID), _id(_field(value, "spanId"), _SPAN_ID)
    if not trace or not span:
        raise ValueError("a span has no traceId or no spanId")
    return RawSpan(
        trace,
        span,
        parent_id=parent or None,
        name=_text(value, "name"),
        start=int(_field(value, "startTimeUnixNano") or 0),
        end=int(_field(value, "endTimeUnixNano") or 0),
        failed=status.get("code") in (2, "STATUS_CODE_ERROR", "ERROR"),
        message=_text(status, "message"),
        attributes=attributes_of(value.get("attributes")),
        events=[
            (_text(event, "name"), attributes_of(event.get("attributes")))
            for event in _list(value, "events")
        ],
    )


def _otlp_log(value: Mapping[str, Any]) -> RawLog:
    attributes = attributes_of(value.get("attributes"))
    body = _plain(value.get("body"))
    time, observed = _field(value, "timeUnixNano"), _field(value, "observedTimeUnixNano")
    return RawLog(
        _id(_field(value, "traceId"), _TRACE_ID),
        _id(_field(value, "spanId"), _SPAN_ID),
        event=str(_field(value, "eventName") or attributes.get("event.name") or ""),
        time=int(time or 0) or int(observed or 0),  # old exporters write only the second
        attributes={**attributes, **of_type(body, dict, {})},
    )


def attributes_of(value: Any) -> dict[str, Any]:
    """Attributes as plain data, from a list of keys and typed values or from a plain mapping."""
    if isinstance(value, Mapping):
        return dict(value)
    return {str(pair["key"]): _plain(pair.get("value")) for pair in value or ()}


def _plain(value: Any) -> Any:
    """The plain value of a typed one: 7 of `{"intValue": "7"}`."""
    if not isinstance(value, Mapping) or not value:
        return None
    kind, inner = next(iter(value.items()))
    match kind.replace("_v", "V").replace("_V", "V"):  # int_value is intValue in snake case
        case "intValue":
            return int(inner)
        case "arrayValue":
            return list(map(_plain, inner.get("values") or ()))
        case "kvlistValue":
            return attributes_of(inner.get("values"))
        case _:
            return inner


def _id(value: Any, lengths: tuple[int, int]) -> str:
    """An id, of hex or base64, as lower-case hex; empty for none. Raises ValueError for others."""
    if not value:
        return ""
    digits, characters = lengths
    text = str(value)
    try:
        if len(text) == characters:
            return base64.b64decode(text, validate=True).hex()
        if len(text) == digits:
            return bytes.fromhex(text).hex()
    except ValueError:
        pass
    raise ValueError(f"{text!r:.60} is not an id of {digits} hex digits")


def of_type(value: Any, kind: Any, otherwise: Any) -> Any:
    """The value if it is of a kind, which may be a union of types; else `otherwise`."""
    return value if isinstance(value, kind) else otherwise


def session_of(record: RawRecord) -> str | None:
    """The session or conversation that a record says it belongs to."""
    values = record.attributes
    return next((utf8(str(values[name])) for name in _SESSION if values.get(name)), None)


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


def _jaeger(value: Mapping[str, Any]) -> RawSpan:
    tags = _tags(value.get("tags"))
    parent = None
    for reference in value.get("references") or ():
        if reference.get("refType") == "CHILD_OF" and parent is None:
            parent = str(reference["spanID"]).lower().zfill(16)
    events = [_tags(log.get("fields")) for log in value.get("logs") or ()]
    start = int(value["startTime"]) * 1000  # its times are microseconds
    return RawSpan(
        utf8(str(value["traceID"])).lower().zfill(32),  # Jaeger leaves out zeros at the beginning
        utf8(str(value["spanID"])).lower().zfill(16),
        parent_id=parent,
        name=_text(value, "operationName"),
        start=start,
        end=start + int(value.get("duration") or 0) * 1000,
        failed=tags.get("error") in (True, "true") or tags.get("otel.status_code") == "ERROR",
        message=_text(tags, "otel.status_description"),
        attributes=tags,
        events=[(_text(event, "event"), event) for event in events],
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
    attributes |= {  # columns of the table
        name.removeprefix("attributes."): cell
        for name, cell in value.items()
        if name.startswith("attributes.") and cell is not None
    }
    for name in _LISTS:
        if isinstance(attributes.get(name), list | tuple):
            attributes |= _flat(name, attributes.pop(name))
    if value.get("span_kind"):
        attributes.setdefault("openinference.span.kind", value["span_kind"])
    events = [
        (_text(event, "name"), dict(event.get("attributes") or {}))
        for event in value.get("events") or ()
    ]
    return RawSpan(
        utf8(str(context.get("trace_id") or value["context.trace_id"])),
        utf8(str(context.get("span_id") or value["context.span_id"])),
        parent_id=value.get("parent_id") or None,
        name=_text(value, "name"),
        start=_nanoseconds(value.get("start_time")),
        end=_nanoseconds(value.get("end_time")),
        failed=value.get("status_code") == "ERROR",
        message=_text(value, "status_message"),
        attributes=attributes,
        events=events,
    )


def _flat(name: str, value: Any) -> dict[str, Any]:
    """Attributes of one level from nested lists and mappings: `name.0.message.role`."""
    parts = dict(enumerate(value)) if isinstance(value, list | tuple) else value
    if not isinstance(parts, Mapping):
        return {} if value is None else {name: value}
    flat: dict[str, Any] = {}
    for key, inner in parts.items():
        flat |= _flat(f"{name}.{key}", inner)
    return flat


def _langfuse(value: Mapping[str, Any], leave_out: LeaveOut) -> Iterator[RawSpan]:
    """A trace of Langfuse with its observations, or one observation of a table."""
    if value.get("traceId"):
        yield _observation(value)
        return
    observations = list(readable(value.get("observations") or (), _observation, leave_out))
    start = _nanoseconds(value.get("timestamp"))
    trace = utf8(str(value["id"]))
    attributes = _input_and_output(value) | {"openinference.span.kind": "CHAIN"}
    if value.get("sessionId"):
        attributes["session.id"] = str(value["sessionId"])
    end = max([start, *(span.end for span in observations)])
    # The trace is the root span, with its own id, so that scores of this span go to the trace.
    yield RawSpan(trace, trace, None, _text(value, "name"), start, end, attributes=attributes)
    for span in observations:
        span.parent_id = span.parent_id or trace
        yield span


def _observation(value: Mapping[str, Any]) -> RawSpan:
    attributes = _input_and_output(value)
    kind = str(value.get("type") or "span").lower()
    attributes["langfuse.observation.type"] = kind
    if kind == "generation":
        prompt, reply = _cell_value(value.get("input")), _cell_value(value.get("output"))
        # A request with its messages, these alone, one message, or its text.
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
        utf8(str(value["traceId"])),
        utf8(str(value["id"])),
        parent_id=value.get("parentObservationId") or None,
        name=_text(value, "name"),
        start=_nanoseconds(value.get("startTime")),
        end=_nanoseconds(value.get("endTime")),
        failed=value.get("level") == "ERROR",
        message=_text(value, "statusMessage"),
        attributes=attributes,
    )


def _input_and_output(value: Mapping[str, Any]) -> dict[str, Any]:
    """`input` and `output` as attributes, each with its type: text or JSON."""
    attributes: dict[str, Any] = {}
    for side in ("input", "output"):
        data = _cell_value(value.get(side))
        if data is not None:
            is_text = isinstance(data, str)
            attributes[f"{side}.value"] = data if is_text else json.dumps(data, ensure_ascii=False)
            attributes[f"{side}.mime_type"] = "text/plain" if is_text else "application/json"
    return attributes


def _cell_value(value: Any) -> Any:
    """The value of a cell: of a text that is JSON, the value in it."""
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
        return round(moment.timestamp() * 1e6) * 1000  # a datetime has no more than microseconds
    return int(of_type(value, int | float, 0))
