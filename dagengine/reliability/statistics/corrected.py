"""Figures by the human standard, from a judge of all cases and human labels on a sample.

A judge's pass rate is biased. Labels on a random sample of the cases show the bias, and the judge
gives information about the cases without a label. Labels cannot show that they are a random sample:
the caller says so. Cases are independent.

`numpy` and `scipy` compute it (`pip install dagengine[benchmark]`) and are loaded when used.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any

from dagengine.errors import InputError
from dagengine.reliability.statistics.comparisons import compare_unpaired
from dagengine.reliability.statistics.intervals import (
    Interval,
    Method,
    Unknown,
    bootstrap,
    mean_of,
    needs,
)
from dagengine.reliability.statistics.sums import Vote, mean, numbers

__all__ = ["Corrected", "corrected_difference", "corrected_mean", "corrected_rate"]

LEAST_LABELS = 10
_DRAWS = 4000
# A judge that is worth fewer labels than this, in times of those there are, tells nothing.
_TELLING = 1.1
# Labels whose cases the judge sees this differently are not a random sample.
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
        """Whether the judge is worth a tenth more labels than there are."""
        return self.worth >= _TELLING * self.labelled


def corrected_rate(
    verdicts: Sequence[Vote | None],
    labels: Sequence[bool | None],
    *,
    random: bool,
    passed: Sequence[Vote] = (True,),
    level: float = 0.95,
    seed: int = 0,
) -> Corrected | Unknown:
    """The share of cases that pass by the human standard, from 0 to 1.

    One verdict and one label per case, None for a case without; `passed` are the verdicts that
    the judge's own rate counts. `random` says that the labelled cases are a random sample.

    Every verdict is a stratum: its share of all cases times the share of its labelled cases that
    passed. These are from posteriors with Jeffreys' prior (the chain rule estimate of Hofer et al.
    2024, https://arxiv.org/abs/2405.06034). The interval is within 0 and 1 and never of width 0, as
    prediction-powered intervals are near the ends. Unknown for labels that are not random, or that
    the judge's verdicts show not to be (p < 0.001), and with fewer than ten. Raises InputError for
    labels that are not yes or no.
    """
    _check(verdicts, labels)
    if stray := [label for label in labels if label not in (None, 0, 1)]:
        raise InputError(f"labels must be True or False (1 or 0), got {stray[0]!r}")
    rows = [(verdict, label) for verdict, label in zip(verdicts, labels, strict=True)
            if label is not None]  # fmt: skip
    if (refused := _refused(len(rows), random)) or (refused := _biased(verdicts, labels)):
        return refused
    alone = bootstrap([float(label) for _, label in rows], mean, level=level)
    assert alone is not None  # there are ten labels
    strata = Counter(verdicts)
    sizes = list(strata.values())
    good = [sum(bool(label) for verdict, label in rows if verdict == kind) for kind in strata]
    seen = [sum(verdict == kind for verdict, _ in rows) for kind in strata]
    rates = [hits / count if count else alone.value
             for hits, count in zip(good, seen, strict=True)]  # fmt: skip
    value = math.fsum(a * b for a, b in zip(sizes, rates, strict=True)) / len(verdicts)
    low, high = _stratified(sizes, good, seen, level, seed)
    estimate = _interval(value, (low, high), level, "post-stratified posterior", len(rows))
    judge = sum(verdict in passed for verdict in verdicts) / len(verdicts)
    return _result(estimate, alone, judge, len(rows), len(verdicts))


def corrected_mean(
    scores: Sequence[float | None],
    labels: Sequence[float | None],
    *,
    random: bool,
    limits: tuple[float, float] = (0.0, 1.0),
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
    labelled, unlabelled = _parts(scores, labels)
    if refused := _refused(len(labelled), random) or _unlike([f for _, f in labelled], unlabelled):
        return refused
    alone = mean_of([label for label, _ in labelled], level=level)
    if isinstance(alone, Unknown):
        return alone
    t = float(needs("scipy.special").stdtrit(len(labelled) - 1, (1 + level) / 2))
    value, half = _powered(labelled, unlabelled, t)
    ends = (max(value - half, limits[0]), min(value + half, limits[1]))
    value = min(max(value, limits[0]), limits[1])
    estimate = _interval(value, ends, level, "PPI++", len(labelled))
    judge = statistics.fmean([f for _, f in labelled] + unlabelled)
    return _result(
        estimate, _clipped(alone, *limits), judge, len(labelled), len(labelled) + len(unlabelled)
    )


def corrected_difference(
    first: tuple[Sequence[float | None], Sequence[float | None]],
    second: tuple[Sequence[float | None], Sequence[float | None]],
    *,
    random: bool,
    level: float = 0.95,
) -> Corrected | Unknown:
    """How much better the second of two systems is by the human standard, from -1 to 1.

    Each system has the judge's scores (or 0 and 1) and human labels of its answers, case by
    case; cases are those of both. The difference of every case is corrected as a mean is. There are
    two more labels, +1 and -1, at cases where the judge sees no difference. Without them the
    interval is far too short near 0 and 1. Unknown as in `corrected_rate`.
    """
    scores, labels = (_less(before, after) for before, after in zip(first, second, strict=True))
    _check(scores, labels)
    labelled, unlabelled = _parts(scores, labels)
    if refused := _refused(len(labelled), random) or _unlike([f for _, f in labelled], unlabelled):
        return refused
    z = NormalDist().inv_cdf((1 + level) / 2)
    pseudo = [*labelled, (1.0, 0.0), (-1.0, 0.0)]
    results = [_powered(pseudo, part, z) for part in (unlabelled, [])]
    estimate, alone = (
        _interval(value, (value - half, value + half), level, "PPI++", len(labelled), -1.0)
        for value, half in results
    )
    judge = statistics.fmean([f for _, f in labelled] + unlabelled)
    helped = _result(estimate, alone, judge, len(labelled), len(labelled) + len(unlabelled))
    value, half = results[0 if helped.telling else 1]
    return replace(helped, p=2 * NormalDist().cdf(-abs(value) / half * z))


def _result(
    estimate: Interval, alone: Interval, judge: float, labelled: int, judged: int
) -> Corrected:
    worth = labelled * ((alone.high - alone.low) / (estimate.high - estimate.low)) ** 2
    helped = Corrected(estimate, judge, alone, labelled, judged, worth)
    return helped if helped.telling else Corrected(alone, judge, alone, labelled, judged, worth)


# Refusals.


def _check(answers: Sequence[Any], labels: Sequence[float | None]) -> None:
    if len(answers) != len(labels):
        raise InputError(f"{len(answers)} cases need as many labels, or None, got {len(labels)}")
    numbers(labels)


def _refused(labels: int, random: bool) -> Unknown | None:
    if not random:
        return Unknown("labels are not random", labels)
    return Unknown("too few labels", labels, LEAST_LABELS) if labels < LEAST_LABELS else None


def _biased(verdicts: Sequence[Vote | None], labels: Sequence[bool | None]) -> Unknown | None:
    """Whether the judge's verdicts differ between the cases with a label and those without."""
    kinds = dict.fromkeys(verdicts)
    pairs = Counter(
        (label is None, verdict) for verdict, label in zip(verdicts, labels, strict=True)
    )
    table = [[pairs[side, kind] for kind in kinds] for side in (False, True)]
    if len(kinds) < 2 or not sum(table[1]):
        return None
    stats = needs("scipy.stats")
    test = stats.fisher_exact(table) if len(kinds) == 2 else stats.chi2_contingency(table)
    unlike = float(test.pvalue) < _CHANCE
    return Unknown("labels are not random", sum(table[0])) if unlike else None


