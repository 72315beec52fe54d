"""What a model was told and said, from every place and form in which instrumentations write it.

Messages are in attributes of the span, in log records or in events of the span. They have
`content` and `tool_calls`, or `parts`; OpenInference spreads them over flat attributes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dagengine.prompts.json_values import shallow_value
from dagengine.traces.otlp import RawLog, RawSpan

_USER, _ASSISTANT, _TOOL = "user", "assistant", "tool"
_ROLES = {"human": _USER, "ai": _ASSISTANT, "model": _ASSISTANT, "function": _TOOL}
# Names of events in which one message is: their role is in the name.
_MESSAGE = re.compile(r"gen_ai\.(system|user|assistant|tool)\.message")
_CHOICE = "gen_ai.choice"
# Flat attributes of messages: the prefix, and whether they went in.
_FLAT = (
    ("llm.input_messages.", True),
    ("llm.output_messages.", False),
    ("gen_ai.prompt.", True),
    ("gen_ai.completion.", False),
)
# Attributes that hold a list of messages, as text or as it is, and whether they went in.
_LISTS = (
    ("gen_ai.input.messages", True),
    ("gen_ai.output.messages", False),
    ("gen_ai.prompt", True),
    ("gen_ai.completion", False),
    ("pydantic_ai.all_messages", True),
)


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a tool that a model asked for."""

    id: str | None
    name: str
    arguments: Any = None


@dataclass(frozen=True, slots=True)
class Message:
    """One message: its texts, the calls that it asks for, and results of calls by their id."""

    role: str
    texts: tuple[str, ...] = ()
    calls: tuple[Call, ...] = ()
    results: tuple[tuple[str | None, Any], ...] = ()

    @property
    def text(self) -> str:
        """Its texts, joined."""
        return "\n".join(self.texts)


@dataclass(slots=True)
class Dialogue:
    """The messages that went into a span, and those that came out."""

    inputs: list[Message] = field(default_factory=list)
    outputs: list[Message] = field(default_factory=list)

    def user_text(self) -> str | None:
        """The last text of a user; results of tools are none, whatever their role."""
        return _last_text(self.inputs, _USER)

    def answer(self) -> str | None:
        """The last text of the assistant that came out."""
        return _last_text(self.outputs, _ASSISTANT)

    def messages(self) -> Iterator[Message]:
        """All messages, those that went in first."""
        yield from self.inputs
        yield from self.outputs


def _last_text(messages: Sequence[Message], role: str) -> str | None:
    texts = (message.text for message in reversed(messages) if message.role == role)
    return next((text for text in texts if text.strip()), None)


def dialogue_of(span: RawSpan, logs: Iterable[RawLog]) -> Dialogue:
    """The messages of a span, from wherever they are; `logs` are those that it wrote, in order."""
    dialogue = Dialogue()
    _take_attributes(dialogue, span.attributes)
    for prefix, went_in in _FLAT:
        side = dialogue.inputs if went_in else dialogue.outputs
        side += [_message(nested) for nested in _nested(span.attributes, prefix)]
    events = [*span.events, *((log.event, log.attributes) for log in logs)]
    events += [
        (str(body.get("event.name", "")), dict(body))
        for body in as_json(span.attributes.get("events"), list, ())
        if isinstance(body, Mapping)
    ]
    for name, body in events:
        if name == _CHOICE:
            message = as_json(body.get("message"), dict, body)
            dialogue.outputs.append(_message({"role": _ASSISTANT, **message}))
        elif role := _MESSAGE.fullmatch(name):
            dialogue.inputs.append(_message({"role": role[1], **body}))
        else:
            _take_attributes(dialogue, body)
    return dialogue


def _take_attributes(dialogue: Dialogue, attributes: Mapping[str, Any]) -> None:
    for name, went_in in _LISTS:
        side = dialogue.inputs if went_in else dialogue.outputs
        messages = as_json(attributes.get(name), list, ())
        side += [_message(item) for item in messages if isinstance(item, Mapping)]


def _message(value: Mapping[str, Any]) -> Message:
    """A message in either form."""
    role = str(value.get("role") or _ASSISTANT)
    role = _ROLES.get(role, role)
    texts: list[str] = []
    calls: list[Call] = []
    results: list[tuple[str | None, Any]] = []
    content = value.get("content")
    parts = value.get("parts") or value.get("contents") or ()
    if role == _TOOL and value.get("content") is not None:
        results.append((_id(value, "tool_call_id", "id"), content))
    elif isinstance(content, str):
        texts.append(content)
    elif isinstance(content, list):
        parts = [*content, *parts]
    for part in parts if isinstance(parts, list) else ():
        if isinstance(part, str):
            texts.append(part)
        if not isinstance(part, Mapping):
            continue
        inner = as_json(part.get("message_content"), dict, part)
        kind = inner.get("type")
        if kind == "tool_call":
            calls.append(_call(inner))
        elif kind == "tool_call_response":
            results.append((_id(inner, "id"), inner.get("response", inner.get("result"))))
        elif kind in ("text", "input_text", "output_text"):
            text = inner.get("content", inner.get("text"))
            texts += [text] if isinstance(text, str) else []
    asked = as_json(value.get("tool_calls"), list, ())
    calls += [_call(call) for call in asked if isinstance(call, Mapping)]
    return Message(role, tuple(texts), tuple(calls), tuple(results))


def _call(value: Mapping[str, Any]) -> Call:
    """A call in any form: OpenInference and OpenAI have it one level down."""
    call = as_json(value.get("tool_call"), dict, value)
    function = as_json(call.get("function"), dict, call)
    return Call(_id(call, "id"), str(function.get("name")), function.get("arguments"))


def _id(value: Mapping[str, Any], *names: str) -> str | None:
    return next((str(value[name]) for name in names if value.get(name)), None)


def _nested(attributes: Mapping[str, Any], prefix: str) -> list[dict[str, Any]]:
    """The messages in flat attributes: `PREFIX0.message.tool_calls.0.tool_call.id`."""
    tree: dict[str, Any] = {}
    for name, value in attributes.items():
        if not name.startswith(prefix):
            continue
        *steps, last = name[len(prefix) :].split(".")
        branch = tree
        for step in steps:
            inner = branch.setdefault(step, {})
            # A value where a branch should be: what is below it has no place.
            branch = inner if isinstance(inner, dict) else {}
        branch[last] = value
    items = _listed(tree)
    return [as_json(item.get("message"), dict, item) for item in items if isinstance(item, dict)]


def _listed(value: Any) -> Any:
    """Mappings whose keys are numbers as lists, all the way down."""
    if not isinstance(value, dict):
        return value
    if value and all(key.isdecimal() for key in value):
        return [_listed(value[key]) for key in sorted(value, key=int)]
    return {key: _listed(inner) for key, inner in value.items()}


def parsed(value: Any) -> Any:
    """A value that may be written as JSON text, as data; other texts as they are."""
    if isinstance(value, str) and value[:1] in "[{":
        try:
            return shallow_value(value)
        except ValueError:
            return value
    return value


def as_json(value: Any, kind: type, otherwise: Any) -> Any:
    """A value of a kind, which may be written as JSON text; `otherwise` if it is none."""
    data = parsed(value)
    return data if isinstance(data, kind) else otherwise
