"""Figures by the human standard, from a judge of all cases and human labels on a sample.

A judge's pass rate is biased. Labels on a random sample of the cases show the bias, and the judge
gives information about the cases without a label. Labels cannot show that they are a random sample:
the caller says so, and it is tested where there is something to test: the judge's results, and what
the caller knows of all cases (their order, the length of their texts). Cases of common `groups` (a
dialogue, a document) depend on each other.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from statistics import NormalDist
from typing import Any

from dagengine.errors import InputError
from dagengine.reliability.statistics.intervals import (
    LEAST_GROUPS,
    Interval,
    Method,
    Unknown,
    bootstrap,
    mean_of,
    quantile_of_t,
)
from dagengine.reliability.statistics.paired_comparisons import changes_of
from dagengine.reliability.statistics.sums import (
    Groups,
    Vote,
    groups_of,
    indices,
    mean,
    numbers,
    numpy,
    present,
    stats,
)

LEAST_LABELS = 10
_DRAWS = 4000
_TAILS = (1 - 0.95) / 2, (1 + 0.95) / 2
# A judge that is worth fewer labels than this, in times of those there are, tells nothing.
_TELLING = 1.1
# Labels whose cases differ from the others by less chance than this are not a random sample.
_CHANCE = 0.001


@dataclass(frozen=True, slots=True)
class Corrected:
    """A figure of all cases by the human standard, and what the judge contributed to it.

    `estimate` is the figure to report: with the judge, or from the labels alone if the judge is
    not `telling`. `judge` is what the judge alone says of all cases, and `labels_alone` what the
    labels alone say. `worth` is the number of labels that alone would be as precise as the
    `labelled` ones with the judge. `p` is, for a difference, the probability of so large a
    difference if there is none; None for anything else.
    """

    estimate: Interval
    judge: float
    labels_alone: Interval
    labelled: int
    judged: int
    worth: float
    p: float | None = None

    @property
    def telling(self) -> bool:
        """Return whether the judge is worth a tenth more labels than there are."""
        return self.worth >= _TELLING * self.labelled


def corrected_rate(
    verdicts: Sequence[Vote | None],
    labels: Sequence[bool | None],
    *,
    random: bool,
    passed: Sequence[Vote] = (True,),
    groups: Groups = None,
    known: Mapping[str, Sequence[float]] | None = None,
) -> Corrected | Unknown:
    """The share of cases that pass by the human standard, from 0 to 1.

    One verdict and one label per case, None for a case without; `passed` are the verdicts that
    the judge's own rate counts. `random` says that the labelled cases are a random sample. `known`
    are numbers of all cases, by what they are, in which a random sample does not differ.

    Every verdict is a stratum: its share of all cases times the share of its labelled cases that
    passed. These are from posteriors with Jeffreys' prior (the chain rule estimate of Hofer et al.
    2024, https://arxiv.org/abs/2405.06034). The interval is within 0 and 1 and never of width 0, as
    prediction-powered intervals are near the ends. Cases of one group count for less, by the
    variance of the estimate over groups. Unknown for labels that are not random, or that the
    judge's verdicts or what is `known` show not to be (p < 0.001), with fewer than ten, and with
    fewer than eight groups. Raises InputError for labels that are not yes or no.
    """
    _check(verdicts, labels)
    if stray := [label for label in labels if label not in (None, 0, 1)]:
        raise InputError(f"labels must be True or False (1 or 0), got {stray[0]!r}")
    names = groups_of(groups, len(labels))
    asked = [name for name, label in zip(names, labels, strict=True) if label is not None]
    traits = {**_shares_of(verdicts), **(known or {})}
    if refused := _refusal(asked, random, labels, groups, traits):
        return refused
    alone = bootstrap([*map(float, present(labels))], mean, groups=asked)
    assert alone is not None  # there are ten labels, and eight groups
    strata = _Strata(numpy.array(indices(verdicts)), numpy.array(labels, float), alone.value)
    ends = strata.ends(1.0 if groups is None else strata.effect(names))
    method: Method = "post-stratified posterior"
    estimate = Interval.around(strata.rate, ends, 0.95, method, len(set(asked)))
    judge = sum(verdict in passed for verdict in verdicts) / len(verdicts)
    return _result(estimate, alone, judge, len(asked), len(verdicts))


def corrected_mean(
    scores: Sequence[float | None],
    labels: Sequence[float | None],
    *,
    random: bool,
    limits: tuple[float, float] = (0.0, 1.0),
    groups: Groups = None,
    known: Mapping[str, Sequence[float]] | None = None,
) -> Corrected | Unknown:
    """The mean of people's scores over all cases, within `limits`.

    Prediction-powered inference with the weight that shortens the interval (PPI++; Angelopoulos,
    Duchi & Zrnic 2023, https://arxiv.org/abs/2311.01453). The estimate is mean label + λ · (mean
    score of the cases without a label - mean score of those with one). λ = cov/(var · (1 + n/N))
    within 0 and 1. The interval has quantiles of t. For scores, not for shares near 0 or 1
    (`corrected_rate`). A case without a score is left out. Unknown as there, and where no label
    differs.
    """
    cases = _Cases.of(scores, labels, groups)
    traits = {"results": scores, **(known or {})}
    if refused := _refusal(cases.asked, random, labels, groups, traits):
        return refused
    alone = mean_of(cases.labels[cases.has].tolist(), groups=cases.asked)
    if isinstance(alone, Unknown):
        return alone
    value, half = _power_shares(cases, quantile_of_t(0.95, len(set(cases.asked))))
    ends = (max(value - half, limits[0]), min(value + half, limits[1]))
    value = min(max(value, limits[0]), limits[1])
    estimate = Interval.around(value, ends, 0.95, "PPI++", len(cases.asked))
    # The labels alone know nothing of the limits; both intervals are compared within them.
    alone = replace(alone, low=max(alone.low, limits[0]), high=min(alone.high, limits[1]))
    return _result(estimate, alone, cases.judge, len(cases.asked), len(cases.scores))


def corrected_difference(
    first: tuple[Sequence[float | None], Sequence[float | None]],
    second: tuple[Sequence[float | None], Sequence[float | None]],
    *,
    random: bool,
    groups: Groups = None,
) -> Corrected | Unknown:
    """Advantage of the second of two systems by the human standard, from -1 to 1.

    Each system has the judge's scores (or 0 and 1) and human labels of its answers, case by
    case; cases are those of both. The difference of every case is corrected as a mean is. There are
    two more labels, +1 and -1, at cases where the judge sees no difference. Without them the
    interval is far too short near 0 and 1. Unknown as in `corrected_rate`.
    """
    for old, new in zip(first, second, strict=True):
        if len(old) != len(new):
            raise InputError(f"two systems need the same cases, got {len(old)} and {len(new)}")
    scores, labels = (changes_of([*zip(*sides, strict=True)])
                      for sides in zip(first, second, strict=True))  # fmt: skip
    cases = _Cases.of(scores, labels, groups)
    asked = cases.asked
    if refused := _refusal(asked, random, labels, groups, {"results": scores}):
        return refused
    z = NormalDist().inv_cdf(0.975)
    if groups is not None:
        z = quantile_of_t(0.95, len(set(asked)))
    pseudo = _Cases(
        numpy.append(cases.labels, (1.0, -1.0)), numpy.append(cases.scores, (0.0, 0.0)),
        [*cases.groups, object(), object()],
    )  # fmt: skip
    labels_only = _Cases(pseudo.labels[pseudo.has], pseudo.scores[pseudo.has], pseudo.asked)

    def shown_by(part: _Cases) -> tuple[Interval, float]:
        value, half = _power_shares(part, z)
        p = 2 * NormalDist().cdf(-abs(value) / half * z)
        # Differences lie between -1 and 1.
        value, low, high = numpy.clip((value, value - half, value + half), -1.0, 1.0).tolist()
        return Interval.around(value, (low, high), 0.95, "PPI++", len(asked)), p

    (estimate, p), (alone, p_alone) = shown_by(pseudo), shown_by(labels_only)
    result = _result(estimate, alone, cases.judge, len(asked), len(cases.scores))
    if result.telling:
        return replace(result, p=p)
    return replace(result, p=p_alone)


def _result(
    estimate: Interval, alone: Interval, judge: float, labelled: int, judged: int
) -> Corrected:
    worth = labelled * ((alone.high - alone.low) / (estimate.high - estimate.low)) ** 2
    result = Corrected(estimate, judge, alone, labelled, judged, worth)
    return result if result.telling else replace(result, estimate=alone)


# Refusals.


def _check(answers: Sequence[Any], labels: Sequence[float | None]) -> None:
    if len(answers) != len(labels):
        raise InputError(f"{len(answers)} cases need as many labels, or None, got {len(labels)}")
    numbers(labels)


def _refusal(
    asked: Sequence[Hashable], random: bool, labels: Sequence[float | None], groups: Groups,
    traits: Mapping[str, Sequence[float | None]],
) -> Unknown | None:  # fmt: skip
    if not random:
        return Unknown("labels are not random", len(asked))
    if len(asked) < LEAST_LABELS:
        return Unknown("too few labels", len(asked), LEAST_LABELS)
    if groups is not None and len(set(asked)) < LEAST_GROUPS:
        return Unknown("too few groups", len(set(asked)), LEAST_GROUPS)
    # In which trait do the cases with a label differ from the others by more than chance?
    labelled = ~numpy.isnan(numpy.array(labels, dtype=float))
    for name, values in traits.items():
        trait = numpy.array(values, dtype=float)
        there = ~numpy.isnan(trait)
        has = labelled[there]
        if has.all() or not has.any():
            continue
        names = [*compress(groups_of(groups, len(labels)), there)]
        if _chance(stats.rankdata(trait[there]), has, names) < _CHANCE:
            return Unknown("labels are not random", int(has.sum()), detail=name)
    return None


def _chance(ranks: Any, labelled: Any, groups: Sequence[Hashable]) -> float:
    """The probability of so large a covariance of rank and label, or a larger one, by chance.

    Its variance is that over all choices of the labelled cases, or over groups where that is
    larger.
    """
    size, share = len(labelled), float(labelled.mean())
    ranks = ranks - (size + 1) / 2
    square = share * (1 - share) * float((ranks**2).sum()) * size / (size - 1)
    parts = ranks * (labelled - share)
    if len(set(groups)) < size:
        square = max(square, _sum_of_squares(parts, groups))
    return 2 * NormalDist().cdf(-abs(float(parts.sum())) / math.sqrt(square)) if square else 1.0


def _sum_of_squares(parts: Any, groups: Sequence[Hashable]) -> float:
    """The sum of the squares of what groups add up to."""
    sums = numpy.bincount(indices(groups), parts)
    return float((sums**2).sum()) * len(sums) / max(len(sums) - 1, 1)


def _shares_of(verdicts: Sequence[Vote | None]) -> dict[str, list[float]]:
    """Cases of each verdict; of two verdicts one says it all."""
    kinds = [*dict.fromkeys(verdicts)]
    if len(kinds) == 2:
        return {"results": [float(verdict == kinds[1]) for verdict in verdicts]}
    return {f"results ({kind})": [float(verdict == kind) for verdict in verdicts] for kind in kinds}


# Estimates.


class _Strata:
    """By verdict: all cases, those with a label, those whose label is yes, and their share.

    `strata` has the verdict of each case as a number, `labels` 1, 0 or nan. `rest` is taken for the
    rate of a verdict that no labelled case has.
    """

    def __init__(self, strata: Any, labels: Any, rest: float) -> None:
        self.strata, self.labels = strata, labels
        self.has = ~numpy.isnan(labels)
        self.sizes = numpy.bincount(strata)
        self.seen = numpy.bincount(strata, self.has)
        self.good = numpy.bincount(strata, self.has & (labels == 1))
        self.rates = numpy.where(self.seen > 0, self.good / numpy.maximum(self.seen, 1), rest)
        self.rate = float((self.sizes * self.rates).sum() / len(strata))

    def effect(self, groups: Sequence[Hashable]) -> float:
        """Design effect: factor by which dependent cases count less, from what each adds."""
        own, labelled = self.rates[self.strata], len({*compress(groups, self.has)})
        weights = (self.sizes / numpy.maximum(self.seen, 1))[self.strata]
        parts = own - self.rate + numpy.where(self.has, weights * (self.labels - own), 0.0)
        single, whole = float((parts**2).sum()), _sum_of_squares(parts, groups)
        # Where no label differs from the rate of its verdict, nothing shows how cases of a group
        # depend on each other: each group is one.
        effect = whole / single if single > 1e-12 else float(self.seen.sum()) / labelled
        wider = quantile_of_t(0.95, labelled) / NormalDist().inv_cdf(0.975)
        return max(effect, 1.0) * wider**2

    def ends(self, effect: float) -> tuple[float, float]:
        """The limits of the rate by the posterior, of so many times fewer cases."""
        generator = numpy.random.default_rng(0)
        sizes, seen, good = self.sizes / effect, self.seen / effect, self.good / effect
        shares = generator.dirichlet(sizes + 1 / len(sizes), _DRAWS)
        rates = generator.beta(good + 0.5, seen - good + 0.5, (_DRAWS, len(sizes)))
        low, high = numpy.quantile((shares * rates).sum(1), _TAILS).tolist()
        return low, high


@dataclass(frozen=True)
class _Cases:
    """The labels (nan without one), scores and groups of the cases that have a score."""

    labels: Any
    scores: Any
    groups: Sequence[Hashable]

    @classmethod
    def of(
        cls, scores: Sequence[float | None], labels: Sequence[float | None],
        groups: Groups,
    ) -> _Cases:  # fmt: skip
        _check(scores, labels)
        numbers(scores)
        table = numpy.array([labels, scores], dtype=float)
        there = ~numpy.isnan(table[1])
        names = [*compress(groups_of(groups, len(scores)), there)]
        return cls(table[0, there], table[1, there], names)

    @property
    def has(self) -> Any:
        """Whether each case has a label."""
        return ~numpy.isnan(self.labels)

    @property
    def asked(self) -> list[Hashable]:
        """The groups of the cases with a label."""
        return [*compress(self.groups, self.has)]

    @property
    def judge(self) -> float:
        """The mean score of all cases."""
        return statistics.fmean(self.scores)


def _power_shares(cases: _Cases, quantile: float) -> tuple[float, float]:
    """The estimate, and half the width of its interval."""
    has = cases.has
    labels, scores, free = cases.labels[has], cases.scores[has], cases.scores[~has]
    n, spare = len(labels), len(free)
    spread, weight, moved = float(scores.var(ddof=1)), 0.0, 0.0
    # The judge helps only if its scores vary, and if there are cases without a label to judge.
    if spread > 1e-12 and spare > 1:
        weight = float(numpy.cov(labels, scores)[0, 1]) / (spread * (1 + n / spare))
        weight = min(max(weight, 0.0), 1.0)
    residuals = labels - weight * scores
    parts, names = (residuals - residuals.mean()) / n, cases.asked
    if spare > 1:
        moved = statistics.fmean(free) - statistics.fmean(scores)
        # The mean score of cases without a label is uncertain as well, though less.
        parts = numpy.append(parts, weight * (free - free.mean()) / spare)
        names += compress(cases.groups, ~has)
    if len(set(names)) < len(names):
        square = _sum_of_squares(parts, names)
    else:
        squares = parts**2
        square = float(squares[:n].sum()) * n / (n - 1)
        square += float(squares[n:].sum()) * spare / max(spare - 1, 1)
    return statistics.fmean(labels) + weight * moved, quantile * math.sqrt(square)
