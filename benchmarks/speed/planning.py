"""How long it takes to say beforehand what a run will ask.

    python benchmarks/speed/planning.py [--cases 100000]

`dagengine plan` for the five RAG metrics over a file of cases no two of which are alike, as a
whole process; and the same over as many cases as are looked at one by one, which shows what a
sample saves.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from job import cases
from rich.console import Console
from rich.table import Table
from start import measured

from dagengine.estimate.estimator import MOST_CASES

METRICS = """
from dagengine.metrics import *

metrics = [
    AnswerRelevancyMetric(), FaithfulnessMetric(), ContextualPrecisionMetric(),
    ContextualRecallMetric(), ContextualRelevancyMetric(),
]
"""
TARGET = 3.0


@contextmanager
def planned(count: int) -> Iterator[list[str]]:
    """The command that plans so many cases."""
    with tempfile.TemporaryDirectory() as folder:
        metrics, data = Path(folder, "metrics.py"), Path(folder, "cases.jsonl")
        metrics.write_text(METRICS, encoding="utf-8")
        with data.open("w", encoding="utf-8") as file:
            file.writelines(json.dumps(asdict(case)) + "\n" for case in cases(0, count))
        yield [sys.executable, "-m", "dagengine", "plan", str(metrics), "--data", str(data)]


def main(
    count: Annotated[int, typer.Option("--cases", help="Cases of the large file.")] = 100_000,
    repeats: Annotated[int, typer.Option(help="Turns; the median counts.", min=1)] = 3,
) -> None:
    """Measure in turns and print one table."""
    table = Table("cases", "processor", "wall", "target")
    with planned(MOST_CASES) as few, planned(count) as many:
        found = {MOST_CASES: [measured(few)], count: [measured(many)]}
        for _ in range(repeats - 1):
            found[MOST_CASES].append(measured(few))
            found[count].append(measured(many))
    for size, times in found.items():
        cpu, wall = (statistics.median(one) for one in zip(*times, strict=True))
        target = f"{TARGET:g} s" if size == count else ""
        table.add_row(f"{size:,}", f"{cpu:.2f} s", f"{wall:.2f} s", target)
    Console().print(table)


if __name__ == "__main__":
    typer.run(main)
