"""What several processes of one machine gain, and what they cost.

    python benchmarks/speed/processes.py [--cases 4000] [--processes 2] [--work 1.0] [--repeats 3]

`dagengine run` over one-question cases with a judge that computes for so many milliseconds and
waits for nothing, in one process and in several, in turns: wall time, and the processor time of all
processes together, start-up taken off (that of a run of one case). The judge works in the
processes themselves: a server in a process of its own would take its part of the same cores. With
`--judge URL` a server is asked instead. The last column is what the processor times allow on
enough free cores: so many processes, divided by how much more they work than one.
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


def run(folder: Path, data: str, judge: list[str], processes: int) -> tuple[float, float]:
    """Seconds by the clock, and of all processors."""
    command = [
        sys.executable, "-m", "dagengine", "run", "metrics.py", "--data", data, *judge,
        "--out", f"out-{processes}", *(["--processes", str(processes)] if processes > 1 else []),
    ]  # fmt: skip
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    env = {**os.environ, "OPENAI_API_KEY": "none"}
    subprocess.run(command, cwd=folder, env=env, check=True, stdout=subprocess.DEVNULL)
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return wall, used


def measured(folder: Path, judge: list[str], processes: int) -> tuple[float, float]:
    """The same without what it takes to start."""
    (wall, used), (start, idle) = (
        run(folder, data, judge, processes) for data in ("cases.jsonl", "one.jsonl")
    )
    return wall - start, used - idle


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
        turns = [
            [measured(folder, asked, count) for count in (1, processes)] for _ in range(repeats)
        ]
        same = (folder / "out-1/results.jsonl").read_bytes() == (
            folder / f"out-{processes}/results.jsonl"
        ).read_bytes()
    one, many = ([turn[place] for turn in turns] for place in (0, 1))
    gain = statistics.median(a[0] / b[0] for a, b in zip(one, many, strict=True))
    allowed = statistics.median(processes * a[1] / b[1] for a, b in zip(one, many, strict=True))
    table = Table("processes", "wall", "processor", "times one", "allowed by processor time")
    for count, found, shown in ((1, one, "1"), (processes, many, f"{gain:.2f}")):
        wall, used = (statistics.median(each[place] for each in found) for place in (0, 1))
        limit = "" if count == 1 else f"{allowed:.2f}"
        table.add_row(str(count), f"{wall:.2f} s", f"{used:.2f} s", shown, limit)
    Console().print(table)
    print(f"the rows are {'the same' if same else 'DIFFERENT'}")


if __name__ == "__main__":
    typer.run(main)
