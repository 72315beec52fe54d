"""Intervals of measures over items, such as cases.

Items are independent, repetitions of one item are not. So resamples draw whole items, and leaving
out leaves out whole items. The interval is for the judge on items *like these*, of which these are
a sample. For exactly these items it is too wide.
"""

from __future__ import annotations

import math
import statistics
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from operator import mul
from statistics import NormalDist
from typing import Any, Literal, TypeVar

from dagengine.errors import InputError
from dagengine.reliability.statistics.sums import (
    Groups,
    SummedMeasure,
    Sums,
    groups_of,
    in_groups,
    indices,
    needs,
    numpy,
    present,
    special,
)

T = TypeVar("T")
Statistic = Sums | Callable[[Sequence[T]], Sums | float | None]

Method = Literal[
    "BCa", "MOVER", "Dirichlet posterior", "Wilson", "jackknife", "t", "Agresti-Min", "PPI++",
    "post-stratified posterior", "profile likelihood",
]  # fmt: skip
Reason = Literal[
    "undefined", "too few items", "too few groups", "no variation within items",
    "no variation between items", "one item varies", "no variation", "too few labels",
    "labels are not random",
]  # fmt: skip

LEAST_GROUPS = 8
"""With fewer groups no interval of clustered cases was ever checked."""
LEAST_WORTH = 4.0
"""The number of equal groups that unequal groups have to be worth (see `effective_groups`)."""
_SMALL_COUNT = 3  # up to here the rarer kind of a share is taken as a Poisson count
_CELLS = 4_000_000  # numbers that are in memory together while resampling
_KEPT = 20_000_000  # bytes of resamples that are kept for the next figure
_PARTS = 200  # parts of the items, each left out once, of a statistic that is no sum


@dataclass(frozen=True, slots=True)
class Interval:
    """A measure, and limits that contain its true value in the share `level` of all samples.

    `items` is the number of independent items, `method` how the interval was made.
    """

    value: float
    low: float
    high: float
    level: float
    method: Method
    items: int

    @classmethod
    def around(
        cls, value: float, ends: tuple[float, float], level: float, method: Method, items: int
    ) -> Interval:
        """An interval whose ends are moved, if needed, so that it contains the value."""
        return cls(value, min(ends[0], value), max(ends[1], value), level, method, items)


@dataclass(frozen=True, slots=True)
class Unknown:
    """The reason why there is no interval, and `detail` about it.

    `items` is the number of independent items, `needed` how many would do (None: not known).
    """

    reason: Reason
    items: int
    needed: int | None = None
    detail: str = ""


def bootstrap(
    items: Sequence[T],
    statistic: Statistic[T] | SummedMeasure[T, ...],
    *,
    level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
    groups: Groups = None,
) -> Interval | None:
    """The interval of a statistic of items; None when it has none.

    `statistic` is a measure (`flip_rate`), the sums of the items, or a function that makes them
    (`partial(flip_rate.sums, missing="own category")`). It may also be any function of a list of
    items, which is called once per resample. Items of equal `groups` (the nodes of one case) are
    drawn together. There is no interval if the statistic is undefined, if there are fewer than two
    items, or if resamples do not vary. For something that is not a share, there is none with fewer
    than eight groups or items.

    A statistic that is no share gets the bias-corrected and accelerated interval (BCa; Efron 1987,
    https://doi.org/10.1080/01621459.1987.10478410). Its level is widened from normal to t
    quantiles, since intervals of few items are too short otherwise (Hesterberg 2015,
    https://doi.org/10.1080/00031305.2015.1089789).

    A share is not resampled: with few items its resamples are too coarse, and if no item differs
    they claim certainty. It gets Wilson's interval (1927,
    https://doi.org/10.1080/01621459.1927.10502953) for the effective number of items, whose error
    comes from leaving out one item at a time. The quantile is again t, not normal (after Korn &
    Graubard 1998, Survey Methodology 24). Few items may contain none of a rare kind that is far
    from the others. So the interval reaches what three more items at either end would make of it at
    95 % (the rule of three, Hanley & Lippman-Hand 1983,
    https://doi.org/10.1001/jama.1983.03330370053031).

    Equal seeds give equal intervals. Raises InputError for a level outside (0, 1) or lists
    that do not belong together, MissingExtraError without numpy and scipy.
    """
    if not 0 < level < 1 or resamples < 1:
        raise InputError(f"level={level} must lie between 0 and 1, resamples={resamples} above 0")
    sample = _sample(items, statistic, groups)
    value, size, is_share = sample.value, sample.size, sample.most is not None
    if value is None or size < 2:
        return None
    clustered = clusters_of(groups) is not None
    if size < LEAST_GROUPS and (clustered or not is_share):
        return None
    if clustered and sample.worth < LEAST_WORTH:
        return None
    left_out = sample.left_out()
    if len(left_out) < 2:
        return None
    t = quantile_of_t(level, min(len(left_out), sample.worth))
    if is_share:
        return _wilson(sample, value, left_out, t, level)
    # Most figures of a card have the same number of cases, so one table of draws serves them all.
    draws = _kept_draws if size * resamples <= _KEPT else _new_draws
    values = sorted(chain.from_iterable(map(sample.resample, draws(size, resamples, seed))))
    if not values or values[-1] - values[0] <= 1e-12 * max(1.0, abs(value)):
        return None
    return Interval(value, *_bca(values, value, left_out, t), level, "BCa", size)


