"""With what do a judge's numbers and preferences go: with labels and events, or place and length.

Correlation and calibration are what is wanted of a score or a stated probability; that a position
in a pair, a place in a list or a length moves the judge is not. What is not defined (a correlation
with a constant, anything over nothing) is None. Lists that do not belong together and numbers that
are not finite raise InputError, so a result is never NaN.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from dagengine.errors import InputError
from dagengine.reliability.statistics.intervals import Interval, Unknown, jackknife
from dagengine.reliability.statistics.sums import (
    Groups,
    SummedMeasure,
    Sums,
    Totals,
    Vote,
    groups_of,
    mean,
    numbers,
    numpy,
    squared_deviations,
    stats,
    total,
)

# Position in a pair.

Orders = Sequence[tuple[Vote | None, Vote | None]]
"""The winner with A shown first, and the winner of the same pair with B shown first."""


@SummedMeasure
def position_consistency(pairs: Orders) -> Sums:
    """The share of pairs with the same winner in both orders, from 0 to 1.

    A winner is named, not placed: "A" is A wherever it was shown. Pairs with a missing answer
    are left out (Zheng et al. 2023, https://arxiv.org/abs/2306.05685). A judge without any bias
    that flips is inconsistent too: compare with its flip rate in one order.
    """
    return mean(None if None in pair else float(pair[0] == pair[1]) for pair in pairs)


@SummedMeasure
def position_preference(pairs: Orders) -> Sums:
    """Position that wins when the orders disagree: 1 the first, 0 the second, 0.5 neither.

    The share of inconsistent pairs in which what was shown first won, in one order or in both
    (Shi et al. 2024, https://arxiv.org/abs/2406.07791). Verdicts other than A and B are ties.
    """
    return mean(
        # Orders that agree, or of which one has no verdict, say nothing of the place.
        None if None in pair or pair[0] == pair[1] else float(pair[0] == "A" or pair[1] == "B")
        for pair in pairs
    )


@SummedMeasure
def first_wins(pairs: Orders) -> Sums:
    """The share of decided comparisons won by what was shown first; 0.5 is no bias.

    Every pair is asked in both orders and weighs the same, so how good the answers are cancels out.
    Unlike `position_preference`, it does not depend on how often verdicts flip by chance. Pairs
    with a missing answer or a tie are left out.
    """
    return mean(
        ((pair[0] == "A") + (pair[1] == "B")) / 2 if {*pair} <= {"A", "B"} else None
        for pair in pairs
    )


# Place in a list.


@SummedMeasure
def list_bias(lists: Sequence[Sequence[float | None]]) -> Sums:
    """Correlation of the place in a list with the score it got, from -1 to 1.

    Each row holds the scores (or 0 and 1) of one list in the order they were shown. Places and
    scores are taken relative to the mean of their own list, so better lists count for
    nothing: Σ ΔplaceΔscore / sqrt(Σ Δplace² Σ Δscore²). Above 0 later places get more. What
    is shown late must not be better by itself: shuffle.
    """
    items: list[Totals] = []
    for row in lists:
        scores = numbers(row)
        positions = [float(index) for index, score in enumerate(row) if score is not None]
        size = len(scores)
        # A list of one item has no place to prefer: it counts as no item at all.
        items.append({} if size < 2 else {
            "xx": size * statistics.pvariance(positions),
            "yy": size * statistics.pvariance(scores),
            "xy": statistics.covariance(positions, scores) * (size - 1),
        })  # fmt: skip

    def r(totals: Totals) -> float:
        # Rounding may carry a perfect correlation beyond its ends.
        return within_ends(totals["xy"] / math.sqrt(totals["xx"] * totals["yy"]))

    return Sums(items, r)


# Length.


@dataclass(frozen=True, slots=True)
class Compared:
    """One comparison: the lengths of both answers, and whether the first won (None: a tie)."""

    first_length: float
    second_length: float
    first_won: bool | None


@SummedMeasure
def longer_wins(comparisons: Sequence[Compared]) -> Sums:
    """The share of decided comparisons won by the longer answer, from 0 to 1.

    0.5 is no association; answers of equal length and ties are left out. Longer answers may
    be better: compare with the same share of human verdicts.
    """
    return mean(
        None
        if comparison.first_won is None or comparison.first_length == comparison.second_length
        else float(comparison.first_won == (comparison.first_length > comparison.second_length))
        for comparison in comparisons
    )


@dataclass(frozen=True, slots=True)
class Measured:
    """One judged answer: its score, its length, and the human label when there is one."""

    score: float
    length: float
    label: float | None = None


@SummedMeasure
def length_bias(answers: Sequence[Measured]) -> Sums:
    """Correlation of score with length, from -1 to 1, with the human label held constant.

    Pearson's r if no answer has a label. If all have one, the partial correlation (r_sl - r_sy
    r_ly) / sqrt((1 - r_sy²)(1 - r_ly²)). Then length counts only as far as people did not reward it
    too. Raises InputError when only some have a label.
    """
    labelled = {answer.label is not None for answer in answers}
    if len(labelled) > 1:
        raise InputError("either all answers have a label, or none has")
    rows = [numbers((answer.score, answer.length, answer.label or 0)) for answer in answers]
    starts = rows[0] if rows else []
    items: list[Totals] = []
    for row in rows:
        # Moved to the first answer: correlations stay, and equal values are exactly zero.
        moved = (x - start for x, start in zip(row, starts, strict=True))
        values = dict(zip(("s", "l", "y"), moved, strict=True))
        products = {a + b: x * y for a, x in values.items() for b, y in values.items()}
        items.append({"n": 1.0, **values, **products})
    if True in labelled:
        return Sums(items, _partial)
    return Sums(items, lambda totals: correlation(totals, "s", "l"))


def _partial(totals: Totals) -> float | None:
    plain, score, length = (correlation(totals, *pair) for pair in ("sl", "sy", "ly"))
    if plain is None or score is None or length is None:
        return None
    square = (1 - score * score) * (1 - length * length)
    return within_ends((plain - score * length) / math.sqrt(square)) if square >= 1e-12 else None


# Scores against scores.


def pearson(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Pearson's correlation r; None when either side is constant.

    Raises MissingExtraError without numpy, `spearman` and `kendall` without scipy.
    """
    if not _both_vary(first, second):
        return None
    left, right = _deviations(first), _deviations(second)
    squares = float(left @ left) * float(right @ right)
    return within_ends(float(left @ right) / math.sqrt(squares))


def spearman(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Spearman's rho: the correlation of the ranks; equal values share their mean rank."""
    ranks = stats.rankdata
    return pearson(ranks(first), ranks(second)) if _both_vary(first, second) else None


def kendall(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Kendall's tau-b (Kendall 1945, https://doi.org/10.1093/biomet/33.3.239).

    tau-b = (concordant - discordant) / sqrt((pairs - tied in first) · (pairs - tied in second)).
    None when either side is constant.
    """
    return float(stats.kendalltau(first, second)[0]) if _both_vary(first, second) else None


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

    def within(group: Sequence[tuple[float | None, float | None]]) -> float | None:
        pairs: Any = [pair for pair in group if None not in pair]
        return of(*zip(*pairs, strict=True)) if pairs else None

    return mean(map(within, groups), most=None)


def _both_vary(first: Sequence[float], second: Sequence[float]) -> bool:
    """Return whether both sides vary; raises InputError for sides that do not belong together."""
    if len(first) != len(second):
        raise InputError(f"{len(first)} values cannot be compared with {len(second)} values")
    return min(len({*numbers(side)}) for side in (first, second)) > 1


def _deviations(values: Sequence[float]) -> Any:
    """Deviations from the mean, in units in which squares neither vanish nor overflow."""
    _, exponent = math.frexp(max(map(abs, values)))
    scaled = numpy.ldexp(numpy.asarray(values, dtype=float), -exponent)
    off = scaled - scaled.mean()
    return off / numpy.abs(off).max()


def correlation(sums: Totals, x: str, y: str) -> float | None:
    """Pearson's r of two variables from the sums of them, their squares and their products."""
    size = sums["n"]
    if not size:
        return None
    xx = squared_deviations(size, sums[x], sums[x + x])
    yy = squared_deviations(size, sums[y], sums[y + y])
    if not xx or not yy:
        return None
    return within_ends((sums[x + y] - sums[x] * sums[y] / size) / math.sqrt(xx * yy))


def within_ends(r: float) -> float:
    """The correlation, which rounding may have carried beyond -1 or 1."""
    return min(max(r, -1.0), 1.0)


Stated = Sequence[tuple[float, bool]]


@SummedMeasure
def brier_score(stated: Stated) -> Sums:
    """Mean of (probability - happened)², from 0 (best) to 1; 0.25 for always 0.5.

    Brier 1950, https://doi.org/10.1175/1520-0493(1950)078<0001:VOFEIT>2.0.CO;2.
    """
    _require_probabilities(stated)
    return mean((p - happened) ** 2 for p, happened in stated)


def debiased_calibration_error(
    stated: Stated, *, cases: Groups = None, bins: int = 10
) -> Interval | Unknown:
    """The root of the mean squared calibration error, from 0 (best) to 1, without its bias.

    √ Σ mᵦ/m · (S² - Σ d²)/(mᵦ(mᵦ - 1)) over bins. d is the mean of stated - happened over one
    case's answers in the bin, S the sum of d over its mᵦ cases. Products of different cases do not
    count noise as error (Kumar, Liang & Ma 2019, https://arxiv.org/abs/1909.10155); below 0 the
    square is 0. `cases` says what answers belong together; without it each is its own. The interval
    of the square is the jackknife's over cases. Its variance is increased by that of a calibrated
    judge, so that it begins at 0 if nothing is found. Unknown without a bin of two cases, or with
    fewer than three cases.
    """
    items = _errors_by_case(stated, groups_of(cases, len(stated)), bins)
    sums = Sums(items, _squared_error)
    value = sums.value()
    if value is None or len(items) < 3:
        return Unknown("undefined" if value is None else "too few items", len(items), 3)
    # Of the square where every bin is calibrated: Σ (mᵦ/m)² · 2(Σ d²/mᵦ)²/(mᵦ(mᵦ - 1)).
    totals = total(items)
    sizes = _bins_of(totals)
    m = math.fsum(size for _, size in sizes)
    own = math.fsum((size / m) ** 2 * 2 * (totals[k, "squares"] / size) ** 2 / (size * (size - 1))
                    for k, size in sizes)  # fmt: skip
    limits = jackknife(sums, own=own)
    if limits is None:
        return Unknown("too few items", len(items))
    root, low, high = (math.sqrt(max(square, 0.0)) for square in (value, *limits))
    return Interval.around(root, (low, high), 0.95, "jackknife", len(items))


def _errors_by_case(stated: Stated, cases: Sequence[Hashable], bins: int) -> list[Totals]:
    """The addends of each case: by bin, how much higher it states probabilities than happens."""
    errors = defaultdict[Hashable, defaultdict[int, list[float]]](lambda: defaultdict(list))
    for case, k, (p, happened) in zip(cases, _bin_numbers(stated, bins), stated, strict=True):
        errors[case][k].append(p - happened)
    items: list[Totals] = []
    for row in errors.values():
        item: dict[tuple[int, str], float] = {}
        for k, own in row.items():
            # Answers of one case depend on each other, so a case adds one mean to a bin.
            d = statistics.fmean(own)
            item |= {(k, "cases"): 1.0, (k, "sum"): d, (k, "squares"): d * d}
        items.append(item)
    return items


def _squared_error(totals: Totals) -> float:
    sizes = _bins_of(totals)
    # S² less the squares of single cases leaves products of different cases: they share no noise.
    shares = (size * ((totals[k, "sum"] ** 2 - totals[k, "squares"]) / (size * (size - 1)))
              for k, size in sizes)  # fmt: skip
    return math.fsum(shares) / math.fsum(size for _, size in sizes)


def _bins_of(totals: Totals) -> list[tuple[int, float]]:
    """The bins of two cases or more, with their number."""
    return [(key[0], size) for key, size in totals.items() if key[1] == "cases" and size > 1]


@dataclass(frozen=True, slots=True)
class ReliabilityBin:
    """The answers whose probability lies above `low` up to `high`.

    `stated` is their mean probability and `observed` the share that happened, None when there is no
    answer.
    """

    low: float
    high: float
    answers: int
    stated: float | None
    observed: float | None


def reliability(stated: Stated, *, bins: int = 10) -> list[ReliabilityBin]:
    """The reliability table behind `debiased_calibration_error`, one row per bin, from 0 to 1."""
    members: list[list[tuple[float, bool]]] = [[] for _ in range(bins)]
    for k, answer in zip(_bin_numbers(stated, bins), stated, strict=True):
        members[k].append(answer)
    rows: list[ReliabilityBin] = []
    for k, answers in enumerate(members):
        means = map(statistics.fmean, zip(*answers, strict=True)) if answers else (None, None)
        rows.append(ReliabilityBin(k / bins, (k + 1) / bins, len(answers), *means))
    return rows


def _require_probabilities(stated: Stated) -> None:
    if bad := [p for p, _ in stated if not 0 <= p <= 1]:
        raise InputError(f"a probability lies between 0 and 1, got {bad[0]}")


def _bin_numbers(stated: Stated, bins: int) -> list[int]:
    """The bin of every answer; 0 belongs to the first."""
    _require_probabilities(stated)
    if bins < 1:
        raise InputError(f"bins must be at least 1, got {bins}")
    return [max(math.ceil(p * bins) - 1, 0) for p, _ in stated]
