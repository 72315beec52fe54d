"""The folder of a run of many rows: what `show`, `diff` and an index take, and what a record costs.

    PYTHONPATH=benchmarks/speed python benchmarks/speed/rows/record.py [--rows N] [--cases N]

Makes two folders as `view_million.py` does, one with a few answers that differ. Every command is a
process of its own, once with the columns of the folders and once without; printed are its seconds
of processor, the most memory that it took, and the target for a million rows on an idle processor.
Both ways must print the same. Then so many cases are judged with a record and without, in turns, by
a judge that answers at once and (a tenth of the cases) by one over HTTP: what counts is the ratio.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from server import Settings, running
from view_million import make

from dagengine import evaluate
from dagengine.judges import OpenAIJudge, ScriptedJudge
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode
from dagengine.question import Judge
from dagengine.record.parquet_columns import COLUMNS
from dagengine.test_case import LLMTestCase

COMMAND = "from dagengine.cli import main; import sys; sys.argv[0] = 'dagengine'; main()"
INDEX = (
    "from dagengine.record.reader import load_run\n"
    "from dagengine.view.large_runs import open_index; "
    "import sys; open_index(load_run(sys.argv[1]))"
)
MEASURE = """
import resource, subprocess, sys
done = subprocess.run(sys.argv[1:], stdout=subprocess.PIPE, check=True)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, hash(done.stdout))
"""
ROUNDS = 5


def measured(*command: str) -> tuple[float, float, str]:
    """Seconds of processor and MB that a command takes, and what tells its output apart."""
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, sys.executable, "-c", *command],
        stdout=subprocess.PIPE, check=True, text=True, env={**os.environ, "PYTHONHASHSEED": "0"},
    )  # fmt: skip
    seconds, memory, output = done.stdout.split()
    return float(seconds), float(memory), output


def look(old: Path, new: Path, cache: Path) -> dict[str, str]:
    """Print what looking at the folders takes; returns what was printed there."""
    commands = {
        "show --failed (target 2 s)": (COMMAND, "show", str(old), "--failed"),
        "show --worst 20": (COMMAND, "show", str(old), "--failed", "--worst", "20"),
        "diff (target 8 s, 300 MB)": (COMMAND, "diff", str(old), str(new)),
        "index of view (target 15 s)": (INDEX, str(old)),
    }
    outputs = {}
    for name, command in commands.items():
        for index in cache.glob("dagengine/view-*.sqlite"):
            index.unlink()
        seconds, memory, outputs[name] = measured(*command)
        print(f"  {name:30} {seconds:7.1f} s {memory:7.0f} MB", flush=True)
    return outputs


def record_ratio(judge: Judge, cases: int, base: Path, *, page: bool) -> float:
    """This process's processor time with a record by that without, the median of some rounds."""
    node = BinaryJudgementNode("Good?", evaluation_params=["input"], then={True: 10, False: 0})
    metric = DAGMetric("Judged", DAG(node))

    def seconds(out: Path | None) -> float:
        data = (LLMTestCase(input=f"q{n}", actual_output="yes") for n in range(cases))
        start = time.process_time()
        evaluate(data, [metric], model=judge, out=out, page=page, show=False)
        return time.process_time() - start

    seconds(base / "warm")
    return statistics.median(seconds(base / "out") / seconds(None) for _ in range(ROUNDS))


def main() -> None:
    """Make the folders, and print what everything takes."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rows", type=int, default=1_000_000)
    options.add_argument("--cases", type=int, default=20_000)
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as place:
        base = Path(place)
        os.environ["XDG_CACHE_HOME"] = place
        make(base / "old", given.rows)
        make(base / "new", given.rows, changed=0.03)
        print(f"{given.rows:,} rows, with columns:")
        outputs = look(base / "old", base / "new", base)
        for folder in (base / "old", base / "new"):
            (folder / COLUMNS).unlink()
        print(f"{given.rows:,} rows, from lines:")
        if look(base / "old", base / "new", base) != outputs:
            sys.exit("columns and lines do not say the same")
        scripted = ScriptedJudge(
            lambda question: {"reason": "It is.", "verdict": True}, name="at once"
        )
        with running(Settings(latency=0.0)) as url:
            judges = (
                (scripted, given.cases),
                (OpenAIJudge("benchmark", base_url=url), given.cases // 10),
            )
            for judge, cases in judges:
                for page in (False, True):
                    ratio = record_ratio(judge, cases, base, page=page)
                    what = f"{judge.identity}: run with a {'record and page' if page else 'record'}"
                    print(f"{what}, by the run without (target 1.25): {ratio:.2f}", flush=True)
        print(
            f"most memory here: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB"
        )


if __name__ == "__main__":
    main()
