"""A whole benchmark against a server that takes 50 ms: its time beside the ideal.

    python benchmarks/speed/noise_run.py [--cases 300] [--times 20] [--in-flight 64]

Every case is run again and again over a tree of four nodes that all ask. The ideal is calls x
latency / calls in flight. The answers are kept in a store, and the same benchmark is then made
from the store, which must not call the server at all.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from server import Settings, running

from dagengine.gateway import Limits
from dagengine.judges import OpenAIJudge
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode, NonBinaryJudgementNode, TaskNode
from dagengine.reliability import Observations, repeat
from dagengine.test_case import LLMTestCase


def tree() -> DAGMetric:
    """A task and three questions one after the other, whatever the verdicts are."""
    points = TaskNode("List the points.", "points", evaluation_params=["actual_output"])
    grade = NonBinaryJudgementNode(
        "How good are the `points`?", name="grade", inputs=[points],
        then={"good": 10, "fair": 5, "poor": 0},
    )  # fmt: skip
    clear = BinaryJudgementNode(
        "Are the `points` clear?", name="clear", inputs=[points], then={True: grade, False: grade}
    )
    true = BinaryJudgementNode(
        "Are the `points` true?", name="true", inputs=[points], then={True: clear, False: clear}
    )
    return DAGMetric("tree", DAG(true))


def timed(count: int, **settings: Any) -> tuple[Observations, float, float]:
    """What a benchmark observed, its wall time and its processor time, in seconds."""
    cases = [LLMTestCase(input="q", actual_output=f"answer {n}") for n in range(count)]
    wall, cpu = time.perf_counter(), time.process_time()
    seen = repeat(cases, [tree()], **settings)
    return seen, time.perf_counter() - wall, time.process_time() - cpu


def main(
    cases: Annotated[int, typer.Option(min=1)] = 300,
    times: Annotated[int, typer.Option(min=2)] = 20,
    in_flight: Annotated[int, typer.Option(min=1)] = 64,
    latency: Annotated[float, typer.Option(help="Seconds for a call.")] = 0.05,
) -> None:
    """Measure and print; the exit code is 1 when the run from the store makes a call."""
    table = Table("run", "calls", "wall", "ideal", "ratio", "CPU per question", "without score")
    with tempfile.TemporaryDirectory() as folder, running(Settings(latency=latency)) as url:
        settings: dict[str, Any] = {
            "times": times,
            "model": OpenAIJudge("benchmark", base_url=url),
            "store": Path(folder) / "answers.db",
            "limits": Limits(max_in_flight=in_flight),
        }
        timed(2, **{**settings, "store": None})  # imports and connections
        calls = -1
        for name in ("live", "from the store"):
            seen, wall, cpu = timed(cases, **settings)
            calls = seen.totals.calls
            ideal = calls * latency / in_flight
            unscored = sum(not one.node and one.score is None for one in seen)
            table.add_row(
                name, f"{calls:,}", f"{wall:.2f} s", f"{ideal:.2f} s",
                f"{wall / ideal:.3f}" if ideal else "-",
                f"{cpu / seen.totals.asked * 1e3:.2f} ms", str(unscored),
            )  # fmt: skip
    Console(width=None if sys.stdout.isatty() else 110).print(table)
    if calls:
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
