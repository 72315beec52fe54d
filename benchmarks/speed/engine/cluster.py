"""A run on the workers of a Dask cluster: measured with a few, and foretold for many.

    python benchmarks/speed/engine/cluster.py [--workers 2,4,8] [--latency 1] [--seconds 10]
    python benchmarks/speed/engine/cluster.py --foretell 10,100,300,1000

Scheduler, workers and client are processes of this machine. The judge only waits, so that two
cores are enough for some workers: every question takes `--latency` seconds, and every worker has
`--calls` of them in progress. Cases have one question each, all different. *Ideal* is the time of
these waits alone, with all places taken. Processor time is that of each kind of process between
the first case and the last row, without what they use when they have nothing to do.

The simulation has queues at the client, the scheduler, each worker and the judge. What each of them
needs for a case, a question and a chunk is measured with the smallest number of workers only. Where
all share the cores of this machine they queue for these; the forecasts have a core for each.

Targets: the simulation is within 15 % of every measurement; eight workers get 0.85 of the ideal.
"""

from __future__ import annotations

import heapq
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

import dagengine.evaluation  # noqa: F401 - imported before the clock starts
from dagengine import Limits, evaluate
from dagengine.execution import Workers
from dagengine.execution.cluster import dask_cluster
from dagengine.judges import ScriptedJudge
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode
from dagengine.test_case import LLMTestCase

THREADS = 4  # chunks that a worker judges at the same time (`dask worker --nthreads`)
CHUNK = 64
CLOSE, ENOUGH = 0.15, 0.85
_IDLE = 3.0  # seconds in which it is measured what processes use that have nothing to do
_DASK = (sys.executable, "-m")
HOP = 0.005  # seconds that a message waits for others that travel with it


