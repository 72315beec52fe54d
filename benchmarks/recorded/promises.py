"""Does a card keep what it promises? Real judges that were asked three times.

    python benchmarks/recorded/promises.py [--draws 200] [--cases 40]

A draw takes some cases at random and two of their three runs, as a benchmark would have had
them, and reads the figures of the card with their intervals. What they are held against is the
same figure over all cases and all three runs. The draws of one recording share cases, so that the
shares are less certain than as many benchmarks of their own would make them.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Annotated

import typer
from recordings import Folder, data_directory, how_to_get
from replays.determinism_sources import (
    CHOICES,
    pairwise,
    repeat_pairs,
    repeat_prometheus,
    rubric_rating,
)
from rich.console import Console
from rich.table import Table

from dagengine.graph.graph import Metric
from dagengine.reliability import Observations
from dagengine.reliability.card.repeats import again
from dagengine.reliability.counterfactual import Counterfactual
from dagengine.reliability.observed_runs import Runs, runs_of

FIGURES = ("flip-rate", "score-flip-rate", "pass-rate", "mean-score", "score-spread")
THRESHOLD, RUNS = 0.5, 2


@dataclass(frozen=True)
class Kept:
    """One figure of one recording: what it is over everything, and how often intervals held it."""

    whole: float
    held: float
    width: float
    draws: int


def promises(runs: Runs, draws: int, cases: int) -> dict[str, Kept]:
    """How often the card of a part promised what the whole shows, by figure."""
    whole = dict(_values(runs))
    found: dict[str, list[tuple[bool, float]]] = {}
    for seed in range(draws):
        for one in again(_part(runs, cases, Random(seed)), THRESHOLD):
            truth = whole.get(one.name)
            if truth is not None and one.low is not None and one.high is not None:
                held = one.low - 1e-9 <= truth <= one.high + 1e-9
                found.setdefault(one.name, []).append((held, one.high - one.low))
    return {
        name: Kept(
            whole[name],
            statistics.fmean(held for held, _ in seen),
            statistics.fmean(width for _, width in seen),
            len(seen),
        )
        for name, seen in found.items()
        if name in FIGURES
    }


def _values(runs: Runs) -> Iterator[tuple[str, float]]:
    for one in again(runs, THRESHOLD):
        if one.value is not None:
            yield one.name, one.value


def _part(runs: Runs, cases: int, random: Random) -> Runs:
    """Some of the cases, and two runs of each."""
    chosen = sorted(random.sample(list(runs.cases), min(cases, len(runs.cases))))
    return Runs(
        runs.metric,
        {
            case: {setting: random.sample(list(found), RUNS) for setting, found in rows.items()}
            for case, rows in ((case, runs.cases[case]) for case in chosen)
        },
    )


def recorded(directory: Path) -> Iterator[tuple[str, Runs]]:
    """Every judge and order that was asked three times."""
    pairs = Folder(directory / "position_bias_rep3")
    for protocol in CHOICES:
        metric = pairwise(protocol)
        yield from _settings(protocol, metric, repeat_pairs(pairs, protocol))
    _, seen = repeat_prometheus(Folder(directory / "prometheus_gpt4x3"))
    yield from _settings("prometheus", rubric_rating(), seen)


def _settings(name: str, metric: Metric, seen: Observations) -> Iterator[tuple[str, Runs]]:
    runs = runs_of(seen, Counterfactual(metric))
    for setting in runs.settings:
        yield f"{name} {setting.judge} {setting.order}".replace("  ", " "), runs.under(setting)


def rows(directory: Path, draws: int, cases: int) -> Iterator[Sequence[str]]:
    """The lines of the table."""
    for name, runs in recorded(directory):
        for figure, kept in promises(runs, draws, cases).items():
            yield (
                name, figure, f"{kept.whole:.3f}", f"{kept.width:.3f}", f"{100 * kept.held:.1f} %",
                str(kept.draws),
            )  # fmt: skip


def main(
    draws: Annotated[int, typer.Option(min=1)] = 200,
    cases: Annotated[int, typer.Option(min=2)] = 40,
) -> None:
    """Print the table."""
    directory = data_directory()
    if not (directory / "prometheus_gpt4x3").is_dir():
        print(how_to_get(directory), file=sys.stderr)
        raise typer.Exit(2)
    table = Table("recording", "figure", "all runs", "mean width", "held", "draws")
    for row in rows(directory, draws, cases):
        table.add_row(*row)
    Console(width=120).print(table)


if __name__ == "__main__":
    typer.run(main)
