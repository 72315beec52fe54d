"""What moves a judge that should not: position, place in a list, and length.

All are computed over the pooled items and are None when undefined.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from dagengine.errors import InputError
from dagengine.reliability.statistics.spread import correlation, within_ends
from dagengine.reliability.statistics.sums import SummedMeasure, Sums, Totals, Vote, mean, numbers

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
def position_preference(pairs: Orders, *, first: Vote = "A", second: Vote = "B") -> Sums:
    """Position that wins when the orders disagree: 1 the first, 0 the second, 0.5 neither.

    The share of inconsistent pairs in which what was shown first won, in one order or in both
    (Shi et al. 2024, https://arxiv.org/abs/2406.07791). `first` names the answer that the
    first order of a pair shows first; other verdicts are ties.
    """
    return mean(
        # Orders that agree, or of which one has no verdict, say nothing of the place.
        None if None in pair or pair[0] == pair[1] else float(pair[0] == first or pair[1] == second)
        for pair in pairs
    )


@SummedMeasure
def first_wins(pairs: Orders, *, first: Vote = "A", second: Vote = "B") -> Sums:
    """The share of decided comparisons won by what was shown first; 0.5 is no bias.

    Every pair is asked in both orders and weighs the same, so how good the answers are cancels out.
    Unlike `position_preference`, it does not depend on how often verdicts flip by chance. Pairs
    with a missing answer or a tie are left out.
    """
    winners = {first, second}
    return mean(
        ((pair[0] == first) + (pair[1] == second)) / 2 if set(pair) <= winners else None
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
    # Rounding may carry a perfect correlation beyond its ends.
    return Sums(items, lambda all_: within_ends(all_["xy"] / math.sqrt(all_["xx"] * all_["yy"])))


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
    return Sums(items, _partial if labelled == {True} else _plain)


def _plain(all_: Totals) -> float | None:
    return correlation(all_, "s", "l")


def _partial(all_: Totals) -> float | None:
    plain = _plain(all_)
    score, length = correlation(all_, "s", "y"), correlation(all_, "l", "y")
    if plain is None or score is None or length is None:
        return None
    square = (1 - score * score) * (1 - length * length)
    return within_ends((plain - score * length) / math.sqrt(square)) if square >= 1e-12 else None
