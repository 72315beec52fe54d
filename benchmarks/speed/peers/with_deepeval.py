"""deepeval with its documented concurrency: `evaluate` with `AsyncConfig(max_concurrent=…)`.

`OpenAIModel` asks for structured output. Its limit counts cases, so more calls than the
limit may be under way. The setting `shared` hands it one HTTP client for all calls; without
it, deepeval makes a client for every call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import openai
from deepeval import evaluate
from deepeval.evaluate.configs import AsyncConfig, CacheConfig, DisplayConfig
from deepeval.metrics import (
    AnswerRelevancyMetric,
    ContextualPrecisionMetric,
    ContextualRecallMetric,
    ContextualRelevancyMetric,
    DAGMetric,
    FaithfulnessMetric,
    GEval,
)
from deepeval.metrics.dag import (
    BinaryJudgementNode,
    DeepAcyclicGraph,
    NonBinaryJudgementNode,
    TaskNode,
    VerdictNode,
)
from deepeval.models import OpenAIModel
from deepeval.test_case import LLMTestCase, LLMTestCaseParams
from job import CRITERIA, FAITHFULNESS, G_EVAL, MODEL, RAG, TREE, Job, cases, measure


def tree(model: Any) -> Any:
    """The tree of the meeting summaries."""
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
    dag = DeepAcyclicGraph(root_nodes=[headings])
    return DAGMetric(name="Format Correctness", dag=dag, model=model)


def metrics_of(workload: str, model: Any) -> list[Any]:
    """The metrics of a workload."""
    read = [LLMTestCaseParams.INPUT, LLMTestCaseParams.ACTUAL_OUTPUT]
    made: dict[str, Any] = {
        TREE: lambda: [tree(model)],
        G_EVAL: lambda: [
            GEval(name="Summary", criteria=CRITERIA, evaluation_params=read, model=model)
        ],
        FAITHFULNESS: lambda: [FaithfulnessMetric(model=model)],
        RAG: lambda: [
            AnswerRelevancyMetric(model=model),
            FaithfulnessMetric(model=model),
            ContextualPrecisionMetric(model=model),
            ContextualRecallMetric(model=model),
            ContextualRelevancyMetric(model=model),
        ],
    }
    return made[workload]()  # type: ignore[no-any-return]


def test_cases(first: int, count: int) -> list[Any]:
    """The cases as deepeval takes them."""
    rows = [asdict(one) for one in cases(first, count)]
    return [LLMTestCase(**{**row, "retrieval_context": list(row["retrieval_context"])})
            for row in rows]  # fmt: skip


def run(job: Job, first: int, count: int) -> Sequence[float | None]:
    """All scores of the cases."""
    shared = {"async_http_client": openai.DefaultAsyncHttpxClient()}
    options: dict[str, Any] = shared if job.setting == "shared" else {}
    model = OpenAIModel(model=MODEL, api_key="none", base_url=job.base_url, **options)
    done = evaluate(
        test_cases(first, count),
        metrics_of(job.workload, model),
        async_config=AsyncConfig(max_concurrent=job.in_flight, throttle_value=0),
        display_config=DisplayConfig(
            show_indicator=False, print_results=False, inspect_after_run=False
        ),
        cache_config=CacheConfig(write_cache=False, use_cache=False),
    )
    return [one.score for row in done.test_results for one in row.metrics_data or []]


if __name__ == "__main__":
    measure(run)
