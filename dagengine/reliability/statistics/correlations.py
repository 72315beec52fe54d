"""Statistics over the scores and verdicts of judges.

Plain functions of plain values. What is not defined (a correlation with a constant, the
standard error of one value, anything over nothing) is None. Lists that do not belong together
and numbers that are not finite raise InputError, so a result is never NaN.
"""

from __future__ import annotations

import math
import statistics
from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from dagengine.errors import InputError
from dagengine.reliability.statistics.sums import Sums, mean, measure

H = TypeVar("H", bound=Hashable)

__all__ = [
    "Classification",
    "Estimate",
    "classification",
    "group_correlation",
    "kendall",
    "majority",
    "pearson",
    "rmse",
    "spearman",
    "win_rate",
]


# Scores against scores.


def rmse(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Root of the mean squared difference: sqrt(Σ (a - b)² / n)."""
    _check_pairs(first, second)
    return math.dist(first, second) / math.sqrt(len(first)) if first else None


def pearson(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Pearson's correlation r; None when either side is constant."""
    _check_pairs(first, second)
    if _is_constant(first) or _is_constant(second):
        return None
    found = statistics.correlation(_scaled(first), _scaled(second))
    return min(max(found, -1.0), 1.0)


def spearman(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Spearman's rho: the correlation of the ranks; equal values share their mean rank."""
    _check_pairs(first, second)
    return pearson(_ranks(first), _ranks(second))


def kendall(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Kendall's tau-b (Kendall 1945, https://doi.org/10.1093/biomet/33.3.239).

    tau-b = (concordant - discordant) / sqrt((pairs - tied in first) · (pairs - tied in second)).
    Discordant pairs are counted as inversions (Knight 1966,
    https://doi.org/10.1080/01621459.1966.10480879). None when either side is constant.
    """
    _check_pairs(first, second)
    both = sorted(zip(first, second, strict=True))
    pairs = math.comb(len(both), 2)
    untied_first, untied_second = pairs - _tied(first), pairs - _tied(second)
    if not untied_first or not untied_second:
        return None
    # Pairs tied on both sides were taken away twice.
    ordered = untied_first + untied_second - pairs + _tied(both)
    surplus = ordered - 2 * _inversions(value for _, value in both)
    return surplus / math.sqrt(untied_first * untied_second)


@measure
def group_correlation(
    groups: Sequence[Sequence[tuple[float | None, float | None]]],
    *,
    of: Callable[[Sequence[float], Sequence[float]], float | None] = spearman,
) -> Sums:
    """The correlation within groups, averaged over them, from -1 to 1.

    A group (a document, a dialogue) holds pairs of score and label of what was judged in it, as
    SummEval and Topical-Chat publish: it asks whether the judge puts answers to one input in
    the right order, and not whether it knows easy inputs from hard ones (Fabbri et al. 2021,
    https://doi.org/10.1162/tacl_a_00373). Groups where a side is constant have none and are
    left out. `of` is `spearman`, `kendall` or `pearson`.
    """
    return mean((_within(group, of) for group in groups), most=None)


def _within(
    group: Sequence[tuple[float | None, float | None]],
    of: Callable[[Sequence[float], Sequence[float]], float | None],
) -> float | None:
    known = [(x, y) for x, y in group if x is not None and y is not None]
    return of([x for x, _ in known], [y for _, y in known])


def _check_pairs(first: Sequence[float], second: Sequence[float]) -> None:
    if len(first) != len(second):
        raise InputError(f"{len(first)} values cannot be compared with {len(second)} values")
    _check_finite(first)
    _check_finite(second)


def _check_finite(values: Iterable[float]) -> None:
    for value in values:
        if not math.isfinite(value):
            raise InputError(f"only finite numbers have statistics, got {value}")


def _is_constant(values: Sequence[float]) -> bool:
    return len(set(values)) < 2


def _scaled(values: Sequence[float]) -> list[float]:
    """Values times a power of two: exact, and their squares neither vanish nor overflow."""
    _, exponent = math.frexp(max(map(abs, values)))
    return [math.ldexp(value, -exponent) for value in values]


def _ranks(values: Sequence[float]) -> list[float]:
    """Ranks from 1; equal values share the mean of their places."""
    ordered = sorted(values)
    return [(bisect_left(ordered, v) + bisect_right(ordered, v) + 1) / 2 for v in values]


def _tied(values: Iterable[Hashable]) -> int:
    """Pairs of equal values."""
    return sum(math.comb(count, 2) for count in Counter(values).values())


def _inversions(values: Iterable[float]) -> int:
    """Pairs in which the earlier value is the greater one."""
    earlier: list[float] = []
    found = 0
    for value in values:
        found += len(earlier) - bisect_right(earlier, value)
        insort(earlier, value)
    return found


# Wins.


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean and its standard error, which a single value does not have."""

    value: float
    standard_error: float | None


def win_rate(scores: Sequence[float], *, discrete: bool = False) -> Estimate | None:
    """The mean share of wins, from 0 to 1, with its standard error s/√n.

    `scores` says how far each comparison was won: 0 lost, 1 won, 0.5 undecided. With
    `discrete` everything above 0.5 is one win and everything below none, as in AlpacaEval
    (Dubois et al. 2024, https://arxiv.org/abs/2404.04475).
    """
    if outside := [score for score in scores if not 0 <= score <= 1]:
        raise InputError(f"a win lies between 0 and 1, got {outside[0]}")
    if not scores:
        return None
    wins = [_decided(score) for score in scores] if discrete else list(scores)
    several = len(wins) > 1
    error = statistics.stdev(wins) / math.sqrt(len(wins)) if several else None
    return Estimate(statistics.fmean(wins), error)


def _decided(score: float) -> float:
    return 0.5 if score == 0.5 else float(score > 0.5)


# Verdicts against verdicts.


@dataclass(frozen=True, slots=True)
class Classification:
    """How well predicted labels meet the expected ones, each measure from 0 to 1."""

    accuracy: float
    macro_precision: float
    macro_recall: float
    macro_f1: float


def classification(expected: Sequence[H], predicted: Sequence[H]) -> Classification | None:
    """Accuracy, and precision, recall and F1 as plain means over all labels that occur.

    Per label: precision = hits / predicted, recall = hits / expected, F1 = 2 · hits /
    (expected + predicted); a share of nothing is 0.
    """
    if len(expected) != len(predicted):
        raise InputError(f"{len(predicted)} labels were predicted, {len(expected)} expected")
    if not expected:
        return None
    hits = Counter(e for e, p in zip(expected, predicted, strict=True) if e == p)
    wanted, given = Counter(expected), Counter(predicted)
    labels = {**wanted, **given}
    return Classification(
        accuracy=hits.total() / len(expected),
        macro_precision=statistics.fmean(_share(hits[x], given[x]) for x in labels),
        macro_recall=statistics.fmean(_share(hits[x], wanted[x]) for x in labels),
        macro_f1=statistics.fmean(_share(2 * hits[x], given[x] + wanted[x]) for x in labels),
    )


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0


# Votes on one question.


def majority(votes: Iterable[H]) -> H | None:
    """The vote given most often; None when several are, or there is none."""
    found = statistics.multimode(votes)
    return found[0] if len(found) == 1 else None
