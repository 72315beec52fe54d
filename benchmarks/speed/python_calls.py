"""How many Python calls a judge call takes: a figure that the load of a machine does not change.

    python benchmarks/speed/python_calls.py [--against CHECKOUT] [--runs 2]

Each workload runs as in `throughput.py`, in a process of its own and against a server of its own.
Some other cases come first, so that imports and caches do not count. Then `cProfile` counts all
calls of the main thread, also those of functions in C. A figure differs by a few between equal
runs: responses arrive in more or fewer pieces.

The limits hold for Python 3.11 and the packages of `requirements-dev.lock`. Elsewhere the figures
are only shown. The command ends with status 1 if a figure is above its limit.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from environments import DEFAULT_FOLDER
from job import FAITHFULNESS, G_EVAL, TREE
from rich.console import Console
from rich.table import Table
from server import Settings
from throughput import CLIENTS, Client, Plan, measured, versions

LIMITS = {TREE: 900, FAITHFULNESS: 1300, G_EVAL: 1600}
"""The most Python calls for one judge call, by workload."""
PLAN = Plan(CLIENTS[:1], tuple(LIMITS), 1600, 64, 1, 64, Settings(), DEFAULT_FOLDER, profiled=True)
SHORT = replace(PLAN, cases=400)
SHORT_LIMITS = {TREE: 945, FAITHFULNESS: 1330, G_EVAL: 1760}
"""For tests, a third of the work: of its start a run with few cases has more per call."""


def is_held() -> bool:
    """Return whether the limits hold for this Python; on others calls are counted differently."""
    return sys.implementation.name == "cpython" and sys.version_info[:2] == (3, 11)


def python_calls(client: Client, workload: str, plan: Plan = PLAN) -> float:
    """The Python calls per judge call of one run."""
    run = measured(Path(sys.executable), client, plan.job(client, workload), plan)
    return run.measured.python_calls / run.calls


def main(
    against: Annotated[list[Path] | None, typer.Option(help="Checkouts of other versions.")] = None,
    runs: Annotated[int, typer.Option(help="Runs of each version; the least counts.", min=1)] = 1,
) -> None:
    """Count and print one table."""
    clients = versions(against or ())
    table, above = Table("workload", "limit", *(client.name for client in clients)), False
    for workload, limit in LIMITS.items():
        counts = [min(python_calls(each, workload) for _ in range(runs)) for each in clients]
        above = above or counts[0] > limit
        table.add_row(workload, f"{limit:,}", *(f"{count:,.0f}" for count in counts))
    Console().print(table)
    if above and is_held():
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