def _unlike(labelled: Sequence[float], unlabelled: Sequence[float]) -> Unknown | None:
    comparison = compare_unpaired(labelled, unlabelled)
    unlike = not isinstance(comparison, Unknown) and comparison.p < _CHANCE
    return Unknown("labels are not random", len(labelled)) if unlike else None


# Estimates.


def _stratified(
    sizes: Sequence[int], good: Sequence[int], seen: Sequence[int], level: float, seed: int
) -> tuple[float, float]:
    numpy = needs("numpy")
    generator = numpy.random.default_rng(seed)
    shares = generator.dirichlet(numpy.array(sizes) + 1 / len(sizes), _DRAWS)
    hits, misses = numpy.array(good), numpy.array(seen) - numpy.array(good)
    rates = generator.beta(hits + 0.5, misses + 0.5, (_DRAWS, len(sizes)))
    ends = [(1 - level) / 2, (1 + level) / 2]
    low, high = numpy.quantile((shares * rates).sum(1), ends).tolist()
    return low, high


def _parts(
    scores: Sequence[float | None], labels: Sequence[float | None]
) -> tuple[list[tuple[float, float]], list[float]]:
    """(label, score) of the cases with both, and the scores of cases without a label."""
    numbers(scores)
    pairs = list(zip(labels, scores, strict=True))
    labelled = [(y, f) for y, f in pairs if y is not None and f is not None]
    return labelled, [f for y, f in pairs if y is None and f is not None]


def _powered(
    labelled: Sequence[tuple[float, float]], unlabelled: Sequence[float], quantile: float
) -> tuple[float, float]:
    """The estimate, and half the width of its interval."""
    labels, scores = [y for y, _ in labelled], [f for _, f in labelled]
    n, more = len(labelled), len(unlabelled)
    spread = statistics.variance(scores)
    weight = 0.0
    if spread > 1e-12 and more > 1:
        weight = statistics.covariance(labels, scores) / (spread * (1 + n / more))
        weight = min(max(weight, 0.0), 1.0)
    left = statistics.variance([y - weight * f for y, f in labelled]) / n
    rest = weight * weight * statistics.variance(unlabelled) / more if more > 1 else 0.0
    moved = statistics.fmean(unlabelled) - statistics.fmean(scores) if more > 1 else 0.0
    return statistics.fmean(labels) + weight * moved, quantile * math.sqrt(left + rest)


def _less(first: Sequence[float | None], second: Sequence[float | None]) -> list[float | None]:
    if len(first) != len(second):
        raise InputError(f"two systems need the same cases, got {len(first)} and {len(second)}")
    pairs = zip(first, second, strict=True)
    return [None if a is None or b is None else b - a for a, b in pairs]


def _interval(
    value: float, ends: tuple[float, float], level: float, method: Method, items: int,
    least: float = -math.inf,
) -> Interval:  # fmt: skip
    """Within -1 and 1 where `least` says so, and around the value."""
    low, high = max(ends[0], least), min(ends[1], -least)
    value = min(max(value, least), -least)
    return Interval(value, min(low, value), max(high, value), level, method, items)


def _clipped(interval: Interval, least: float, most: float) -> Interval:
    low, high = max(interval.low, least), min(interval.high, most)
    return Interval(interval.value, low, high, interval.level, interval.method, interval.items)
