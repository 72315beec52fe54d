"""Agreement of a judge with people, and of raters: accuracy, kappas, alpha, their intervals.

Measures of a judge take pairs of a human label and the judge's verdict, one per case or per run. An
item without a label is left out. A labelled item without a parseable answer counts as wrong:
dropping it would make a judge better by failing on hard items. `groups` has one name per pair;
pairs of different groups are independent. It is the case if pairs are runs, or the document that
cases share.

Balanced accuracy, kappa and AC1 are not means of items, and few cases of a rare label make their
bootstrap intervals far too short. Those of kappa and AC1 are from a posterior: plausible tables
are drawn, and the interval is widened so that it contains the measure itself. The lower end for a
perfect judge, `kappa_interval([(label, label) for label in labels])`, is the most that these
labels could show.

Kappas and alpha are 1 for perfect agreement, 0 for chance and below 0 for less. They are computed
over the pooled table: what chance would give is known only from all items together. They are None
if chance alone would always agree, for instance if only one verdict occurs: a constant judge is not
a reliable one.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import chain, compress, repeat
from operator import attrgetter
from statistics import NormalDist, pvariance
from typing import Any, Literal

from dagengine.errors import InputError
from dagengine.reliability.statistics.intervals import (
    LEAST_GROUPS,
    LEAST_WORTH,
    Interval,
    Unknown,
    bootstrap,
    effective_groups,
    quantile_of_t,
)
from dagengine.reliability.statistics.paired_comparisons import MORE_LABELS
from dagengine.reliability.statistics.stability import flip_rate
from dagengine.reliability.statistics.sums import (
    Groups,
    Missing,
    SummedMeasure,
    Sums,
    Table,
    Totals,
    Vote,
    by_row,
    counting_votes,
    groups_of,
    indices,
    mean,
    numbers,
    numpy,
    present,
    rectangular,
    special,
    split_groups,
    squared_deviations,
)

_DRAWS = 4000  # tables drawn from a posterior
_TAILS = (1 - 0.95) / 2, 1 - (1 - 0.95) / 2
Labelled = Sequence[tuple[Vote | None, Vote | None]]
"""Pairs of a human label and the judge's verdict."""
Tables = Callable[[Any], Any]
"""A measure of tables: one number for each, not a number where it is undefined."""


@SummedMeasure
def accuracy(pairs: Labelled) -> Sums:
    """The share of verdicts equal to the label, from 0 to 1, over the pooled pairs.

    Do not show it alone: kappa and the baseline say what it is worth.
    """
    return mean(None if label is None else float(label == verdict) for label, verdict in pairs)


@SummedMeasure
def majority_baseline(pairs: Labelled) -> Sums:
    """The accuracy of always giving the most common label, from 0 to 1."""
    items = [{} if label is None else {label: 1.0} for label, _ in pairs]

    def commonest(totals: Totals) -> float:
        return max(totals.values(), default=0.0) / sum(totals.values())

    return Sums(items, commonest)


@SummedMeasure
def label_kappa(pairs: Labelled) -> Sums:
    """Cohen's kappa of the judge with the labels, from -1 to 1; 0 for a constant judge."""
    # A missing verdict is an answer that no label equals: left out, kappa would be that of the
    # cases on which runs agree.
    rated = cohen_kappa.sums(pairs, missing="own category")
    rows = zip(pairs, rated.items, strict=True)
    return replace(rated, items=[{} if pair[0] is None else totals for pair, totals in rows])


