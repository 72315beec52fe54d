"""What every measured client shares: the cases, and the protocol with `throughput.py`.

The client reads its job as one line of JSON, runs a few cases to warm up, prints `WARM`,
waits for a line, runs the cases between two looks at the clocks, and prints `DONE` and what
it measured. Lines that its libraries print are of no matter. This module needs the standard
library only: it runs in the environments of all peers.
"""

from __future__ import annotations

import asyncio
import cProfile
import json
import os
import resource
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from typing import Any

MODEL = "gpt-4o"
TREE, G_EVAL, FAITHFULNESS, RAG = "decision tree", "G-Eval", "faithfulness", "five RAG metrics"
CRITERIA = (
    "Judge whether the actual output is a correct and complete summary of the meeting in the "
    "input, in words that somebody who was not there can follow."
)


@dataclass(frozen=True, kw_only=True)
class Job:
    """What one client is to run; `requests` are the calls of a case where they are given.

    `profiled` counts its Python calls, which takes twice the time.
    """

    base_url: str
    workload: str
    setting: str = ""
    cases: int
    warm_up: int
    in_flight: int
    requests: Sequence[Sequence[dict[str, Any]]] = ()
    profiled: bool = False


@dataclass(frozen=True)
class Case:
    """A meeting and its summary; no two cases have a text in common."""

    input: str
    actual_output: str
    expected_output: str
    retrieval_context: tuple[str, ...]


@dataclass(frozen=True)
class Measured:
    """Seconds of wall and processor time, megabytes at the peak, scores wanted and scores made.

    `python_calls` are those of the main thread, of functions in C, too (0: they are not counted).
    """

    wall: float
    cpu: float
    peak: float
    wanted: int
    scored: int
    python_calls: int = 0


def label(number: int) -> str:
    """What tells the texts of one case from those of another."""
    return f"meeting-{number:06d}"


def case(number: int) -> Case:
    """The case of a number."""
    name = label(number)
    return Case(
        input=(
            f"[{name}] Mara: The boiler room floods again, who looked at the pump? Teo: I did, "
            "the valve is worn and a new one costs 240 euros. Mara: Order it today. Ines: The "
            "tenants want to know when the water is back. Teo: Thursday noon, if it arrives on "
            "Wednesday. Ines: Then I write to them tonight. When is the water back?"
        ),
        actual_output=(
            f"Intro:\nMinutes of {name}: the flooded boiler room.\n\nBody:\nTeo found a worn "
            "valve in the pump. A new one costs 240 euros and is ordered today. The water is "
            "back on Thursday at noon.\n\nConclusion:\nInes writes to the tenants tonight."
        ),
        expected_output=(
            f"In {name} it was decided to order a valve for 240 euros today. The water is back "
            "on Thursday at noon. Ines tells the tenants tonight."
        ),
        retrieval_context=(
            f"{name}, note of the caretaker: the valve of the pump is worn; a new one costs 240 "
            "euros and takes a day to arrive. With it in place the water is back at noon.",
            f"{name}, rules of the house: tenants are told in writing the evening before the "
            "water is turned off or on again. The caretaker orders parts below 500 euros.",
        ),
    )


def cases(first: int, count: int) -> Iterator[Case]:
    """`count` cases from number `first` on."""
    return map(case, range(first, first + count))


def measure(run: Callable[[Job, int, int], Sequence[float | None]]) -> None:
    """Follow the protocol; `run` judges cases (from, how many) and returns all their scores."""
    job = Job(**json.loads(sys.stdin.readline()))
    run(job, job.cases, job.warm_up)
    print("\nWARM", flush=True)
    sys.stdin.readline()
    cpu, wall = _cpu(), time.perf_counter()
    with cProfile.Profile() if job.profiled else nullcontext() as profile:
        scores = run(job, 0, job.cases)
    wall, cpu = time.perf_counter() - wall, _cpu() - cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    wanted = job.cases * (5 if job.workload == RAG else 1)
    scored = sum(score is not None for score in scores)
    python_calls = sum(entry.callcount for entry in profile.getstats()) if profile else 0
    found = Measured(wall, cpu, peak, wanted, scored, python_calls)
    print("\nDONE", json.dumps(asdict(found)), flush=True)


def _cpu() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


async def each(work: Iterable[Callable[[], Awaitable[Any]]], in_flight: int) -> list[Any]:
    """The results of all pieces of work, `in_flight` of them at a time, in order."""
    numbered, results = iter(enumerate(work)), dict[int, Any]()

    async def worker() -> None:
        for place, one in numbered:
            results[place] = await one()

    await asyncio.gather(*(worker() for _ in range(in_flight)))
    return [results[place] for place in sorted(results)]
