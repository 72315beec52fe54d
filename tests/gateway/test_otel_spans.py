"""Spans of a run: a tree of cases, nodes and calls, without what was judged."""

import json
from typing import Any

import anyio.lowlevel
import pytest

pytest.importorskip("opentelemetry.sdk")

from graphs.packing_judge import PackingJudge
from opentelemetry import _logs
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs import export as log_export
from opentelemetry.sdk._logs.export import SimpleLogRecordProcessor
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from dagengine import a_evaluate
from dagengine.errors import InputError, RefusedError
from dagengine.judges import ScriptedJudge
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode, TaskNode
from dagengine.question import Question
from dagengine.test_case import LLMTestCase
from dagengine.traces import case_of_spans

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


async def by_question_later(question: Question[Any]) -> Any:
    """The same when others have had a turn: several cases are in progress."""
    await anyio.lowlevel.checkpoint()
    return by_question(question)


async def spans_of(judge: Any, count: int) -> list[ReadableSpan]:
    kept = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    cases = [LLMTestCase(input=f"secret {number}") for number in range(count)]
    tracer = provider.get_tracer("tests")
    await a_evaluate(cases, [tree()], model=judge, show=False, tracer=tracer)
    return list(kept.get_finished_spans())


@pytest.mark.parametrize("answer", [by_question, by_question_later])
async def test_every_case_has_its_nodes_and_every_node_its_calls(answer: Any) -> None:
    found = await spans_of(ScriptedJudge(answer), 3)
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


async def test_a_judge_that_decides_has_spans_of_decisions() -> None:
    judge = PackingJudge()
    kept, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    asked = BinaryJudgementNode(
        "About food?", evaluation_params=["input"], then={True: 10, False: 0}, name="food"
    )
    metric = DAGMetric("food", DAG(asked), model=judge)
    tracer = provider.get_tracer("tests")
    await a_evaluate([LLMTestCase(input="bread")], [metric], show=False, tracer=tracer)
    (attributes,) = (
        dict(span.attributes or {}) for span in kept.get_finished_spans() if span.name == "ask food"
    )
    assert attributes["openinference.span.kind"] == "DECISION"
    assert attributes["decision.model_name"] == judge.identity
    assert attributes["decision.token_count.input"] == 0
    assert not any(name.startswith("llm.") for name in attributes)


async def test_every_result_is_an_event_in_the_context_of_its_case(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # In older versions, such as 1.36, it is InMemoryLogExporter.
    names = vars(log_export)
    records = (names.get("InMemoryLogRecordExporter") or names["InMemoryLogExporter"])()
    logs = LoggerProvider()
    logs.add_log_record_processor(SimpleLogRecordProcessor(records))
    monkeypatch.setattr(_logs, "get_logger", logs.get_logger)
    found = await spans_of(ScriptedJudge({"topic": "bread", "food": True}), 1)
    (record,) = (log.log_record for log in records.get_finished_logs())
    (case,) = (span for span in found if span.parent is None)
    assert case.context is not None
    assert record.event_name == "gen_ai.evaluation.result"
    assert dict(record.attributes or {}) == {
        "gen_ai.evaluation.name": "food",
        "gen_ai.evaluation.score.value": 1.0,
        "gen_ai.evaluation.score.label": "pass",
    }
    assert record.span_id == case.context.span_id


async def test_a_case_of_a_trace_is_linked_to_the_span_that_was_judged() -> None:
    kept, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    ids = {"trace_id": f"{7:032x}", "span_id": f"{9:016x}"}
    cases = [
        LLMTestCase(input="secret", additional_metadata=metadata)
        for metadata in (ids, {**ids, "span_id": "of another tool"}, None)
    ]
    tracer, judge = provider.get_tracer("tests"), ScriptedJudge({"topic": "x", "food": True})
    await a_evaluate(cases, [tree()], model=judge, show=False, tracer=tracer)
    roots = [span for span in kept.get_finished_spans() if span.parent is None]
    roots.sort(key=lambda span: span.name)
    links = [[(link.context.trace_id, link.context.span_id) for link in r.links] for r in roots]
    assert links == [[(7, 9)], [], []]


async def test_spans_kept_in_memory_are_a_case() -> None:
    kept, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    tracer = provider.get_tracer("app")
    with tracer.start_as_current_span("agent") as root:
        root.set_attributes({"input.value": "Rates?", "output.value": "I could not look."})
        kind = {"openinference.span.kind": "TOOL"}
        with tracer.start_as_current_span("rates", attributes=kind) as tool:
            tool.record_exception(TimeoutError("no answer"))
            tool.set_status(StatusCode.ERROR, "TimeoutError: no answer")
    case = case_of_spans(kept.get_finished_spans())
    assert isinstance(case, LLMTestCase)
    assert (case.input, case.actual_output) == ("Rates?", "I could not look.")
    assert [(call.name, call.error) for call in case.tools_called or ()] == [("rates", "no answer")]
    with tracer.start_as_current_span("another"):
        pass
    with pytest.raises(InputError, match="these are of 2 traces"):
        case_of_spans(kept.get_finished_spans())
    with pytest.raises(InputError, match="these are none"):
        case_of_spans([])
