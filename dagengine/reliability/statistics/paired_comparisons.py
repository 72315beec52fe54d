"""Two judges, or one before and after a change: differences on the same cases.

Cases differ from each other far more than two judges do on one case, so that two intervals which
overlap say nothing about the difference. All differences are the second minus the first. Values
are per case: right or wrong, a flip rate, a mean score; a case where either is missing (None) is
left out.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from statistics import NormalDist
from typing import Literal

from dagengine.errors import InputError
from dagengine.reliability.statistics.intervals import (
    Interval,
    Unknown,
    jackknife,
    mean_of,
    means_of_groups,
    quantile_of_t,
    variance_of,
)
from dagengine.reliability.statistics.sums import (
    Groups,
    Sums,
    difference,
    groups_of,
    numbers,
    numpy,
    present,
    special,
    stats,
)

_ONE_SIDE = 0.025
_Z = NormalDist().inv_cdf(0.975)
# Fewer cases than this are too few for the tails of t: all changes of sign are counted.
_FEW = 20

Test = Literal["McNemar mid-p", "paired t", "sign permutation mid-p", "jackknife t", "Welch t"]


@dataclass(frozen=True, slots=True)
class Comparison:
    """The second minus the first.

    `p` is two-sided, and not corrected for other comparisons (`holm`). `differing` of `cases`
    differ at all: with fewer than five, all in one direction, no test finds anything.
    `visible` is the smallest detectable difference: 80 of 100 such benchmarks detect it. It is
    None if it is not known.
    """

    value: float
    interval: Interval | Unknown
    p: float
    test: Test
    cases: int
    differing: int
    visible: float | None = None


def is_gain(difference: Comparison | Unknown) -> bool:
    """Return whether the whole interval of a difference is above 0."""
    interval = getattr(difference, "interval", None)
    return isinstance(interval, Interval) and interval.low > 0


Pairs = Sequence[tuple[float | None, float | None]]


def compare_shares(pairs: Sequence[tuple[bool | None, bool | None]]) -> Comparison | Unknown:
    """Two shares of the same cases, as accuracy or the pass rate: one pair per case.

    McNemar's mid-p (Fagerland, Lydersen & Laake 2013, https://doi.org/10.1186/1471-2288-13-91)
    with the interval of Agresti & Min (2005, https://doi.org/10.1002/sim.1781). Cases of common
    groups are compared by `compare_means`, as scores are. Unknown without any pair.
    """
    changes = present(changes_of(pairs))
    if not changes:
        return Unknown("too few items", 0, 1)
    gains, losses, size = changes.count(1), changes.count(-1), len(changes)
    differing = gains + losses
    interval = _agresti_min(gains - losses, differing, size)
    visible = visible_difference(size, (differing + 1) / (size + 2))
    # McNemar's exact p is too high on average: mid-p takes half of the outcome that was seen.
    binom, few = stats.binom, min(gains, losses)
    p = min(float(2 * binom.cdf(few, differing, 0.5) - binom.pmf(few, differing, 0.5)), 1.0)
    return Comparison(interval.value, interval, p, "McNemar mid-p", size, differing, visible)


def compare_means(pairs: Pairs, *, groups: Groups = None) -> Comparison | Unknown:
    """Two means of the same cases, for instance of scores or flip rates: one pair per case.

    The paired t test, over cases or means of `groups`, with its interval. Below 20 cases the p is
    the mid-p of all changes of sign (Fisher 1935, The Design of Experiments, 21). The p of t is too
    low there. To count half of the outcomes that are as far keeps what Wilcoxon's test finds.
    Unknown with fewer than two pairs, or fewer than eight groups.
    """
    numbers(chain.from_iterable(pairs))
    changes = changes_of(pairs)
    interval = mean_of(changes, groups=groups)
    if isinstance(interval, Unknown) and interval.reason != "no variation":
        return interval
    means = means_of_groups(changes, groups)
    size, value, differing = len(means), statistics.fmean(means), sum(map(bool, means))
    variance, deviation = variance_of(means)
    if size < _FEW or isinstance(interval, Unknown):
        test: Test = "sign permutation mid-p"
        p = _sign_p(means)
    else:
        test, t = "paired t", value / deviation * math.sqrt(size)
        p = float(2 * special.stdtr(size - 1, -abs(t)))
    visible = None if isinstance(interval, Unknown) else visible_difference(size, variance)
    return Comparison(value, interval, p, test, size, differing, visible)


def compare_repeated(pairs: Pairs, *, groups: Groups = None) -> Comparison | Unknown:
    """Two shares of the same cases, each case with the share of its repetitions that are right.

    As `compare_means`, but with the interval of Agresti & Min for cases without groups: few cases
    that differ, mostly in one direction, are too few for t. It was measured with 40 and 80 cases:
    held 94 to 100 % where that of t held 81 to 96.
    """
    compared = compare_means(pairs, groups=groups)
    changes = present(changes_of(pairs))
    if groups is not None or len(changes) < 2 or isinstance(compared, Unknown):
        return compared
    squares = math.fsum(change * change for change in changes)
    interval = _agresti_min(math.fsum(changes), squares, len(changes))
    return replace(compared, interval=interval)


def compare_measures(first: Sums, second: Sums, *, groups: Groups = None) -> Comparison | Unknown:
    """Two measures that are not means, as kappa or ICC, over the same items.

    `first` and `second` are the sums of one measure over both judges' items (`icc.sums(table)`),
    row by row of the same cases. The jackknife of the difference, with t. Unknown if either is
    undefined for all cases, or with one of them left out.
    """
    change = difference(second, first)
    value, size = change.value(), len({*groups_of(groups, len(change.items))})
    if value is None:
        return Unknown("undefined", size)
    limits = jackknife(change, groups=groups)
    if limits is None:
        return Unknown("too few items", size)
    low, high = limits
    error = (high - low) / 2 / quantile_of_t(0.95, size)
    if error <= 1e-12:
        return Comparison(value, Unknown("no variation", size), 1.0, "jackknife t", size, 0)
    p = float(2 * stats.t.sf(abs(low + high) / 2 / error, size - 1))
    interval = Interval.around(value, limits, 0.95, "jackknife", size)
    return Comparison(value, interval, p, "jackknife t", size, size)


def compare_unpaired(
    first: Sequence[float | None], second: Sequence[float | None]
) -> Comparison | Unknown:
    """Two means of different cases, which show far less: Welch's t test and interval (1947).

    Unknown with fewer than two values on a side, or when neither side varies.
    """
    sides = numbers(first), numbers(second)
    size = min(map(len, sides))
    if size < 2:
        return Unknown("too few items", size, 2)
    if all(len(set(side)) < 2 for side in sides):
        return Unknown("no variation", size)
    value = statistics.fmean(sides[1]) - statistics.fmean(sides[0])
    parts = [(statistics.variance(side) / len(side), len(side) - 1) for side in sides]
    square = math.fsum(part for part, _ in parts)
    freedom = square**2 / math.fsum(part**2 / free for part, free in parts)
    t, error = stats.t, math.sqrt(square)
    half = float(t.ppf(0.975, freedom)) * error
    p = float(2 * t.sf(abs(value) / error, freedom))
    interval = Interval(value, value - half, value + half, 0.95, "t", size)
    count = sum(map(len, sides))
    return Comparison(value, interval, p, "Welch t", count, count)


def holm(ps: Sequence[float]) -> list[float]:
    """The p values of several comparisons, corrected for their number.

    Any that is at most 0.05 is false in at most 5 of 100 families of comparisons (Holm 1979,
    https://www.jstor.org/stable/4615733). In the order given.
    """
    if bad := [p for p in ps if not 0 <= p <= 1]:
        raise InputError(f"a p value lies between 0 and 1, got {bad[0]}")
    corrected, worst = [0.0] * len(ps), 0.0
    for rank, index in enumerate(sorted(range(len(ps)), key=ps.__getitem__)):
        worst = max(worst, min((len(ps) - rank) * ps[index], 1.0))
        corrected[index] = worst
    return corrected


def more_often(won: int, lost: int) -> float:
    """The one-sided exact p of McNemar: as many pairs in favour, or more, if both were alike."""
    return float(stats.binom.sf(won - 1, won + lost, 0.5)) if won else 1.0


def prove_more_often(pairs: Sequence[tuple[int, int]]) -> list[bool]:
    """Pairs of counts (won, lost), of several, that are shown to be won more often than lost.

    Holm's correction for all of them, by the p of `more_often`. Pairs of so few cases that no
    outcome could show anything do not count as comparisons (Tarone 1990,
    https://doi.org/10.2307/2531456; stepwise as in Hommel & Krummenauer 1998,
    https://doi.org/10.1002/(SICI)1521-4036(199812)40:8<935::AID-BIMJ935>3.0.CO;2-4). In at most 5
    of 200 families any is false, as with one side of two-sided tests at 95 %.
    """
    least = [0.5 ** sum(pair) for pair in pairs]
    open_pairs = set(range(len(pairs)))
    while True:
        count = 1
        while sum(least[index] <= _ONE_SIDE / count for index in open_pairs) > count:
            count += 1
        new = {index for index in open_pairs if more_often(*pairs[index]) <= _ONE_SIDE / count}
        if not new:
            return [index not in open_pairs for index in range(len(pairs))]
        open_pairs -= new


# What could be seen.


def visible_difference(cases: int, square: float, *, power: float = 0.8) -> float:
    """The smallest difference that this many cases show with the probability `power`.

    `square` is the mean squared difference of a case: the share of cases that differ, or the
    variance of the differences of scores. Two means of T runs on one case, of a judge with the flip
    rate F, differ by chance with a variance of F/T. The result is √(z²·square/(cases + z²)), z² =
    7.85 for 80 % at 95 % (Connor 1987, https://doi.org/10.2307/2531961).
    """
    z = _squared_z(power)
    return math.sqrt(z * square / (cases + z)) if cases else math.inf


def cases_needed(difference: float, square: float) -> int:
    """Number of cases that show a difference of this size; see `visible_difference`."""
    if difference <= 0:
        raise InputError(f"difference must be above 0, got {difference}")
    variance = max(square - difference * difference, 0.0)
    return max(math.ceil(_squared_z(0.8) * variance / difference**2), 2)


def _squared_z(power: float) -> float:
    return (_Z + NormalDist().inv_cdf(power)) ** 2


# Paired values.


def changes_of(pairs: Pairs) -> list[float | None]:
    """The second minus the first of each pair; None where either is missing."""
    return [None if old is None or new is None else new - old for old, new in pairs]


def _agresti_min(total: float, squares: float, size: int) -> Interval:
    """Half a case is added to both kinds of difference, and two to all.

    `total` and `squares` are the sums of the differences (-1 to 1) and of their squares.
    """
    middle, more = total / (size + 2), size + 2
    error = math.sqrt(squares + 1 - total**2 / more) / more
    value, half = total / size, _Z * error
    low, high = max(min(middle - half, value), -1.0), min(max(middle + half, value), 1.0)
    return Interval(value, low, high, 0.95, "Agresti-Min", size)


def _sign_p(changes: Sequence[float]) -> float:
    """The share of all changes of sign with a mean farther from 0, and half of those as far."""
    changes = list(filter(None, changes))
    if not changes:
        return 1.0
    if len(changes) >= _FEW:  # nothing varies: all signs are equal
        return float(2.0 ** -len(changes))
    sums = numpy.zeros(1)
    for change in changes:
        sums = numpy.concatenate((sums + change, sums - change))
    surplus = abs(sums) - abs(math.fsum(changes))
    # Sums in another order differ by rounding: these are as far, and count half.
    slack = 1e-9 * max(map(abs, changes))
    return float((surplus > slack).mean() + (abs(surplus) <= slack).mean() / 2)


# How many labels.

MORE_LABELS = (20, 40, 80, 160, 320, 640)
"""Numbers of further labels that are tried."""


def labels_within(share: float, half: float) -> int:
    """Number of labels for a share within ± `half`; shares near 0 or 1 count as 5 points off.

    z²·p(1 - p)/half². Raises InputError for a half width that is not above 0.
    """
    if half <= 0:
        raise InputError(f"half={half}: half the width of an interval is above 0")
    share = min(max(share, 0.05), 0.95)
    return math.ceil(_Z * _Z * share * (1 - share) / half**2)


def labels_to_decide(share: float, labels: int, line: float) -> int | None:
    """Number of further labels that tell on which side of a line a share is, in 8 of 10 samples.

    The least of 20, 40 … 640. What they will say is forecast by the beta-binomial of those there
    are (Jeffreys' prior); they tell if Wilson's interval of all of them then excludes the line.
    None if 640 do not.
    """
    z, hits = _Z, share * labels
    for more in MORE_LABELS:
        new, size = numpy.arange(more + 1), labels + more
        rate = (hits + new) / size
        middle = rate + z * z / (2 * size)
        half = z * numpy.sqrt(rate * (1 - rate) / size + (z / (2 * size)) ** 2)
        telling = abs(middle - line * (1 + z * z / size)) >= half
        odds = stats.betabinom.pmf(new, more, hits + 0.5, labels - hits + 0.5)
        if float(odds[telling].sum()) >= 0.8:
            return more
    return None
