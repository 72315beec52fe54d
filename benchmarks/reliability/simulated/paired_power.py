"""What paired comparisons find of known changes, beside exact McNemar and Wilcoxon."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from itertools import islice, product, repeat
from multiprocessing import get_context
from random import Random
from typing import Any

from rich.table import Table

from dagengine.reliability.statistics.intervals import Interval
from dagengine.reliability.statistics.paired_comparisons import (
    Comparison,
    compare_means,
    compare_shares,
)
from dagengine.reliability.statistics.stability import flip_rate
from simulated.votes_needed import flips

stats = import_module("scipy.stats")


@dataclass(frozen=True)
class Power:
    """The shares of seeds in which a difference was found, and in which the interval held it."""

    found: float
    oracle: float
    held: float

    @property
    def fails(self) -> bool:
        """Whether it finds less than 90 % of what the exact test finds."""
        return self.found < 0.9 * self.oracle


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


Job = tuple[str, int, Callable[[], Power]]
"""What changed, the number of cases, and what is found."""


def power_rows(seeds: int, jobs: int, named: str = "") -> list[tuple[str, int, Power]]:
    """All rows of which the change holds `named`."""
    places = [place for place, (change, _, _) in enumerate(_jobs(1)) if named in change]
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        return list(pool.map(_row, places, repeat(seeds)))


def _row(place: int, seeds: int) -> tuple[str, int, Power]:
    change, cases, found = next(islice(_jobs(seeds), place, None))
    return change, cases, found()


def _jobs(seeds: int) -> Iterator[Job]:
    for share, cases in product((0.0, 0.2, 0.4), (40, 100, 300)):
        change = f"{share:.0%} of errors repaired"
        yield change, cases, partial(repaired, cases, share, seeds)
    for share, (cases, runs) in product((0.0, 0.4), ((15, 5), (40, 5), (100, 5))):
        change = f"odds {share:.0%} lower, {runs} runs"
        yield change, cases, partial(steadier, cases, runs, share, seeds)


def power_table(rows: Sequence[tuple[str, int, Power]], seeds: int) -> Table:
    """Rows as a table; what fails is marked."""
    table = Table("change", "cases", "found", "exact McNemar or Wilcoxon", "held",
                  title=f"paired comparisons, {seeds} seeds")  # fmt: skip
    for change, cases, one in rows:
        shares = [f"{100 * share:.1f} %" for share in (one.found, one.oracle, one.held)]
        shares[0] += " FAILS" if one.fails else ""
        table.add_row(change, str(cases), *shares)
    return table
