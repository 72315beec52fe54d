"""Would the judge say it again? Measures of repeated answers to the same questions.

All take a table (one row per item, one column per repetition). They are computed within the item
and averaged over items; every item has the same weight. They are None when no item has enough
answers. Those marked *depends on N* change with the number of repetitions even for one and the same
judge: compare them at equal N only.

Missing answers are dropped by default, so that a measure says how verdicts vary; how often
there is none is another question. Total agreement counts them as their own verdict, as
its authors do.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace
from functools import cache
from itertools import accumulate

from dagengine.reliability.statistics.intervals import Interval, bootstrap
from dagengine.reliability.statistics.sums import (
    Missing,
    SummedMeasure,
    Sums,
    Table,
    Vote,
    by_row,
    counting_votes,
    difference,
    mean,
    quotient,
    rectangular,
)

Votes = list[Vote | None]

_LN2 = math.log(2)
# So many verdicts are all that there are; of more, as of scores, some may not have been seen.
_FEW_KINDS = 5


@SummedMeasure
def flip_rate(table: Table, *, missing: Missing = "drop") -> Sums:
    """The probability that two independent answers to one question differ, from 0 to 1.

    1 - Σ nₖ(nₖ - 1) / n(n - 1) per item with at least two answers: unbiased, whatever n
    (Simpson 1949, https://doi.org/10.1038/163688a0). With K different answers it is expected to be
    (K - 1)/K at most. A single item with few answers may show more: 2/3 if two of three are equal.
    """
    rows = by_row(lambda row: tuple(counting_votes(row, missing)), table)
    different = Counter(rows)
    kinds = max(len({vote for row in different for vote in row}), 2)
    # The highest flip rate of an item: answers that are spread evenly over all kinds.
    most = 0.0
    for size in {len(row) for row in different if len(row) > 1}:
        often, oftener = divmod(size, kinds)
        equal = oftener * math.comb(often + 1, 2) + (kinds - oftener) * math.comb(often, 2)
        most = max(most, 1 - equal / math.comb(size, 2))
    # There may be answers that nobody gave: some were given on one item only.
    items = Counter[Vote | None]()
    for row, count in different.items():
        items.update(dict.fromkeys(row, count))
    limit = None if kinds > _FEW_KINDS and 1 in items.values() else 1 - 1 / kinds
    repeated = [len(row) for row in different if len(row) > 1]
    unseen = hidden_flips(min(repeated)) if repeated and kinds == 2 else None
    return mean(by_row(flips_of, rows), most=most, limit=limit, unseen=unseen)


def flips_of(row: Iterable[Vote | None]) -> float | None:
    """The flip rate of one item, in which None is an answer; None with fewer than two."""
    counts = Counter(row).values()
    pairs = math.comb(sum(counts), 2)
    return 1 - sum(math.comb(n, 2) for n in counts) / pairs if pairs else None


@SummedMeasure
def total_agreement(table: Table) -> Sums:
    """Total agreement rate over N answers, from 0 to 1; depends on N.

    The share of items with two answers or more that are all equal. It is TARr@N on a table of raw
    texts, and TARa@N on one of parsed answers (Atil et al. 2024, https://arxiv.org/abs/2408.04667),
    path agreement on one of paths. A missing answer equals only another one. Raises InputError when
    rows differ in length.
    """
    rectangular(table)
    return mean(by_row(lambda row: float(len(set(row)) == 1) if len(row) > 1 else None, table))


@SummedMeasure
def majority_share(table: Table, *, missing: Missing = "drop") -> Sums:
    """The share of the most common answer, from 1/N to 1; depends on N.

    It is too high rather than too low, because the most common answer is chosen after the
    answers are seen.
    """

    def share(row: Sequence[Vote | None]) -> float | None:
        votes = counting_votes(row, missing)
        return max(Counter(votes).values()) / len(votes) if votes else None

    return mean(by_row(share, table))


@SummedMeasure
def entropy(table: Table, *, missing: Missing = "drop") -> Sums:
    """Entropy of the judge's answer to a question, in bits: 0 says always the same.

    Σ nₖ/n (h(n - 1) - h(nₖ - 1)) / ln 2 per item with at least two answers, h(m) = 1 + 1/2 +
    … + 1/m (Zhang 2012, https://doi.org/10.1162/NECO_a_00266). Its bias falls exponentially in n,
    that of the plug-in as 1/n. No estimator is without bias, and verdicts rarer than 1/n go unseen
    (`entropy_interval` reaches as far). With few answers a single item may lie above log₂ of the
    number of verdicts.
    """

    def bits(row: Sequence[Vote | None]) -> float | None:
        votes = counting_votes(row, missing)
        harmonic = list(accumulate((1 / m for m in range(1, len(votes))), initial=0.0))
        nats = sum(n * (harmonic[-1] - harmonic[n - 1]) for n in Counter(votes).values())
        return nats / len(votes) / _LN2 if len(votes) > 1 else None

    return mean(by_row(bits, table), most=None)


def entropy_interval(table: Table, *, groups: Sequence[Hashable] | None = None) -> Interval | None:
    """Entropy of the judge's answers, in bits, with an interval that reaches over its bias.

    The estimate is unbiased for the first n - 1 terms of Σ p Σ (1 - p)ᵛ/v, which is the entropy.
    The upper end is raised by the most that the other terms can add for as many verdicts as occur.
    None if nothing varies.
    """
    interval = bootstrap(table, entropy, groups=groups)
    if interval is None:
        return None
    rows = [counting_votes(row, "drop") for row in table]
    kinds = max(len({vote for row in rows for vote in row}), 2)
    unseen = [_unseen(len(row), kinds) for row in rows if len(row) > 1]
    return replace(interval, high=interval.high + math.fsum(unseen) / len(unseen))


@SummedMeasure
def missing_rate(table: Table) -> Sums:
    """The share of answers that are missing, from 0 to 1, over the pooled table."""
    items = [{"answers": float(len(row)), "missing": float(row.count(None))} for row in table]
    return quotient(items, "missing", "answers", most=1.0)


@SummedMeasure
def missing_effect(table: Table) -> Sums:
    """Rise of the flip rate when a missing answer counts as its own verdict."""
    return difference(flip_rate.sums(table, missing="own category"), flip_rate.sums(table))


@cache
def hidden_flips(runs: int) -> float:
    """Of two verdicts: the highest flip rate of an item, over the chance that its runs show it.

    2p(1 - p) / (1 - pᵀ - (1 - p)ᵀ) at its highest: 1 for two runs, which hide as much as they show,
    and near 1/2 for many, of which a coin cannot hide.
    """
    grid = [k / 400 for k in range(1, 201)]
    return max(2 * p * (1 - p) / (1 - p**runs - (1 - p) ** runs) for p in grid)


@cache
def _unseen(answers: int, kinds: int) -> float:
    """The most bits of the terms from `answers` on: of the commonest verdict, and of all others."""

    def left(p: float) -> float:
        return p * (-math.log2(p) - math.fsum((1 - p) ** v / v for v in range(1, answers)) / _LN2)

    grid = [k / 200 for k in range(1, 201)]
    return (kinds - 1) * max(map(left, grid)) + max(left(p) for p in grid if p * kinds >= 1)
