"""When rows leave: how many of all attempts are made by then.

    python benchmarks/speed/engine/flow.py [--cases 600] [--rejected 0.05] [--seeds 3]

A tree of three questions per case runs against a judge that takes 50 ms and rejects some of its
calls (HTTP 429) whatever the load: with 64 calls in flight, with 900 requests per minute, and with
600 of them and a Retry-After of two seconds. Printed are the shares of all attempts that were made
when row 1, row 60 and the middle row left, medians over the seeds. Time is simulated
(`trio.testing.MockClock`), so that nothing depends on the machine.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any

import anyio
import typer
from rich.console import Console
from rich.table import Table
from trio.testing import MockClock

from dagengine import Limits, stream
from dagengine.errors import ProviderError
from dagengine.judges import ScriptedJudge
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode, TaskNode
from dagengine.results import CaseResult
from dagengine.test_case import LLMTestCase

LATENCY = 0.05  # seconds
SETTINGS: Mapping[str, tuple[Mapping[str, Any], float | None]] = {
    "64 in flight": ({"max_in_flight": 64}, None),
    "900 requests a minute": ({"requests_per_minute": 900}, None),
    "600 a minute, Retry-After 2 s": ({"requests_per_minute": 600}, 2.0),
}


def metric() -> DAGMetric:
    """Three questions, one after the other."""
    last = BinaryJudgementNode("Good?", evaluation_params=["input"], then={True: 10, False: 0})
    middle = BinaryJudgementNode("Fair?", evaluation_params=["input"], then={True: last, False: 0})
    return DAGMetric("tree", DAG(TaskNode("Extract", "facts", [middle], ["input"])))


async def shares(
    cases: int, rejected: float, seed: int, limits: Limits, retry_after: float | None
) -> list[float]:
    """Of every row, in order: the share of all attempts that were made when it left."""
    pick, made, left = random.Random(seed), 0, list[int]()

    async def answer(question: Any) -> Any:
        nonlocal made
        made += 1
        if pick.random() < rejected:
            return ProviderError("HTTP 429", transient=True, status=429, retry_after=retry_after)
        await anyio.sleep(LATENCY)
        return "facts" if "facts" in question.name else True

    def take(row: CaseResult) -> None:
        assert row.metrics[0].score == 1.0
        left.append(made)

    data = [LLMTestCase(input=f"case {number}") for number in range(cases)]
    await stream(data, [metric()], take, model=ScriptedJudge(answer), limits=limits)
    return [count / made for count in left]


def run(cases: int, rejected: float, seed: int, how: str) -> list[float]:
    """The shares of one run on a clock that jumps."""
    given, retry_after = SETTINGS[how]
    random.seed(seed)  # the jitter of waits
    work = partial(shares, cases, rejected, seed, Limits(**given, attempts=20), retry_after)
    return anyio.run(
        work, backend="trio", backend_options={"clock": MockClock(autojump_threshold=0)}
    )


def main(
    cases: Annotated[int, typer.Option(help="Cases of three questions.")] = 600,
    rejected: Annotated[float, typer.Option(help="Share of the calls that are rejected.")] = 0.05,
    seeds: Annotated[int, typer.Option(help="Runs of each setting.")] = 3,
) -> None:
    """Measure and print."""
    table = Table("limits", "row 1", "row 60", f"row {cases // 2}", title="share of all attempts")
    for how in SETTINGS:
        found = [run(cases, rejected, seed, how) for seed in range(seeds)]
        shown = (statistics.median(one[row] for one in found) for row in (0, 59, cases // 2 - 1))
        table.add_row(how, *(f"{share:.1%}" for share in shown))
    Console().print(table)


if __name__ == "__main__":
    typer.run(main)
