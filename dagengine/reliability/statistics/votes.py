"""How many votes make a verdict steady."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Sequence
from functools import cache


def leading_share(votes: Sequence[Hashable]) -> float | None:
    """The commonest verdict's share among the two commonest, from 0.5 to 1."""
    counts = [count for _, count in Counter(votes).most_common(2)]
    return counts[0] / sum(counts) if counts else None


def votes_needed(shares: Sequence[float], target: float, most: int = 99) -> int | None:
    """The least odd number of votes whose majority differs between two runs seldom enough.

    `shares` are the leading shares of the questions, `target` the mean probability that
    two majorities of one question differ: 2q(1 - q), where q is the binomial probability
    that the leading verdict wins (Condorcet's jury theorem). None when more than `most`
    votes would be needed, as with a judge that is undecided.
    """
    counts = Counter(shares)
    for votes in range(1, most + 1, 2):
        if _differing(counts, votes) <= target:
            return votes
    return None


def _differing(counts: Counter[float], votes: int) -> float:
    sums = (
        count * 2 * q * (1 - q) for share, count in counts.items() for q in [_wins(share, votes)]
    )
    return math.fsum(sums) / max(counts.total(), 1)


@cache
def _wins(share: float, votes: int) -> float:
    """The probability that the leading one of two verdicts has most of the votes."""
    ways = (
        math.comb(votes, won) * share**won * (1 - share) ** (votes - won)
        for won in range(votes // 2 + 1, votes + 1)
    )
    return min(math.fsum(ways), 1.0)
