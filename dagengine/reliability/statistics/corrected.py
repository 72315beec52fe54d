"""Figures by the human standard, from a judge of all cases and human labels on a sample.

A judge's pass rate is biased. Labels on a random sample of the cases show the bias, and the judge
gives information about the cases without a label. Labels cannot show that they are a random sample:
the caller says so, and it is tested where there is something to test: the judge's results, and what
the caller knows of all cases (their order, the length of their texts). Cases of common `groups` (a
dialogue, a document) depend on each other.

`numpy` and `scipy` compute it (`pip install dagengine[benchmark]`) and are loaded when used.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any

from dagengine.errors import InputError
from dagengine.reliability.statistics.comparisons import changes_of
from dagengine.reliability.statistics.intervals import (
    LEAST_GROUPS,
    Interval,
    Method,
    Unknown,
    bootstrap,
    mean_of,
    needs,
    quantile_of_t,
)
from dagengine.reliability.statistics.sums import Vote, mean, numbers

LEAST_LABELS = 10
_DRAWS = 4000
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
    groups: Sequence[Hashable] | None = None,
    known: Mapping[str, Sequence[float]] | None = None,
    level: float = 0.95,
    seed: int = 0,
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
    names = _groups(groups, len(labels))
    asked = [name for name, label in zip(names, labels, strict=True) if label is not None]
    if refused := _refusal(asked, random, groups is not None) or _unlike(
        {**_shares_of(verdicts), **(known or {})}, labels, names
    ):
        return refused
    stated = [float(label) for label in labels if label is not None]
    alone = bootstrap(stated, mean, level=level, groups=asked)
    assert alone is not None  # there are ten labels, and eight groups
    strata = _Strata.of(verdicts, labels, alone.value)
    effect = 1.0 if groups is None else strata.effect(verdicts, labels, names, level)
    ends = strata.ends(effect, level, seed)
    estimate = _interval(strata.rate, ends, level, "post-stratified posterior", len(set(asked)))
    judge = sum(verdict in passed for verdict in verdicts) / len(verdicts)
    return _result(estimate, alone, judge, len(stated), len(verdicts))


def corrected_mean(
    scores: Sequence[float | None],
    labels: Sequence[float | None],
    *,
    random: bool,
    limits: tuple[float, float] = (0.0, 1.0),
    groups: Sequence[Hashable] | None = None,
    known: Mapping[str, Sequence[float]] | None = None,
    level: float = 0.95,
) -> Corrected | Unknown:
    """The mean of people's scores over all cases, within `limits`.

    Prediction-powered inference with the weight that shortens the interval (PPI++; Angelopoulos,
    Duchi & Zrnic 2023, https://arxiv.org/abs/2311.01453). The estimate is mean label + λ · (mean
    score of the cases without a label - mean score of those with one). λ = cov/(var · (1 + n/N))
    within 0 and 1. The interval has quantiles of t. For scores, not for shares near 0 or 1
    (`corrected_rate`). A case without a score is left out. Unknown as there, and where no label
    differs.
    """
    _check(scores, labels)
    cases = _Cases.of(scores, labels, groups)
    if refused := _refusal(cases.asked, random, groups is not None) or _unlike(
        {"results": scores, **(known or {})}, labels, _groups(groups, len(labels))
    ):
        return refused
    labelled = cases.labelled
    alone = mean_of([label for label, _ in labelled], level=level, groups=cases.asked)
    if isinstance(alone, Unknown):
        return alone
    value, half = _power_shares(cases, quantile_of_t(level, len(set(cases.asked))))
    ends = (max(value - half, limits[0]), min(value + half, limits[1]))
    value = min(max(value, limits[0]), limits[1])
    estimate = _interval(value, ends, level, "PPI++", len(labelled))
    # The labels alone know nothing of the limits; both intervals are compared within them.
    alone = replace(alone, low=max(alone.low, limits[0]), high=min(alone.high, limits[1]))
    return _result(estimate, alone, cases.judge, len(labelled), cases.judged)


def corrected_difference(
    first: tuple[Sequence[float | None], Sequence[float | None]],
    second: tuple[Sequence[float | None], Sequence[float | None]],
    *,
    random: bool,
    groups: Sequence[Hashable] | None = None,
    level: float = 0.95,
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
    _check(scores, labels)
    cases = _Cases.of(scores, labels, groups)
    if refused := _refusal(cases.asked, random, groups is not None) or _unlike(
        {"results": scores}, labels, _groups(groups, len(labels))
    ):
        return refused
    labelled, asked = cases.labelled, cases.asked
    z = NormalDist().inv_cdf((1 + level) / 2)
    if groups is not None:
        z = quantile_of_t(level, len(set(asked)))
    pseudo = replace(cases, labelled=[*labelled, (1.0, 0.0), (-1.0, 0.0)],
                     asked=[*asked, object(), object()])  # fmt: skip
    labels_only = replace(pseudo, unlabelled=[], unlabelled_groups=[])
    results = [_power_shares(part, z) for part in (pseudo, labels_only)]
    estimate, alone = (
        _interval(value, (value - half, value + half), level, "PPI++", len(labelled), -1.0)
        for value, half in results
    )
    result = _result(estimate, alone, cases.judge, len(labelled), cases.judged)
    value, half = results[0 if result.telling else 1]
    return replace(result, p=2 * NormalDist().cdf(-abs(value) / half * z))


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


def _groups(groups: Sequence[Hashable] | None, size: int) -> Sequence[Hashable]:
    """The group of every case; a case by itself where there are none."""
    if groups is not None and len(groups) != size:
        raise InputError(f"{size} cases need as many groups, got {len(groups)}")
    return range(size) if groups is None else groups


def _refusal(asked: Sequence[Hashable], random: bool, grouped: bool) -> Unknown | None:
    if not random:
        return Unknown("labels are not random", len(asked))
    if len(asked) < LEAST_LABELS:
        return Unknown("too few labels", len(asked), LEAST_LABELS)
    if grouped and len(set(asked)) < LEAST_GROUPS:
        return Unknown("too few groups", len(set(asked)), LEAST_GROUPS)
    return None


def _unlike(
    traits: Mapping[str, Sequence[float | None]],
    labels: Sequence[float | None],
    groups: Sequence[Hashable],
) -> Unknown | None:
    """In which trait the cases with a label differ from the others by more than chance.

    The covariance of the trait's rank with having a label. Its variance is that over all choices
    of the labelled cases, or over groups where that is larger.
    """
    for name, values in traits.items():
        rows = [(value, label is not None, group) for value, label, group in
                zip(values, labels, groups, strict=True) if value is not None]  # fmt: skip
        labelled = [has_label for _, has_label, _ in rows]
        if len(set(labelled)) < 2:
            continue
        ranks = needs("scipy.stats").rankdata([value for value, *_ in rows])
        if _chance(ranks, labelled, [group for *_, group in rows]) < _CHANCE:
            return Unknown("labels are not random", sum(labelled), detail=name)
    return None


def _chance(ranks: Any, labelled: Sequence[bool], groups: Sequence[Hashable]) -> float:
    """The probability of so large a covariance, or a larger one, by chance."""
    size, share = len(labelled), statistics.fmean(labelled)
    ranks = (ranks - (size + 1) / 2).tolist()
    square = share * (1 - share) * math.fsum(rank * rank for rank in ranks) * size / (size - 1)
    parts = [rank * (label - share) for rank, label in zip(ranks, labelled, strict=True)]
    if len(set(groups)) < size:
        square = max(square, _sum_of_squares(parts, groups))
    return 2 * NormalDist().cdf(-abs(math.fsum(parts)) / math.sqrt(square)) if square else 1.0


def _sum_of_squares(parts: Sequence[float], groups: Sequence[Hashable]) -> float:
    """The sum of the squares of what groups add up to."""
    sums: defaultdict[Hashable, float] = defaultdict(float)
    for part, group in zip(parts, groups, strict=True):
        sums[group] += part
    return math.fsum(part * part for part in sums.values()) * len(sums) / max(len(sums) - 1, 1)


def _shares_of(verdicts: Sequence[Vote | None]) -> dict[str, list[float]]:
    """Cases of each verdict; of two verdicts one says it all."""
    kinds = [*dict.fromkeys(verdicts)]
    if len(kinds) == 2:
        return {"results": [float(verdict == kinds[1]) for verdict in verdicts]}
    return {f"results ({kind})": [float(verdict == kind) for verdict in verdicts] for kind in kinds}


# Estimates.


@dataclass(frozen=True)
class _Strata:
    """By verdict: all cases, those with a label, and those whose label is yes.

    `rest` is taken for the rate of a verdict that no labelled case has.
    """

    sizes: Counter[Vote | None]
    seen: Counter[Vote | None]
    good: Counter[Vote | None]
    rest: float

    @classmethod
    def of(
        cls, verdicts: Sequence[Vote | None], labels: Sequence[bool | None], rest: float
    ) -> _Strata:
        rows = list(zip(verdicts, labels, strict=True))
        seen = Counter(verdict for verdict, label in rows if label is not None)
        good = Counter(verdict for verdict, label in rows if label)
        return cls(Counter(verdicts), seen, good, rest)

    def rate_of(self, verdict: Vote | None) -> float:
        """The share of yes among the labels of a verdict."""
        seen = self.seen[verdict]
        return self.good[verdict] / seen if seen else self.rest

    @property
    def rate(self) -> float:
        """The share of yes among all cases."""
        parts = (size * self.rate_of(verdict) for verdict, size in self.sizes.items())
        return math.fsum(parts) / self.sizes.total()

    def effect(
        self,
        verdicts: Sequence[Vote | None],
        labels: Sequence[bool | None],
        groups: Sequence[Hashable],
        level: float,
    ) -> float:
        """Design effect: factor by which dependent cases count less, from what each adds."""
        parts, labelled, rate = [], set(), self.rate
        for verdict, label, group in zip(verdicts, labels, groups, strict=True):
            own = self.rate_of(verdict)
            part = own - rate
            if label is not None:
                labelled.add(group)
                part += self.sizes[verdict] * (bool(label) - own) / self.seen[verdict]
            parts.append(part)
        single = math.fsum(part * part for part in parts)
        whole = _sum_of_squares(parts, groups)
        # Where no label differs from the rate of its verdict, nothing shows how cases of a group
        # depend on each other: each group is one.
        effect = whole / single if single > 1e-12 else self.seen.total() / len(labelled)
        wider = quantile_of_t(level, len(labelled)) / NormalDist().inv_cdf((1 + level) / 2)
        return max(effect, 1.0) * wider**2

    def ends(self, effect: float, level: float, seed: int) -> tuple[float, float]:
        """The limits of the rate by the posterior, of so many times fewer cases."""
        numpy = needs("numpy")
        generator = numpy.random.default_rng(seed)
        sizes, seen, good = (numpy.array([counts[verdict] / effect for verdict in self.sizes])
                             for counts in (self.sizes, self.seen, self.good))  # fmt: skip
        shares = generator.dirichlet(sizes + 1 / len(sizes), _DRAWS)
        rates = generator.beta(good + 0.5, seen - good + 0.5, (_DRAWS, len(sizes)))
        quantiles = [(1 - level) / 2, (1 + level) / 2]
        low, high = numpy.quantile((shares * rates).sum(1), quantiles).tolist()
        return low, high


@dataclass(frozen=True)
class _Cases:
    """(label, score) of the cases with both, scores of those without a label, and their groups."""

    labelled: Sequence[tuple[float, float]]
    asked: Sequence[Hashable]
    unlabelled: Sequence[float]
    unlabelled_groups: Sequence[Hashable]

    @classmethod
    def of(
        cls, scores: Sequence[float | None], labels: Sequence[float | None],
        groups: Sequence[Hashable] | None,
    ) -> _Cases:  # fmt: skip
        numbers(scores)
        rows = list(zip(labels, scores, _groups(groups, len(scores)), strict=True))
        labelled = [((y, f), g) for y, f, g in rows if y is not None and f is not None]
        unlabelled = [(f, g) for y, f, g in rows if y is None and f is not None]
        return cls([pair for pair, _ in labelled], [g for _, g in labelled],
                   [f for f, _ in unlabelled], [g for _, g in unlabelled])  # fmt: skip

    @property
    def judge(self) -> float:
        """The mean score of all cases."""
        return statistics.fmean([*(f for _, f in self.labelled), *self.unlabelled])

    @property
    def judged(self) -> int:
        return len(self.labelled) + len(self.unlabelled)


def _power_shares(cases: _Cases, quantile: float) -> tuple[float, float]:
    """The estimate, and half the width of its interval."""
    labels, scores = [y for y, _ in cases.labelled], [f for _, f in cases.labelled]
    n, free = len(labels), len(cases.unlabelled)
    spread = statistics.variance(scores)
    weight = 0.0
    # The judge helps only if its scores vary, and if there are cases without a label to judge.
    if spread > 1e-12 and free > 1:
        weight = statistics.covariance(labels, scores) / (spread * (1 + n / free))
        weight = min(max(weight, 0.0), 1.0)
    residuals = [y - weight * f for y, f in cases.labelled]
    centre = statistics.fmean(residuals)
    parts = [(residual - centre) / n for residual in residuals]
    moved = 0.0
    if free > 1:
        mean_score = statistics.fmean(cases.unlabelled)
        moved = mean_score - statistics.fmean(scores)
        # The mean score of cases without a label is uncertain as well, though less.
        parts += [weight * (f - mean_score) / free for f in cases.unlabelled]
    names = [*cases.asked, *(cases.unlabelled_groups if free > 1 else ())]
    if len(set(names)) < len(names):
        square = _sum_of_squares(parts, names)
    else:
        square = math.fsum(part * part for part in parts[:n]) * n / (n - 1)
        square += math.fsum(part * part for part in parts[n:]) * free / max(free - 1, 1)
    return statistics.fmean(labels) + weight * moved, quantile * math.sqrt(square)


def _interval(
    value: float, ends: tuple[float, float], level: float, method: Method, items: int,
    least: float = -math.inf,
) -> Interval:  # fmt: skip
    """Within -1 and 1 where `least` says so, and around the value."""
    low, high = max(ends[0], least), min(ends[1], -least)
    value = min(max(value, least), -least)
    return Interval(value, min(low, value), max(high, value), level, method, items)
