"""The records of one trace as spans: what each step did, read and said.

Instrumentations write what a model was told and said in many places and forms. Messages are in
attributes of the span, in log records or in events of the span. They have `content` and
`tool_calls`, or `parts`; OpenInference spreads them over flat attributes.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from operator import attrgetter, itemgetter
from typing import Any

from dagengine.prompts.json_in_text import shallow_value
from dagengine.test_case import Span
from dagengine.traces.formats import RawLog, RawRecord, RawSpan, first_of, of_type

LLM, TOOL, RETRIEVER, AGENT, CHAIN = "llm", "tool", "retriever", "agent", "chain"
# Attributes that name a kind, the surest first, and their words for it where they differ from ours.
_KIND_IN = (
    *("openinference.span.kind", "langfuse.observation.type", "traceloop.span.kind"),
    *("langsmith.span.kind", "mlflow.spanType", "ai.operationId", "llm.request.type"),
)
_KINDS = {
    **dict.fromkeys(("generation", "chat_model", "chat", "completion", "text_completion"), LLM),
    **dict.fromkeys(("ai.generatetext.dogenerate", "ai.streamtext.dostream"), LLM),
    **dict.fromkeys(("ai.generateobject.dogenerate", "ai.streamobject.dostream"), LLM),
    **dict.fromkeys(("workflow", "task", "invoke_workflow"), CHAIN),
    **dict.fromkeys(("invoke_agent", "create_agent"), AGENT),
    **dict.fromkeys(("execute_tool", "ai.toolcall"), TOOL),
    "generate_content": LLM,
    "embeddings": "embedding",
    "retrieval": RETRIEVER,
    "rerank": "reranker",
}
_JSON = "application/json"
_DOCUMENT = re.compile(r"retrieval\.documents\.([0-9]+)\.document\.content")
_CONTENT = ("content", "page_content", "text")  # of a document
# What went into any step, and what came out, the surest first. Of the plain ones the value is the
# text, unless the span says that it is JSON; in the others the text is somewhere in JSON.
_PLAIN = ("input.value", "output.value", "final_result", "ai.response.text")
_IN = (
    *("input.value", "traceloop.entity.input", "ai.prompt", "mlflow.spanInputs", "request_data"),
    *("langfuse.observation.input", "haystack.pipeline.input_data", "haystack.component.input"),
    *("braintrust.input_json", "gcp.vertex.agent.llm_request", "gen_ai.prompt"),
)
_OUT = (
    *("output.value", "final_result", "traceloop.entity.output", "ai.response.text"),
    *("mlflow.spanOutputs", "response_data", "langfuse.observation.output"),
    *("haystack.pipeline.output_data", "haystack.component.output", "braintrust.output_json"),
    *("gcp.vertex.agent.llm_response", "gen_ai.completion"),
)
# Attributes of a tool span, those of the conventions first, then those of OpenInference.
_ARGUMENTS = ("gen_ai.tool.call.arguments", "tool_call.function.arguments", "ai.toolCall.args")
_PARAMETERS = "tool.parameters"  # the schema of a tool; some write the arguments there
_RESULT = ("gen_ai.tool.call.result", "ai.toolCall.result")
_CALL_ID = ("gen_ai.tool.call.id", "tool_call.id", "tool.id", "ai.toolCall.id")
_TOOL_NAME = ("gen_ai.tool.name", "tool.name", "ai.toolCall.name", "traceloop.entity.name")
_TOKENS_IN = ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "llm.token_count.prompt")
_TOKENS_OUT = (
    *("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens"),
    "llm.token_count.completion",
)
USER, ASSISTANT = "user", "assistant"
_ROLES = {"human": USER, "ai": ASSISTANT, "model": ASSISTANT, "function": TOOL}
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


@dataclass(slots=True)
class SpanMessage:
    """One message: its texts, the calls that it asks for, and results of calls by their id."""

    role: str
    texts: list[str] = field(default_factory=list[str])
    calls: list[ToolRequest] = field(default_factory=list[ToolRequest])
    results: list[tuple[str | None, Any]] = field(default_factory=list[tuple[str | None, Any]])

    def take(self, part: Any) -> None:
        """Add a part of its content: a text, a call or the result of one."""
        inner = part
        if isinstance(part, Mapping):
            inner = json_of_kind(part.get("message_content"), dict, part)
            kind = inner.get("type")
            if kind == "tool_call":
                self.calls.append(_call(inner))
            elif kind == "tool_call_response":
                self.results.append((_id(inner, "id"), inner.get("response", inner.get("result"))))
            elif kind in (None, "text", "input_text", "output_text"):
                inner = inner.get("content", inner.get("text"))
        if isinstance(inner, str):
            self.texts.append(inner)


Dialogue = dict[str, list[SpanMessage]]
"""The messages that went into a span (under USER), and those that came out (under ASSISTANT)."""


@dataclass(slots=True)
class TraceStep:
    """A span, with what it was read from, and its own texts if it has any.

    These are what a person may have written, and what was answered: of a model its messages, of
    any other step first what it says of its input and output.
    """

    raw: RawSpan
    span: Span
    text_in: str | None
    text_out: str | None


def steps_of(records: Iterable[RawRecord]) -> list[TraceStep]:
    """The spans of one trace in the order in which they began, each once."""
    raw: dict[str, RawSpan] = {}
    logs: dict[str, list[RawLog]] = defaultdict(list)
    for record in records:
        if isinstance(record, RawSpan):
            # A span may be written when it begins, too. The one that ended later is complete.
            earlier = raw.get(record.span_id, record)
            raw[record.span_id] = max(record, earlier, key=attrgetter("end"))
        else:
            logs[record.span_id].append(record)
    ordered = sorted(raw.values(), key=lambda span: span.start)  # equal times: as they were written
    dialogues: list[Dialogue] = []
    calls: dict[str | None, ToolRequest] = {}
    results: dict[str | None, Any] = {}
    for span in ordered:
        dialogue = dialogue_of(span, sorted(logs[span.span_id], key=attrgetter("time")))
        dialogues.append(dialogue)
        for message in chain(*dialogue.values()):
            calls |= zip(map(attrgetter("id"), message.calls), message.calls, strict=True)
            results |= message.results
    steps: list[TraceStep] = []
    for span, dialogue in zip(ordered, dialogues, strict=True):
        text_in = _own_text(span, USER, _IN, dialogue)
        text_out = _own_text(span, ASSISTANT, _OUT, dialogue)
        own = _span(span, text_in, text_out, calls, results)
        steps.append(TraceStep(span, own, text_in, text_out))
    return steps


def _own_text(span: RawSpan, role: str, names: Iterable[str], dialogue: Dialogue) -> str | None:
    """The text of a role: of a model first in its messages, of other steps first in their data."""
    data = map(partial(text_for, role), _data_in(span.attributes, names))
    sources = [next(filter(None, data), None), last_text(dialogue[role], role)]
    if span_kind(span.attributes) == LLM:
        sources.reverse()
    return sources[0] or sources[1]


def _data_in(attributes: Mapping[str, Any], names: Iterable[str]) -> Iterator[Any]:
    """Yield the values of these attributes, as data if they are JSON."""
    for name in names:
        mime = attributes.get(name.replace(".value", ".mime_type"))
        plain = name in _PLAIN and mime != _JSON
        yield attributes.get(name) if plain else json_data(attributes.get(name))


def span_kind(attributes: Mapping[str, Any]) -> str:
    """Kind of a span, in small letters; `span` if it does not say."""
    for name in _KIND_IN:
        if attributes.get(name):
            kind = str(attributes[name]).strip('"').lower()  # some write it as JSON
            return _KINDS.get(kind, kind)
    otherwise = TOOL if attributes.get("gen_ai.tool.name") else "span"
    return _KINDS.get(str(attributes.get("gen_ai.operation.name")), otherwise)


def _span(
    raw: RawSpan,
    text_in: str | None,
    text_out: str | None,
    calls: Mapping[str | None, ToolRequest],
    results: Mapping[str | None, Any],
) -> Span:
    attributes, kind = raw.attributes, span_kind(raw.attributes)
    documents, call_id = None, None
    name = raw.name
    error = _error_of(raw)
    if kind == TOOL:
        output, failure, call_id = _tool_output(attributes)
        call_id = first_of(attributes, *_CALL_ID) or call_id
        call = calls.get(str(call_id), ToolRequest(None, ""))
        name = str(first_of(attributes, *_TOOL_NAME) or call.name or name)
        shown = _arguments(attributes, call)
        error = error or failure
        if output is None:
            output = from_json(results.get(str(call_id)))
        output = None if error else output
    elif kind == RETRIEVER:
        documents, output = _documents(attributes), None
        shown = first_of(attributes, "gen_ai.retrieval.query.text", "input.value") or text_in
    elif kind == LLM:
        shown, output = text_in, text_out
    else:
        shown, output = first_of(attributes, *_IN), first_of(attributes, *_OUT)
    return Span(
        span_id=raw.span_id,
        trace_id=raw.trace_id,
        parent_id=raw.parent_id,
        kind=kind,
        name=name,
        input=shown,
        output=output,
        documents=documents,
        error=error,
        call_id=None if call_id is None else str(call_id),
        seconds=max(0, raw.end - raw.start) / 1e9 if raw.end else None,
        input_token_count=_count(attributes, _TOKENS_IN),
        output_token_count=_count(attributes, _TOKENS_OUT),
    )


def _error_of(raw: RawSpan) -> str | None:
    """Return why a span failed: the exception says more than the status, that than the type."""
    messages = [
        fields.get("exception.message") for name, fields in raw.events if name == "exception"
    ]
    reasons = (*messages, raw.message, raw.attributes.get("error.type"), "it failed")
    return next(str(reason) for reason in reasons if reason) if raw.failed else None


def _arguments(attributes: Mapping[str, Any], call: ToolRequest) -> Any:
    """The arguments of a tool: its span knows best, then the model that asked for it."""
    # Some write the arguments there, others the JSON schema of them.
    parameters = from_json(attributes.get(_PARAMETERS))
    if isinstance(parameters, dict) and parameters.keys() >= {"type", "properties"}:
        parameters = None
    sources = (
        first_of(attributes, *_ARGUMENTS),
        call.arguments,
        first_of(attributes, *_IN),
        parameters,
    )
    value = from_json(next((source for source in sources if source is not None), None))
    if isinstance(value, dict) and value.keys() == {"args", "kwargs"} and not value["args"]:
        return value["kwargs"]  # of a Python function
    return value


def _tool_output(attributes: Mapping[str, Any]) -> tuple[Any, str | None, str | None]:
    """The result of a tool, why it failed, and the id of the call, from the output of its span.

    LangChain writes a message: of a tool whose error was handled the span says that all is well,
    and the message that its status is `error`.
    """
    if (result := first_of(attributes, *_RESULT)) is not None:
        return from_json(result), None, None
    values = map(from_json, _data_in(attributes, _OUT))
    output = next((value for value in values if value is not None), None)
    data = of_type(output, dict, {}).get("data")
    if not isinstance(data, dict) or "tool_call_id" not in data:
        return output, None, None
    failure = str(data.get("content")) if data.get("status") == "error" else None
    return from_json(data.get("content")), failure, data["tool_call_id"]


def _documents(attributes: Mapping[str, Any]) -> list[str] | None:
    """The texts that were retrieved; None if none was captured."""
    listed = from_json(first_of(attributes, "gen_ai.retrieval.documents", *_OUT))
    listed = listed.get("documents") if isinstance(listed, Mapping) else listed
    texts = [first_of(document, *_CONTENT) for document in _mappings_in(listed)]
    names = sorted(filter(None, map(_DOCUMENT.fullmatch, attributes)), key=lambda n: int(n[1]))
    texts += map(attributes.get, map(itemgetter(0), names))
    return [*map(str, filter(None, texts))] or None


def _count(attributes: Mapping[str, Any], names: Sequence[str]) -> int | None:
    value = first_of(attributes, *names)
    return int(value) if isinstance(value, int | float) and math.isfinite(value) else None


def last_text(messages: Sequence[SpanMessage], role: str) -> str | None:
    """The last text of a role; results of tools are none, whatever their role."""
    own = (message.texts for message in reversed(messages) if message.role == role)
    texts = map("\n".join, own)
    return next((text for text in texts if text.strip()), None)


def dialogue_of(span: RawSpan, logs: Iterable[RawLog]) -> Dialogue:
    """The messages of a span, from wherever they are; `logs` are those that it wrote, in order."""
    dialogue: Dialogue = {USER: [], ASSISTANT: []}
    _take_attributes(dialogue, span.attributes)
    for prefix, role in _FLAT.items():
        dialogue[role] += map(_message, _nested_messages(span.attributes, prefix))
    events = [*span.events, *((log.event, log.attributes) for log in logs)]
    for body in _mappings_in(span.attributes.get("events")):
        events.append((str(body.get("event.name", "")), dict(body)))
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
        dialogue[role] += map(_message, _mappings_in(value))


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
    content = value.get("content")
    data = from_json(content)  # also of a list of parts that is written as text
    if data and isinstance(data, list) and all(isinstance(part, Mapping) for part in data):
        content = data
    parts: list[Any] = of_type(value.get("parts") or value.get("contents"), list, [])
    message = SpanMessage(role)
    if role == TOOL and content is not None:
        message.results.append((_id(value, "tool_call_id", "id"), content))
    elif isinstance(content, str):
        parts = [content, *parts]
    elif isinstance(content, list):
        parts = [*content, *parts]
    for part in parts:
        message.take(part)
    message.calls += map(_call, _mappings_in(value.get("tool_calls")))
    return message


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


def _mappings_in(value: Any) -> list[Mapping[str, Any]]:
    """The mappings in a list, which may be written as JSON text; none in anything else."""
    return [item for item in json_of_kind(value, list, ()) if isinstance(item, Mapping)]


def json_of_kind(value: Any, kind: type, otherwise: Any) -> Any:
    """A value of a kind, which may be written as JSON text; `otherwise` if it is none."""
    return of_type(from_json(value), kind, otherwise)
