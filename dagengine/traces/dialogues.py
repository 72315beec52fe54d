"""What a model was told and said, from every place and form in which instrumentations write it.

Messages are in attributes of the span, in log records or in events of the span. They have
`content` and `tool_calls`, or `parts`; OpenInference spreads them over flat attributes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dagengine.prompts.json_values import shallow_value
from dagengine.traces.otlp import RawLog, RawSpan, of_type

USER, ASSISTANT, _TOOL = "user", "assistant", "tool"
_ROLES = {"human": USER, "ai": ASSISTANT, "model": ASSISTANT, "function": _TOOL}
# Names of events in which one message is: their role is in the name.
_MESSAGE = re.compile(r"gen_ai\.(system|user|assistant|tool)\.message")
_CHOICE = "gen_ai.choice"
# Flat attributes of messages, by their prefix: who says what goes in, and what comes out.
_FLAT = {
    "llm.input_messages.": USER,
    "llm.output_messages.": ASSISTANT,
    "gen_ai.prompt.": USER,
    "gen_ai.completion.": ASSISTANT,
}
# Attributes that hold a list of messages, as text or as it is.
_LISTS = {
    "gen_ai.input.messages": USER,
    "gen_ai.output.messages": ASSISTANT,
    "gen_ai.prompt": USER,
    "gen_ai.completion": ASSISTANT,
    "pydantic_ai.all_messages": USER,
    "ai.prompt.messages": USER,
}
# Names under which the text is in the data of a step, the surest first.
_NAMES = {
    USER: (
        *("messages", "input", "inputs", "question", "query", "prompt", "user_input", "message"),
        *("content", "contents", "text", "args", "kwargs"),
    ),
    ASSISTANT: (
        *("messages", "output", "outputs", "answer", "response", "result", "replies", "choices"),
        *("generations", "message", "content", "contents", "text"),
    ),
}
_DEPTH = 8  # of data in which a text is looked for
_CUT = re.compile(r'\s*[\[{]\s*[\[{"]')  # how JSON begins, also where its end was cut off


@dataclass(frozen=True, slots=True)
class ToolRequest:
    """A call of a tool that a model asked for."""

    id: str | None
    name: str
    arguments: Any = None


@dataclass(frozen=True, slots=True)
class SpanMessage:
    """One message: its texts, the calls that it asks for, and results of calls by their id."""

    role: str
    texts: tuple[str, ...] = ()
    calls: tuple[ToolRequest, ...] = ()
    results: tuple[tuple[str | None, Any], ...] = ()

    @property
    def text(self) -> str:
        """Its texts, joined."""
        return "\n".join(self.texts)


Dialogue = dict[str, list[SpanMessage]]
"""The messages that went into a span (under USER), and those that came out (under ASSISTANT)."""


def last_text(messages: Sequence[SpanMessage], role: str) -> str | None:
    """The last text of a role; results of tools are none, whatever their role."""
    texts = (message.text for message in reversed(messages) if message.role == role)
    return next((text for text in texts if text.strip()), None)


def dialogue_of(span: RawSpan, logs: Iterable[RawLog]) -> Dialogue:
    """The messages of a span, from wherever they are; `logs` are those that it wrote, in order."""
    dialogue: Dialogue = {USER: [], ASSISTANT: []}
    _take_attributes(dialogue, span.attributes)
    for prefix, role in _FLAT.items():
        dialogue[role] += map(_message, _nested_messages(span.attributes, prefix))
    events = [*span.events, *((log.event, log.attributes) for log in logs)]
    events += [
        (str(body.get("event.name", "")), dict(body))
        for body in json_of_kind(span.attributes.get("events"), list, ())
        if isinstance(body, Mapping)
    ]
    for name, body in events:
        if name == _CHOICE:
            text = body.get("message")
            message = json_of_kind(text, dict, {"content": text} if isinstance(text, str) else body)
            dialogue[ASSISTANT].append(_message({"role": ASSISTANT, **message}))
        elif event := _MESSAGE.fullmatch(name):
            dialogue[USER].append(_message({"role": event[1], **body}))
        else:
            _take_attributes(dialogue, body)
    return dialogue


def _take_attributes(dialogue: Dialogue, attributes: Mapping[str, Any]) -> None:
    for name, role in _LISTS.items():
        value = from_json(attributes.get(name))
        # Before there were messages it was the text itself. What was cut off is no JSON any more.
        if isinstance(value, str) and not _CUT.match(value):
            value = [{"role": role, "content": value}]
        if isinstance(value, list):
            dialogue[role] += [_message(item) for item in value if isinstance(item, Mapping)]


def text_for(role: str, value: Any, depth: int = _DEPTH) -> str | None:
    """The text of a role in the data of a step: of messages the last one, else by usual names.

    None if there is none, or if it is not clear which.
    """
    if isinstance(value, str):
        return value if value.strip() else None
    items = of_type(value, list, [value])
    if items and all(map(_is_message, items)):
        return last_text([*map(_message, items)], role)
    if not depth or not isinstance(value, list | Mapping):
        return None
    if isinstance(value, Mapping):
        named = [*filter(None, map(value.get, _NAMES[role]))]
        # Under other names are no texts (an id, a state), but there may be some inside.
        items = named[:1] or [inner for inner in value.values() if not isinstance(inner, str)]
    texts = {text_for(role, item, depth - 1) for item in items} - {None}
    return texts.pop() if len(texts) == 1 else None


def _is_message(value: Any) -> bool:
    """Return whether it is a message, which may be an object of LangChain's that was serialised."""
    inner = json_of_kind(value.get("kwargs"), dict, value) if isinstance(value, Mapping) else {}
    has_role = "role" in inner or str(inner.get("type")) in _ROLES
    return has_role and not inner.keys().isdisjoint(("content", "contents", "parts", "tool_calls"))


