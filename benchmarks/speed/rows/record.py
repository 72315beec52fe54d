"""The folder of a run of many rows: how fast it is shown, and how much memory that takes.

    python benchmarks/speed/rows/record.py --rows 1000000

Writes a folder with rows as a run does, then asks for a few of its cases in processes of their
own. Prints seconds and the most memory that each process took.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from dagengine.compiler.lowering import compile_metrics
from dagengine.judges import ScriptedJudge
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode
from dagengine.record.definition import judges_of, metrics_of
from dagengine.record.values import Manifest
from dagengine.record.writer import RunWriter
from dagengine.results import CaseResult, MetricResult, OutcomeKind, Step, Totals
from dagengine.test_case import LLMTestCase

_SHOWS = (
    ["--failed"],
    ["--failed", "--worst", "20"],
    ["--case", "ticket 500"],
    ["--text", "parcel 777 "],
)
_FAILING = 100  # one case in so many


def _row(index: int) -> CaseResult:
    verdict = index % _FAILING != 7
    said = f"The answer to ticket {index} says what happens next, and thanks the customer. " * 3
    step = Step("Kind", "binary judgement", OutcomeKind.OK, verdict=verdict, reason=said)
    score = 1.0 if verdict else 0.0
    result = MetricResult(
        "Manners", score, verdict, f"Kind → {verdict}: {said}", 0.5, score,
        path=(("Kind", verdict),), steps=(step,),
    )  # fmt: skip
    name = f"ticket {index}"
    case = LLMTestCase(input=f"Where is my parcel {index} ?", actual_output=said, name=name)
    return CaseResult(index, name, (result,), case)


def write(folder: Path, rows: int) -> None:
    """Write the folder of a run of so many rows."""
    node = BinaryJudgementNode(
        "Is it kind?", evaluation_params=["actual_output"], then={True: 10, False: 0}, name="Kind"
    )
    plan = compile_metrics([DAGMetric("Manners", DAG(node))])
    judge = ScriptedJudge({}, name="benchmark")
    manifest = Manifest.model_validate(
        {
            "dagengine": "benchmark",
            "python": sys.version.split()[0],
            "started": "2026-01-01T00:00:00Z",
            "metrics": [one.model_dump() for one in metrics_of(plan)],
            "judges": [one.model_dump() for one in judges_of(plan, [judge], {})],
        }
    )
    with RunWriter(folder, manifest, lambda: (Totals(), ())) as writer:
        for index in range(rows):
            writer.add(_row(index))


def _measured(command: list[str]) -> tuple[float, float]:
    """Seconds and MB that a command takes."""
    started = time.perf_counter()
    code = "import resource, runpy, sys; sys.argv = sys.argv[1:]\n"
    code += "from dagengine.cli import main\n"
    code += "try: main()\nfinally: print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, "
    code += "file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", code, *command], check=True, capture_output=True, text=True
    )
    return time.perf_counter() - started, int(done.stderr.split()[-1]) / 1024


def main() -> None:
    """Write a folder, show parts of it, and print what that took."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rows", type=int, default=100_000)
    rows: int = options.parse_args().rows
    with tempfile.TemporaryDirectory() as place:
        folder, started = Path(place) / "run", time.perf_counter()
        write(folder, rows)
        took = time.perf_counter() - started
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        size = sum(file.stat().st_size for file in folder.iterdir()) / 1e6
        print(f"written: {rows:,} rows, {size:,.0f} MB in {took:.1f} s, {most:.0f} MB of memory")
        for show in _SHOWS:
            seconds, memory = _measured(["dagengine", "show", str(folder), *show])
            print(f"show {' '.join(show)}: {seconds:.1f} s, {memory:.0f} MB of memory")


if __name__ == "__main__":
    main()
