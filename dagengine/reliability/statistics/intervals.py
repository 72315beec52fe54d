"""Intervals of measures, over items.

Repetitions of one item depend on each other and items do not, so items are what is drawn. The
interval is for the judge on items *like these*: the given ones are a sample of them. For exactly
these items it is too wide.
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
    "BCa",
    "MOVER",
    "Dirichlet posterior",
    "Wilson",
    "jackknife",
    "t",
    "Agresti-Min",
    "PPI++",
    "post-stratified posterior",
    "profile likelihood",
]
Reason = Literal[
    "undefined",
    "too few items",
    "too few groups",
    "no variation within items",
    "no variation between items",
    "one item varies",
    "no variation",
    "too few labels",
    "labels are not random",
]

# With fewer groups than this no interval of clustered cases was ever checked.
LEAST_GROUPS = 8
# Up to so many of the rarer kind a share is as good as a Poisson count.
_SMALL = 3
# Numbers held at once while resampling.
_CELLS = 4_000_000
# Bytes of resamples that are kept for the next figure.
_KEPT = 20_000_000
LEAST_WORTH = 4.0
"""How many groups of equal size unequal ones have to be worth (see `independent`)."""

# How often a statistic that is no sum is computed without a part of its items.
_PARTS = 200


@dataclass(frozen=True, slots=True)
class Interval:
    """A measure, and limits that hold its true value in the share `level` of all samples.

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
        """An interval that holds the value itself."""
        return cls(value, min(ends[0], value), max(ends[1], value), level, method, items)


@dataclass(frozen=True, slots=True)
class Unknown:
    """Reason why there is no interval: `items` are there, `needed` would do (None: not known).

    `detail` says more where the reason leaves it open.
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

    Bias-corrected and accelerated (Efron 1987, https://doi.org/10.1080/01621459.1987.10478410). The
    level is widened from normal to t quantiles: intervals of few items are too short otherwise
    (Hesterberg 2015, https://doi.org/10.1080/00031305.2015.1089789). A share is not resampled: with
    few items its resamples are too coarse, and where no item differs they claim certainty. It gets
    Wilson's interval (1927, https://doi.org/10.1080/01621459.1927.10502953) for the effective
    number of items. The quantile is again t, not normal (after Korn & Graubard 1998, Survey
    Methodology 24). The error comes from leaving out one item at a time. Few items may contain none
    of a rare kind that lies far from the others. So the interval reaches what three more items at
    either end would make of it at 95 % (the rule of three, Hanley & Lippman-Hand 1983,
    https://doi.org/10.1001/jama.1983.03330370053031).

    Equal seeds give equal intervals. Raises InputError for a level outside (0, 1) or lists
    that do not belong together, MissingExtraError without numpy and scipy.
    """
    if not 0 < level < 1 or resamples < 1:
        raise InputError(f"level={level} must lie between 0 and 1, resamples={resamples} above 0")
    sample = _sample(items, statistic, groups)
    value, size = sample.value, sample.size
    if value is None or size < 2:
        return None
    clustered = clusters_of(groups) is not None
    if size < LEAST_GROUPS and (clustered or sample.most is None):
        return None
    if clustered and sample.independent < LEAST_WORTH:
        return None
    left_out = sample.left_out()
    if len(left_out) < 2:
        return None
    t = quantile_of_t(level, min(len(left_out), sample.independent))
    if sample.most is not None:
        return _wilson(sample, value, left_out, t, level)
    # Many figures of one card are over as many cases.
    draws = _kept_draws if size * resamples <= _KEPT else _new_draws
    values = sorted(chain.from_iterable(map(sample.of, draws(size, resamples, seed))))
    if not values or values[-1] - values[0] <= 1e-12 * max(1.0, abs(value)):
        return None
    return Interval(value, *_bca(values, value, left_out, t), level, "BCa", size)


def jackknife(
    sums: Sums, *, groups: Groups = None, own: float = 0.0, telling: int | None = None
) -> tuple[float, float] | None:
    """The limits of a measure that is about normal, from leaving out one group at a time.

    Corrected for bias, n·value - (n - 1)·mean of those with one left out (Quenouille 1956,
    https://doi.org/10.1093/biomet/43.3-4.353), with quantiles of t (Tukey 1958). `own` is
    variance that is added, `telling` how many groups the variance rests on where those are fewer
    than all. None if the measure is undefined, of all or with one left out.
    """
    sample = _of_sums(sums, groups_of(groups, len(sums.items)))
    value, size = sample.value, sample.size
    if value is None or size < 2:
        return None
    left_out = sample.left_out()
    if len(left_out) < size:
        return None
    worth = min(telling or size, size, sample.independent)
    half = quantile_of_t(0.95, worth) * math.sqrt(_jackknife_variance(left_out) + own)
    middle = size * value - (size - 1) * statistics.fmean(left_out)
    return middle - half, middle + half