class Confusion:
    """The table of labels and verdicts of cases, and intervals of its measures.

    `counts[i, j]` is how often the label was `kinds[i]` and the verdict `kinds[j]`. The possible
    `kinds` come first, then others that occur, and last a missing verdict (None). A pair without a
    label is left out. `weights` has the share of a case that each pair stands for, None for 1.
    `groups` are those of dependent cases.
    """

    def __init__(
        self, pairs: Labelled, kinds: Sequence[Vote] = (), groups: Groups = None,
        weights: Sequence[float] | None = None,
    ) -> None:  # fmt: skip
        has = [label is not None for label, _ in pairs]
        rows = [*compress(pairs, has)]
        order = dict.fromkeys(chain(kinds, *rows))
        self.kinds = tuple(sorted(order, key=lambda kind: kind is None))
        size = len(order)
        number = dict(zip(self.kinds, range(size), strict=True))
        self._cells = numpy.array([number[a] * size + number[b] for a, b in rows], int)
        self._parts = numpy.array([*compress(weights or repeat(1.0), has)])
        self._groups = None
        if groups is not None:
            names = compress(groups_of(groups, len(pairs)), has)
            self._groups = numpy.array(indices(names), int)
        cells = numpy.bincount(self._cells, self._parts, size * size)
        self.counts = cells.reshape(size, size)
        self.items = round(self.counts.sum())

    def effect(self, of: Tables) -> float | Unknown:
        """Design effect: the number of dependent cases that are worth an independent one.

        It is the variance of the measure by leaving out one group at a time, over that by leaving
        out one case at a time. Every measure has its own: accuracy and kappa react differently if
        large groups are the hard ones. With few groups it is as much larger as t makes intervals.
        """
        if self._groups is None:
            return 1.0
        sizes = numpy.bincount(self._groups, self._parts)
        groups, worth = len(sizes), effective_groups(sizes.round().tolist())
        if groups < LEAST_GROUPS or worth < LEAST_WORTH:
            return _too_few(groups, math.inf)
        whole, size = self.counts, self.counts.size
        grouped = numpy.bincount(self._groups * size + self._cells, self._parts, groups * size)
        tables = grouped.reshape(-1, *whole.shape)
        together = _left_out_variance(whole, tables, numpy.ones(groups), of)
        # Cases in one cell of the table are alike: each cell is left out once and counts as often.
        filled = whole.ravel() > 0
        single = numpy.eye(size).reshape(-1, *whole.shape)[filled]
        alone = _left_out_variance(whole, single, whole.ravel()[filled], of)
        effect = together / alone if alone > 1e-15 else self.items / groups
        wider = quantile_of_t(0.95, worth) / NormalDist().inv_cdf(0.975)
        # Intervals grow with the root of the effect, hence the square.
        return float(max(effect, 1.0) * wider**2)

    def posterior(self, of: Tables, level: float) -> Interval | Unknown:
        """The interval of a measure of tables drawn by Dirichlet, with a prior for each end.

        Both priors contain one case on which people and judge agree. The prior of the lower end
        contains one more on which they do not, that of the upper end half of one. With one prior
        for both, an end would be too near if cases, or cases of a label, are few.
        """
        if not 0 < level < 1:
            raise InputError(f"level={level} must lie between 0 and 1")
        table, kinds = self.counts, len(self.kinds)
        value = float(of(table)) if table.sum() else math.nan
        if math.isnan(value):
            return Unknown("undefined", self.items)
        effect = self.effect(of)
        if isinstance(effect, Unknown):
            return effect
        random = numpy.random.default_rng(0)

        def end(apart: float, quantile: float) -> float:
            # One case of agreement on the diagonal, `apart` of one spread over the other cells.
            each = apart / max(kinds * (kinds - 1), 1)
            prior = each + numpy.eye(kinds) * (1 / kinds - each)
            draws = random.dirichlet((table / effect + prior).ravel(), _DRAWS)
            return float(numpy.nanquantile(of(draws.reshape(_DRAWS, *table.shape)), quantile))

        # One generator for both ends: the order of its draws is part of the result.
        ends = end(1.0, (1 - level) / 2), end(0.5, (1 + level) / 2)
        return Interval.around(value, ends, level, "Dirichlet posterior", self.items)


def label_rates(
    pairs: Labelled, *, groups: Groups = None
) -> dict[Vote, tuple[Interval | Unknown, Interval | Unknown]]:
    """Sensitivity and specificity of every label that occurs, from 0 to 1, by Wilson's interval.

    They are those of the cases of the label, and of all other cases.
    """
    rows = _with_groups(pairs, groups)
    rates: dict[Vote, tuple[Interval | Unknown, Interval | Unknown]] = {}
    for label in dict.fromkeys(label for label, *_ in rows):
        met, rejected = list[tuple[float, Hashable]](), list[tuple[float, Hashable]]()
        for own, verdict, group in rows:
            if own == label:
                met.append((float(verdict == label), group))
            else:  # a tie, or no verdict, is right about no case: as in accuracy
                rejected.append((float(verdict not in (label, None)), group))
        rates[label] = _share(met), _share(rejected)
    return rates


