"""The records of one trace as spans: what each step did, read and said."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dagengine.test_case import Span
from dagengine.traces.messages import Call, Dialogue, as_json, dialogue_of, parsed
from dagengine.traces.otlp import RawLog, RawRecord, RawSpan

LLM, TOOL, RETRIEVER, AGENT, CHAIN = "llm", "tool", "retriever", "agent", "chain"
_OPERATIONS = {
    "chat": LLM,
    "text_completion": LLM,
    "generate_content": LLM,
    "embeddings": "embedding",
    "execute_tool": TOOL,
    "invoke_agent": AGENT,
    "create_agent": AGENT,
    "invoke_workflow": CHAIN,
    "retrieval": RETRIEVER,
}
# Other words for a kind, in attributes that name it.
_KINDS = {"generation": LLM, "workflow": CHAIN, "task": CHAIN, "retrieval": RETRIEVER}
_KIND_IN = ("openinference.span.kind", "langfuse.observation.type", "traceloop.span.kind")
_JSON = "application/json"
_DOCUMENT = re.compile(r"retrieval\.documents\.([0-9]+)\.document\.content")
# Attributes of a tool span, those of the conventions first, then those of OpenInference.
_ARGUMENTS = ("gen_ai.tool.call.arguments", "tool_call.function.arguments")
_PARAMETERS = "tool.parameters"  # the schema of a tool; some write the arguments there
_RESULT = "gen_ai.tool.call.result"
_CALL_ID = ("gen_ai.tool.call.id", "tool_call.id", "tool.id")
_TOKENS_IN = ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "llm.token_count.prompt")
_TOKENS_OUT = (
    *("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens"),
    "llm.token_count.completion",
)


@dataclass(slots=True)
class Step:
    """A span, with what it was read from and the messages of a model."""

    raw: RawSpan
    span: Span
    dialogue: Dialogue

    @property
    def text_in(self) -> str | None:
        """`input.value`, if it is text that a person may have written."""
        return self._text("input")

    @property
    def text_out(self) -> str | None:
        """`output.value`, or the final result of an agent, if it is text."""
        final = self.raw.attributes.get("final_result")
        return self._text("output") or (final if isinstance(final, str) else None)

    def _text(self, side: str) -> str | None:
        """A text that is neither JSON nor the raw request or response of a model."""
        value = self.raw.attributes.get(f"{side}.value")
        if self.span.kind == LLM or self.raw.attributes.get(f"{side}.mime_type") == _JSON:
            return None
        return value if isinstance(value, str) and value.strip() else None


def steps_of(records: Iterable[RawRecord]) -> list[Step]:
    """The spans of one trace in the order in which they began, each once."""
    raw: dict[str, RawSpan] = {}
    logs: dict[str, list[RawLog]] = defaultdict(list)
    for record in records:
        if isinstance(record, RawSpan):
            raw[record.span_id] = record
        else:
            logs[record.span_id].append(record)
    ordered = sorted(raw.values(), key=lambda span: span.start)  # equal times: as they were written
    dialogues = [
        dialogue_of(span, sorted(logs[span.span_id], key=lambda log: log.time)) for span in ordered
    ]
    calls: dict[str, Call] = {}
    results: dict[str, Any] = {}
    for dialogue in dialogues:
        for message in dialogue.messages():
            calls |= {call.id: call for call in message.calls if call.id}
            results |= {key: result for key, result in message.results if key}
    return [
        Step(span, _span(span, dialogue, calls, results), dialogue)
        for span, dialogue in zip(ordered, dialogues, strict=True)
    ]


def kind_of(attributes: Mapping[str, Any]) -> str:
    """What a span did, in small letters; `span` if it does not say."""
    for name in _KIND_IN:
        if attributes.get(name):
            kind = str(attributes[name]).lower()
            return _KINDS.get(kind, kind)
    otherwise = TOOL if attributes.get("gen_ai.tool.name") else "span"
    return _OPERATIONS.get(str(attributes.get("gen_ai.operation.name")), otherwise)


def _span(
    raw: RawSpan, dialogue: Dialogue, calls: Mapping[str, Call], results: Mapping[str, Any]
) -> Span:
    attributes, kind = raw.attributes, kind_of(raw.attributes)
    documents, call_id = None, None
    name = raw.name
    error: str | None = None
    if raw.failed:
        # The exception says more than the status, the status more than the type.
        messages = [
            str(fields["exception.message"])
            for event, fields in raw.events
            if event == "exception" and fields.get("exception.message")
        ]
        type_of_error = str(attributes.get("error.type") or "") or "it failed"
        error = next(iter(messages), "") or raw.message or type_of_error
    if kind == TOOL:
        output, failure, call_id = _tool_output(attributes)
        call_id = _first(attributes, *_CALL_ID) or call_id
        call = calls.get(str(call_id), Call(None, ""))
        name = str(_first(attributes, "gen_ai.tool.name", "tool.name") or call.name or name)
        # The span itself knows best; the model's request is nearer than a general input.
        shown = _first(attributes, *_ARGUMENTS)
        if shown is None:
            shown = call.arguments
        if shown is None:
            shown = attributes.get("input.value")
        if shown is None:
            # Some write the arguments there, others the JSON schema of them.
            parameters = parsed(attributes.get(_PARAMETERS))
            if not isinstance(parameters, dict) or not parameters.keys() >= {"type", "properties"}:
                shown = parameters
        shown = parsed(shown)
        error = error or failure
        if output is None:
            output = parsed(results.get(str(call_id)))
        output = None if error else output
    elif kind == RETRIEVER:
        documents, output = _documents(attributes), None
        shown = _first(attributes, "gen_ai.retrieval.query.text", "input.value")
    elif kind == LLM:
        shown, output = dialogue.user_text(), dialogue.answer()
    else:
        shown, output = attributes.get("input.value"), attributes.get("output.value")
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


def _tool_output(attributes: Mapping[str, Any]) -> tuple[Any, str | None, str | None]:
    """The result of a tool, why it failed, and the id of the call, from the output of its span.

    LangChain writes a message: of a tool whose error was handled the span says that all is well,
    and the message that its status is `error`.
    """
    if attributes.get(_RESULT) is not None:
        return parsed(attributes[_RESULT]), None, None
    output = parsed(attributes.get("output.value"))
    data = output.get("data") if isinstance(output, dict) else None
    if not isinstance(data, dict) or "tool_call_id" not in data:
        return output, None, None
    failure = str(data.get("content")) if data.get("status") == "error" else None
    return parsed(data.get("content")), failure, data["tool_call_id"]


def _documents(attributes: Mapping[str, Any]) -> list[str] | None:
    """The texts that were retrieved; None if none was captured."""
    listed = as_json(attributes.get("gen_ai.retrieval.documents"), list, ())
    texts = [item.get("content") for item in listed if isinstance(item, Mapping)]
    places = {
        int(place[1]): value
        for name, value in attributes.items()
        if (place := _DOCUMENT.fullmatch(name))
    }
    texts += [places[place] for place in sorted(places)]
    return [str(text) for text in texts if text] or None


def _first(attributes: Mapping[str, Any], *names: str) -> Any:
    return next((attributes[name] for name in names if attributes.get(name) is not None), None)


def _count(attributes: Mapping[str, Any], names: Sequence[str]) -> int | None:
    value = _first(attributes, *names)
    return int(value) if isinstance(value, int | float) and math.isfinite(value) else None
