"""Throughput and peak memory of whole runs of the command line, by length of the data set.

    python benchmarks/cases.py [--counts 100000,300000,1000000] [--form jsonl] [--judged]

Every run is a process of its own: `dagengine run` over a generated file, with exact match
(no judge), or with `--judged` one question per case to a judge that answers at once. Peak
memory should not grow with the number of cases.
"""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

METRICS = {
    False: "from dagengine.metrics import ExactMatchMetric\nmetric = ExactMatchMetric()\n",
    True: """
from dagengine.judges import ScriptedJudge
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode

judge = ScriptedJudge(lambda question: {"reason": "It is.", "verdict": True})
node = BinaryJudgementNode("Good?", evaluation_params=["input"], then={True: 10, False: 0})
metric = DAGMetric("Judged", DAG(node), model=judge)
""",
}
# Prints the process's own peak as the last line, in kB.
RUN = (
    "import resource, sys\n"
    "from dagengine.cli import app\n"
    "code = app(sys.argv[1:], standalone_mode=False)\n"
    "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)\n"
    "sys.exit(code or 0)\n"
)


@dataclass(frozen=True)
class Figures:
    """What one run took: seconds, and its peak in MB."""

    count: int
    seconds: float
    peak: float


def rows(count: int) -> Iterator[dict[str, str]]:
    """Distinct questions; every third answer is wrong."""
    for number in range(count):
        right = "yes" if number % 3 else "no"
        yield {"input": f"q{number}", "actual_output": "yes", "expected_output": right}


def write_cases(path: Path, count: int) -> None:
    """A data set in the form of the file's suffix."""
    with path.open("w", encoding="utf-8", newline="") as file:
        if path.suffix == ".csv":
            writer = csv.DictWriter(file, ["input", "actual_output", "expected_output"])
            writer.writeheader()
            writer.writerows(rows(count))
        else:
            file.writelines(json.dumps(row) + "\n" for row in rows(count))


def measure(folder: Path, count: int, form: str = "jsonl", judged: bool = False) -> Figures:
    """Run the command line once; raises CalledProcessError when it fails."""
    data, metrics = folder / f"cases.{form}", folder / "metrics.py"
    write_cases(data, count)
    metrics.write_text(METRICS[judged], encoding="utf-8")
    arguments = ["run", str(metrics), "--data", str(data), "--out", str(folder / "out")]
    started = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", RUN, *arguments],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "COLUMNS": "120"},
    )
    seconds = time.perf_counter() - started
    return Figures(count, seconds, int(done.stdout.splitlines()[-1]) / 1024)


def main(
    counts: Annotated[str, typer.Option(help="Numbers of cases.")] = "100000,300000,1000000",
    form: Annotated[str, typer.Option(help="jsonl or csv.")] = "jsonl",
    judged: Annotated[bool, typer.Option(help="Ask a judge that answers at once.")] = False,
) -> None:
    """Print one line per length of the data set."""
    table = Table("cases", "seconds", "cases/s", "peak MB", title="dagengine run")
    with tempfile.TemporaryDirectory() as folder:
        for count in map(int, counts.split(",")):
            found = measure(Path(folder), count, form, judged)
            speed = f"{count / found.seconds:,.0f}"
            table.add_row(f"{count:,}", f"{found.seconds:.1f}", speed, f"{found.peak:.0f}")
    Console().print(table)


if __name__ == "__main__":
    typer.run(main)
