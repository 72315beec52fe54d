"""Throughput and peak memory of whole runs of the command line, by length of the data set.

    python benchmarks/speed/rows/million.py [--counts 100000,1000000] [--how judged] [--form jsonl]
    python benchmarks/speed/rows/million.py --counts 1000000 --how five --shards 8

Every run is a process of its own: `dagengine run` over a generated file, `exact` with exact
match (no judge), `judged` with one question per case to a judge that answers at once, `five` with
five RAG metrics (nine questions per case) and such a judge, or `stored` with one question and a
store, and then again with the store full. Every case must have
its row, in order; the peak must not grow with the number of cases; and the run on the full
store must ask nothing and leave the same bytes. The processor time tells what a case costs
also where the processors are shared.

With `--shards` the cases are judged by so many runs, two at a time, which are merged, looked at and
compared with a second merge in which the judge of the last shard said something else.
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

EXACT = "from dagengine.metrics import ExactMatchMetric\nmetric = ExactMatchMetric()\n"
JUDGED = """
import os

from dagengine.errors import JudgeSetupError
from dagengine.judges import ScriptedJudge
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode

def answer(question):
    if "NOBODY" in os.environ:
        raise JudgeSetupError("the judge was asked")
    return {"reason": "It is.", "verdict": True}

judge = ScriptedJudge(answer, name="at once")
node = BinaryJudgementNode("Good?", evaluation_params=["input"], then={True: 10, False: 0})
metric = DAGMetric("Judged", DAG(node), model=judge)
"""
FIVE = f"""
import os
import sys
from functools import cache

sys.path.insert(0, {str(Path(__file__).parents[1])!r})
from answers import instance

from dagengine.judges import ScriptedJudge
from dagengine.metrics import (
    AnswerRelevancyMetric, ContextualPrecisionMetric, ContextualRecallMetric,
    ContextualRelevancyMetric, FaithfulnessMetric,
)
from dagengine.question import schema_of

@cache
def first(answer_type):
    schema = schema_of(answer_type)
    return instance(schema, schema)

def answer(question):
    reply = first(question.answer_type)
    if "OTHERWISE" in os.environ and "verdict" in reply:
        return {{**reply, "verdict": "no"}}
    return reply