def _share(hits: Iterable[tuple[float, Hashable]]) -> Interval | Unknown:
    values, groups = split_groups(hits)
    return bootstrap(values, mean, groups=groups) or _too_few(len(set(groups)), len(groups))


def baseline_interval(
    pairs: Labelled, *, kinds: Sequence[Vote] = (), groups: Groups = None
) -> Interval | None:
    """The accuracy of always giving the most common label, from 0 to 1, by Wilson's intervals.

    If two labels are near each other, it is not known which is most common, and resamples of the
    largest share are never below it. So the lower end is the largest lower end of the shares of all
    labels, and the upper end the largest upper end. Of K possible `kinds` one has 1/K at least.
    None if a share has no interval.
    """
    rows = _with_groups(pairs, groups)
    intervals: list[Interval] = []
    for kind in dict.fromkeys(label for label, *_ in rows):
        share = _share((float(label == kind), group) for label, _, group in rows)
        if isinstance(share, Unknown):
            return None
        intervals.append(share)
    if not intervals:
        return None
    best = max(intervals, key=attrgetter("value"))
    low = max(*map(attrgetter("low"), intervals), 1 / len(kinds) if kinds else 0.0)
    return replace(best, low=low, high=max(map(attrgetter("high"), intervals)))


def _too_few(groups: int, items: float) -> Unknown:
    """Why items have no interval: they are too few, or are in too few groups."""
    if groups < items:
        # Enough, but one holds so many cases that they are worth fewer: how many is not said.
        needed = LEAST_GROUPS if groups < LEAST_GROUPS else None
        return Unknown("too few groups", groups, needed)
    return Unknown("too few items", groups, 2)


def balanced_accuracy_interval(
    pairs: Labelled, *, kinds: Sequence[Vote] = (), groups: Groups = None
) -> Interval | Unknown:
    """Balanced accuracy, from 0 to 1: the mean over labels of the share of its cases that is met.

    The interval is put together from Jeffreys' intervals of the labels' shares (MOVER; Newcombe,
    Zou & Donner 2008, https://doi.org/10.1002/sim.3231). Distances from the shares are added, not
    posteriors: of many labels with few cases each, all posteriors are pulled the same way. Unknown
    if a label of `kinds` has no case, or fewer than two labels occur.
    """
    table = Confusion(pairs, kinds, groups)
    value = float(_mean_recall(table.counts))
    if math.isnan(value) or not table.counts.sum(1)[: len(kinds)].all():
        return Unknown("undefined", table.items)
    effect = table.effect(_mean_recall)
    if isinstance(effect, Unknown):
        return effect
    below, above = _jeffreys_distances(table.counts / effect)
    return Interval(value, value - below, value + above, 0.95, "MOVER", table.items)


def _jeffreys_distances(table: Any) -> tuple[float, float]:
    """Half widths of the mean of the labels' shares, down and up."""
    inverse = special.betaincinv
    labelled, met = table.sum(1), table.diagonal()
    met, labelled = met[labelled > 0], labelled[labelled > 0]
    shares, missed = met / labelled, labelled - met
    # Jeffreys' interval of a share of 0 or 1 would not contain it.
    low = numpy.where(met > 0, inverse(met + 0.5, missed + 0.5, _TAILS[0]), 0.0)
    high = numpy.where(missed > 0, inverse(met + 0.5, missed + 0.5, _TAILS[1]), 1.0)
    below = numpy.sqrt((numpy.maximum(shares - low, 0) ** 2).sum()) / len(shares)
    above = numpy.sqrt((numpy.maximum(high - shares, 0) ** 2).sum()) / len(shares)
    return min(float(below), float(shares.mean())), min(float(above), float(1 - shares.mean()))


