"""Which cases an estimate looks at: all of some thousands, of more a sample."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")

MOST_CASES = 2_000
"""Up to so many cases are looked at one by one: a second or less for five metrics."""
_NINETY_FIVE = 1.96  # standard errors to both sides


@dataclass(frozen=True, slots=True)
class Sample(Generic[T]):
    """What was drawn of `total` things, all of them if there are few."""

    drawn: list[T]
    total: int

    @property
    def factor(self) -> float:
        """For how many things each of the drawn ones stands."""
        return self.total / len(self.drawn) if self.drawn else 1.0


def draw(things: Iterable[T], most: int = MOST_CASES) -> Sample[T]:
    """At most so many things, each as likely as any other; the same ones every time.

    They are read one by one and only those drawn are kept (a reservoir: Vitter, "Random
    sampling with a reservoir", 1985, algorithm R).
    """
    drawn, total, dice = list[T](), 0, random.Random(0)
    for total, thing in enumerate(things, 1):
        if total <= most:
            drawn.append(thing)
        elif (index := int(dice.random() * total)) < most:
            drawn[index] = thing
    return Sample(drawn, total)


@dataclass(slots=True)
class Spread:
    """How far the cases of a sample differ."""

    count: int = 0
    _sum: float = 0.0
    _squares: float = 0.0

    def add(self, value: float) -> None:
        """Take one more case."""
        self.count += 1
        self._sum += value
        self._squares += value * value

    def margin(self, total: int) -> float:
        """Half the 95 % interval of the sum over all `total` cases, as a share of this sum.

        One case in `count / 3` may be of a kind that the sample lacks (the rule of three). So many
        are counted as if they asked for as much as two usual ones, or for nothing.
        """
        if self.count >= total or not self._sum:
            return 0.0
        mean = self._sum / self.count
        variance = max(0.0, self._squares / self.count - mean * mean)
        error = math.sqrt(variance / self.count * (1 - self.count / total))
        return _NINETY_FIVE * error / mean + 3 / self.count
