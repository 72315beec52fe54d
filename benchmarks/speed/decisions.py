"""What packing and speculation save: requests, wall and processor time, on the local server.

    python benchmarks/speed/decisions.py [--cases 40] [--latency 0.05] [--times 3]

A tree (a task and two decisions in a row) and five RAG metrics, by a chat model, by a decision
model that gets every decision alone, packed, and packed with speculation; tasks and extractions go
to a chat model. Medians of runs taken in turns; processor time is that of this process.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from statistics import median
from typing import Annotated, Any

import typer
from job import cases as meetings
from rich.console import Console
from rich.table import Table
from server import Settings, running

from dagengine import evaluate
from dagengine.judges import DecisionJudge, OpenAIJudge
from dagengine.metrics import (
    AnswerRelevancyMetric,
    ContextualPrecisionMetric,
    ContextualRecallMetric,
    ContextualRelevancyMetric,
    DAGMetric,
    FaithfulnessMetric,
)
from dagengine.metrics.dag import (
    DAG,
    BinaryJudgementNode,
    NonBinaryJudgementNode,
    TaskNode,
    VerdictNode,
)
from dagengine.test_case import LLMTestCase

FIVE = (
    AnswerRelevancyMetric,
    FaithfulnessMetric,
    ContextualPrecisionMetric,
    ContextualRecallMetric,
    ContextualRelevancyMetric,
)


def tree() -> DAGMetric:
    """The headings of a summary: there, and in order?"""
    order = NonBinaryJudgementNode(
        "Are the headings in the order 'intro', 'body', 'conclusion'?",
        children=[VerdictNode("Yes", 10), VerdictNode("Two are out", 4), VerdictNode("No", 2)],
        name="order",
    )
    present = BinaryJudgementNode(
        "Are all three headings there?", children=[VerdictNode(False, 0), order], name="present"
    )
    headings = TaskNode(
        "Extract all headings of `actual_output`",
        output_label="Headings",
        evaluation_params=["actual_output"],
        children=[present, order],
    )
    return DAGMetric("Summary format", DAG(root_node=headings))


WORKLOADS: dict[str, Callable[[], list[Any]]] = {
    "tree": lambda: [tree()],
    "five RAG metrics": lambda: [kind() for kind in FIVE],
}


def judges(url: str) -> dict[str, Any]:
    """The four ways to ask, by name."""
    chat = OpenAIJudge("benchmark", base_url=url)
    decide: dict[str, Any] = {"base_url": url, "writer": chat}
    return {
        "chat model": chat,
        "decisions alone": DecisionJudge(pack=False, **decide),
        "packed": DecisionJudge(speculate="never", **decide),
        "packed and speculated": DecisionJudge(**decide),
    }


def measured(metrics: list[Any], judge: Any, cases: list[LLMTestCase]) -> tuple[float, ...]:
    """Requests, questions asked ahead in vain, seconds of wall and of processor time."""
    wall, cpu = time.perf_counter(), time.process_time()
    done = evaluate(cases, metrics, model=judge, show=False)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    lost = sum(one.score is None for row in done.rows for one in row.metrics)
    if lost:
        raise SystemExit(f"{lost} scores are missing: {done.rows[0].metrics[0].failure}")
    return done.totals.requests, done.totals.unneeded, wall, cpu


def main(
    cases: Annotated[int, typer.Option(help="Cases of each run.")] = 40,
    latency: Annotated[float, typer.Option(help="Seconds that every request takes.")] = 0.05,
    times: Annotated[int, typer.Option(help="Runs of each way.")] = 3,
) -> None:
    """Measure and print."""
    data = [
        LLMTestCase(
            input=one.input,
            actual_output=one.actual_output,
            expected_output=one.expected_output,
            retrieval_context=list(one.retrieval_context),
        )
        for one in meetings(0, cases)
    ]
    console = Console()
    with running(Settings(latency=latency)) as url:
        for workload, make in WORKLOADS.items():
            ways = judges(url)
            for judge in ways.values():  # whatever is made once, is made
                measured(make(), judge, data[:1])
            runs: dict[str, list[tuple[float, ...]]] = {name: [] for name in ways}
            for _ in range(times):
                for name, judge in ways.items():
                    runs[name].append(measured(make(), judge, data))
            table = Table("way", "requests", "a case", "in vain", "wall s", "processor s")
            table.title = f"{workload}, {cases} cases, {latency * 1000:g} ms a request"
            for name, seen in runs.items():
                requests, unneeded, wall, cpu = (median(part) for part in zip(*seen, strict=True))
                row = (f"{requests:g}", f"{requests / cases:.2f}", f"{unneeded:g}")
                table.add_row(name, *row, f"{wall:.2f}", f"{cpu:.2f}")
            console.print(table)
    console.print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors", style="dim")


if __name__ == "__main__":
    typer.run(main)