def kappa_interval(
    pairs: Labelled,
    *,
    kinds: Sequence[Vote] = (),
    groups: Groups = None,
    weights: Sequence[float] | None = None,
    level: float = 0.95,
) -> Interval | Unknown:
    """Cohen's kappa with the labels, from -1 to 1; of two raters, or runs, as well.

    `weights` are those of `Confusion`: each case has one table, of all its runs. The interval
    is that of a Dirichlet posterior of the whole table. Its prior weighs as much as one case or
    two, whatever the number of kinds. With half a case per cell it would be far off for five kinds.
    """
    return Confusion(pairs, kinds, groups, weights).posterior(_kappa, level)


def ac1_interval(
    pairs: Labelled, *, kinds: Sequence[Vote] = (), groups: Groups = None
) -> Interval | Unknown:
    """Gwet's AC1 with the labels, from -1 to 1, with the interval of `kappa_interval`.

    Chance is Σ π(1 - π)/(K - 1), π the mean share of a kind among labels and verdicts. So a rare
    kind does not make AC1 collapse, as it does kappa (Gwet 2008,
    https://doi.org/10.1348/000711006X126600). `kinds` are the K possible ones; without them K are
    those that occur.
    """
    table = Confusion(pairs, kinds, groups)
    # "No outcome" (a tie of the runs) is no kind: nobody can agree on it by chance.
    possible = len(table.kinds) - (None in table.kinds)

    def ac1(tables: Any) -> Any:
        shares = tables / tables.sum((-2, -1), keepdims=True)
        means = ((shares.sum(-1) + shares.sum(-2)) / 2)[..., :possible]
        chance = (means * (1 - means)).sum(-1) / max(possible - 1, 1)
        return _beyond_chance(shares, chance if possible > 1 else chance + 1)

    return table.posterior(ac1, 0.95)


def _with_groups(pairs: Labelled, groups: Groups) -> list[tuple[Vote, Vote | None, Hashable]]:
    """Label, verdict and group of the pairs with a label."""
    rows = zip(pairs, groups_of(groups, len(pairs)), strict=True)
    return [(label, verdict, name) for (label, verdict), name in rows if label is not None]


def _left_out_variance(whole: Any, parts: Any, weights: Any, of: Tables) -> float:
    """The jackknife's variance; parts without which the measure is undefined are left out."""
    values = of(whole - parts)
    defined = ~numpy.isnan(values)
    values, weights = values[defined], weights[defined]
    size = weights.sum()
    if size < 2:
        return 0.0
    return float((size - 1) * numpy.cov(values, aweights=weights, ddof=0))


def labels_to_settle(
    counts: Sequence[Sequence[float]], agreement: float, kappa: float
) -> int | None:
    """The least of 20, 40 … 640 more labels that settle both demands in 8 of 10 samples.

    Labels to come are drawn from the posterior of the whole table of labels and verdicts. They
    settle if an interval of all labels then lies below its line, or both lie above. None: 640 fail.
    """
    random = numpy.random.default_rng(0)
    table = numpy.array(counts, dtype=float)
    kinds = len(table)
    prior = (0.75 / max(kinds * (kinds - 1), 1) + numpy.eye(kinds) / kinds).ravel()
    rates = random.dirichlet(table.ravel() + prior, 100)
    for more in MORE_LABELS if kinds > 1 else ():
        coming = table.ravel() + random.multinomial(more, rates)
        draws = random.standard_gamma(coming + prior, (400, *coming.shape))
        tables = draws.reshape(400, -1, kinds, kinds)
        shares = tables.trace(axis1=-2, axis2=-1) / tables.sum((-2, -1))
        met, missed = numpy.ones(len(rates), dtype=bool), False
        for values, line in ((shares, agreement), (_kappa(tables), kappa)):
            low, high = numpy.nanquantile(values, (0.025, 0.975), axis=0)
            met, missed = met & (low >= line), missed | (high < line)
        if (met | missed).mean() >= 0.8:
            return more
    return None


# Posteriors. Tables have labels in rows; before them there may be one more axis, the draws.


def _mean_recall(tables: Any) -> Any:
    """Undefined with one label only: nothing is balanced."""
    labelled = tables.sum(-1)
    with numpy.errstate(invalid="ignore", divide="ignore"):
        met = numpy.diagonal(tables, axis1=-2, axis2=-1)
        recalls = numpy.where(labelled > 0, met / labelled, 0.0)
        labels = (labelled > 0).sum(-1)
        return numpy.where(labels > 1, recalls.sum(-1) / labels, math.nan)


