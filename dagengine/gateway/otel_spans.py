"""Spans of a run for OpenTelemetry: one per case, in it one per node, in it one per call.

Attributes are named after the conventions of OpenInference
(https://github.com/Arize-ai/openinference/tree/main/spec) where these have a name. Every result is
also a log record, `gen_ai.evaluation.result` of the GenAI conventions, in the context of the span
of its case. A case that was read from a trace is linked to the span that was judged. What was
judged and what was answered is not in them: traces go to places that data may not go to.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from dagengine.graph.node_values import NodeValue
from dagengine.question import Answer, Question
from dagengine.results import Failure, MetricResult
from dagengine.test_case import TestCase, case_label

_KIND = "openinference.span.kind"


_NOTHING = nullcontext()
_LABELS = {True: "pass", False: "fail", None: None}


class NoSpans:
    """What a run without a tracer uses."""

    def case(self, index: int, case: TestCase) -> Any:
        """Begin the span of a case; `end` takes it back."""
        return None

    def end(self, span: Any, results: Sequence[MetricResult]) -> None:
        """End the span of a case."""

    def node(self, case: Any, name: str, kind: str) -> AbstractContextManager[Any]:
        """The span of a node while it runs."""
        return _NOTHING

    def record(self, span: Any, outcome: NodeValue | Failure) -> None:
        """Note what a node gave."""

    def call(
        self, judge: str, question: Question[Any], number: int, *, decides: bool
    ) -> AbstractContextManager[Any]:
        """The span of one call to a judge, which may only decide; its value is told the answer."""
        return _NOTHING

    def note_answer(self, span: Any, answer: Answer[Any], *, decides: bool) -> None:
        """Note what a call used."""


class Spans(NoSpans):
    """Spans by an OpenTelemetry tracer, for instance `trace.get_tracer("my evaluation")`."""

    def __init__(self, tracer: Any) -> None:
        from opentelemetry import trace  # whoever has a tracer has it

        self._tracer = tracer
        self._in = trace.set_span_in_context
        self._trace = trace
        try:  # logs are younger than spans, and their modules are not named as public yet
            from opentelemetry import _logs
        except ImportError:
            self._logs: Any = None
        else:
            self._logs = _logs

    def case(self, index: int, case: TestCase) -> Any:
        label = case_label(case, index)
        attributes = {_KIND: "EVALUATOR", "dagengine.case": label, "dagengine.index": index}
        links = self._links(case)
        return self._tracer.start_span(f"case {label}", attributes=attributes, links=links)

    def _links(self, case: TestCase) -> list[Any]:
        """A link to the span that a case was read from."""
        metadata = case.additional_metadata or {}
        ids = list(map(metadata.get, ("trace_id", "span_id")))
        try:
            trace_id, span_id = (int(str(value), 16) for value in ids)
        except ValueError:  # of another tool, or none
            return []
        flags = self._trace.TraceFlags(self._trace.TraceFlags.SAMPLED)
        context = self._trace.SpanContext(trace_id, span_id, is_remote=True, trace_flags=flags)
        return [self._trace.Link(context)] if context.is_valid else []

    def end(self, span: Any, results: Sequence[MetricResult]) -> None:
        for result in results:
            # The log record of a result, for whoever set up a logger provider
            if self._logs is not None:
                attributes = {
                    "gen_ai.evaluation.name": result.metric,
                    "gen_ai.evaluation.score.value": result.score,
                    "gen_ai.evaluation.score.label": _LABELS[result.success],
                    "error.type": None if result.failure is None else str(result.outcome),
                }
                moment = time.time_ns()
                record = self._logs.LogRecord(
                    timestamp=moment,
                    observed_timestamp=moment,
                    context=self._in(span),
                    event_name="gen_ai.evaluation.result",
                    attributes={k: v for k, v in attributes.items() if v is not None},
                )
                self._logs.get_logger("dagengine").emit(record)
            span.set_attribute(f"dagengine.outcome.{result.metric}", str(result.outcome))
            if result.score is not None:
                span.set_attribute(f"dagengine.score.{result.metric}", result.score)
        span.end()

    def node(self, case: Any, name: str, kind: str) -> AbstractContextManager[Any]:
        attributes = {_KIND: "CHAIN", "dagengine.node": name, "dagengine.kind": kind}
        within = None if case is None else self._in(case)
        span: AbstractContextManager[Any] = self._tracer.start_as_current_span(
            name, context=within, attributes=attributes
        )
        return span

    def record(self, span: Any, outcome: NodeValue | Failure) -> None:
        kind = str(outcome.kind) if isinstance(outcome, Failure) else "ok"
        span.set_attribute("dagengine.outcome", kind)
        if isinstance(outcome, NodeValue) and outcome.verdict is not None:
            span.set_attribute("dagengine.verdict", str(outcome.verdict))

    @contextmanager
    def call(
        self, judge: str, question: Question[Any], number: int, *, decides: bool
    ) -> Iterator[Any]:
        attributes = {
            _KIND: "DECISION" if decides else "LLM",
            "decision.model_name" if decides else "llm.model_name": judge,
            "dagengine.node": question.name,
            "dagengine.question": question.key,
            "dagengine.attempt": number,
        }
        if decides:
            attributes["decision.system"] = "dagengine"
        name = f"ask {question.name}"
        with self._tracer.start_as_current_span(name, attributes=attributes) as span:
            yield span

    def note_answer(self, span: Any, answer: Answer[Any], *, decides: bool) -> None:
        counts = ("decision.token_count.input", "decision.token_count.output")
        if not decides:
            counts = ("llm.token_count.prompt", "llm.token_count.completion")
        tokens = (answer.usage.input_tokens, answer.usage.output_tokens)
        span.set_attributes(dict(zip(counts, tokens, strict=True)))


NO_SPANS = NoSpans()
