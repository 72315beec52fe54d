"""How the noise of a judge is spread over cases, and what the runs leave open about it.

A case has odds: the probability of its rarer verdict, from 0 to 1/2. The distribution of the odds
over cases is fitted without assuming its shape (Kiefer & Wolfowitz 1956,
https://doi.org/10.1214/aoms/1177728066): weights on a grid of odds. Few runs tell its first
moments only, so what depends on others has an interval that more cases do not shorten. Such an
interval contains the values of all distributions that explain the runs nearly as well as the best
one (profile likelihood; after Ignatiadis & Wager 2022,
https://doi.org/10.1080/01621459.2021.2008403).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import import_module
from typing import Any, Literal, cast

from dagengine.reliability.statistics.sums import needs, numpy, special, stats

_POINTS = 26
# How exactly limits are found, and weights add up to 1.
_STEP, _EXACT = 1e-3, 1e-9

Side = Literal["at least", "at most"]


@dataclass(frozen=True)
class Mixture:
    """The odds of cases, from how often each case gave its rarer verdict.

    `cases` are (runs, runs with the rarer verdict), one per case, at least two. `weight` is
    what a case counts for, below 1 where cases depend on each other, `level` that of the limits.
    """

    cases: Sequence[tuple[int, int]]
    weight: float = 1.0
    level: float = 0.95

    def flips(self, votes: int) -> float:
        """The probability, by the best fit, that two majorities of `votes` votes differ."""
        return float(self._fitted[0] @ self._differing(votes))

    def allows(self, votes: int, side: Side, rate: float) -> bool:
        """Return whether this flip rate, or one beyond it, explains the runs nearly as well."""
        sign = 1.0 if side == "at least" else -1.0
        if sign * (self.flips(votes) - rate) >= 0:
            return True
        goal = sign * (self._differing(votes) - rate)
        least = self._fitted[1] - self._cut
        try:
            return self._fit(goal, least)[1] >= least
        except _Decided as decided:
            return decided.enough

    @cached_property
    def _cut(self) -> float:
        """Half the squared quantile of t, for the likelihood of dependent cases."""
        size = max(len(self.cases) * self.weight, 2)
        t = special.stdtrit(size - 1, (1 + self.level) / 2)
        return float(t * t / 2 / self.weight)

    def limits(self, votes: int) -> tuple[float, float]:
        """The lowest and the highest flip rate of majorities of `votes` that the runs allow."""
        own = self.flips(votes)
        return self._limit(votes, "at most", own, 0.0), self._limit(votes, "at least", own, 0.5)

    def _limit(self, votes: int, side: Side, inside: float, outside: float) -> float:
        if abs(outside - inside) > _STEP and self.allows(votes, side, outside):
            return outside
        # By halves: what explains the runs is one stretch of flip rates around the best fit.
        while abs(outside - inside) > _STEP:
            middle = (inside + outside) / 2
            if self.allows(votes, side, middle):
                inside = middle
            else:
                outside = middle
        return outside

    @cached_property
    def _odds(self) -> Any:
        """Denser near 0, where judges are."""
        return numpy.linspace(0, 1, _POINTS) ** 1.5 / 2

    def _differing(self, votes: int) -> Any:
        wrong = special.bdtrc(votes // 2, votes, self._odds)
        return 2 * wrong * (1 - wrong)

    @cached_property
    def _seen(self) -> tuple[Any, Any]:
        """The probability of every distinct case at each of the odds, and the cases' shares."""
        binom = stats.binom
        counts = Counter((runs, min(rare, runs - rare)) for runs, rare in self.cases)
        rows = []
        for runs, rare in counts:
            either = binom.pmf(rare, runs, self._odds)
            # Either of the two verdicts may be the one that a case seldom gets.
            if 2 * rare < runs:
                either = either + binom.pmf(runs - rare, runs, self._odds)
            rows.append(either)
        return numpy.array(rows), numpy.array(list(counts.values())) / len(self.cases)

    @cached_property
    def _fitted(self) -> tuple[Any, float]:
        return self._fit(None)

    def _fit(self, goal: Any | None, least: float = 0.0) -> tuple[Any, float]:
        """The best weights with a nonnegative mean of `goal`, and their log likelihood.

        With a goal it raises _Decided as soon as the likelihood is known to be `least` or not.
        """
        optimize = needs("scipy.optimize")
        if goal is not None:
            # Of the size of the weights, so that one tolerance fits all goals.
            goal = goal / abs(goal).max()
        chances, shares = self._seen

        def cost(weights: Any) -> tuple[float, Any]:
            mixed = numpy.maximum(chances @ weights, 1e-12)
            return -float(shares @ numpy.log(mixed)), -((shares / mixed) @ chances)

        most = -least / len(self.cases)

        def decide(weights: Any) -> tuple[float, Any]:
            # Most fits are far better than the limit, or far worse: a tenth of their steps tells.
            value, slope = cost(weights)
            if value <= most and abs(weights.sum() - 1) < _EXACT and goal @ weights >= 0:
                raise _Decided(True)
            # The cost is convex, so no weights with the goal are below what its slope leads to.
            if value + _lowest(slope, goal) - slope @ weights > most:
                raise _Decided(False)
            return value, slope

        limits = [{"type": "eq", "fun": lambda g: g.sum() - 1, "jac": numpy.ones_like}]
        start = numpy.full(_POINTS, 1 / _POINTS)
        if goal is not None:
            limits.append({"type": "ineq", "fun": lambda g: goal @ g, "jac": lambda _: goal})
            # The best fit without a goal, moved towards the best point until the goal is met: the
            # search begins at weights that are allowed.
            start = 0.9 * self._fitted[0] + 0.1 / _POINTS
            best = goal.argmax()
            missing = -(goal @ start)
            if missing > 0 and goal[best] > 0:
                share = min(missing / (goal[best] + missing), 1.0)
                start = (1 - share) * start
                start[best] += share
        with _one_thread():
            solution = optimize.minimize(
                cost if goal is None else decide, start, jac=True, bounds=[(0, 1)] * _POINTS,
                constraints=limits, method="SLSQP", options={"maxiter": 100, "ftol": 1e-9},
            )  # fmt: skip
        weights = numpy.clip(solution.x, 0, None)
        weights = weights / weights.sum()
        return weights, -cost(weights)[0] * len(self.cases)


class _Decided(Exception):
    """What is asked of a fit is known before the fit is."""

    def __init__(self, enough: bool) -> None:
        self.enough = enough


def _lowest(slope: Any, goal: Any) -> Any:
    """The lowest mean of `slope` for weights with a nonnegative mean of `goal`.

    One constraint beside the sum: the best weights are on one point, or on two with a mean of 0.
    Minus infinity where no weights have such a mean.
    """
    above, below = goal >= 0, goal < 0
    if not above.any():
        return -numpy.inf
    lowest = slope[above].min()
    if below.any():
        gain, loss = goal[above][:, None], -goal[below][None, :]
        pairs = (slope[above][:, None] * loss + slope[below][None, :] * gain) / (gain + loss)
        lowest = min(lowest, pairs.min())
    return lowest


def _one_thread() -> AbstractContextManager[Any]:
    """Threads of linear algebra cost up to 70 times what such small matrices do without.

    Where `threadpoolctl` is not installed it is only slower.
    """
    try:
        return cast(AbstractContextManager[Any], _controller().limit(limits=1, user_api="blas"))
    except ModuleNotFoundError:
        return nullcontext()


@cache
def _controller() -> Any:
    """Made after scipy has loaded what is controlled."""
    return import_module("threadpoolctl").ThreadpoolController()