def _kappa(tables: Any) -> Any:
    shares = tables / tables.sum((-2, -1), keepdims=True)
    return _beyond_chance(shares, (shares.sum(-1) * shares.sum(-2)).sum(-1))


def _beyond_chance(shares: Any, chance: Any) -> Any:
    """Not a number where chance alone would always agree."""
    agree = numpy.trace(shares, axis1=-2, axis2=-1)
    left = numpy.where(chance < 1 - 1e-12, 1 - chance, math.nan)
    return (agree - chance) / left


# People among themselves.


@SummedMeasure
def people_agreement(labels: Table) -> Sums:
    """The share of human labels that equal the majority of the other people on the case.

    One row per case, one column per person. Of several leading labels each counts in part.
    Cases with fewer than two labels are left out; from 0 to 1.
    """

    def share_met(row: Sequence[Vote | None]) -> float | None:
        counts, shares = Counter(present(row)), list[float]()
        for kind, count in counts.items():
            # Without the person's own label, which would make everybody agree with the majority.
            rest = counts - Counter([kind])
            most = max(rest.values(), default=0)
            shares.append(count * (rest[kind] == most) / max([*rest.values()].count(most), 1))
        return math.fsum(shares) / counts.total() if counts.total() > 1 else None

    return mean(by_row(share_met, labels))


def label_ceiling(labels: Table, *, groups: Groups = None) -> Interval | Unknown:
    """The highest share of one person's labels that any judge can meet, because people differ.

    One row per case, one column per person. A judge that always gives the likeliest label meets one
    more person with its probability p. How p is spread over cases is known in part only, so the
    interval reaches from below to above what it can be. The majority of the other people meets a
    person no more often (`people_agreement`). If two people agree with the probability A, the mean
    of p is at most (1 + √(2A - 1))/2 with two labels, and √A with more: by concavity, for p that
    is the same in all cases. The value is between both. Unknown without two such cases.
    """
    least = bootstrap(labels, people_agreement, groups=groups)
    differ = bootstrap(labels, flip_rate, groups=groups)
    if least is None or differ is None:
        several = [len(row) - row.count(None) > 1 for row in labels]
        names = {*compress(groups_of(groups, len(labels)), several)}
        return _too_few(len(names), sum(several))
    two = len(set(present(chain.from_iterable(labels)))) < 3

    def bound(differing: float) -> float:
        agree = 1 - differing
        return (1 + math.sqrt(max(2 * agree - 1, 0.0))) / 2 if two else math.sqrt(agree)

    most, high = bound(differ.value), bound(differ.low)
    value = (least.value + max(most, least.value)) / 2
    return replace(least, value=value, low=least.low, high=max(high, value))


Level = Literal["nominal", "interval"]


@SummedMeasure
def cohen_kappa(pairs: Table, *, missing: Missing = "drop") -> Sums:
    """Cohen's kappa of two raters, from -1 to 1, over rows of two answers.

    1 - observed / expected disagreement (Cohen 1960, https://doi.org/10.1177/001316446002000104).
    An item that one of the two did not answer is dropped by default. Raises InputError for rows
    that are not pairs.
    """
    rectangular(pairs, 2)

    def item(row: Sequence[Vote | None]) -> Totals:
        votes = counting_votes(row, missing)
        # Marginals are counted over the same items as pairs: a half answered one is in neither.
        if len(votes) < 2:
            return {}
        first, second = votes
        marginals = {("first", first): 1.0, ("second", second): 1.0}
        return {"items": 1.0, "equal": float(first == second), **marginals}

    def kappa(totals: Totals) -> float:
        size = totals["items"]
        equal = sum(number * totals.get(("second", key[1]), 0.0)
                    for key, number in totals.items() if key[0] == "first")  # fmt: skip
        # Of all pairs of one rater's answer with one of the other's, those that differ.
        return 1 - size * (size - totals["equal"]) / (size * size - equal)

    return Sums(by_row(item, pairs), kappa, of_arrays=True)


