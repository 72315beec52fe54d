"""dagengine as it comes: `evaluate` with a limit on calls in flight."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from job import CRITERIA, FAITHFULNESS, G_EVAL, MODEL, RAG, TREE, Job, cases, measure

from dagengine import Limits, evaluate
from dagengine.judges import OpenAIJudge
from dagengine.metrics import (
    AnswerRelevancyMetric,
    BaseMetric,
    ContextualPrecisionMetric,
    ContextualRecallMetric,
    ContextualRelevancyMetric,
    DAGMetric,
    FaithfulnessMetric,
    GEval,
)
from dagengine.metrics.dag import (
    DAG,
    BinaryJudgementNode,
    NonBinaryJudgementNode,
    TaskNode,
    VerdictNode,
)
from dagengine.test_case import LLMTestCase, LLMTestCaseParams


def tree() -> DAGMetric:
    """The tree of the meeting summaries (see `examples/meeting_summary`)."""
    order = NonBinaryJudgementNode(
        criteria="Are the summary headings in the correct order: 'intro' => 'body' => "
        "'conclusion'?",
        children=[
            VerdictNode(verdict="Yes", score=10),
            VerdictNode(verdict="Two are out of order", score=4),
            VerdictNode(verdict="All out of order", score=2),
        ],
    )
    present = BinaryJudgementNode(
        criteria="Does the summary headings contain all three: 'intro', 'body', and 'conclusion'?",
        children=[VerdictNode(verdict=False, score=0), VerdictNode(verdict=True, child=order)],
    )
    headings = TaskNode(
        instructions="Extract all headings in `actual_output`",
        evaluation_params=[LLMTestCaseParams.ACTUAL_OUTPUT],
        output_label="Summary headings",
        children=[present, order],
    )
    return DAGMetric(name="Format Correctness", dag=DAG(root_node=headings))


def metrics_of(workload: str) -> list[BaseMetric]:
    """The metrics of a workload."""
    read = [LLMTestCaseParams.INPUT, LLMTestCaseParams.ACTUAL_OUTPUT]
    made: dict[str, Any] = {
        TREE: lambda: [tree()],
        G_EVAL: lambda: [GEval(name="Summary", criteria=CRITERIA, evaluation_params=read)],
        FAITHFULNESS: lambda: [FaithfulnessMetric()],
        RAG: lambda: [
            AnswerRelevancyMetric(),
            FaithfulnessMetric(),
            ContextualPrecisionMetric(),
            ContextualRecallMetric(),
            ContextualRelevancyMetric(),
        ],
    }
    return made[workload]()  # type: ignore[no-any-return]


def test_cases(first: int, count: int) -> list[LLMTestCase]:
    """The cases as the engine takes them."""
    return [LLMTestCase(**asdict(one)) for one in cases(first, count)]


def run(job: Job, first: int, count: int) -> Sequence[float | None]:
    """All scores of the cases."""
    done = evaluate(
        test_cases(first, count),
        metrics_of(job.workload),
        model=OpenAIJudge(MODEL, base_url=job.base_url),
        limits=Limits(max_in_flight=job.in_flight),
        show=False,
    )
    return [metric.score for row in done.rows for metric in row.metrics]


if __name__ == "__main__":
    measure(run)
