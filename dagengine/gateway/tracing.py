"""Spans of a run for OpenTelemetry: one per case, in it one per node, in it one per call.

Attributes are named after the conventions of OpenInference
(https://github.com/Arize-ai/openinference/tree/main/spec) where these have a name. What was
judged and what was answered is not in them: traces go to places that data may not go to.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from dagengine.graph.values import NodeValue
from dagengine.question import Answer, Question
from dagengine.results import Failure, MetricResult
from dagengine.test_case import TestCase, case_label

_KIND = "openinference.span.kind"


_NOTHING = nullcontext()


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

    def call(self, judge: str, question: Question[Any], number: int) -> AbstractContextManager[Any]:
        """The span of one call to a judge; its value is told the answer."""
        return _NOTHING

    def answered(self, span: Any, answer: Answer[Any]) -> None:
        """Note what a call used."""


class Spans(NoSpans):
    """Spans by an OpenTelemetry tracer, for instance `trace.get_tracer("my evaluation")`."""

    def __init__(self, tracer: Any) -> None:
        from opentelemetry import trace  # whoever has a tracer has it

        self._tracer = tracer
        self._in = trace.set_span_in_context

    def case(self, index: int, case: TestCase) -> Any:
        label = case_label(case, index)
        attributes = {_KIND: "EVALUATOR", "dagengine.case": label, "dagengine.index": index}
        return self._tracer.start_span(f"case {label}", attributes=attributes)

    def end(self, span: Any, results: Sequence[MetricResult]) -> None:
        for result in results:
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
    def call(self, judge: str, question: Question[Any], number: int) -> Iterator[Any]:
        attributes = {
            _KIND: "LLM",
            "llm.model_name": judge,
            "dagengine.node": question.name,
            "dagengine.question": question.key,
            "dagengine.attempt": number,
        }
        name = f"ask {question.name}"
        with self._tracer.start_as_current_span(name, attributes=attributes) as span:
            yield span

    def answered(self, span: Any, answer: Answer[Any]) -> None:
        span.set_attribute("llm.token_count.prompt", answer.usage.input_tokens)
        span.set_attribute("llm.token_count.completion", answer.usage.output_tokens)


NO_SPANS = NoSpans()