@SummedMeasure
def fleiss_kappa(table: Table) -> Sums:
    """Fleiss' kappa of any raters, from -1/(raters - 1) to 1.

    (agreement - chance) / (1 - chance). Agreement is the mean, over items with two answers or more,
    of the share of equal pairs. Chance is Σ of the squared mean shares of the verdicts (Fleiss
    1971, https://doi.org/10.1037/h0031619). Where items have unequal numbers of answers every
    answered item weighs the same (Gwet 2014, Handbook of Inter-Rater Reliability, chapter 2).
    """

    def item(row: Sequence[Vote | None]) -> Totals:
        counts = Counter(present(row))
        size = counts.total()
        totals: dict[Hashable, float] = {("share", vote): n / size for vote, n in counts.items()}
        if size:
            totals["items"] = 1.0
        if size > 1:  # one answer counts for chance, but has no other to agree with
            equal = sum(n * (n - 1) for n in counts.values())
            totals |= {"paired": 1.0, "agreement": equal / (size * (size - 1))}
        return totals

    def kappa(totals: Totals) -> float | None:
        shares = [number / totals["items"] for number in _by_vote(totals)]
        agreement = totals["agreement"] / totals["paired"]
        if sum(share > 0 for share in shares) < 2:
            return None
        chance = sum(share * share for share in shares)
        return (agreement - chance) / (1 - chance)

    return Sums(by_row(item, table), kappa)


@SummedMeasure
def krippendorff_alpha(table: Table, *, level: Level = "nominal") -> Sums:
    """Krippendorff's alpha of any raters with any answers missing, at most 1.

    1 - (n - 1) · observed / expected (Krippendorff 2011, "Computing Krippendorff's
    Alpha-Reliability"). These are the squared distances of pairs of answers within items, and over
    all n answers of items that have two or more. `level` is the distance: "nominal" equal or not,
    "interval" the difference of the answers, which are numbers.
    """
    if level not in _LEVELS:
        raise InputError(f"level={level!r}: choose one of {', '.join(_LEVELS)}")
    return _LEVELS[level]([row if len(row) > 1 else [] for row in by_row(present, table)])


def _by_vote(totals: Totals) -> list[float]:
    """The totals of single verdicts."""
    return [number for key, number in totals.items() if isinstance(key, tuple)]


# Krippendorff: what one item adds, and the formula, by level.


def _nominal(rows: Sequence[Sequence[Vote | None]]) -> Sums:
    def item(row: Sequence[Vote | None]) -> Totals:
        size, counts = len(row), Counter(row)
        totals: dict[Hashable, float] = {("votes", vote): float(n) for vote, n in counts.items()}
        if row:
            totals["observed"] = sum(n * (size - n) for n in counts.values()) / (size - 1)
        return totals

    def alpha(totals: Totals) -> float:
        counts = _by_vote(totals)
        size = sum(counts)
        expected = sum(count * (size - count) for count in counts)
        return 1 - (size - 1) * totals["observed"] / expected

    return Sums(by_row(item, rows), alpha, of_arrays=True)


def _numeric(rows: Sequence[Sequence[Vote | None]]) -> Sums:
    for vote in chain.from_iterable(rows):
        if not isinstance(vote, int | float):
            raise InputError(f"this level needs numbers as answers, got {vote!r}")
    scores: list[list[float]] = by_row(numbers, rows)  # type: ignore[arg-type]
    # Moved to one of the values: distances stay, and a constant table is exactly zero.
    start = next((row[0] for row in scores if row), 0.0)

    def item(scored: Sequence[float]) -> Totals:
        distances, size = [score - start for score in scored], len(scored)
        if not scored:
            return {}
        return {
            "votes": float(size),
            "sum": sum(distances),
            "squares": sum(distance * distance for distance in distances),
            # The squared distances of all ordered pairs of an item are 2n² of its variance.
            "observed": 2 * size * _variance(tuple(sorted(distances))) * size / (size - 1),
        }

    def alpha(totals: Totals) -> float:
        size = totals["votes"]
        expected = 2 * size * squared_deviations(size, totals["sum"], totals["squares"])
        return 1 - (size - 1) * totals["observed"] / expected

    return Sums(by_row(item, scores), alpha, of_arrays=True)


# Exact, so it takes long, and many items have the same scores.
_variance = lru_cache(1 << 16)(pvariance)
_LEVELS = {"nominal": _nominal, "interval": _numeric}