def _jackknife_variance(left_out: Sequence[float]) -> float:
    size, centre = len(left_out), statistics.fmean(left_out)
    return (size - 1) / size * math.fsum((estimate - centre) ** 2 for estimate in left_out)


def clusters_of(groups: Groups) -> Groups:
    """The groups of cases where some hold several; None if cases are independent."""
    return groups if groups is not None and len(set(groups)) < len(groups) else None


def mean_of(values: Sequence[float | None], *, groups: Groups = None) -> Interval | Unknown:
    """The mean of one value per case, with the interval of t over cases or means of `groups`.

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
    """The variance of two values or more (n - 1 below the line), and its root.

    From sums without rounding, of deviations from the mean.
    """
    deviations = numpy.asarray(values) - statistics.fmean(values)
    square = math.fsum((deviations * deviations).tolist()) / (len(values) - 1)
    return square, math.sqrt(square)


def design_effect(values: Sequence[float], groups: Sequence[Hashable]) -> float | Unknown:
    """The variance of the mean of grouped values over that of independent ones, at least 1.

    Cases of one group (a document, a dialogue) err together; so many of them say as much as one
    by itself (Kish 1965, Survey Sampling). Where nothing varies a group counts as one case.
    Unknown with fewer than 8 groups.
    """
    size, count = len(values), len(set(groups))
    if count < LEAST_GROUPS:
        return Unknown("too few groups", count, LEAST_GROUPS)
    deviations = numpy.array(values) - statistics.fmean(values)
    sums = numpy.bincount(indices(groups), deviations)
    alone = float((deviations**2).sum()) * size / (size - 1)
    together = float((sums**2).sum()) * count / (count - 1)
    return max(together / alone if alone > 1e-12 else size / count, 1.0)


# Samples: the statistic of any number of copies of every item.


@dataclass(frozen=True)
class _Sample:
    """`of` is the statistic of every row of a matrix that says how often each item is there.

    `left_out` is the statistic without the first part, without the second, and so on. Neither has
    values where it is undefined. A part is one item; of many items whose statistic takes long it is
    several (grouped jackknife; Efron & Narasimhan 2020,
    https://doi.org/10.1080/10618600.2020.1714633). `independent` is how many groups of equal size
    the items are worth.
    """

    size: int
    value: float | None
    of: Callable[[Any], list[float]]
    left_out: Callable[[], list[float]]
    independent: float
    most: float | None = None
    limit: float | None = None
    unseen: float | None = None


def _sample(
    items: Sequence[T], statistic: Statistic[T] | SummedMeasure[T, ...], groups: Groups
) -> _Sample:
    names = groups_of(groups, len(items))
    if isinstance(statistic, Sums):
        return _of_sums(statistic, names)
    function: Any = statistic.sums if isinstance(statistic, SummedMeasure) else statistic
    whole = function(items)
    if isinstance(whole, Sums):
        return _of_sums(whole, names)
    members: defaultdict[Hashable, list[T]] = defaultdict(list)
    for item, name in zip(items, names, strict=True):
        members[name].append(item)
    clusters = list(members.values())

    def of(counts: Iterable[Sequence[int]]) -> list[float]:
        copies = (map(mul, row, clusters) for row in counts)
        return present(function([*chain.from_iterable(row)]) for row in copies)

    def left_out() -> list[float]:
        parts = min(len(clusters), _PARTS)
        return of([int(index % parts != out) for index in range(len(clusters))]
                  for out in range(parts))  # fmt: skip

    return _Sample(len(clusters), whole, of, left_out, independent([*map(len, clusters)]))


def independent(sizes: Sequence[int]) -> float:
    """Number of equal groups that are worth as much as groups of these sizes.

    The variance between groups is as uncertain as its largest group makes it: one document with 40
    of 100 cases leaves few degrees of freedom, however many small ones there are. So t has those of
    G/(1 + CV²) groups (Carter, Schnepel & Steigerwald 2017, Review of Economics and Statistics 99),
    which are all of them if sizes are equal.
    """
    squares = sum(size * size for size in sizes)
    return sum(sizes) ** 2 / squares if squares else 0.0


def _of_sums(sums: Sums, names: Sequence[Hashable]) -> _Sample:
    groups = numpy.array(indices(names), int)
    sizes = numpy.bincount(groups, sums.adds)
    adding = sizes > 0

    def of(counts: Any) -> list[float]:
        return _without_nan(sums.each(counts @ in_groups(sums.matrix, groups)[adding]))

    count = int(adding.sum())
    return _Sample(
        count, sums.value(), of, lambda: _without_nan(sums.left_out(groups)[adding]),
        independent(sizes.tolist()), sums.most, sums.limit,
        sums.unseen if count == sizes.sum() else None,
    )  # fmt: skip


def _without_nan(values: Any) -> list[float]:
    numbers: list[float] = values[~numpy.isnan(values)].tolist()
    return numbers


@lru_cache(4)
def _kept_draws(size: int, resamples: int, seed: int) -> tuple[Any, ...]:
    # More than 255 copies of one of so many items are not drawn.
    return tuple(draws.astype("u1") for draws in _new_draws(size, resamples, seed))


def _new_draws(size: int, resamples: int, seed: int) -> Iterator[Any]:
    """Counts of draws of each item in each resample, a bounded number of resamples at a time."""
    random = numpy.random.default_rng(seed)
    rows = max(_CELLS // size, 1)
    for start in range(0, resamples, rows):
        many = min(rows, resamples - start)
        cells = random.integers(size, size=(many, size)) + size * numpy.arange(many)[:, None]
        yield numpy.bincount(cells.ravel(), minlength=many * size).reshape(many, size)


# Intervals of what was found.


def quantile_of_t(level: float, size: float) -> float:
    """Standard errors to either side of an interval of `size` items."""
    return float(special.stdtrit(size - 1, (1 + level) / 2))


def _bca(
    resamples: Sequence[float], value: float, left_out: Sequence[float], t: float
) -> tuple[float, float]:
    """`resamples` is sorted; ties with the value count half as below it."""
    normal = NormalDist()
    # Resamples are narrower than samples by √((n - 1)/n), since they vary about the sample's mean.
    z = t * math.sqrt(len(left_out) / (len(left_out) - 1))
    middle = 1e-12 * max(1.0, abs(value))
    below = bisect_left(resamples, value - middle) + bisect_right(resamples, value + middle)
    # A value outside all resamples is taken as half a resample away from them.
    share = min(max(below / 2, 0.5), len(resamples) - 0.5) / len(resamples)
    centre = statistics.fmean(left_out)
    squares = math.fsum((centre - estimate) ** 2 for estimate in left_out)
    cubes = math.fsum((centre - estimate) ** 3 for estimate in left_out)
    bias, bend = normal.inv_cdf(share), (cubes / (6 * squares**1.5) if squares else 0.0)
    # Beyond the pole of this formula an end would come back from the other side.
    ends = [bias + (bias + side) / max(1 - bend * (bias + side), 1e-9) for side in (-z, z)]
    low, high = numpy.quantile(resamples, list(map(normal.cdf, ends))).tolist()
    return min(low, value), max(high, value)


def _wilson(
    sample: _Sample, value: float, left_out: Sequence[float], t: float, level: float
) -> Interval:
    """Wilson's interval of as many items as would have this error if each said 0 or `most`.

    `most` is what an item can have, not what it is expected to have. A mean above the latter would
    seem to have no error at all. Next to 0 or `most` the end on that side is that of a Poisson
    count. Wilson's would hold in as little as 84 % (Brown, Cai & DasGupta 2001,
    https://doi.org/10.1214/ss/1009213286, section 4.1.1).
    """
    # If all items are 0, none adds more than can hide behind a 0.
    most = sample.most if value or sample.unseen is None else sample.unseen
    assert most is not None
    variance, share = _jackknife_variance(left_out), min(value / most, 1.0)
    own = most * most * share * (1 - share)
    effective = own / variance if variance > 1e-15 and own > 0 else float(len(left_out))
    middle = (share + t * t / (2 * effective)) / (1 + t * t / effective)
    half = math.sqrt(share * (1 - share) / effective + (t / (2 * effective)) ** 2)
    half *= t / (1 + t * t / effective)
    low, high = max(middle - half, 0.0), min(middle + half, 1.0)
    low = min(low, _poisson(share * effective, level) / effective)
    high = max(high, 1 - _poisson((1 - share) * effective, level) / effective)
    # The rule of three: -ln(0.05) = 3 items that nobody saw may lie at either end.
    unseen = -math.log(1 - level)
    unseen /= len(left_out) + unseen
    low = min(most * low, value - unseen * value)
    high = max(most * high, value + unseen * (most - value))
    if sample.limit is not None:
        low, high = min(low, sample.limit), max(min(high, sample.limit), value)
    return Interval(value, low, high, level, "Wilson", sample.size)


def _poisson(count: float, level: float) -> float:
    """The lower end of the mean of a small count; above 3 of them it is not wanted."""
    if not 0 < count <= _SMALL:
        return count
    return float(special.gammaincinv(count, 1 - level))


def require_benchmark_extra() -> None:
    """Raise MissingExtraError where a card could not be made: now, and not after all calls."""
    for module in ("jinja2", "numpy", "scipy.stats", "threadpoolctl"):
        needs(module)
