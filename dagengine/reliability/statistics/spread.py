"""Would the judge give the same score again? Measures of repeated scores.

All take a table of scores: one row per item, one column per repetition, None if there is no
score. A missing score has no number and is always dropped. They are None when undefined.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Hashable, Sequence
from functools import lru_cache
from typing import Any

from dagengine.reliability.statistics.intervals import (
    LEAST_GROUPS,
    Interval,
    Unknown,
    jackknife,
    mean_of,
)
from dagengine.reliability.statistics.sums import (
    ScoreTable,
    SummedMeasure,
    Sums,
    Totals,
    by_row,
    groups_of,
    mean,
    numbers,
    numpy,
    present,
    squared_deviations,
    total,
)

# The items that an interval of reliability takes: with one left out, two still have to differ.
_LEAST = 3

# These are exact, so they take long, and the runs of many cases have the same scores.
deviation_of = lru_cache(10_000)(statistics.stdev)
_variance_of = lru_cache(10_000)(statistics.variance)


@SummedMeasure
def score_spread(table: ScoreTable, *, scale: tuple[float, float] | None = None) -> Sums:
    """The standard deviation of an item's scores, averaged over items, in points of the score.

    sqrt(Σ (x - mean)² / (n - 1)) per item with at least two scores. Few repetitions make it
    too low, by about 1/4n of itself. The ends of the `scale`, where there
    are any, say how large it can be, for the interval.
    """
    rows = by_row(numbers, table)
    most = None
    if scale is not None:
        # The largest deviation of so many scores: half of them at each end of the scale.
        sizes = [len(row) for row in rows if len(row) > 1]
        variances = [size // 2 * (size - size // 2) / (size * (size - 1)) for size in sizes]
        most = (scale[1] - scale[0]) * math.sqrt(max(variances, default=0.0))
    deviations = by_row(lambda row: deviation_of(row) if len(row) > 1 else None, rows)
    return mean(deviations, most=most)


@SummedMeasure
def icc(table: ScoreTable) -> Sums:
    """ICC(1,1), how far one score tells items apart, at most 1.

    With equal numbers of repetitions, (MSB - MSW) / (MSB + (k - 1) MSW) of one-way analysis of
    variance (Shrout & Fleiss 1979, https://doi.org/10.1037/0033-2909.86.2.420). Every item has the
    same weight, whatever its repetitions: items that ran more often may be the noisy ones.
    """

    def formula(all_: Totals) -> Any:
        between, within = _variances(all_)
        return between / (between + within)

    return Sums(_by_item(table), formula, of_arrays=True)


def icc_interval(
    table: ScoreTable,
    *,
    level: float = 0.95,
    groups: Sequence[Hashable] | None = None,
    scale: tuple[float, float] | None = None,
) -> Interval | Unknown:
    """ICC(1,1) with its interval, that of log(MSB/MSW) by the jackknife, mapped back.

    It holds for scores that are not normal, too, where that of F does not (after Arvesen 1969,
    https://doi.org/10.1214/aoms/1177697287). Few cases may hold none of a rare kind that
    carries the figure. So the ends reach what one more case would make of it. That case is
    consistent at the far end of the `scale` (without one: of the scores given), or varies between
    both ends of the scores. With two scores, as for pass or fail, they reach the ends with that
    case. `groups`, one per row, are left out together. Unknown if scores never vary within items
    or between them, where only a single item makes them vary, and with fewer than three.
    """
    value = icc(table)
    size = len(table) if groups is None else len(set(groups))
    if groups is not None and size < LEAST_GROUPS:
        return Unknown("too few groups", size, LEAST_GROUPS)
    if value is None:
        return Unknown("undefined", size)
    names = [*groups_of(groups, len(table))]
    limits = _icc_ends(table, names, level)
    if limits is None:
        return _no_ends(table, names)
    low, high = min(limits[0], value), max(limits[1], value)
    two = len({x for row in table for x in numbers(row)}) == 2
    for row in _unseen(table, scale):
        larger = [*table, row]
        ends = (_icc_ends(larger, [*names, object()], level) if two else None) or (icc(larger),)
        low, high = min(low, *present(ends)), max(high, *present(ends))
    return Interval(value, low, high, level, "jackknife", size)


def _icc_ends(
    table: ScoreTable, groups: Sequence[Hashable], level: float
) -> tuple[float, float] | None:
    """The ends by the jackknife alone; None if scores vary in too few groups."""
    sums = _by_item(table)
    varying = {name for name, totals in zip(groups, sums, strict=True) if totals.get("within")}
    whole = Sums(sums, _log_ratio, of_arrays=True)
    limits = jackknife(range(len(table)), lambda _: whole, level=level, groups=groups,
                       telling=len(varying) + 1)  # fmt: skip
    if limits is None:
        return None
    repeats = _repeats(total(sums))
    low, high = ((ratio - 1) / (ratio - 1 + repeats) for ratio in
                 (math.exp(min(end, 700.0)) for end in limits))  # fmt: skip
    return low, high


def _no_ends(table: ScoreTable, names: Sequence[Hashable]) -> Unknown:
    """Why the jackknife has no ends: it needs noise and differing items, with one left out, too."""
    sums = _by_item(table)
    size = len({name for name, totals in zip(names, sums, strict=True) if totals})
    if not _variances(total(sums))[1]:
        return Unknown("no variation within items", size)
    if size < _LEAST:
        return Unknown("too few items", size, _LEAST)
    means = {statistics.fmean(scored) for row in table if (scored := numbers(row))}
    return Unknown("one item varies" if len(means) > 1 else "no variation between items", size)


def _unseen(
    table: ScoreTable, scale: tuple[float, float] | None
) -> tuple[list[float], list[float]]:
    """A consistent case if the others seldom are, and one that varies between the ends of the
    scores."""
    rows = [scored for row in table if (scored := numbers(row))]
    scores = [score for row in rows for score in row]
    low, high, times = min(scores), max(scores), statistics.median_high(map(len, rows))
    ends = scale or (low, high)
    far = ends[statistics.fmean(scores) <= (ends[0] + ends[1]) / 2]
    return [far] * times, [(low, high)[run % 2] for run in range(times)]


def drift(
    table: ScoreTable, *, level: float = 0.95, groups: Sequence[Hashable] | None = None
) -> Interval | Unknown:
    """Rise of scores from earlier to later runs, in points of the score from first to last.

    The slope of a case's scores (or 0 and 1) on the place of their run, from -1/2 to 1/2, by least
    squares. It is the mean over cases with two scores or more. A row holds the runs in the order in
    which they were asked. The interval is that of t over cases, or over the means of `groups`.
    Unknown with fewer than two such cases, or where scores never vary.
    """

    def slope(row: Sequence[float | None]) -> float | None:
        numbers(row)
        # The index of a run among all of its case, also of those that have no score.
        end = max(len(row) - 1, 1)
        runs = [(k / end - 0.5, score) for k, score in enumerate(row) if score is not None]
        return statistics.linear_regression(*zip(*runs, strict=True)).slope if runs[1:] else None

    return mean_of(by_row(slope, table), level=level, groups=groups)


def _log_ratio(all_: Totals) -> Any:
    """The variance of the items' means over the part of it that is noise (MSB/MSW)."""
    (between, within) = _variances(all_)
    noise = within / _repeats(all_)
    return numpy.log(numpy.where(between + noise > 0, (between + noise) / noise, numpy.nan))


def _by_item(table: ScoreTable) -> list[Totals]:
    rows = by_row(numbers, table)
    # Moved to one of the scores: deviations stay, and equal scores are exactly zero.
    start = next((row[0] for row in rows if row), 0.0)

    def item(row: Sequence[float]) -> Totals:
        moved, totals = [score - start for score in row], dict[Hashable, float]()
        size = len(moved)
        if moved:
            centre = statistics.fmean(moved)
            totals = {"items": 1.0, "mean": centre, "mean²": centre * centre, "1/size": 1 / size}
        if size > 1:
            variance = _variance_of(tuple(moved))
            totals |= {"repeated": 1.0, "within": variance, "noise": variance / size}
            totals["1/often"] = 1 / size
        return totals

    return by_row(item, rows)


def _variances(all_: Totals) -> tuple[Any, Any]:
    """Between items, and within them: each item counts once."""
    within = all_["within"] / all_["repeated"]
    means = squared_deviations(all_["items"], all_["mean"], all_["mean²"]) / (all_["items"] - 1)
    return means - within / _repeats(all_), within


def _repeats(all_: Totals) -> Any:
    """The within variance over the noise of the items' means: the repetitions, where equal.

    An item with one repetition has the mean noise of the others.
    """
    within: Any = all_["within"] / all_["repeated"]
    # Without any noise every item has one that is the same.
    still = within == 0
    within, noise = within + still, all_["noise"] + still * all_["1/often"]
    return within * all_["items"] / (noise + (all_["1/size"] - all_["1/often"]) * within)


def correlation(sums: Totals, x: str = "x", y: str = "y") -> float | None:
    """Pearson's r of two variables from the sums of them, their squares and their products."""
    size = sums["n"]
    if not size:
        return None
    xx = squared_deviations(size, sums[x], sums[x + x])
    yy = squared_deviations(size, sums[y], sums[y + y])
    if not xx or not yy:
        return None
    return within_ends((sums[x + y] - sums[x] * sums[y] / size) / math.sqrt(xx * yy))


def within_ends(r: float) -> float:
    """The correlation, which rounding may have carried beyond -1 or 1."""
    return min(max(r, -1.0), 1.0)
