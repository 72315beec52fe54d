"""How many votes make a verdict consistent: what the runs show, and what they leave open.

T runs of a case show how often majorities of up to T/2 votes differ, without any model. Beyond that
the distribution of the noise over cases has to be known. T runs tell T moments of it. So the answer
is an interval of votes, and often has no upper end.
"""

from __future__ import annotations

import math
import statistics
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import combinations_with_replacement, compress
from typing import Any, Literal, TypeVar

from dagengine.errors import InputError
from dagengine.reliability.statistics.intervals import Interval, Unknown, bootstrap, design_effect
from dagengine.reliability.statistics.stability import hidden_flips, majority
from dagengine.reliability.statistics.sums import (
    Groups,
    Sums,
    Table,
    Vote,
    by_row,
    groups_of,
    mean,
    needs,
    numpy,
    present,
    special,
    stats,
)

H = TypeVar("H", bound=Hashable)

MOST = 99
# Two odd steps: what is still called one number.
_NARROW = 4
# Orders in which the runs of a case with three verdicts or more are split.
_SPLITS = 200

Kind = Literal["number", "range", "more than", "none", "not known"]
_POINTS = 26
# How exactly limits are found, and weights add up to 1.
_STEP, _EXACT = 1e-3, 1e-9
Side = Literal["at least", "at most"]


@dataclass(frozen=True, slots=True)
class SteadyVotes:
    """How many votes a question needs until majorities seldom differ.

    Two majorities of `votes` votes on one question must differ with a probability of at most
    `target`, on average over cases. Numbers of votes are odd.

    - "number": between `least` and `most` votes, at most two odd steps apart.
    - "range": between `least` and `most` votes.
    - "more than": fewer than `least` are too few; how many are enough is not known.
    - "none": no number up to 99 is enough, and `least` is None.
    - "not known": even one vote may be enough, or none.

    `least` is the lowest number that may be enough, `most` the lowest that certainly is; each is
    right in 95 of 100 benchmarks. `runs` is how often a case was run (the lower median) and
    `cases` how many were run twice at least. `single` is the flip rate of a single vote. `floor` is
    that of `seen` votes, the greatest number that the runs show without a model: half of them.
    `likely` is the best guess of the number, and `runs_to_tell` are the runs that would show it.
    They are None if there is no best guess or the runs do show it.
    """

    target: float
    kind: Kind
    least: int | None
    most: int | None
    cases: int
    runs: int
    single: Interval
    seen: int
    floor: Interval
    likely: int | None = None
    runs_to_tell: int | None = None


