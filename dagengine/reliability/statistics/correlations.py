"""Statistics over the scores and verdicts of judges.

Plain functions of plain values. What is not defined (a correlation with a constant, the
standard error of one value, anything over nothing) is None. Lists that do not belong together
and numbers that are not finite raise InputError, so a result is never NaN.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, TypeVar

from dagengine.errors import InputError
from dagengine.reliability.statistics.sums import SummedMeasure, Sums, mean, numpy, stats

H = TypeVar("H", bound=Hashable)


# Scores against scores.


def pearson(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Pearson's correlation r; None when either side is constant.

    Raises MissingExtraError without numpy, `spearman` and `kendall` without scipy.
    """
    _check_pairs(first, second)
    if _is_constant(first) or _is_constant(second):
        return None
    left, right = _deviations(first), _deviations(second)
    squares = float(left @ left) * float(right @ right)
    return min(max(float(left @ right) / math.sqrt(squares), -1.0), 1.0)


def spearman(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Spearman's rho: the correlation of the ranks; equal values share their mean rank."""
    _check_pairs(first, second)
    ranks = stats.rankdata
    return pearson(ranks(first), ranks(second)) if first else None


def kendall(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Kendall's tau-b (Kendall 1945, https://doi.org/10.1093/biomet/33.3.239).

    tau-b = (concordant - discordant) / sqrt((pairs - tied in first) · (pairs - tied in second)).
    None when either side is constant.
    """
    _check_pairs(first, second)
    if _is_constant(first) or _is_constant(second):
        return None
    return float(stats.kendalltau(first, second)[0])


@SummedMeasure
def group_correlation(
    groups: Sequence[Sequence[tuple[float | None, float | None]]],
    *,
    of: Callable[[Sequence[float], Sequence[float]], float | None] = spearman,
) -> Sums:
    """The correlation within groups, averaged over them, from -1 to 1.

    A group (a document, a dialogue) contains pairs of score and label of what was judged in it, as
    SummEval and Topical-Chat publish. The figure says whether the judge puts answers to one input
    in the right order. It does not say whether the judge knows easy inputs from hard ones (Fabbri
    et al. 2021, https://doi.org/10.1162/tacl_a_00373). Groups where a side is constant have none
    and are left out. `of` is `spearman`, `kendall` or `pearson`.
    """
    whole = ([(x, y) for x, y in group if x is not None and y is not None] for group in groups)
    return mean((of([x for x, _ in rows], [y for _, y in rows]) for rows in whole), most=None)


def _check_pairs(first: Sequence[float], second: Sequence[float]) -> None:
    if len(first) != len(second):
        raise InputError(f"{len(first)} values cannot be compared with {len(second)} values")
    _check_finite(first)
    _check_finite(second)


def _check_finite(values: Iterable[float]) -> None:
    for value in values:
        if not math.isfinite(value):
            raise InputError(f"numbers must be finite, got {value}")


def _is_constant(values: Sequence[float]) -> bool:
    return len(set(values)) < 2


def _deviations(values: Sequence[float]) -> Any:
    """Deviations from the mean, in units in which squares neither vanish nor overflow."""
    _, exponent = math.frexp(max(map(abs, values)))
    scaled = numpy.ldexp(numpy.asarray(values, dtype=float), -exponent)
    off = scaled - scaled.mean()
    return off / numpy.abs(off).max()


# Votes on one question.


def majority(votes: Iterable[H]) -> H | None:
    """The vote given most often; None when several are, or there is none."""
    counts = Counter(votes)
    most = max(counts.values(), default=0)
    modes = [vote for vote, count in counts.items() if count == most]
    return modes[0] if len(modes) == 1 else None