judge = ScriptedJudge(answer, name="first")
judge.durable_identity = "first, version 1"
metrics = [
    kind(model=judge) for kind in (
        AnswerRelevancyMetric, ContextualPrecisionMetric, ContextualRecallMetric,
        ContextualRelevancyMetric, FaithfulnessMetric,
    )
]
"""
METRICS = {"exact": EXACT, "five": FIVE}
# Prints the process's own peak in kB and its processor seconds as the last line.
RUN = (
    "import resource, sys\n"
    "from dagengine.cli.commands import app\n"
    "code = app(sys.argv[1:], standalone_mode=False)\n"
    "used = resource.getrusage(resource.RUSAGE_SELF)\n"
    "print(used.ru_maxrss, used.ru_utime + used.ru_stime)\n"
    "sys.exit(code or 0)\n"
)


@dataclass(frozen=True)
class Figures:
    """What one run took: seconds by the clock and of the processor, and its peak in MB."""

    name: str
    count: int
    seconds: float
    cpu: float
    peak: float
    digest: str

    def cells(self) -> list[str]:
        """A line of the table."""
        speed, cost = self.count / self.seconds, self.cpu / self.count * 1e6
        each = f"{self.seconds:.1f}", f"{speed:,.0f}", f"{cost:.0f} µs", f"{self.peak:.0f}"
        return [f"{self.count:,}", self.name, *each]


@dataclass(frozen=True)
class Place:
    """A folder with metrics and so many cases."""

    folder: Path
    count: int
    data: Path

    def run(self, name: str, *options: str, **environment: str) -> Figures:
        """Run the command line once; raises CalledProcessError when it fails."""
        out = self.folder / "out"
        figures = self.command(
            name, "run", str(self.folder / "metrics.py"), "--data", str(self.data),
            "--out", str(out), *options, **environment,
        )  # fmt: skip
        return replace(figures, digest=digest_of(out / "results.jsonl", self.count))

    def command(self, name: str, *arguments: str, **environment: str) -> Figures:
        """Run one command; 1 says that a threshold failed, or that runs differ."""
        started = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-c", RUN, *arguments],
            capture_output=True,
            text=True,
            env={**os.environ, "COLUMNS": "120", **environment},
        )
        seconds = time.perf_counter() - started
        if done.returncode not in (0, 1) or "Traceback" in done.stderr:
            raise ValueError(f"{name} ended with {done.returncode}: {done.stderr[-2000:]}")
        peak, cpu = done.stdout.splitlines()[-1].split()
        return Figures(name, self.count, seconds, float(cpu), int(peak) / 1024, "")

    def in_shards(self, shards: int) -> Iterator[Figures]:
        """Judge in shards, two at a time, merge, look, and compare with another last shard."""

        def shard(number: int, out: str, **environment: str) -> Figures:
            part = replace(self, count=len(range(number - 1, self.count, shards)))
            return part.command(
                f"shard {number}", "run", str(self.folder / "metrics.py"), "--data",
                str(self.data), "--shard", f"{number}/{shards}", "--no-page",
                "--out", str(self.folder / out), **environment,
            )  # fmt: skip

        parts = [str(self.folder / f"part-{number}") for number in range(1, shards + 1)]
        with ThreadPoolExecutor(2) as both:
            runs = [both.submit(shard, number, f"part-{number}")
                    for number in range(1, shards + 1)]  # fmt: skip
            runs.append(both.submit(shard, shards, "otherwise", OTHERWISE="1"))
            for run in runs:
                yield run.result()
        merged, second = str(self.folder / "merged"), str(self.folder / "second")
        yield self.command("merge", "merge", *parts, "--out", merged)
        digest_of(self.folder / "merged" / "results.jsonl", self.count)
        others = [*parts[:-1], str(self.folder / "otherwise")]
        yield self.command("merge again", "merge", *others, "--out", second)
        yield self.command("show --failed", "show", merged, "--failed", "--worst", "20")
        yield self.command("diff", "diff", merged, second)


def digest_of(results: Path, count: int) -> str:
    """What tells results apart; raises ValueError unless every case has its row, in order."""
    digest, number = hashlib.sha256(), 0
    with results.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.startswith(b'{"index": %d, ' % (number - 1)):
                raise ValueError(f"{results} line {number} is the row of another case")
            digest.update(line)
    if number != count:
        raise ValueError(f"{results} has {number} rows for {count} cases")
    return digest.hexdigest()


def rows(count: int, how: str) -> Iterator[dict[str, Any]]:
    """Distinct questions; every third answer is wrong."""
    for number in range(count):
        right = "yes" if number % 3 else "no"
        row = {"input": f"q{number}", "actual_output": "yes", "expected_output": right}
        yield {**row, "retrieval_context": [f"context {number}"]} if how == "five" else row


def write_cases(path: Path, count: int, how: str) -> None:
    """A data set in the form of the file's suffix."""
    with path.open("w", encoding="utf-8", newline="") as file:
        if path.suffix == ".csv":
            writer = csv.DictWriter(file, ["input", "actual_output", "expected_output"])
            writer.writeheader()
            writer.writerows(rows(count, how))
        else:
            file.writelines(json.dumps(row) + "\n" for row in rows(count, how))


def measure(
    folder: Path, count: int, how: str, form: str = "jsonl", shards: int = 0
) -> Iterator[Figures]:
    """The runs of one kind over one data set."""
    place = Place(folder, count, folder / f"cases.{form}")
    write_cases(place.data, count, how)
    (folder / "metrics.py").write_text(METRICS.get(how, JUDGED), encoding="utf-8")
    if shards:
        yield from place.in_shards(shards)
        return
    if how != "stored":
        yield place.run(how)
        return
    store = folder / f"answers{count}.db"
    yield (first := place.run("to a store", "--store", str(store)))
    yield (again := place.run("from the store", "--store", str(store), NOBODY="1"))
    store.unlink()
    if again.digest != first.digest:
        raise ValueError("the results out of the store differ")


def main(
    counts: Annotated[str, typer.Option(help="Numbers of cases.")] = "100000,1000000",
    how: Annotated[str, typer.Option(help="exact, judged, five or stored, or several.")] = "judged",
    form: Annotated[str, typer.Option(help="jsonl or csv.")] = "jsonl",
    shards: Annotated[int, typer.Option(help="Judge in so many runs, and merge them.")] = 0,
) -> None:
    """Print one line per run, as they come."""
    table = Table("cases", "run", "seconds", "cases/s", "cpu per case", "peak MB")
    with tempfile.TemporaryDirectory() as folder:
        for kind in how.split(","):
            for count in map(int, counts.split(",")):
                for found in measure(Path(folder), count, kind, form, shards):
                    typer.echo(" ".join(found.cells()), err=True)
                    table.add_row(*found.cells())
    Console().print(table)


if __name__ == "__main__":
    typer.run(main)