def jackknife(
    sums: Sums, *, groups: Groups = None, own: float = 0.0, telling: int | None = None
) -> tuple[float, float] | None:
    """The limits of a measure that is about normal, from leaving out one group at a time.

    Their middle is corrected for bias: n·value - (n - 1)·mean of the values with one group left out
    (Quenouille 1956, https://doi.org/10.1093/biomet/43.3-4.353). Their distance is by quantiles of
    t (Tukey 1958). `own` is variance that is added, `telling` the number of groups that the
    variance depends on (None: all). None if the measure, or one without a group, is undefined.
    """
    sample = _sample_of_sums(sums, groups_of(groups, len(sums.items)))
    value, size = sample.value, sample.size
    if value is None or size < 2:
        return None
    left_out = sample.left_out()
    if len(left_out) < size:
        return None
    worth = min(telling or size, size, sample.worth)
    half = quantile_of_t(0.95, worth) * math.sqrt(jackknife_variance(left_out) + own)
    middle = size * value - (size - 1) * statistics.fmean(left_out)
    return middle - half, middle + half


def jackknife_variance(left_out: Sequence[float]) -> float:
    """The variance of a measure, from its values with one group left out at a time."""
    size, centre = len(left_out), statistics.fmean(left_out)
    return (size - 1) / size * math.fsum((estimate - centre) ** 2 for estimate in left_out)


def clusters_of(groups: Groups) -> Groups:
    """The groups of cases, if one of them has several; None if cases are independent."""
    return groups if groups is not None and len(set(groups)) < len(groups) else None


def mean_of(values: Sequence[float | None], *, groups: Groups = None) -> Interval | Unknown:
    """The mean of one value per case, or of the means of `groups`, with the interval of t.

    Cases without a value (None) are left out.
    """
    means = means_of_groups(values, groups)
    if len(means) < 2:
        return Unknown("too few items", len(means), 2)
    if groups is not None and len(means) < LEAST_GROUPS:
        return Unknown("too few groups", len(means), LEAST_GROUPS)
    error = variance_of(means)[1] / math.sqrt(len(means))
    if error <= 1e-12 * max(map(abs, means)):
        return Unknown("no variation", len(means))
    value = statistics.fmean(means)
    half = quantile_of_t(0.95, len(means)) * error
    return Interval(value, value - half, value + half, 0.95, "t", len(means))


def means_of_groups(values: Sequence[float | None], groups: Groups) -> list[float]:
    """The mean of the values of each group; without groups, the values that there are."""
    if groups is None:
        return present(values)
    members: defaultdict[Hashable, list[float]] = defaultdict(list)
    for name, value in zip(groups, values, strict=True):
        if value is not None:
            members[name].append(value)
    return list(map(statistics.fmean, members.values()))


def variance_of(values: Sequence[float]) -> tuple[float, float]:
    """The variance of two values or more (n - 1 below the line), and its root."""
    deviations = numpy.asarray(values) - statistics.fmean(values)
    # Added without rounding.
    square = math.fsum((deviations * deviations).tolist()) / (len(values) - 1)
    return square, math.sqrt(square)