def _message(value: Mapping[str, Any]) -> SpanMessage:
    """A message in either form."""
    value = json_of_kind(value.get("kwargs"), dict, value)
    role = str(value.get("role") or value.get("type") or "")
    role = _ROLES.get(role, role if value.get("role") else ASSISTANT)
    content = _content_of(value)
    parts = value.get("parts") or value.get("contents") or ()
    results: list[tuple[str | None, Any]] = []
    if role == _TOOL and content is not None:
        results.append((_id(value, "tool_call_id", "id"), content))
    elif isinstance(content, str):
        parts = [content, *(parts if isinstance(parts, list) else ())]
    elif isinstance(content, list):
        parts = [*content, *parts]
    message = _message_of_parts(role, parts if isinstance(parts, list) else ())
    requests = json_of_kind(value.get("tool_calls"), list, ())
    calls = [_call(call) for call in requests if isinstance(call, Mapping)]
    return SpanMessage(role, message.texts, (*message.calls, *calls), (*results, *message.results))


def _content_of(value: Mapping[str, Any]) -> Any:
    """The content of a message; a list of parts that is written as JSON text, as data."""
    content = value.get("content")
    parts = from_json(content)
    if parts and isinstance(parts, list) and all(isinstance(part, Mapping) for part in parts):
        return parts
    return content


def _message_of_parts(role: str, parts: Iterable[Any]) -> SpanMessage:
    texts: list[Any] = []
    calls: list[ToolRequest] = []
    results: list[tuple[str | None, Any]] = []
    for part in parts:
        if not isinstance(part, Mapping):
            texts.append(part)
            continue
        inner = json_of_kind(part.get("message_content"), dict, part)
        kind = inner.get("type")
        if kind == "tool_call":
            calls.append(_call(inner))
        elif kind == "tool_call_response":
            results.append((_id(inner, "id"), inner.get("response", inner.get("result"))))
        elif kind in (None, "text", "input_text", "output_text"):
            texts.append(inner.get("content", inner.get("text")))
    texts = [text for text in texts if isinstance(text, str)]
    return SpanMessage(role, tuple(texts), tuple(calls), tuple(results))


def _call(value: Mapping[str, Any]) -> ToolRequest:
    """A call in any form: OpenInference and OpenAI have it one level down."""
    call = json_of_kind(value.get("tool_call"), dict, value)
    function = json_of_kind(call.get("function"), dict, call)
    return ToolRequest(_id(call, "id"), str(function.get("name")), function.get("arguments"))


def _id(value: Mapping[str, Any], *names: str) -> str | None:
    return next((str(value[name]) for name in names if value.get(name)), None)


def _nested_messages(attributes: Mapping[str, Any], prefix: str) -> list[dict[str, Any]]:
    """The messages in flat attributes: `PREFIX0.message.tool_calls.0.tool_call.id`."""
    tree: dict[str, Any] = {}
    for name, value in attributes.items():
        if not name.startswith(prefix):
            continue
        *steps, key = name[len(prefix) :].split(".")
        branch = tree
        for step in steps:
            inner = branch.setdefault(step, {})
            # A value where a branch should be: what is below it has no place.
            branch = of_type(inner, dict, {})
        branch[key] = value
    items = _as_lists(tree)
    return [
        json_of_kind(item.get("message"), dict, item) for item in items if isinstance(item, dict)
    ]


def _as_lists(value: Any) -> Any:
    """Mappings whose keys are numbers as lists, all the way down."""
    if not isinstance(value, dict):
        return value
    if value and all(key.isdecimal() for key in value):
        return [_as_lists(value[key]) for key in sorted(value, key=int)]
    return {key: _as_lists(inner) for key, inner in value.items()}


def from_json(value: Any) -> Any:
    """A value that may be written as JSON text, as data; other texts as they are."""
    if isinstance(value, str) and value[:1] in "[{":
        try:
            return shallow_value(value)
        except ValueError:
            return value
    return value


def json_data(value: Any) -> Any:
    """Parse a text as JSON; else return the text. None for JSON that was cut off."""
    if not isinstance(value, str):
        return value
    try:
        data = shallow_value(value)
    except ValueError:
        return None if _CUT.match(value) else value
    return of_type(data, str | list | dict, value)


def json_of_kind(value: Any, kind: type, otherwise: Any) -> Any:
    """A value of a kind, which may be written as JSON text; `otherwise` if it is none."""
    return of_type(from_json(value), kind, otherwise)