def steady_votes(
    table: Table, target: float = 0.05, *, groups: Groups = None
) -> SteadyVotes | None:
    """Number of votes with consistent majorities of a table's verdicts; None without repetitions.

    `table` has a row per case and a column per run; None, a run without a verdict, is dropped.
    Rows of fewer than two verdicts tell nothing. `target` lies between 0 and 1. Rows of common
    `groups`, one per row, depend on each other: settings of one case, or cases of one document.

    With two verdicts the ends are those of all distributions of noise over cases that explain
    the runs (see `Mixture`). With more, nothing is said beyond half the runs, and ties are
    their own outcome. The flip rate is never contradicted. A single vote is too few if its interval
    begins above the target, and surely enough only if it ends below. Raises InputError for a target
    outside (0, 1) or lists that do not belong together, MissingExtraError without scipy.
    """
    if not 0 < target < 1:
        raise InputError(f"target={target}: the target flip rate must be between 0 and 1")
    curve = _Curve(table, groups)
    single = curve.interval(1)
    if single is None:
        return None
    least, most = curve.ends(target)
    if single.low > target:
        least = max(least, 3)
    if single.high > target and most is not None:
        most = max(most, 3)
    kind: Kind = "range"
    if least > MOST:
        kind = "none"
    elif most is None:
        kind = "more than" if least > 1 else "not known"
    elif most - least <= _NARROW:
        kind = "number"
    likely = curve.likely(target, least, most)
    runs_to_tell = None if likely is None or 2 * likely <= curve.runs else 2 * likely
    return SteadyVotes(
        target, kind, None if kind == "none" else least, most, len(curve.rows), curve.runs,
        single, curve.seen, curve.interval(curve.seen) or single, likely, runs_to_tell,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Picks:
    """The candidate with the highest mean score of each case, and whether that is the right one.

    All are arrays by case. `picked` is the place of the only best one, -1 for a tie, -2 if a
    candidate has no score. `wrong` and `share` say how right that is, from 0 to 1: a tie is wrong,
    or right as often as one of the best ones that is drawn. They are nan where nothing is known.
    `tied` is 1 where several are the best, and `margin` the lead of the best one on the next.
    """

    picked: Any
    wrong: Any
    share: Any
    tied: Any
    margin: Any


def best_of(scores: Any, right: Any) -> Picks:
    """Pick the best of several candidates by the mean of their scores.

    `scores` is an array of cases, candidates and the scores of each, nan for a missing score and
    -inf for a candidate that a case does not have. `right` has the place of the right candidate
    of each case, -1 without one. The mean is that of the scores that there are. Raises
    MissingExtraError without numpy.
    """
    there = ~numpy.isnan(scores)
    with numpy.errstate(invalid="ignore"):  # no score at all: 0/0
        means = numpy.where(there, scores, 0).sum(2) / there.sum(2)
    complete = ~numpy.isnan(means).any(1)
    ranked = numpy.sort(means, axis=1)
    most, second = ranked[:, -1], ranked[:, -2]
    # Sums of decimals in another order differ by rounding.
    best = means >= (most - 1e-9 * numpy.maximum(1, abs(most)))[:, None]
    count = best.sum(1)
    picked = numpy.where(complete, numpy.where(count > 1, -1, best.argmax(1)), -2)
    hit = best[numpy.arange(len(means)), right] / numpy.maximum(count, 1)
    share = numpy.where(complete & (numpy.asarray(right) >= 0), hit, numpy.nan)
    wrong = numpy.where(share < 1, 0 * share, share)
    tied = numpy.where(complete, count > 1, numpy.nan)
    return Picks(picked, wrong, share, tied, most - second)


def flips_of_votes(
    table: Table, votes: int, *, groups: Groups = None, level: float = 0.95
) -> Interval | None:
    """Flip rate of majorities of `votes` verdicts of one case, from 0 to 1.

    The mean over cases of the share of pairs of disjoint subsets of their runs whose majorities
    differ: unbiased, without a model. Rows with fewer than `2 * votes` verdicts are left out.
    With two verdicts the sum over all subsets is exact, with more it is taken over 200 orders.
    Wilson's interval of one vote, and profile likelihood of more with two verdicts, since then
    few cases carry the figure. None without two rows that are long enough, and for
    more verdicts with fewer than eight groups. Raises InputError for an even number of votes.
    """
    if votes < 1 or votes % 2 == 0:
        raise InputError(f"votes={votes}: use an odd number, so that two verdicts cannot tie")
    return _Curve(table, groups, level).interval(votes)


def majority_odds(row: Sequence[H], votes: int) -> dict[H | None, float]:
    """The share of subsets of so many verdicts of a case by what their majority is; None: a tie.

    Exact over all subsets (multivariate hypergeometric), so that the order of the runs says
    nothing. A row that is shorter is one subset; an empty one has none.
    """
    counts, size = Counter(row), min(votes, len(row))
    odds = defaultdict[H | None, float](float)
    for drawn in combinations_with_replacement(counts, size) if row else ():
        ways = math.prod(math.comb(counts[vote], n) for vote, n in Counter(drawn).items())
        odds[majority(drawn)] += ways / math.comb(len(row), size)
    return {vote: share for vote, share in odds.items() if share}


class _Curve:
    """The flip rate of majorities by their number of votes."""

    def __init__(self, table: Table, groups: Groups, level: float = 0.95) -> None:
        self.level = level
        names = groups_of(groups, len(table))
        rows = [*map(tuple, map(present, table))]
        repeated = [len(row) > 1 for row in rows]
        self.rows, self.groups = [*compress(rows, repeated)], [*compress(names, repeated)]
        self.verdicts = len(set().union(*self.rows))
        self.runs = statistics.median_low(map(len, self.rows)) if self.rows else 0
        half = min(self.runs // 2, MOST)
        # Two majorities of different runs were seen up to half of the runs, and only odd ones.
        self.seen = max(half - (half + 1) % 2, 1)

    def interval(self, votes: int) -> Interval | None:
        enough = [len(row) >= 2 * votes for row in self.rows]
        long, names = [*compress(self.rows, enough)], [*compress(self.groups, enough)]
        sums = self._sums(long, votes)
        bounds = bootstrap(long, sums, groups=names, level=self.level)
        value = sums.value()
        if value is None or len(long) < 2 or self.verdicts > 2 or (bounds and votes == 1):
            return bounds
        ends = self.mixture.limits(votes)  # of few groups as well; each is a case
        return Interval.around(value, ends, self.level, "profile likelihood", len(set(names)))

    def _sums(self, rows: Sequence[Sequence[Vote]], votes: int) -> Sums:
        """Flips of two outcomes are expected to be at most 1/2, of three 2/3, and so on."""
        outcomes = max(self.verdicts, 2)
        flips = [_flips(counts, votes) for counts in by_row(_counts, rows)]
        if outcomes == 2:
            # The highest flip rate that one case of so many runs can show.
            most = max((_exact(size - rare, rare, votes) for size in set(map(len, rows))
                        for rare in range(size // 2 + 1)), default=1.0)  # fmt: skip
            unseen = hidden_flips(min(map(len, rows))) if rows and votes == 1 else None
            return mean(flips, most=most, limit=1 / 2, unseen=unseen)
        tied = votes > 1  # a tie is one more outcome
        return mean(flips, most=1.0, limit=1 - 1 / (outcomes + tied))

    @cached_property
    def mixture(self) -> Mixture:
        counts = by_row(_counts, self.rows)
        flips = [_flips(own, 1) for own in counts]
        effect = design_effect(flips, self.groups)
        # Of too few groups each counts as one case.
        alone = len(set(self.groups)) / len(self.rows)
        weight = alone if isinstance(effect, Unknown) else 1 / effect
        seen = [(len(row), own[1]) for row, own in zip(self.rows, counts, strict=True)]
        return Mixture(seen, weight, self.level)

    def ends(self, target: float) -> tuple[int, int | None]:
        """The lowest number of votes that may be enough, and the lowest that surely is."""
        if self.verdicts > 2:
            # More than two verdicts may flip more with more votes: the limit must stay below.
            few, enough = 1, 1
            for votes in range(1, self.seen + 1, 2):
                if (rate := self.interval(votes)) is not None and rate.high > target:
                    enough = votes + 2
                    few = enough if rate.low > target else few
            return few, enough if enough <= self.seen else None
        fit = self.mixture
        least = _first(lambda votes: fit.allows(votes, "at most", target))
        most = _first(lambda votes: not fit.allows(votes, "at least", target))
        return MOST + 2 if least is None else least, most

    def likely(self, target: float, least: int, most: int | None) -> int | None:
        """The best guess, within the ends."""
        if self.verdicts > 2:
            return None
        guess = _first(lambda votes: self.mixture.flips(votes) <= target)
        return None if guess is None else min(max(guess, least), most or MOST)


def _first(enough: Callable[[int], bool]) -> int | None:
    """The lowest odd number that is enough, where every greater one is, too."""
    odd = range(1, MOST + 1, 2)
    index = bisect_left(odd, True, key=enough)
    return odd[index] if index < len(odd) else None


# The share of pairs of disjoint subsets of one case's runs whose majorities differ.


def _counts(row: Sequence[Vote]) -> tuple[int, ...]:
    """Counts of the verdicts, the commonest first, two at least."""
    return (*sorted(Counter(row).values(), reverse=True), 0)


def _flips(counts: tuple[int, ...], votes: int) -> float:
    return _exact(*counts[:2], votes) if sum(counts[2:]) == 0 else _by_orders(counts, votes)


@cache
def _exact(often: int, rare: int, votes: int) -> float:
    """Of two verdicts: twice the probability that the first is for the rare one alone."""
    most = range(votes // 2 + 1)
    lost: list[float] = []
    for won in range(votes // 2 + 1, min(votes, rare) + 1):
        # What the second majority is drawn from, of which the frequent verdict has to win.
        left = often - votes + won, rare - won
        second = math.fsum(_chance_of(*left, votes, count) for count in most)
        lost.append(_chance_of(often, rare, votes, won) * second)
    return min(2 * math.fsum(lost), 1.0)


def _chance_of(often: int, rare: int, votes: int, won: int) -> float:
    """The probability of `won` rare ones among this many (hypergeometric)."""
    ways = math.comb(rare, won) * math.comb(often, votes - won)
    return ways / math.comb(often + rare, votes)


@cache
def _by_orders(counts: tuple[int, ...], votes: int) -> float:
    """The first votes of an order of the runs against its last ones."""
    runs = numpy.repeat(numpy.arange(len(counts)), counts)
    orders = numpy.random.default_rng(0).permuted(numpy.tile(runs, (_SPLITS, 1)), axis=1)
    majorities: list[Any] = []
    for part in (orders[:, :votes], orders[:, -votes:]):
        tallies = (part[:, :, None] == numpy.arange(len(counts))).sum(1)
        tied = (tallies == tallies.max(1, keepdims=True)).sum(1) > 1
        # The commonest verdict of every row; a tie is one more.
        majorities.append(numpy.where(tied, len(counts), tallies.argmax(1)))
    return float((majorities[0] != majorities[1]).mean())


@dataclass(frozen=True)
class Mixture:
    """How the noise of a judge is spread over cases, and what the runs leave open about it.

    A case has odds: the probability of its rarer verdict, from 0 to 1/2. Their distribution over
    cases is fitted without assuming its shape (Kiefer & Wolfowitz 1956,
    https://doi.org/10.1214/aoms/1177728066): weights on a grid of odds. Few runs tell its first
    moments only, so what depends on others has an interval that more cases do not shorten. Such an
    interval contains the values of all distributions that explain the runs nearly as well as the
    best one (profile likelihood; after Ignatiadis & Wager 2022,
    https://doi.org/10.1080/01621459.2021.2008403).

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
        # Half the squared quantile of t, for the likelihood of dependent cases.
        size = max(len(self.cases) * self.weight, 2)
        t = special.stdtrit(size - 1, (1 + self.level) / 2)
        least = self._fitted[1] - float(t * t / 2 / self.weight)
        try:
            return self._fit(goal, least)[1] >= least
        except _Decided as decided:
            return decided.enough

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
        # Threads cost up to 70 times what such small matrices do without.
        with _linear_algebra().limit(limits=1, user_api="blas"):
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


@cache
def _linear_algebra() -> Any:
    """The libraries that scipy has loaded, and their threads."""
    return needs("threadpoolctl").ThreadpoolController()
