"""When enough votes are cast: sequential stopping rules.

A rule looks at the votes so far and says how many more could settle the outcome at the very
least. All of these are asked in parallel. So a rule costs no more calls than one vote after the
other would, in the fewest rounds.
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
# What is known of ratings from 0 to 1 before the first: so many, with this deviation.
_PRIOR_RATINGS, _PRIOR_DEVIATION = 2, 0.3


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
    """Stops when the lead cannot be overtaken: gives the verdict of all votes, with fewer calls."""

    def more(self, votes: Sequence[Vote | None], left: int) -> int:
        return _until(math.inf, votes, left)


@dataclass(frozen=True, slots=True)
class Sprt:
    """Wald's sequential probability ratio test between the two leading verdicts.

    It stops when the leading verdict is ahead by `lead` votes, or cannot be overtaken. If a single
    vote is wrong with probability `noise`, the verdict at that lead is wrong with probability
    `error` at most. Both are in (0, 0.5). Where all votes were cast, the majority decides. (Wald
    1945, https://doi.org/10.1214/aoms/1177731118.)
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


def _until(target: float, votes: Sequence[Vote | None], left: int) -> int:
    """Votes for the leading verdict until its lead is `target`, or cannot be overtaken."""
    # True and 1 are equal in Python, but not votes for the same verdict.
    cast = Counter((type(vote), vote) for vote in votes if vote is not None)
    runner_up, leader = [0, 0, *sorted(cast.values())][-2:]
    lead = leader - runner_up
    to_safety = (left - lead) // 2 + 1
    return int(max(0, min(target - lead, to_safety, left)))


@dataclass(frozen=True, slots=True)
class StandardError:
    """Stops when the standard error of the mean rating is at most `target`.

    `target` is in the unit of the votes (scores from 0 to 1); at least `least` ratings are cast. A
    few ratings are often equal by chance, and their deviation of 0 would stop the vote. So the
    deviation is estimated with a prior of two ratings that deviate by 0.3 (a scaled inverse
    chi-squared prior; Gelman et al. 2013, Bayesian Data Analysis, 2.6). With skewed ratings, any
    stopping rule has a small bias; only a fixed number of votes has none.
    """

    target: float = 0.05
    least: int = 5

    def __post_init__(self) -> None:
        if not self.target > 0 or self.least < 2:
            raise InputError(
                f"StandardError needs a positive target and at least two ratings, got {self!r}"
            )

    def error(self, votes: Sequence[Vote | None]) -> float | None:
        """The standard error of the mean that these ratings achieve; None without any."""
        squares, count = _deviations(votes)
        return self._error(squares, count) if count else None

    def more(self, votes: Sequence[Vote | None], left: int) -> int:
        squares, count = _deviations(votes)
        for extra in range(left):  # at best all of them are equal to the mean
            enough = count + extra >= self.least
            if enough and self._error(squares, count + extra) <= self.target:
                return extra
        return left

    def _error(self, squares: float, count: int) -> float:
        prior = _PRIOR_RATINGS * _PRIOR_DEVIATION**2
        return math.sqrt((prior + squares) / (_PRIOR_RATINGS + count - 1) / count)


def _deviations(votes: Sequence[Vote | None]) -> tuple[float, int]:
    """The sum of squared deviations from the mean, and the number of ratings."""
    ratings = [float(vote) for vote in votes if vote is not None]
    mean = math.fsum(ratings) / max(len(ratings), 1)
    return math.fsum((rating - mean) ** 2 for rating in ratings), len(ratings)


@lru_cache(1_000)
def likely_votes(rule: Rule, most: int) -> float:
    """The expected number of votes if one in ten disagreed with the others."""
    # Only the counts of votes matter to a rule of two outcomes, so orders with equal ones are one.
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
