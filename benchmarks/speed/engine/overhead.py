"""What the engine costs beside the judge's own time.

    python benchmarks/speed/engine/overhead.py [--nodes 1000000] [--slow-cases 640]

Three tables: processor time per node with nodes that really suspend (bare tasks of anyio, plain
Python nodes, then questions to a judge that answers at once), peak memory of the whole run, and
wall time against the ideal `cases * depth * latency / limit` with a judge that takes 50 ms.
"""

from __future__ import annotations

import heapq
import resource
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Annotated, Any

import anyio
import anyio.lowlevel
import typer
from rich.console import Console
from rich.table import Table

from dagengine import Limits, compile_metrics, stream
from dagengine.execution.runner import Runner  # noqa: F401 - imported before the clock starts
from dagengine.judges import ScriptedJudge
from dagengine.metrics import BaseMetric, DAGMetric
from dagengine.metrics.dag import DAG, BaseNode, BinaryJudgementNode, CodeNode, TaskNode
from dagengine.question import Question
from dagengine.results import CaseResult
from dagengine.test_case import LLMTestCase

DEPTH = 10


async def suspended(*values: Any) -> int:
    """A node's work that gives up its turn, as every real answer does."""
    await anyio.lowlevel.checkpoint()
    return len(values)


async def passed(value: Any) -> float:
    """The last node's work: a score."""
    await anyio.lowlevel.checkpoint()
    return 1.0 if value else 0.0


def code_metric() -> DAGMetric:
    """Ten plain Python nodes: a chain with a second reader at every other node."""
    first = CodeNode(suspended, evaluation_params=["input"], name="n0")
    nodes: list[BaseNode] = [first]
    for number in range(1, DEPTH - 1):
        inputs = [nodes[-1]] if number % 2 else nodes[-2:]
        nodes.append(CodeNode(suspended, inputs=inputs, name=f"n{number}"))
    last = CodeNode(passed, inputs=[nodes[-1]], name="last")
    return DAGMetric("code", DAG(root_node=last))


def judged_metric() -> DAGMetric:
    """Ten questions: a task, and nine judgements that each read it."""
    task = TaskNode("Extract the facts", "Facts", evaluation_params=["input"])
    after: Any = 10
    for number in reversed(range(DEPTH - 1)):
        name = f"question {number}"
        then = {True: after, False: 0}
        after = BinaryJudgementNode(
            f"Is it so ({number})?",
            evaluation_params=["input"],
            inputs=[task],
            then=then,
            name=name,
        )
    return DAGMetric("judged", DAG(root_node=after))


async def at_once(question: Question[Any]) -> Any:
    """An answer that suspends once and takes no time."""
    await anyio.lowlevel.checkpoint()
    return "facts" if question.name == "Facts" else True


def later(seconds: float) -> Callable[[Question[Any]], Awaitable[Any]]:
    """An answer that takes `seconds`."""

    async def answer(question: Question[Any]) -> Any:
        await anyio.sleep(seconds)
        return "facts" if question.name == "Facts" else True

    return answer


def cases(count: int) -> Iterator[LLMTestCase]:
    """Cases made on the way, none of them equal."""
    for number in range(count):
        yield LLMTestCase(input=f"case {number}")


def run(metric: BaseMetric, judge: Any, count: int, limit: int) -> tuple[float, float]:
    """Processor and wall seconds of a run whose rows are counted and dropped."""
    rows = 0

    def take(row: CaseResult) -> None:
        nonlocal rows
        assert row.metrics[0].score == 1.0, row
        rows += 1

    limits = Limits(max_in_flight=limit, remembered=1000)
    cpu, wall = time.process_time(), time.perf_counter()

    async def main() -> None:
        await stream(cases(count), [metric], take, model=ScriptedJudge(judge), limits=limits)

    anyio.run(main)
    assert rows == count
    return time.process_time() - cpu, time.perf_counter() - wall


def bare(count: int, workers: int = 288) -> float:
    """Processor seconds of what no engine does without: tasks, a heap, the values of each case."""

    async def main() -> None:
        coming, ready = enumerate(cases(count)), list[tuple[int, int, dict[int, int]]]()

        async def work() -> None:
            while True:
                if not ready:
                    place, _ = next(coming, (None, None))
                    if place is None:
                        return
                    ready.append((place, 0, {}))
                place, node, values = heapq.heappop(ready)
                values[node] = await suspended(place)
                if node + 1 < DEPTH:
                    heapq.heappush(ready, (place, node + 1, values))

        async with anyio.create_task_group() as group:
            for _ in range(workers):
                group.start_soon(work)

    cpu = time.process_time()
    anyio.run(main)
    return time.process_time() - cpu


def peak_megabytes() -> float:
    """The most memory this process has held so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main(
    nodes: Annotated[int, typer.Option(help="Plain Python nodes to run.")] = 1_000_000,
    questions: Annotated[int, typer.Option(help="Questions to run.")] = 100_000,
    slow_cases: Annotated[int, typer.Option(help="Cases with a 50 ms judge.")] = 640,
) -> None:
    """Measure and print."""
    for metric in (code_metric(), judged_metric()):
        compile_metrics([metric])
        run(metric, at_once, 50, 64)
    before = peak_megabytes()
    cpu, _ = run(code_metric(), at_once, nodes // DEPTH, 64)
    memory = peak_megabytes()
    table = Table("what", "nodes", "CPU per node", "target", "peak memory", "target")
    grown = f"{memory:.0f} MB ({memory - before:+.0f})"
    each = f"{cpu / nodes * 1e6:.1f} µs"
    table.add_row("engine alone, every node suspends", f"{nodes:,}", each, "15 µs", grown, "150 MB")
    alone = cpu / nodes
    least = f"{bare(nodes // DEPTH) / nodes * 1e6:.1f} µs"
    table.add_row("bare tasks of anyio for it", f"{nodes:,}", least, "-", "-", "-")
    cpu, _ = run(judged_metric(), at_once, questions // DEPTH, 64)
    each = f"{cpu / questions * 1e6:.1f} µs"
    table.add_row("with question, key, gateway, answer", f"{questions:,}", each, "-", "-", "-")
    asking = f"{(cpu / questions - alone) * 1e6:.1f} µs"
    table.add_row("of it beside the engine", f"{questions:,}", asking, "60 µs", "-", "-")
    Console().print(table)

    latency, limit = 0.05, 64
    _, wall = run(judged_metric(), later(latency), slow_cases, limit)
    ideal = slow_cases * DEPTH * latency / limit
    table = Table("cases", "depth", "latency", "in flight", "wall", "ideal", "ratio", "target")
    table.add_row(
        str(slow_cases), str(DEPTH), "50 ms", str(limit), f"{wall:.2f} s", f"{ideal:.2f} s",
        f"{wall / ideal:.3f}", "1.10",
    )  # fmt: skip
    Console().print(table)


if __name__ == "__main__":
    typer.run(main)
