"""When enough votes are cast: sequential stopping rules.

A rule looks at the votes so far and says how many more could settle the outcome at the very
least. All of these are asked at once, so that a rule costs no more calls than one vote after
the other would, in the fewest rounds.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

from dagengine.errors import InputError

Vote = str | bool | int | float
# For forecasts: the assumed share of votes that agree with the majority.
_AGREEING = 0.9


class Rule(Protocol):
    """A stopping rule; hashable plain data."""

    def __hash__(self) -> int: ...

    def more(self, votes: Sequence[Vote | None], left: int) -> int:
        """The least number of further votes that could settle the outcome (0: it is settled).

        `votes` are those cast so far, None those that could not be read; `left` may follow.
        """
        ...


@dataclass(frozen=True, slots=True)
class Curtailed:
    """Stops when the lead cannot be overtaken: the verdict is that of all votes."""

    def more(self, votes: Sequence[Vote | None], left: int) -> int:
        return _until(math.inf, votes, left)


@dataclass(frozen=True, slots=True)
class Sprt:
    """Wald's sequential probability ratio test between the two leading verdicts.

    It stops when the leading verdict is ahead by `lead` votes, or cannot be overtaken. Where
    a single vote is wrong with probability `noise`, the verdict at that lead is wrong with
    probability `error` at most; both lie in (0, 0.5). Where all votes were cast, the majority
    decides. (Wald 1945, https://doi.org/10.1214/aoms/1177731118.)
    """

    noise: float = 0.2
    error: float = 0.01

    def __post_init__(self) -> None:
        for name in ("noise", "error"):
            if not 0 < getattr(self, name) < 0.5:
                raise InputError(f"{name} must lie between 0 and 0.5, got {getattr(self, name)!r}")

    @property
    def lead(self) -> int:
        """The lead at which the test stops: log odds wanted over log odds of one vote."""
        return math.ceil(_log_odds(self.error) / _log_odds(self.noise))

    def more(self, votes: Sequence[Vote | None], left: int) -> int:
        return _until(self.lead, votes, left)


def _log_odds(wrong: float) -> float:
    return math.log((1 - wrong) / wrong)


def _until(wanted: float, votes: Sequence[Vote | None], left: int) -> int:
    """Votes for the leading verdict until its lead is `wanted`, or cannot be overtaken."""
    cast = Counter((type(vote), vote) for vote in votes if vote is not None)
    first, second = [*(count for _, count in cast.most_common(2)), 0, 0][:2]
    lead = first - second
    to_safety = (left - lead) // 2 + 1
    return int(max(0, min(wanted - lead, to_safety, left)))


@dataclass(frozen=True, slots=True)
class StandardError:
    """Stops when the standard error of the mean rating is at most `target`.

    `target` is in the unit of the votes (scores from 0 to 1); at least `least` ratings are
    asked for.
    """

    target: float = 0.05
    least: int = 3

    def __post_init__(self) -> None:
        if not self.target > 0 or self.least < 2:
            raise InputError(
                f"a standard error needs a positive target and two ratings at least, got {self!r}"
            )

    def more(self, votes: Sequence[Vote | None], left: int) -> int:
        ratings = [float(vote) for vote in votes if vote is not None]
        mean = math.fsum(ratings) / max(len(ratings), 1)
        squares = math.fsum((rating - mean) ** 2 for rating in ratings)
        for more in range(left):  # at best all of them are equal to the mean
            count = len(ratings) + more
            if count >= self.least and squares <= self.target**2 * count * (count - 1):
                return more
        return left


@lru_cache(1_000)
def likely_votes(rule: Rule, most: int) -> float:
    """The expected number of votes if one in ten disagreed with the others."""
    chances, expected = {(0, 0): 1.0}, 0.0
    for cast in range(most):
        following: dict[tuple[int, int], float] = {}
        for (agree, differ), chance in chances.items():
            if not rule.more([True] * agree + [False] * differ, most - cast):
                continue
            expected += chance
            for split, share in (
                ((agree + 1, differ), _AGREEING),
                ((agree, differ + 1), 1 - _AGREEING),
            ):
                following[split] = following.get(split, 0.0) + chance * share
        chances = following
    return expected
