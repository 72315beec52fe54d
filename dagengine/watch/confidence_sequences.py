"""Confidence sequences for means of numbers from 0 to 1: valid however often somebody looks.

A bettor starts with 1 and bets on every new number that it is above, or below, a mean `m`. If the
mean is `m`, the wealth is a martingale whatever the bets: it ever reaches `1 / alpha` with a
probability of at most `alpha` (Ville). So the means against which nobody got rich are an interval
that holds at all times together (Waudby-Smith and Ramdas, "Estimating means of bounded random
variables by betting", 2023; several fixed bets whose wealth is added up: their diversified Kelly).

Whether two stretches of a stream have one mean: the wealth that the first made against `m` times
the wealth that the second made is a martingale, too, if both have the mean `m`. The least product
over all `m` is evidence that there is no such mean (as in Shekhar and Ramdas, "Nonparametric
two-sample testing by betting", 2023). So the uncertainty of a baseline is a part of it.

Means of groups vary less than cases, and bets that no number can ruin make little of that. The bets
on them are those on normal numbers of a variance that a baseline shows. That is right for many
groups (Waudby-Smith et al., "Time-uniform central limit theory", 2024); for few it was simulated.

`numpy` computes it (`pip install dagengine[benchmark]`) and is loaded when used.
"""

from __future__ import annotations

import math
from typing import Any

from dagengine.reliability.statistics.sums import numpy

_MEANS, _FINE = 200, 1000
# What bets aim at: means that are so far from the one they are against.
_AIMS = (0.02, 0.05, 0.125, 0.3)
_MOST = 0.5  # of the wealth that a number may cost


class Bettor:
    """Bets against many means at the same time, from a moment on; with `mean` against one only."""

    def __init__(self, mean: float | None = None) -> None:
        """`mean` lies inside of (0, 1)."""
        # Even steps of the angle are steps of equal evidence; those of the mean are too wide
        # where nearly all pass.
        angles = (numpy.arange(_MEANS) + 0.5) / _MEANS * math.pi / 2
        self.means: Any = numpy.sin(angles) ** 2 if mean is None else numpy.array([mean])
        # The best bet is the distance by the variance, which is at most that of yes and no.
        best = numpy.array(_AIMS)[:, None] / (self.means * (1 - self.means))
        above = numpy.minimum(best, _MOST / self.means)
        below = -numpy.minimum(best, _MOST / (1 - self.means))
        # The logarithm of what a bet makes of 1, for a number x: log(1 - bet · m + bet · x).
        self._bets = numpy.stack((above, below))
        self._rest = 1 - self._bets * self.means
        self._made: Any = numpy.zeros_like(self._bets)
        self.count = 0
        self._sum = 0.0

    def add(self, number: float) -> None:
        """Take one more number of [0, 1]."""
        self._made += self._gain(number)
        self.count += 1
        self._sum += number

    def _gain(self, number: float) -> Any:
        """The logarithm of what the bets make of 1."""
        return numpy.log(self._rest + self._bets * number)

    @property
    def mean(self) -> float:
        """The mean of the numbers; NaN without one."""
        return self._sum / self.count if self.count else math.nan

    def sides(self) -> Any:
        """The logarithms of the wealth of bets above, and below, every one of `means`."""
        return _log_wealth(self._made)

    def interval(self, alpha: float) -> tuple[float, float]:
        """The means that are left: they hold with 1 - alpha, at all times together.

        It is widened by a step of the grid on both sides.
        """
        evidence = numpy.logaddexp(*self.sides()) - math.log(2)
        (left,) = numpy.nonzero(evidence < math.log(1 / alpha))
        if not len(left):  # between two steps
            return self.mean, self.mean
        limits = [0.0, *self.means.tolist(), 1.0]
        return limits[left[0]], limits[left[-1] + 2]


class MeanBettor(Bettor):
    """Bets on means of groups, which have this variance, against many means or against `mean`."""

    def __init__(self, variance: float, mean: float | None = None) -> None:
        super().__init__(mean)
        if mean is None:  # they show smaller distances than cases do
            self.means = (numpy.arange(_FINE) + 0.5) / _FINE
        above = numpy.array(_AIMS)[:, None] / variance + 0 * self.means
        self._bets = numpy.stack((above, -above))
        self._rest = -self._bets * self.means - self._bets**2 * variance / 2
        self._made = numpy.zeros_like(self._bets)

    def _gain(self, number: float) -> Any:
        return self._rest + self._bets * number


class Since:
    """What a bettor makes from a moment on, as if it had begun then."""

    def __init__(self, bettor: Bettor) -> None:
        self._bettor, self._before = bettor, bettor._made.copy()
        self._count, self._sum = bettor.count, bettor._sum

    @property
    def count(self) -> int:
        """Number of values since then."""
        return self._bettor.count - self._count

    @property
    def mean(self) -> float:
        """The mean of the numbers since; NaN without one."""
        return (self._bettor._sum - self._sum) / self.count if self.count else math.nan

    def evidence(self, baseline: Any) -> float:
        """The logarithm of the evidence against one mean of a baseline (its `sides`) and of this.

        It exceeds log(1 / alpha) with a probability of at most alpha, ever, if there is one.
        """
        above, below = _log_wealth(self._bettor._made - self._before)
        # A mean between the two is below the one and above the other.
        both = numpy.logaddexp(baseline[0] + below, baseline[1] + above) - math.log(2)
        return float(both.min())


def _log_wealth(made: Any) -> Any:
    """The logarithms of the mean wealth of the bets of each side, for every mean."""
    return numpy.logaddexp.reduce(made, axis=1) - math.log(len(_AIMS))
