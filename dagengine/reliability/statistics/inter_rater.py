"""Agreement between raters beyond chance: kappas, Gwet's AC1, Krippendorff's alpha.

All are 1 for perfect agreement, 0 for chance and below 0 for less. They are computed over the
pooled table: what chance would give is known only from all items together. They are None if chance
alone would always agree, for instance if only one verdict occurs: a constant judge is not a
reliable one.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from itertools import product
from typing import Literal

from dagengine.errors import InputError
from dagengine.reliability.statistics.sums import (
    Missing,
    Sums,
    Table,
    Totals,
    Vote,
    counted,
    measure,
    numbers,
    rectangular,
    squared_deviations,
)

__all__ = ["cohen_kappa", "fleiss_kappa", "krippendorff_alpha"]

Weights = Literal["none", "linear", "quadratic"]
Level = Literal["nominal", "ordinal", "interval"]
_POWERS: dict[str, int] = {"none": 0, "linear": 1, "quadratic": 2}


@measure
def cohen_kappa(
    pairs: Table,
    *,
    weights: Weights = "none",
    order: Sequence[Vote] | None = None,
    missing: Missing = "drop",
) -> Sums:
    """Cohen's kappa of two raters, from -1 to 1, over rows of two answers.

    1 - Σ w·observed / Σ w·expected, where w is 0 for equal verdicts and otherwise 1. For ordered
    verdicts, w is the distance of their places or its square. (Cohen 1960,
    https://doi.org/10.1177/001316446002000104; 1968, https://doi.org/10.1037/h0026256.) `order`
    lists the verdicts from low to high; without it those that occur are sorted. An item that one of
    the two did not answer is dropped by default. Raises InputError when a weight has no place for
    an answer, and for rows that are not pairs.
    """
    rectangular(pairs, 2)
    if weights not in _POWERS:
        raise InputError(f"weights={weights!r}: choose one of {', '.join(_POWERS)}")
    rows = [counted(row, missing) for row in pairs]
    weight = _weight(weights, [vote for row in rows if len(row) == 2 for vote in row], order)
    items = [_rated(*row) if len(row) == 2 else {} for row in rows]
    return Sums(items, partial(_cohen, weight))


@measure
def fleiss_kappa(table: Table, *, missing: Missing = "drop") -> Sums:
    """Fleiss' kappa of any raters, from -1/(raters - 1) to 1.

    (agreement - chance) / (1 - chance). Agreement is the mean, over items with two answers or more,
    of the share of equal pairs. Chance is Σ of the squared mean shares of the verdicts (Fleiss
    1971, https://doi.org/10.1037/h0031619). Where items have unequal numbers of answers every
    answered item weighs the same (Gwet 2014, Handbook of Inter-Rater Reliability, chapter 2).
    """
    return Sums([_shares(counted(row, missing)) for row in table], _fleiss)


@measure
def krippendorff_alpha(
    table: Table, *, level: Level = "nominal", missing: Missing = "drop"
) -> Sums:
    """Krippendorff's alpha of any raters with any answers missing, at most 1.

    1 - (n - 1) · observed / expected (Krippendorff 2011, "Computing Krippendorff's
    Alpha-Reliability"). These are the squared distances of pairs of answers within items, and over
    all n answers of items that have two or more. `level` is the distance: "nominal" equal or not,
    "ordinal" by the number of answers in between, "interval" the difference of the numbers. Ordered
    answers are numbers; a missing one can be a category only at the nominal level.
    """
    if level not in _LEVELS:
        raise InputError(f"level={level!r}: choose one of {', '.join(_LEVELS)}")
    if level != "nominal" and missing != "drop":
        raise InputError(f"level={level!r} has no place for missing answers: drop them")
    rows = [counted(row, missing) for row in table]
    return _LEVELS[level]([row if len(row) > 1 else [] for row in rows])


# Cohen.


def _weight(
    weights: Weights, votes: Sequence[Vote | None], order: Sequence[Vote] | None
) -> Callable[[Vote | None, Vote | None], float]:
    if weights == "none":
        return lambda a, b: float(a != b)
    if None in votes:
        raise InputError("a missing answer has no place in an order: drop it")
    places = {vote: place for place, vote in enumerate(_ordered(votes, order))}
    if stray := [vote for vote in votes if vote not in places]:
        raise InputError(f"{stray[0]!r} is not in the order of verdicts {list(places)}")
    return lambda a, b: float(abs(places[a] - places[b]) ** _POWERS[weights])


def _ordered(votes: Sequence[Vote | None], order: Sequence[Vote] | None) -> Sequence[Vote | None]:
    if order is not None:
        return order
    try:
        return sorted(set(votes))  # type: ignore[type-var]
    except TypeError:
        raise InputError("verdicts of several types have no order: give `order`") from None


def _rated(first: Vote | None, second: Vote | None) -> Totals:
    return dict.fromkeys(
        [("both", first, second), ("first", first), ("second", second), "items"], 1.0
    )


def _cohen(weight: Callable[[Vote | None, Vote | None], float], all_: Totals) -> float:
    keys = [key for key in all_ if isinstance(key, tuple)]
    observed = sum(weight(key[1], key[2]) * all_[key] for key in keys if key[0] == "both")
    firsts = [key for key in keys if key[0] == "first"]
    seconds = [key for key in keys if key[0] == "second"]
    expected = sum(weight(a[1], b[1]) * all_[a] * all_[b] for a, b in product(firsts, seconds))
    return 1 - all_["items"] * observed / expected


# Fleiss.


def _shares(votes: Sequence[Vote | None]) -> Totals:
    if not votes:
        return {}
    size, counts = len(votes), Counter(votes)
    totals: dict[Hashable, float] = {("share", vote): n / size for vote, n in counts.items()}
    totals["items"] = 1.0
    if size > 1:
        equal = sum(n * (n - 1) for n in counts.values())
        totals |= {"paired": 1.0, "agreement": equal / (size * (size - 1))}
    return totals


def _fleiss(all_: Totals) -> float | None:
    shares = [number / all_["items"] for key, number in all_.items() if isinstance(key, tuple)]
    agreement = all_["agreement"] / all_["paired"]
    if sum(share > 0 for share in shares) < 2:
        return None
    chance = sum(share * share for share in shares)
    return (agreement - chance) / (1 - chance)


# Krippendorff: what one item adds, and the formula, by level.


def _nominal(rows: Sequence[Sequence[Vote | None]]) -> Sums:
    return Sums([_unequal(row) for row in rows], _nominal_alpha)


def _unequal(row: Sequence[Vote | None]) -> Totals:
    if not row:
        return {}
    size, counts = len(row), Counter(row)
    totals: dict[Hashable, float] = {("votes", vote): float(n) for vote, n in counts.items()}
    totals["observed"] = sum(n * (size - n) for n in counts.values()) / (size - 1)
    return totals


def _nominal_alpha(all_: Totals) -> float:
    counts = [number for key, number in all_.items() if isinstance(key, tuple)]
    size = sum(counts)
    expected = sum(count * (size - count) for count in counts)
    return 1 - (size - 1) * all_["observed"] / expected


def _ordinal(rows: Sequence[Sequence[Vote | None]]) -> Sums:
    return Sums([_coincidences(row) for row in _as_numbers(rows)], _ordinal_alpha)


def _coincidences(row: Sequence[float]) -> Totals:
    counts = Counter(row)
    totals: dict[Hashable, float] = {("votes", vote): float(n) for vote, n in counts.items()}
    for low, high in product(counts, counts):
        if low < high:
            totals["both", low, high] = 2 * counts[low] * counts[high] / (len(row) - 1)
    return totals


def _ordinal_alpha(all_: Totals) -> float:
    """The distance of two values is that of their mean ranks."""
    keys = [key for key in all_ if isinstance(key, tuple)]
    counts = {key[1]: all_[key] for key in keys if key[0] == "votes"}
    ranks, below = {}, 0.0
    for value in sorted(counts):
        ranks[value] = below + counts[value] / 2
        below += counts[value]
    observed = sum(
        all_[key] * (ranks[key[1]] - ranks[key[2]]) ** 2 for key in keys if key[0] == "both"
    )
    # Σ nₐ·n_b·(rankₐ - rank_b)², in which the mean rank is half the number of answers.
    spread = sum(n * (ranks[value] - below / 2) ** 2 for value, n in counts.items())
    return 1 - (below - 1) * observed / (2 * below * spread)


def _interval(rows: Sequence[Sequence[Vote | None]]) -> Sums:
    scores = _as_numbers(rows)
    # Moved to one of the values: distances stay, and a constant table is exactly zero.
    start = next((row[0] for row in scores if row), 0.0)
    return Sums([_moments([s - start for s in row]) for row in scores], _interval_alpha)


def _moments(row: Sequence[float]) -> Totals:
    if not row:
        return {}
    size = len(row)
    return {
        "votes": float(size),
        "sum": sum(row),
        "squares": sum(score * score for score in row),
        "observed": 2 * size * statistics.pvariance(row) * size / (size - 1),
    }


def _interval_alpha(all_: Totals) -> float:
    size = all_["votes"]
    expected = 2 * size * squared_deviations(size, all_["sum"], all_["squares"])
    return 1 - (size - 1) * all_["observed"] / expected


def _as_numbers(rows: Sequence[Sequence[Vote | None]]) -> list[list[float]]:
    for row in rows:
        if stray := [vote for vote in row if not isinstance(vote, int | float)]:
            raise InputError(f"this level needs numbers as answers, got {stray[0]!r}")
    return [numbers(row) for row in rows]  # type: ignore[arg-type]


_LEVELS = {"nominal": _nominal, "ordinal": _ordinal, "interval": _interval}