def design_effect(values: Sequence[float], groups: Sequence[Hashable]) -> float | Unknown:
    """The variance of the mean of grouped values over that of independent ones, at least 1.

    Cases of one group (a document, a dialogue) err together, and this many of them say as much as
    one independent case (Kish 1965, Survey Sampling). If no value differs, a group counts as one
    case. Unknown with fewer than 8 groups.
    """
    size, count = len(values), len(set(groups))
    if count < LEAST_GROUPS:
        return Unknown("too few groups", count, LEAST_GROUPS)
    deviations = numpy.array(values) - statistics.fmean(values)
    sums = numpy.bincount(indices(groups), deviations)
    alone = float((deviations**2).sum()) * size / (size - 1)
    together = float((sums**2).sum()) * count / (count - 1)
    return max(together / alone if alone > 1e-12 else size / count, 1.0)


# Samples: the statistic of all items, of resamples, and without some of the items.


@dataclass(frozen=True)
class _Sample:
    """A statistic of `size` groups, each of which is drawn or left out as one.

    `resample` takes a matrix of a row per resample, with the number of copies of each group, and
    returns the statistic of each row. `left_out` returns the statistic without the first part,
    without the second, and so on. Both leave undefined values out. A part is one group. It is
    several if the statistic is no sum and groups are many (grouped jackknife; Efron & Narasimhan
    2020, https://doi.org/10.1080/10618600.2020.1714633). `worth` is the number of equal groups that
    the groups are worth. `most`, `limit` and `unseen` are those of `Sums`.
    """

    size: int
    value: float | None
    resample: Callable[[Any], list[float]]
    left_out: Callable[[], list[float]]
    worth: float
    most: float | None = None
    limit: float | None = None
    unseen: float | None = None


def _sample(
    items: Sequence[T], statistic: Statistic[T] | SummedMeasure[T, ...], groups: Groups
) -> _Sample:
    names = groups_of(groups, len(items))
    if isinstance(statistic, Sums):
        return _sample_of_sums(statistic, names)
    function: Any = statistic.sums if isinstance(statistic, SummedMeasure) else statistic
    whole = function(items)
    if isinstance(whole, Sums):
        return _sample_of_sums(whole, names)
    members: defaultdict[Hashable, list[T]] = defaultdict(list)
    for item, name in zip(items, names, strict=True):
        members[name].append(item)
    clusters = list(members.values())

    def resample(counts: Iterable[Sequence[int]]) -> list[float]:
        copies = (map(mul, row, clusters) for row in counts)  # a list times 2 has each item twice
        return present(function([*chain.from_iterable(row)]) for row in copies)

    def left_out() -> list[float]:
        parts = min(len(clusters), _PARTS)
        return resample([int(index % parts != part) for index in range(len(clusters))]
                        for part in range(parts))  # fmt: skip

    return _Sample(
        len(clusters), whole, resample, left_out, effective_groups([*map(len, clusters)])
    )


def effective_groups(sizes: Sequence[int]) -> float:
    """The number of equal groups that are worth as much as groups of these sizes.

    One large group makes the variance between groups uncertain: a document with 40 of 100 cases
    leaves few degrees of freedom, however many small documents there are. So t has those of
    G/(1 + CV²) groups (Carter, Schnepel & Steigerwald 2017, Review of Economics and Statistics 99).
    These are all G groups if sizes are equal.
    """
    squares = sum(size * size for size in sizes)
    return sum(sizes) ** 2 / squares if squares else 0.0


def _sample_of_sums(sums: Sums, names: Sequence[Hashable]) -> _Sample:
    groups = numpy.array(indices(names), int)
    sizes = numpy.bincount(groups, sums.adds)
    adding = sizes > 0  # a group that adds nothing is none

    def resample(counts: Any) -> list[float]:
        return _without_nan(sums.each(counts @ in_groups(sums.matrix, groups)[adding]))

    count = int(adding.sum())
    return _Sample(
        count, sums.value(), resample, lambda: _without_nan(sums.left_out(groups)[adding]),
        effective_groups(sizes.tolist()), sums.most, sums.limit,
        sums.unseen if count == sizes.sum() else None,
    )  # fmt: skip


def _without_nan(values: Any) -> list[float]:
    numbers: list[float] = values[~numpy.isnan(values)].tolist()
    return numbers


@lru_cache(4)
def _kept_draws(size: int, resamples: int, seed: int) -> tuple[Any, ...]:
    # A byte is enough: of so few items none is drawn more than 255 times.
    return tuple(draws.astype("u1") for draws in _new_draws(size, resamples, seed))


