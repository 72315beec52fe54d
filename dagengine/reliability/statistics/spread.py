"""Would the judge give the same score again? Measures of repeated scores.

All take a table of scores: one row per item, one column per repetition, None where there is no
score. A missing score has no number and is always dropped. They are None when undefined.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Hashable, Sequence
from itertools import combinations

from dagengine.reliability.statistics.sums import (
    ScoreTable,
    Sums,
    Totals,
    mean,
    measure,
    numbers,
    rectangular,
    squared_deviations,
)

__all__ = [
    "icc",
    "icc_of_mean",
    "repeatability",
    "retest_reliability",
    "score_spread",
    "worst_spread",
]


@measure
def score_spread(table: ScoreTable) -> Sums:
    """The standard deviation of an item's scores, averaged over items, in points of the score.

    sqrt(Σ (x - mean)² / (n - 1)) per item with at least two scores. Few repetitions make it
    too low, by about 1/4n of itself; `repeatability` is not.
    """
    return mean((_deviation(numbers(row)) for row in table), most=None)


def worst_spread(table: ScoreTable) -> float | None:
    """The largest standard deviation within an item, in points of the score.

    A maximum over the items given: it grows with their number, and no resampling of them gives
    an interval for it.
    """
    found = [_deviation(numbers(row)) for row in table]
    return max((one for one in found if one is not None), default=None)


@measure
def repeatability(table: ScoreTable) -> Sums:
    """The standard deviation of one score given again, in points of the score (ISO 5725-2).

    sqrt(Σ within-item squares / Σ (n - 1)), pooled over the table: its square is unbiased.
    """
    return Sums(_anova(table), lambda all_: math.sqrt(all_["within"] / all_["freedom"]))


@measure
def icc(table: ScoreTable) -> Sums:
    """ICC(1,1), how far one score tells items apart, at most 1; over the pooled table.

    (MSB - MSW) / (MSB + (k₀ - 1) MSW), one-way analysis of variance (Shrout & Fleiss 1979,
    https://doi.org/10.1037/0033-2909.86.2.420). With missing scores k₀ is the repetitions per
    item that the analysis of unbalanced data takes: (n - Σ nᵢ²/n) / (items - 1).
    """

    def formula(all_: Totals) -> float:
        between, within, repeats = _mean_squares(all_)
        return (between - within) / (between + (repeats - 1) * within)

    return Sums(_anova(table), formula)


@measure
def icc_of_mean(table: ScoreTable) -> Sums:
    """ICC(1,k), how far the mean of an item's k scores tells items apart, at most 1.

    (MSB - MSW) / MSB; see `icc`.
    """

    def formula(all_: Totals) -> float:
        between, within, _ = _mean_squares(all_)
        return (between - within) / between

    return Sums(_anova(table), formula)


@measure
def retest_reliability(table: ScoreTable) -> Sums:
    """The correlation of one repetition with another, from -1 to 1, over the pooled table.

    Pearson's r of every two columns over the items scored in both, averaged over the pairs of
    columns that have one (neither constant). Raises InputError when rows differ in length.
    """
    pairs = list(combinations(range(rectangular(table)), 2))
    for row in table:
        numbers(row)
    columns = zip(*table, strict=True)
    starts = [next((x for x in column if x is not None), 0.0) for column in columns]
    return Sums([_products(row, starts, pairs) for row in table], _mean_correlation)


def _deviation(scores: Sequence[float]) -> float | None:
    return statistics.stdev(scores) if len(scores) > 1 else None


def _anova(table: ScoreTable) -> list[Totals]:
    rows = [numbers(row) for row in table]
    # Moved to one of the scores: deviations stay, and equal scores are exactly zero.
    start = next((row[0] for row in rows if row), 0.0)
    return [_sums_of_squares([score - start for score in row]) for row in rows]


def _sums_of_squares(row: Sequence[float]) -> Totals:
    if not row:
        return {}
    size, centre = len(row), statistics.fmean(row)
    return {
        "items": 1.0,
        "scores": float(size),
        "freedom": float(size - 1),
        "scores²": float(size * size),
        "sum": size * centre,
        "squares": size * centre * centre,
        "within": size * statistics.pvariance(row),
    }


def _mean_squares(all_: Totals) -> tuple[float, float, float]:
    """Between items, within items, and the repetitions of an item."""
    freedom, size = all_["items"] - 1, all_["scores"]
    between = squared_deviations(size, all_["sum"], all_["squares"]) / freedom
    within = all_["within"] / all_["freedom"]
    return between, within, (size - all_["scores²"] / size) / freedom


def _products(
    row: Sequence[float | None], starts: Sequence[float], pairs: Sequence[tuple[int, int]]
) -> Totals:
    found: dict[Hashable, float] = {}
    moved = [None if x is None else x - start for x, start in zip(row, starts, strict=True)]
    for pair in pairs:
        x, y = moved[pair[0]], moved[pair[1]]
        if x is not None and y is not None:
            terms = {"n": 1.0, "x": x, "y": y, "xx": x * x, "yy": y * y, "xy": x * y}
            found |= {(*pair, name): number for name, number in terms.items()}
    return found


def _mean_correlation(all_: Totals) -> float | None:
    pairs = [key[:2] for key in all_ if isinstance(key, tuple) and key[2] == "n"]
    found = [correlation({name: all_[(*pair, name)] for name in _TERMS}) for pair in pairs]
    return statistics.fmean(known) if (known := [r for r in found if r is not None]) else None


_TERMS = ("n", "x", "y", "xx", "yy", "xy")


def correlation(sums: Totals, x: str = "x", y: str = "y") -> float | None:
    """Pearson's r of two variables from the sums of them, their squares and their products."""
    size = sums["n"]
    if not size:
        return None
    xx = squared_deviations(size, sums[x], sums[x + x])
    yy = squared_deviations(size, sums[y], sums[y + y])
    if not xx or not yy:
        return None
    r = (sums[x + y] - sums[x] * sums[y] / size) / math.sqrt(xx * yy)
    return min(max(r, -1.0), 1.0)
