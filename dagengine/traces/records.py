"""Exports of Jaeger, Phoenix and Langfuse as spans, in the attributes of OpenInference."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from dagengine.prompts.json_values import shallow_value
from dagengine.traces.otlp import (
    LeaveOut,
    RawRecord,
    RawSpan,
    id_text,
    is_otlp,
    of_type,
    readable,
    records_of,
)

# Attributes that Phoenix gives as lists, and OpenInference writes flat.
_SPREAD = ("llm.input_messages", "llm.output_messages", "retrieval.documents")


def records_of_any(value: Any, leave_out: LeaveOut) -> Iterator[RawRecord]:
    """The records in a value of a file, or in an array of such values.

    What is damaged, or no span of a tool that is known, is left out, alone.
    """
    items = of_type(value, list, [value])
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
    parents = [
        reference["spanID"]
        for reference in value.get("references") or ()
        if reference.get("refType") == "CHILD_OF"
    ]
    events = [_tags(log.get("fields")) for log in value.get("logs") or ()]
    start = int(value["startTime"]) * 1000
    return RawSpan(
        id_text(value["traceID"]).lower().zfill(32),  # it leaves out zeros at the beginning
        id_text(value["spanID"]).lower().zfill(16),
        str(parents[0]).lower().zfill(16) if parents else None,
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
    if isinstance(value, Mapping):
        pairs = [(f"{name}.{key}", inner) for key, inner in value.items()]
    elif isinstance(value, list | tuple):
        pairs = [(f"{name}.{index}", inner) for index, inner in enumerate(value)]
    else:
        return {} if value is None else {name: value}
    return {key: inner for pair in pairs for key, inner in _spread(*pair).items()}


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
