"""What several processes of one machine gain, and what they cost.

    python benchmarks/speed/engine/processes.py [--cases 4000] [--processes 2] [--work 1.0]

`dagengine run` over one-question cases with a judge that computes for so many milliseconds and
waits for nothing, in one process and in several, in turns: wall time, and the processor time of all
processes together, start-up taken off (that of a run of one case). The judge works in the
processes themselves: a server in a process of its own would take its part of the same cores. With
`--judge URL` a server is asked instead. The last column is what the processor times allow on
enough free cores: so many processes, divided by how much more they work than one.

The last line are so many runs of one process each, of all cases and at the same time: what the
machine allows to processes that have nothing to do with each other.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

METRICS = """
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode
node = BinaryJudgementNode("Good?", evaluation_params=["input"], then={True: 10, False: 0})
metric = DAGMetric("good", DAG(node))
"""
JUDGE = """
import time
from dagengine.judges import ScriptedJudge

def answer(question):
    end = time.thread_time() + WORK
    while time.thread_time() < end:
        pass
    return True

judge = ScriptedJudge(answer, name="busy")
"""


Found = tuple[float, float]
"""Seconds by the clock, and of all processors."""


@dataclass(frozen=True)
class Way:
    """How all cases are run: in so many processes each, by so many runs at the same time."""

    name: str
    processes: int = 1
    runs: int = 1

    def out(self, number: int = 0) -> str:
        """The folder of a run."""
        return f"out-{self.processes}-{self.runs}-{number}"


def start(
    folder: Path, data: str, judge: list[str], way: Way, number: int
) -> subprocess.Popen[str]:
    """One run."""
    processes = ["--processes", str(way.processes)] if way.processes > 1 else []
    command = [
        sys.executable, "-m", "dagengine", "run", "metrics.py", "--data", data, *judge,
        "--out", way.out(number), *processes,
    ]  # fmt: skip
    env = {**os.environ, "OPENAI_API_KEY": "none"}
    return subprocess.Popen(command, cwd=folder, env=env, stdout=subprocess.DEVNULL, text=True)


def run(folder: Path, data: str, judge: list[str], way: Way) -> Found:
    """Run all cases."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    started = [start(folder, data, judge, way, number) for number in range(way.runs)]
    codes = [process.wait() for process in started]
    if any(codes):
        raise SystemExit("a run failed")
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return wall, used


def measured(folder: Path, judge: list[str], way: Way) -> Found:
    """The same without what it takes to start."""
    (wall, used), (begin, idle) = (
        run(folder, data, judge, way) for data in ("cases.jsonl", "one.jsonl")
    )
    return wall - begin, used - idle


def table_of(found: dict[Way, list[Found]]) -> Table:
    """One line for every way, beside the first."""
    table = Table("processes", "wall", "processor", "times one", "allowed by processor time")
    one, *_ = found.values()
    for way, turns in found.items():
        pairs, width = list(zip(one, turns, strict=True)), way.processes * way.runs
        gain = statistics.median(way.runs * a[0] / b[0] for a, b in pairs)
        allowed = statistics.median(width * way.runs * a[1] / b[1] for a, b in pairs)
        wall, used = (statistics.median(turn[place] for turn in turns) for place in (0, 1))
        table.add_row(way.name, f"{wall:.2f} s", f"{used:.2f} s", f"{gain:.2f}", f"{allowed:.2f}")
    return table


def main(
    cases: Annotated[int, typer.Option(help="Cases of one question.")] = 4000,
    processes: Annotated[int, typer.Option(help="Processes that share the run.")] = 2,
    work: Annotated[float, typer.Option(help="Milliseconds that the judge computes.")] = 1.0,
    repeats: Annotated[int, typer.Option(help="Turns; medians are shown.")] = 3,
    judge: Annotated[str, typer.Option(help="Base URL of a server to ask instead.")] = "",
) -> None:
    """Measure and print."""
    asked = ["--judge", "any", "--base-url", judge] if judge else ["--judge", "judge.py"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "metrics.py").write_text(METRICS, encoding="utf-8")
        (folder / "judge.py").write_text(f"WORK = {work / 1000}\n{JUDGE}", encoding="utf-8")
        lines = [json.dumps({"input": f"case {number}"}) + "\n" for number in range(cases)]
        (folder / "cases.jsonl").write_text("".join(lines), encoding="utf-8")
        (folder / "one.jsonl").write_text(lines[0], encoding="utf-8")
        ways = [Way("1"), Way(str(processes), processes), Way(f"{processes} runs", 1, processes)]
        found: dict[Way, list[Found]] = {way: [] for way in ways}
        for _ in range(repeats):
            for way, turns in found.items():
                turns.append(measured(folder, asked, way))
        rows = {(folder / way.out() / "results.jsonl").read_bytes() for way in ways}
    Console().print(table_of(found))
    print(f"the rows are {'the same' if len(rows) == 1 else 'DIFFERENT'}")


if __name__ == "__main__":
    typer.run(main)
