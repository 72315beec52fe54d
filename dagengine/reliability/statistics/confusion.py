"""Measures of the agreement of a judge with people, and their intervals.

All take pairs of a human label and the judge's verdict, one per case or per run. An item without a
label is left out. A labelled item without a parseable answer counts as wrong: dropping it would
make a judge better by failing on hard items. `groups` has one name per pair; pairs of different
groups are independent. It is the case if pairs are runs, or the document that cases share.

Balanced accuracy, kappa and AC1 are not means of items, and few cases of a rare label make their
bootstrap intervals far too short. Those of kappa and AC1 are from a posterior: plausible tables
are drawn, and the interval is widened so that it contains the measure itself. The lower end for a
perfect judge, `kappa_interval([(label, label) for label in labels])`, is the most that these
labels could show.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace
from itertools import chain, compress, repeat
from operator import attrgetter
from statistics import NormalDist
from typing import Any

from dagengine.errors import InputError
from dagengine.reliability.statistics.agreement import cohen_kappa, flip_rate
from dagengine.reliability.statistics.comparisons import MORE_LABELS
from dagengine.reliability.statistics.intervals import (
    LEAST_GROUPS,
    LEAST_WORTH,
    Interval,
    Unknown,
    bootstrap,
    effective_groups,
    quantile_of_t,
)
from dagengine.reliability.statistics.sums import (
    Groups,
    SummedMeasure,
    Sums,
    Table,
    Totals,
    Vote,
    by_row,
    groups_of,
    indices,
    mean,
    numpy,
    present,
    special,
    split_groups,
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
