"""The records of one trace as spans: what each step did, read and said."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter
from typing import Any

from dagengine.test_case import Span
from dagengine.traces.dialogues import (
    ASSISTANT,
    USER,
    ToolRequest,
    dialogue_of,
    from_json,
    json_data,
    json_of_kind,
    last_text,
    text_for,
)
from dagengine.traces.otlp import RawLog, RawRecord, RawSpan, of_type

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
    dialogues = [
        dialogue_of(span, sorted(logs[span.span_id], key=lambda log: log.time)) for span in ordered
    ]
    calls: dict[str, ToolRequest] = {}
    results: dict[str, Any] = {}
    for dialogue in dialogues:
        for message in chain(*dialogue.values()):
            calls |= {call.id: call for call in message.calls if call.id}
            results |= {key: result for key, result in message.results if key}
    steps: list[TraceStep] = []
    for span, dialogue in zip(ordered, dialogues, strict=True):
        texts: dict[str, str | None] = {}
        for role, names in ((USER, _IN), (ASSISTANT, _OUT)):
            own, written = _text_of(span, role, names), last_text(dialogue[role], role)
            is_model = span_kind(span.attributes) == LLM
            texts[role] = written or own if is_model else own or written
        sides = texts[USER], texts[ASSISTANT]
        steps.append(TraceStep(span, _span(span, *sides, calls, results), *sides))
    return steps


def _text_of(span: RawSpan, role: str, names: Iterable[str]) -> str | None:
    """The text of a role in what a span says of itself."""
    texts = (text_for(role, value) for value in _data_in(span.attributes, names))
    return next(filter(None, texts), None)


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
    calls: Mapping[str, ToolRequest],
    results: Mapping[str, Any],
) -> Span:
    attributes, kind = raw.attributes, span_kind(raw.attributes)
    documents, call_id = None, None
    name = raw.name
    error = _error_of(raw)
    if kind == TOOL:
        output, failure, call_id = _tool_output(attributes)
        call_id = _first(attributes, *_CALL_ID) or call_id
        call = calls.get(str(call_id), ToolRequest(None, ""))
        name = str(_first(attributes, *_TOOL_NAME) or call.name or name)
        shown = _arguments(attributes, call)
        error = error or failure
        if output is None:
            output = from_json(results.get(str(call_id)))
        output = None if error else output
    elif kind == RETRIEVER:
        documents, output = _documents(attributes), None
        shown = _first(attributes, "gen_ai.retrieval.query.text", "input.value") or text_in
    elif kind == LLM:
        shown, output = text_in, text_out
    else:
        shown, output = _first(attributes, *_IN), _first(attributes, *_OUT)
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
        _first(attributes, *_ARGUMENTS),
        call.arguments,
        _first(attributes, *_IN),
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
    if (result := _first(attributes, *_RESULT)) is not None:
        return from_json(result), None, None
    values = (from_json(value) for value in _data_in(attributes, _OUT))
    output = next((value for value in values if value is not None), None)
    data = of_type(output, dict, {}).get("data")
    if not isinstance(data, dict) or "tool_call_id" not in data:
        return output, None, None
    failure = str(data.get("content")) if data.get("status") == "error" else None
    return from_json(data.get("content")), failure, data["tool_call_id"]


def _documents(attributes: Mapping[str, Any]) -> list[str] | None:
    """The texts that were retrieved; None if none was captured."""
    listed = from_json(_first(attributes, "gen_ai.retrieval.documents", *_OUT))
    listed = listed.get("documents") if isinstance(listed, Mapping) else listed
    documents = [item for item in json_of_kind(listed, list, ()) if isinstance(item, Mapping)]
    texts = [_first(document, *_CONTENT) for document in documents]
    texts_by_position = {
        int(position[1]): value
        for name, value in attributes.items()
        if (position := _DOCUMENT.fullmatch(name))
    }
    texts += [texts_by_position[position] for position in sorted(texts_by_position)]
    return [str(text) for text in texts if text] or None


def _first(attributes: Mapping[str, Any], *names: str) -> Any:
    return next((attributes[name] for name in names if attributes.get(name) is not None), None)


def _count(attributes: Mapping[str, Any], names: Sequence[str]) -> int | None:
    value = _first(attributes, *names)
    return int(value) if isinstance(value, int | float) and math.isfinite(value) else None
