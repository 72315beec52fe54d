"""How long commands take before and after their work: processor time of whole processes.

    python benchmarks/speed/start.py [--repeats 5]

`run` over one case (with the default judge against a local server, and with a scripted one),
`check` and `--help` take turns, each in a new process. All find their bytecode, as an installed
package does, also where the environment says that none is written. Beside them what the largest
libraries cost alone, so that it can be seen what is ours.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from server import Settings, running

TREE = """
from dagengine.metrics.dag import DAG, BinaryJudgementNode, DAGMetric

ask = BinaryJudgementNode("Is it so?", evaluation_params=["input"], then={True: 10, False: 0})
metric = DAGMetric("m", DAG(ask))
"""
JUDGE = """
from dagengine.judges import ScriptedJudge

judge = ScriptedJudge(lambda question: True)
"""
CASE = '{"input": "a question", "actual_output": "an answer"}\n'
TARGETS = {"run, default judge": 1.2, "run, scripted judge": 0.6, "check": 0.56, "--help": 0.24}
BYTECODE = Path(tempfile.gettempdir()) / "dagengine-benchmark-bytecode"
IMPORTS = ("openai", "instructor", "networkx", "aiohttp", "pydantic")


def commands(folder: Path, base_url: str) -> dict[str, list[str]]:
    """What is measured, by name."""
    for name, text in (("tree.py", TREE), ("answers.py", JUDGE), ("cases.jsonl", CASE)):
        (folder / name).write_text(text, encoding="utf-8")
    ours = [sys.executable, "-m", "dagengine"]
    run = [*ours, "run", str(folder / "tree.py"), "--data", str(folder / "cases.jsonl")]
    found = {
        "run, default judge": [*run, "--judge", "gpt-4o", "--base-url", base_url],
        "run, scripted judge": [*run, "--judge", f"{folder / 'answers.py'}:judge"],
        "check": [*ours, "check", str(folder / "tree.py")],
        "--help": [*ours, "--help"],
    }
    return found | {f"import {name}": [sys.executable, "-c", f"import {name}"] for name in IMPORTS}


def measured(command: Sequence[str]) -> tuple[float, float]:
    """Processor and wall seconds of a process that ends well, and that finds its bytecode."""
    env = {**os.environ, "PYTHONPYCACHEPREFIX": str(BYTECODE)}
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    with tempfile.TemporaryDirectory() as out:
        more = ["--out", out] if "run" in command else []
        before, started = _children(), time.perf_counter()
        subprocess.run([*command, *more], check=True, capture_output=True, env=env)
        return _children() - before, time.perf_counter() - started


def _children() -> float:
    times = os.times()
    return times.children_user + times.children_system


def main(
    repeats: Annotated[int, typer.Option(help="Turns; the median counts.", min=1)] = 5,
) -> None:
    """Measure in turns and print one table."""
    with tempfile.TemporaryDirectory() as folder, running(Settings(latency=0.001)) as base_url:
        every = commands(Path(folder), base_url)
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in every}
        for command in every.values():
            measured(command)  # what it reads is then in the system's cache
        for _ in range(repeats):
            for name, command in every.items():
                found[name].append(measured(command))
    table = Table("what", "processor", "least", "wall", "target (wall)")
    for name, times in found.items():
        cpu, wall = (statistics.median(one) for one in zip(*times, strict=True))
        target = f"{TARGETS[name]:g} s" if name in TARGETS else ""
        table.add_row(name, f"{cpu:.2f} s", f"{min(times)[0]:.2f} s", f"{wall:.2f} s", target)
    Console().print(table)


if __name__ == "__main__":
    typer.run(main)