@dataclass(frozen=True)
class Load:
    """A run: so many workers with so many calls each in progress, of so many seconds."""

    workers: int
    calls: int
    latency: float
    cases: int

    @property
    def ideal(self) -> float:
        """Seconds, if nothing but the judge took time."""
        return self.cases * self.latency / (self.workers * self.calls)

    @property
    def chunk(self) -> int:
        """Cases of a chunk, as the coordinator cuts them."""
        return max(1, min(CHUNK, self.cases // (4 * self.workers * THREADS)))


@dataclass(frozen=True)
class Costs:
    """Seconds of processor time for one case, of all of a kind of process together."""

    client: float
    scheduler: float
    worker: float


# -- measured ------------------------------------------------------------------------------------


@contextmanager
def cluster(workers: int) -> Iterator[tuple[str, int, list[int]]]:
    """The address of a scheduler, its process, and those of its workers."""
    with tempfile.TemporaryDirectory() as folder:
        note = Path(folder, "scheduler.json")
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": folder}
        common = ["--scheduler-file", str(note), "--host", "127.0.0.1", "--no-dashboard"]
        scheduler = [*_DASK, "distributed.cli.dask_scheduler", *common, "--port", "0"]
        worker = [*_DASK, "distributed.cli.dask_worker", *common, "--no-nanny"]
        worker += ["--nthreads", str(THREADS), "--memory-limit", "0"]
        started = [subprocess.Popen(scheduler, **quiet)]  # type: ignore[call-overload]
        try:
            started += [subprocess.Popen(worker, **quiet) for _ in range(workers)]  # type: ignore[call-overload]
            while not note.exists():
                time.sleep(0.1)
            address = json.loads(note.read_text())["address"]
            yield address, started[0].pid, [process.pid for process in started[1:]]
        finally:
            for process in started:
                process.kill()
            for process in started:
                process.wait()


def processor(process: int) -> float:
    """Seconds of processor time that a process has used."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def judge(latency: float) -> ScriptedJudge:
    """A judge that only waits."""

    async def answer(question: object) -> bool:
        import anyio

        await anyio.sleep(latency)
        return True

    return ScriptedJudge(answer, name="waits")


def run(load: Load, address: str) -> None:
    """Judge all cases."""
    node = BinaryJudgementNode("Good?", evaluation_params=["input"], then={True: 10, False: 0})
    cases = [LLMTestCase(input=f"case {number}") for number in range(load.cases)]
    result = evaluate(
        cases, [DAGMetric("good", DAG(node))], model=judge(load.latency), show=False,
        cluster=Workers(address, load.workers),
        limits=Limits(max_in_flight=load.workers * load.calls),
    )  # fmt: skip
    if result.totals.calls != load.cases or set(result.scores("good")) != {1.0}:
        raise SystemExit(f"{result.totals.calls} calls for {load.cases} cases")


def measured(load: Load, repeats: int) -> tuple[float, Costs]:
    """Seconds by the clock, and the processor time of a case, of the shortest run.

    Other programs on the machine can only make a run longer.
    """
    with cluster(load.workers) as (address, scheduler, workers):
        small = load.workers * load.calls
        run(Load(load.workers, load.calls, load.latency, small), address)  # imports, connections
        processes = [os.getpid(), scheduler, *workers]
        before = [processor(process) for process in processes]
        time.sleep(_IDLE)
        idle = [
            (processor(process) - start) / _IDLE
            for process, start in zip(processes, before, strict=True)
        ]
        turns: list[tuple[float, Costs]] = []
        for _ in range(repeats):
            before, began = [processor(process) for process in processes], time.perf_counter()
            run(load, address)
            wall = time.perf_counter() - began
            client, lent, *others = (
                max(0.0, processor(process) - start - wall * rest) / load.cases
                for process, start, rest in zip(processes, before, idle, strict=True)
            )
            turns.append((wall, Costs(client, lent, sum(others))))
    return min(turns, key=lambda turn: turn[0])


# -- foretold ------------------------------------------------------------------------------------


class Clock:
    """Events in the order of their time."""

    def __init__(self) -> None:
        self.now = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()

    def after(self, seconds: float, event: Callable[[], None]) -> None:
        """Have something happen later."""
        heapq.heappush(self._events, (self.now + seconds, next(self._numbers), event))

    def run(self) -> float:
        """Let everything happen; returns when the last event did."""
        while self._events:
            self.now, _, event = heapq.heappop(self._events)
            event()
        return self.now


class Server:
    """Serves one after the other, or several at the same time."""

    def __init__(self, clock: Clock, places: int = 1) -> None:
        self._clock, self._free = clock, places
        self._waiting: list[tuple[float, Callable[[], None]]] = []
        self._first = 0

    def serve(self, seconds: float, then: Callable[[], None]) -> None:
        """Take so long, in turn."""
        self._waiting.append((seconds, then))
        self._next()

    def _next(self) -> None:
        while self._free and self._first < len(self._waiting):
            seconds, then = self._waiting[self._first]
            self._first += 1
            self._free -= 1
            self._clock.after(seconds, partial(self._end, then))

    def _end(self, then: Callable[[], None]) -> None:
        self._free += 1
        then()
        self._next()


class Simulation:
    """One run: chunks from the client by the scheduler to workers, questions, rows back."""

    def __init__(self, load: Load, costs: Costs, cores: int | None) -> None:
        """With `cores` all processes share so many; else each has its own."""
        self.clock = Clock()
        shared = None if cores is None else Server(self.clock, cores)
        self._client = shared or Server(self.clock)
        self._scheduler = shared or Server(self.clock)
        self._workers = [shared or Server(self.clock) for _ in range(load.workers)]
        self._judges = [Server(self.clock, load.calls) for _ in range(load.workers)]
        self._load, self._costs = load, costs
        self._left = load.cases
        self._room = load.workers * THREADS * 2
        self._queues = [0] * load.workers

    def seconds(self) -> float:
        """When the last row is there."""
        for _ in range(self._room):
            self._hand_out()
        return self.clock.run()

    def _hand_out(self) -> None:
        """The next chunk to the least busy worker."""
        size = min(self._load.chunk, self._left)
        if not size:
            return
        self._left -= size
        worker = min(range(self._load.workers), key=self._queues.__getitem__)
        self._queues[worker] += size
        costs = self._costs
        # Half of what client and scheduler do for a case is on its way there, half on its way back.
        to_worker = partial(self.clock.after, HOP, partial(self._judge, worker, size))
        self._client.serve(
            size * costs.client / 2,
            partial(self._scheduler.serve, size * costs.scheduler / 4, to_worker),
        )

    def _judge(self, worker: int, size: int) -> None:
        left, half = [size], self._costs.worker / 2
        part = self._costs.scheduler / 4

        def ended() -> None:
            self._scheduler.serve(part, lambda: None)  # the answer, for others
            left[0] -= 1
            if not left[0]:
                self._queues[worker] -= size
                self._scheduler.serve(size * part, partial(self.clock.after, HOP, back))

        def back() -> None:
            self._client.serve(size * self._costs.client / 2, self._hand_out)

        def answered() -> None:
            self._workers[worker].serve(half, ended)

        def call() -> None:
            self._judges[worker].serve(self._load.latency, answered)

        def ask() -> None:  # whether another worker asks the same
            self._scheduler.serve(part, partial(self.clock.after, HOP, call))

        for _ in range(size):
            self._workers[worker].serve(half, partial(self.clock.after, HOP, ask))


def foretold(load: Load, costs: Costs, cores: int | None = None) -> float:
    """Seconds by the clock."""
    return Simulation(load, costs, cores).seconds()


# -- printed -------------------------------------------------------------------------------------


def numbers(text: str) -> list[int]:
    """Whole numbers with commas between them."""
    return [int(part) for part in text.split(",") if part]


def compare(loads: Sequence[Load], repeats: int) -> tuple[Costs, bool]:
    """Measure and foretell each; returns the costs of a case, and whether the targets hold."""
    table = Table(
        "workers", "cases", "ideal", "measured", "of ideal", "simulated", "client", "scheduler",
        "workers", title="milliseconds of processor time a case are on the right",
    )  # fmt: skip
    costs, holds = Costs(0, 0, 0), True
    for load in loads:
        wall, used = measured(load, repeats)
        costs = costs if costs.client else used
        simulated = foretold(load, costs, os.cpu_count())
        holds &= abs(simulated / wall - 1) <= CLOSE and load.ideal / wall >= ENOUGH
        milliseconds = (f"{1000 * each:.2f}" for each in (used.client, used.scheduler, used.worker))
        table.add_row(
            str(load.workers), str(load.cases), f"{load.ideal:.2f} s", f"{wall:.2f} s",
            f"{load.ideal / wall:.2f}", f"{simulated:.2f} s", *milliseconds,
        )  # fmt: skip
    Console(width=100).print(table)
    return costs, holds


def main(
    workers: Annotated[str, typer.Option(help="Numbers of workers to measure.")] = "2,4,8",
    foretell: Annotated[str, typer.Option(help="Numbers to simulate.")] = "10,30,100,300,1000",
    latency: Annotated[float, typer.Option(help="Seconds of one answer.")] = 1.0,
    calls: Annotated[int, typer.Option(help="Calls in progress, for each worker.")] = 16,
    seconds: Annotated[float, typer.Option(help="How long a run takes at best.")] = 10.0,
    repeats: Annotated[int, typer.Option(help="Runs; the shortest is shown.")] = 3,
) -> None:
    """Measure, simulate and print."""
    dask_cluster._PATIENCE = 120  # workers may be slow to start here

    def load(count: int, latency: float) -> Load:
        return Load(count, calls, latency, round(seconds / latency) * count * calls)

    costs, holds = compare([load(count, latency) for count in numbers(workers)], repeats)
    print(f"within {CLOSE:.0%}, and {ENOUGH} of the ideal: {'holds' if holds else 'FAILS'}")
    table = Table("workers", "answers take", "answers a second", "of ideal")
    for count in numbers(foretell):
        for each in (latency, 5.0):
            run_ = Load(count, calls, each, 10 * count * calls)
            took = foretold(run_, costs)
            table.add_row(
                str(count), f"{each:g} s", f"{run_.cases / took:,.0f}", f"{run_.ideal / took:.2f}"
            )
    Console(width=100).print(table)


if __name__ == "__main__":
    typer.run(main)
