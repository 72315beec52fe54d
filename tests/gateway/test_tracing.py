"""Spans of a run: a tree of cases, nodes and calls, without what was judged."""

import json
from typing import Any

import pytest

pytest.importorskip("opentelemetry.sdk")

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from dagengine import a_evaluate
from dagengine.errors import RefusedError
from dagengine.judges import ScriptedJudge
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode, TaskNode
from dagengine.question import Question
from dagengine.test_case import LLMTestCase

pytestmark = pytest.mark.anyio


def tree() -> DAGMetric:
    topic = TaskNode("Name the topic.", "topic", evaluation_params=["input"])
    asked = BinaryJudgementNode(
        "About food?", inputs=[topic], then={True: 10, False: 0}, name="food"
    )
    return DAGMetric(name="food", dag=DAG(root_nodes=[topic, asked]))


def by_question(question: Question[Any]) -> Any:
    """Another topic for every case: equal questions would be asked once."""
    return True if question.name == "food" else question.key[:9]


async def spans_of(judge: Any, count: int) -> list[ReadableSpan]:
    kept = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    cases = [LLMTestCase(input=f"secret {number}") for number in range(count)]
    tracer = provider.get_tracer("tests")
    await a_evaluate(cases, [tree()], model=judge, show=False, tracer=tracer)
    return list(kept.get_finished_spans())


async def test_every_case_has_its_nodes_and_every_node_its_calls() -> None:
    found = await spans_of(ScriptedJudge(by_question), 3)
    names = {span.context.span_id: span.name for span in found if span.context}
    tree = sorted(
        (names.get(span.parent.span_id) if span.parent else None, span.name)
        for span in found
        if span.parent
    )
    assert tree == sorted(
        pair
        for number in range(3)
        for pair in [
            (f"case case {number}", "food"),
            (f"case case {number}", "topic"),
            ("food", "ask food"),
            ("topic", "ask topic"),
        ]
    )
    assert len([span for span in found if span.parent is None]) == 3


async def test_spans_say_how_it_ended_and_nothing_of_what_was_judged() -> None:
    found = await spans_of(ScriptedJudge({"topic": "bread", "food": True}), 1)
    said = {span.name: dict(span.attributes or {}) for span in found}
    assert said["case case 0"]["dagengine.score.food"] == 1.0
    assert said["food"]["dagengine.verdict"] == "True"
    assert said["ask food"]["openinference.span.kind"] == "LLM"
    text = json.dumps([dict(span.attributes or {}) for span in found], default=str)
    assert "secret" not in text
    assert "bread" not in text


async def test_a_call_that_failed_is_marked() -> None:
    refused = ScriptedJudge({"topic": RefusedError("no"), "food": True})
    found = {span.name: span for span in await spans_of(refused, 1)}
    assert found["ask topic"].status.is_ok is False
    assert (found["topic"].attributes or {})["dagengine.outcome"] == "judge_refused"
    assert (found["case case 0"].attributes or {})["dagengine.outcome.food"] == "judge_refused"
