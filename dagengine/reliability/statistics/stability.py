"""Would the judge say it again? How stable several answers to one question are.

All take a table: one row per item, one column per repetition or rater. They are None when they are
not defined. Measures of repeated answers are computed within the item and averaged over items;
every item has the same weight. Those marked *depends on N* change with the number of repetitions
even for one and the same judge: compare them at equal N only. Missing answers are dropped by
default, so that a measure says how verdicts vary; how often there is none is another question.
Total agreement counts them as their own verdict, as its authors do. A missing score is always
dropped.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace
from functools import cache, lru_cache
from itertools import accumulate, chain
from typing import Any, TypeVar

from dagengine.reliability.statistics.intervals import (
    LEAST_GROUPS,
    Interval,
    Unknown,
    bootstrap,
    jackknife,
    mean_of,
)
from dagengine.reliability.statistics.sums import (
    Groups,
    Missing,
    ScoreTable,
    SummedMeasure,
    Sums,
    Table,
    Totals,
    Vote,
    by_row,
    counting_votes,
    difference,
    groups_of,
    mean,
    numbers,
    numpy,
    present,
    quotient,
    rectangular,
    squared_deviations,
    total,
)

H = TypeVar("H", bound=Hashable)

_LN2 = math.log(2)
# So many verdicts are all that there are; of more, as of scores, some may not have been seen.
_FEW_KINDS = 5
# The items that an interval of reliability takes: with one left out, two still have to differ.
_LEAST = 3


@SummedMeasure
def flip_rate(table: Table, *, missing: Missing = "drop") -> Sums:
    """The probability that two independent answers to one question differ, from 0 to 1.

    1 - Σ nₖ(nₖ - 1) / n(n - 1) per item with at least two answers: unbiased, whatever n
    (Simpson 1949, https://doi.org/10.1038/163688a0). With K different answers it is expected to be
    (K - 1)/K at most. A single item with few answers may show more: 2/3 if two of three are equal.
    """
    rows = by_row(lambda row: tuple(counting_votes(row, missing)), table)
    different = Counter(rows)
    kinds = max(len(set[Vote | None]().union(*different)), 2)
    sizes = {*map(len, different)} - {0, 1}
    # The highest flip rate of an item: answers that are spread evenly over all kinds.
    most = 0.0
    for size in sizes:
        often, oftener = divmod(size, kinds)
        equal = oftener * math.comb(often + 1, 2) + (kinds - oftener) * math.comb(often, 2)
        most = max(most, 1 - equal / math.comb(size, 2))
    # There may be answers that nobody gave: some were given on one item only.
    items = Counter[Vote | None]()
    for row, count in different.items():
        items.update(dict.fromkeys(row, count))
    limit = None if kinds > _FEW_KINDS and 1 in items.values() else 1 - 1 / kinds
    unseen = hidden_flips(min(sizes)) if sizes and kinds == 2 else None
    return mean(by_row(flips_of, rows), most=most, limit=limit, unseen=unseen)


def flips_of(row: Iterable[Vote | None]) -> float | None:
    """The flip rate of one item, in which None is an answer; None with fewer than two."""
    counts = Counter(row).values()
    pairs = math.comb(sum(counts), 2)
    return 1 - sum(math.comb(n, 2) for n in counts) / pairs if pairs else None


@SummedMeasure
def total_agreement(table: Table) -> Sums:
    """Total agreement rate over N answers, from 0 to 1; depends on N.

    The share of items with two answers or more that are all equal. It is TARr@N on a table of raw
    texts, and TARa@N on one of parsed answers (Atil et al. 2024, https://arxiv.org/abs/2408.04667),
    path agreement on one of paths. A missing answer equals only another one. Raises InputError when
    rows differ in length.
    """
    rectangular(table)
    return mean(by_row(lambda row: float(len(set(row)) == 1) if len(row) > 1 else None, table))


@SummedMeasure
def majority_share(table: Table, *, missing: Missing = "drop") -> Sums:
    """The share of the most common answer, from 1/N to 1; depends on N.

    It is too high rather than too low, because the most common answer is chosen after the
    answers are seen.
    """

    def share(row: Sequence[Vote | None]) -> float | None:
        votes = counting_votes(row, missing)
        return max(Counter(votes).values()) / len(votes) if votes else None

    return mean(by_row(share, table))


@SummedMeasure
def entropy(table: Table) -> Sums:
    """Entropy of the judge's answer to a question, in bits: 0 says always the same.

    Σ nₖ/n (h(n - 1) - h(nₖ - 1)) / ln 2 per item with at least two answers, h(m) = 1 + 1/2 +
    … + 1/m (Zhang 2012, https://doi.org/10.1162/NECO_a_00266). Its bias falls exponentially in n,
    that of the plug-in as 1/n. No estimator is without bias, and verdicts rarer than 1/n go unseen
    (`entropy_interval` reaches as far). With few answers a single item may lie above log₂ of the
    number of verdicts.
    """

    def bits(row: Sequence[Vote | None]) -> float | None:
        votes = present(row)
        harmonic = list(accumulate((1 / m for m in range(1, len(votes))), initial=0.0))
        nats = sum(n * (harmonic[-1] - harmonic[n - 1]) for n in Counter(votes).values())
        return nats / len(votes) / _LN2 if len(votes) > 1 else None

    return mean(by_row(bits, table), most=None)


def entropy_interval(table: Table, *, groups: Groups = None) -> Interval | None:
    """Entropy of the judge's answers, in bits, with an interval that reaches over its bias.

    The estimate is unbiased for the first n - 1 terms of Σ p Σ (1 - p)ᵛ/v, which is the entropy.
    The upper end is raised by the most that the other terms can add for as many verdicts as occur.
    None if nothing varies.
    """
    interval = bootstrap(table, entropy, groups=groups)
    if interval is None:
        return None
    rows = [*map(present, table)]
    kinds = max(len({*chain.from_iterable(rows)}), 2)
    unseen = [_unseen_bits(len(row), kinds) for row in rows if len(row) > 1]
    return replace(interval, high=interval.high + math.fsum(unseen) / len(unseen))


@SummedMeasure
def missing_rate(table: Table) -> Sums:
    """The share of answers that are missing, from 0 to 1, over the pooled table."""
    items = [{"answers": float(len(row)), "missing": float(row.count(None))} for row in table]
    return quotient(items, "missing", "answers", most=1.0)


@SummedMeasure
def missing_effect(table: Table) -> Sums:
    """Rise of the flip rate when a missing answer counts as its own verdict."""
    return difference(flip_rate.sums(table, missing="own category"), flip_rate.sums(table))


def majority(votes: Iterable[H]) -> H | None:
    """The vote given most often; None when several are, or there is none."""
    (first, count), (_, second) = (*Counter(votes).most_common(2), (None, 0), (None, 0))[:2]
    return first if count > second else None


@cache
def hidden_flips(runs: int) -> float:
    """Of two verdicts: the highest flip rate of an item, over the chance that its runs show it.

    2p(1 - p) / (1 - pᵀ - (1 - p)ᵀ) at its highest: 1 for two runs, which hide as much as they show,
    and near 1/2 for many, of which a coin cannot hide.
    """
    grid = [k / 400 for k in range(1, 201)]
    return max(2 * p * (1 - p) / (1 - p**runs - (1 - p) ** runs) for p in grid)


@cache
def _unseen_bits(answers: int, kinds: int) -> float:
    """The most bits of the terms from `answers` on: of the commonest verdict, and of all others."""

    def left(p: float) -> float:
        return p * (-math.log2(p) - math.fsum((1 - p) ** v / v for v in range(1, answers)) / _LN2)

    grid = [k / 200 for k in range(1, 201)]
    return (kinds - 1) * max(map(left, grid)) + max(left(p) for p in grid if p * kinds >= 1)


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

    def formula(totals: Totals) -> Any:
        between, within = _variances(totals)
        return between / (between + within)

    return Sums(by_row(item, rows), formula, of_arrays=True)


def icc_interval(
    table: ScoreTable,
    *,
    groups: Groups = None,
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
    sums = icc.sums(table)
    value, items = sums.value(), sums.items
    size = len(table) if groups is None else len(set(groups))
    if groups is not None and size < LEAST_GROUPS:
        return Unknown("too few groups", size, LEAST_GROUPS)
    if value is None:
        return Unknown("undefined", size)
    names = [*groups_of(groups, len(table))]
    limits = _icc_ends(items, names)
    if limits is None:
        return _no_ends(table, items, names)
    low, high = min(limits[0], value), max(limits[1], value)
    two = len({*chain.from_iterable(map(numbers, table))}) == 2
    for row in _unseen(table, scale):
        larger = icc.sums([*table, row])
        ends = (_icc_ends(larger.items, [*names, object()]) if two else None) or (larger.value(),)
        low, high = min(low, *present(ends)), max(high, *present(ends))
    return Interval(value, low, high, 0.95, "jackknife", size)


def _icc_ends(items: Sequence[Totals], groups: Sequence[Hashable]) -> tuple[float, float] | None:
    """The ends by the jackknife alone; None if scores vary in too few groups."""
    varying = {name for name, totals in zip(groups, items, strict=True) if totals.get("within")}

    def log_ratio(totals: Totals) -> Any:
        """The variance of the items' means over the part of it that is noise (MSB/MSW)."""
        between, within = _variances(totals)
        noise = within / _repeats(totals)
        return numpy.log(numpy.where(between + noise > 0, (between + noise) / noise, numpy.nan))

    whole = Sums(items, log_ratio, of_arrays=True)
    limits = jackknife(whole, groups=groups, telling=len(varying) + 1)
    if limits is None:
        return None
    repeats = _repeats(total(items))
    low, high = (math.exp(min(end, 700.0)) - 1 for end in limits)
    return low / (low + repeats), high / (high + repeats)


def _no_ends(table: ScoreTable, items: Sequence[Totals], names: Sequence[Hashable]) -> Unknown:
    """Why the jackknife has no ends: it needs noise and differing items, with one left out, too."""
    size = len({name for name, totals in zip(names, items, strict=True) if totals})
    if not _variances(total(items))[1]:
        return Unknown("no variation within items", size)
    if size < _LEAST:
        return Unknown("too few items", size, _LEAST)
    means = {*map(statistics.fmean, filter(None, map(numbers, table)))}
    return Unknown("one item varies" if len(means) > 1 else "no variation between items", size)


def _unseen(
    table: ScoreTable, scale: tuple[float, float] | None
) -> tuple[list[float], list[float]]:
    """A consistent case if the others seldom are, and one that varies between the ends of the
    scores."""
    rows = [*filter(None, map(numbers, table))]
    scores = [*chain.from_iterable(rows)]
    low, high, times = min(scores), max(scores), statistics.median_high(map(len, rows))
    ends = scale or (low, high)
    far = ends[statistics.fmean(scores) <= (ends[0] + ends[1]) / 2]
    return [far] * times, [(low, high)[run % 2] for run in range(times)]


def drift(table: ScoreTable, *, groups: Groups = None) -> Interval | Unknown:
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

    return mean_of(by_row(slope, table), groups=groups)


def _variances(totals: Totals) -> tuple[Any, Any]:
    """Between items, and within them: each item counts once."""
    size, within = totals["items"], totals["within"] / totals["repeated"]
    means = squared_deviations(size, totals["mean"], totals["mean²"]) / (size - 1)
    return means - within / _repeats(totals), within


def _repeats(totals: Totals) -> Any:
    """The within variance over the noise of the items' means: the repetitions, where equal.

    An item with one repetition has the mean noise of the others.
    """
    within: Any = totals["within"] / totals["repeated"]
    # Without any noise every item has one that is the same.
    still = within == 0
    within, noise = within + still, totals["noise"] + still * totals["1/often"]
    return within * totals["items"] / (noise + (totals["1/size"] - totals["1/often"]) * within)
