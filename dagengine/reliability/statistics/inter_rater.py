"""Agreement between raters beyond chance: kappas, Gwet's AC1, Krippendorff's alpha.

All are 1 for perfect agreement, 0 for chance and below 0 for less. They are computed over the
pooled table: what chance would give is known only from all items together. They are None if chance
alone would always agree, for instance if only one verdict occurs: a constant judge is not a
reliable one.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Hashable, Sequence
from functools import lru_cache
from itertools import chain, product
from typing import Literal

from dagengine.errors import InputError
from dagengine.reliability.statistics.sums import (
    Missing,
    SummedMeasure,
    Sums,
    Table,
    Totals,
    Vote,
    by_row,
    counting_votes,
    numbers,
    rectangular,
    squared_deviations,
)

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
        keys = ("both", *votes), ("first", votes[0]), ("second", votes[1]), "items"
        return dict.fromkeys(keys, 1.0)

    def kappa(all_: Totals) -> float:
        keys = [key for key in all_ if isinstance(key, tuple)]
        observed = sum(all_[key] for key in keys if key[0] == "both" and key[1] != key[2])
        firsts = [key for key in keys if key[0] == "first"]
        seconds = [key for key in keys if key[0] == "second"]
        expected = sum(all_[a] * all_[b] for a, b in product(firsts, seconds) if a[1] != b[1])
        return 1 - all_["items"] * observed / expected

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
        votes = counting_votes(row, "drop")
        size, counts = len(votes), Counter(votes)
        totals: dict[Hashable, float] = {("share", vote): n / size for vote, n in counts.items()}
        if votes:
            totals["items"] = 1.0
        if size > 1:  # one answer counts for chance, but has no other to agree with
            equal = sum(n * (n - 1) for n in counts.values())
            totals |= {"paired": 1.0, "agreement": equal / (size * (size - 1))}
        return totals

    def kappa(all_: Totals) -> float | None:
        shares = [number / all_["items"] for key, number in all_.items() if isinstance(key, tuple)]
        agreement = all_["agreement"] / all_["paired"]
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
    rows = by_row(lambda row: counting_votes(row, "drop"), table)
    return _LEVELS[level]([row if len(row) > 1 else [] for row in rows])


# Krippendorff: what one item adds, and the formula, by level.


def _nominal(rows: Sequence[Sequence[Vote | None]]) -> Sums:
    def item(row: Sequence[Vote | None]) -> Totals:
        size, counts = len(row), Counter(row)
        totals: dict[Hashable, float] = {("votes", vote): float(n) for vote, n in counts.items()}
        if row:
            totals["observed"] = sum(n * (size - n) for n in counts.values()) / (size - 1)
        return totals

    def alpha(all_: Totals) -> float:
        counts = [number for key, number in all_.items() if isinstance(key, tuple)]
        size = sum(counts)
        expected = sum(count * (size - count) for count in counts)
        return 1 - (size - 1) * all_["observed"] / expected

    return Sums(by_row(item, rows), alpha, of_arrays=True)


def _interval(rows: Sequence[Sequence[Vote | None]]) -> Sums:
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

    def alpha(all_: Totals) -> float:
        size = all_["votes"]
        expected = 2 * size * squared_deviations(size, all_["sum"], all_["squares"])
        return 1 - (size - 1) * all_["observed"] / expected

    return Sums(by_row(item, scores), alpha, of_arrays=True)


# Exact, so it takes long, and many items have the same scores.
_variance = lru_cache(1 << 16)(statistics.pvariance)


_LEVELS = {"nominal": _nominal, "interval": _interval}
