"""What paired comparisons find, beside exact McNemar and Wilcoxon, on judges whose change is known.

python benchmarks/reliability/paired_power.py [--seeds 300]
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from random import Random
from typing import Annotated, Any

import typer
from estimators import flips
from rich.console import Console
from rich.table import Table

from dagengine.reliability.statistics import (
    Comparison,
    Interval,
    compare_means,
    compare_shares,
    flip_rate,
)

stats = import_module("scipy.stats")


@dataclass(frozen=True)
class Power:
    """The shares of seeds in which a difference was found, and in which the interval held it."""

    found: float
    oracle: float
    held: float


def repaired(cases: int, share: float, seeds: int) -> Power:
    """A judge wrong in 26 % of cases, before and after `share` of these were repaired."""

    def pairs(random: Random) -> list[tuple[bool, bool]]:
        before = [random.random() >= 0.26 for _ in range(cases)]
        return [(b, random.random() < (1 - broken if b else share + 0.15)) for b in before]

    # What was right may break, so that something differs where nothing is better.
    broken = 0.15 * 0.26 / 0.74

    def exact(sample: Sequence[tuple[Any, Any]]) -> float:
        won = sum(b and not a for a, b in sample)
        both = sum(a != b for a, b in sample)
        return float(stats.binomtest(won, both, 0.5).pvalue) if both else 1.0

    return _power(pairs, compare_shares, exact, 0.26 * share, seeds)


def steadier(cases: int, runs: int, share: float, seeds: int) -> Power:
    """Flip rates before and after the odds of all cases fell by `share`."""

    def pairs(random: Random) -> list[tuple[Any, Any]]:
        odds = [random.choice((0.05, 0.2, 0.4)) for _ in range(cases)]
        sides = [[[random.random() < p * f for _ in range(runs)] for p in odds]
                 for f in (1, 1 - share)]  # fmt: skip
        first, second = ([flip_rate([row]) for row in side] for side in sides)
        return list(zip(first, second, strict=True))

    def wilcoxon(sample: Sequence[tuple[Any, Any]]) -> float:
        changes = [b - a for a, b in sample]
        return float(stats.wilcoxon(changes).pvalue) if any(changes) else 1.0

    odds = dict.fromkeys((0.05, 0.2, 0.4), 1 / 3)
    after = {p * (1 - share): 1 / 3 for p in odds}
    return _power(pairs, compare_means, wilcoxon, flips(after, 1) - flips(odds, 1), seeds)


def _power(
    pairs: Callable[[Random], Any], compare: Any, oracle: Callable[[Any], float],
    truth: float, seeds: int,
) -> Power:  # fmt: skip
    found, others, held = [], [], []
    for seed in range(seeds):
        sample = pairs(Random(seed))
        one = compare(sample)
        others.append(oracle(sample) < 0.05)
        if isinstance(one, Comparison) and isinstance(one.interval, Interval):
            held.append(one.interval.low <= truth <= one.interval.high)
        found.append(isinstance(one, Comparison) and one.p < 0.05)
    return Power(statistics.fmean(found), statistics.fmean(others), statistics.fmean(held))


def power_table(seeds: int) -> Table:
    table = Table("change", "cases", "found", "exact McNemar or Wilcoxon", "held",
                  title=f"paired comparisons, {seeds} seeds")  # fmt: skip
    for share, cases in itertools.product((0.0, 0.2, 0.4), (40, 100, 300)):
        one = repaired(cases, share, seeds)
        _add(table, f"{share:.0%} of errors repaired", str(cases), one)
    for share, (cases, runs) in itertools.product((0.0, 0.4), ((15, 5), (40, 5), (100, 5))):
        one = steadier(cases, runs, share, seeds)
        _add(table, f"odds {share:.0%} lower, {runs} runs", str(cases), one)
    return table


def _add(table: Table, name: str, cases: str, one: Power) -> None:
    shares = (f"{100 * share:.1f} %" for share in (one.found, one.oracle, one.held))
    table.add_row(name, cases, *shares)


def main(seeds: Annotated[int, typer.Option(min=2)] = 300) -> None:
    """Print the table."""
    Console(width=110).print(power_table(seeds))


if __name__ == "__main__":
    typer.run(main)