def _new_draws(size: int, resamples: int, seed: int) -> Iterator[Any]:
    """Counts of draws of each item in each resample, a bounded number of resamples at a time."""
    random = numpy.random.default_rng(seed)
    rows = max(_CELLS // size, 1)
    for start in range(0, resamples, rows):
        many = min(rows, resamples - start)
        cells = random.integers(size, size=(many, size)) + size * numpy.arange(many)[:, None]
        yield numpy.bincount(cells.ravel(), minlength=many * size).reshape(many, size)


# Intervals of samples.


def quantile_of_t(level: float, size: float) -> float:
    """The number of standard errors to either side in an interval of `size` items."""
    return float(special.stdtrit(size - 1, (1 + level) / 2))


def _bca(
    resamples: Sequence[float], value: float, left_out: Sequence[float], t: float
) -> tuple[float, float]:
    """The ends of the BCa interval; `resamples` are sorted."""
    normal = NormalDist()
    # Resamples are narrower than samples by √((n - 1)/n), since they vary about the sample's mean.
    z = t * math.sqrt(len(left_out) / (len(left_out) - 1))
    rounding = 1e-12 * max(1.0, abs(value))
    # Twice the number of resamples below the value; those equal to it count half.
    below = bisect_left(resamples, value - rounding) + bisect_right(resamples, value + rounding)
    # A value outside all resamples is taken as half a resample away from them.
    share = min(max(below / 2, 0.5), len(resamples) - 0.5) / len(resamples)
    centre = statistics.fmean(left_out)
    squares = math.fsum((centre - estimate) ** 2 for estimate in left_out)
    cubes = math.fsum((centre - estimate) ** 3 for estimate in left_out)
    bias, acceleration = normal.inv_cdf(share), (cubes / (6 * squares**1.5) if squares else 0.0)
    # Beyond the pole of this formula an end would come back from the other side.
    ends = [bias + (bias + side) / max(1 - acceleration * (bias + side), 1e-9) for side in (-z, z)]
    low, high = numpy.quantile(resamples, list(map(normal.cdf, ends))).tolist()
    return min(low, value), max(high, value)


def _wilson(
    sample: _Sample, value: float, left_out: Sequence[float], t: float, level: float
) -> Interval:
    """Wilson's interval of as many items as would have this error if each were 0 or `most`.

    `most` is what an item can have, not what it is expected to have (`limit`): a mean above the
    latter would seem to have no error at all. Next to 0 or `most` the end on that side is that of a
    Poisson count, since Wilson's interval contains the true value in as little as 84 % (Brown, Cai
    & DasGupta 2001, https://doi.org/10.1214/ss/1009213286, section 4.1.1).
    """
    # If all items are 0, none adds more than can hide behind a 0.
    most = sample.most if value or sample.unseen is None else sample.unseen
    assert most is not None
    variance, share = jackknife_variance(left_out), min(value / most, 1.0)
    own = most * most * share * (1 - share)
    effective = own / variance if variance > 1e-15 and own > 0 else float(len(left_out))
    middle = (share + t * t / (2 * effective)) / (1 + t * t / effective)
    half = math.sqrt(share * (1 - share) / effective + (t / (2 * effective)) ** 2)
    half *= t / (1 + t * t / effective)
    low, high = max(middle - half, 0.0), min(middle + half, 1.0)
    low = min(low, _poisson(share * effective, level) / effective)
    high = max(high, 1 - _poisson((1 - share) * effective, level) / effective)
    # The rule of three: -ln(0.05) = 3 items that nobody saw may be at either end.
    unseen_items = -math.log(1 - level)
    unseen_share = unseen_items / (len(left_out) + unseen_items)
    low = min(most * low, value - unseen_share * value)
    high = max(most * high, value + unseen_share * (most - value))
    if sample.limit is not None:
        low, high = min(low, sample.limit), max(min(high, sample.limit), value)
    return Interval(value, low, high, level, "Wilson", sample.size)


def _poisson(count: float, level: float) -> float:
    """The lower end of the mean of a small Poisson count; the count itself if it is not small."""
    if not 0 < count <= _SMALL_COUNT:
        return count
    return float(special.gammaincinv(count, 1 - level))


def require_benchmark_extra() -> None:
    """Raise MissingExtraError where a card could not be made: now, and not after all calls."""
    for module in ("jinja2", "numpy", "scipy.stats", "threadpoolctl"):
        needs(module)
