"""Below which confidence a second judge should decide: fitted on some cases, proved on others.

A cascade hands a judgement to the large judge if the confidence of the small one is below a
threshold. It has to be better than the small judge alone, and better than handing over as many
judgements by chance: else the confidence says nothing, and any mixture of the two does as well.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress, pairwise
from typing import Any, NamedTuple

from dagengine.reliability.statistics.comparisons import (
    Comparison,
    compare_repeated,
    prove_more_often,
)
from dagengine.reliability.statistics.intervals import Interval, Unknown, bootstrap, mean_of
from dagengine.reliability.statistics.sums import mean, numpy

NEVER, UNKNOWN = -math.inf, -sys.float_info.max
"""The threshold of the small judge alone, and the confidence of a verdict without one."""
_CUTS, _LEAST_SEGMENT = 200, 20


class Way(NamedTuple):
    """One way of a cascade through a case, and whether its result is `right`.

    `turns` has the small judge's confidence in each judgement, and whether the verdict is that of
    the large judge (None: both say the same). The way leads to a node `lacks` that nobody asked.
    """

    turns: tuple[tuple[float, bool | None], ...]
    right: bool
    lacks: str = ""


class TwoJudges(NamedTuple):
    """A labelled case under both judges, with the `ways` of all its `runs`.

    `small` and `large` are the shares of right results of each judge alone (0 to 1), `asked` is the
    number of judgements of the large one alone.
    """

    ways: tuple[Way, ...]
    small: float
    large: float
    asked: float = 1.0
    runs: int = 1


class FittedEscalation(NamedTuple):
    """The cheapest threshold within a distance of the best accuracy (0 to 1), as all around it are.

    `NEVER` is the threshold of the small judge alone.
    """

    below: float
    low: float
    high: float
    best: float


@dataclass(frozen=True, slots=True)
class Proof:
    """A threshold on cases that it was not fitted on.

    `accuracy` and `price` (US dollars per case; empty without prices) are by arm: `small`,
    `cascade`, `chance` (as many handed over by chance) and `large`. `gains` has what the cascade
    gains over the others. `share` is that of judgements handed over. `lacking` counts the cases
    that lead to a node that nobody asked, by node; they count as wrong.
    """

    accuracy: Mapping[str, Interval | Unknown]
    price: Mapping[str, Interval | Unknown]
    gains: Mapping[str, Comparison | Unknown]
    share: float
    lacking: Mapping[str, int]

    @property
    def proved(self) -> bool:
        """Whether it is shown to be better than the small judge alone, and than chance."""
        gains = [getattr(self.gains[name], "interval", None) for name in ("small", "chance")]
        return all(isinstance(gain, Interval) and gain.low > 0 for gain in gains)


class Cascade:
    """Labelled cases under both judges, and what a threshold makes of them.

    `groups` names the cases that depend on each other; None: all are independent.
    """

    def __init__(
        self, cases: Sequence[TwoJudges], groups: Sequence[Hashable] | None = None
    ) -> None:
        self.cases, self.groups = cases, groups
        self.ways = [(number, way) for number, case in enumerate(cases) for way in case.ways]
        self._case = numpy.array([number for number, _ in self.ways], dtype=int)
        self._weight = 1 / numpy.array([case.runs for case in cases])[self._case]
        self._right = numpy.array([way.right for _, way in self.ways], dtype=float)
        turns = [(k, *turn) for k, (_, way) in enumerate(self.ways) for turn in way.turns]
        # Both judges say the same: no side, which is not a number.
        turn, self.sure, is_large = numpy.array(turns, dtype=float).reshape(-1, 3).T
        self._turn, self._is_large, self._is_small = turn.astype(int), is_large == 1, is_large == 0

    def at(self, below: float) -> tuple[Any, Any, Any, Any]:
        """By case: right results, judgements, those handed over, those without a confidence."""
        handed = self.sure < below
        unlike = (handed & self._is_small) | (~handed & self._is_large)
        self.taken = self._by_way(unlike) == 0
        asked, over = self._by_way(handed | True), self._by_way(handed)
        unknown = self._by_way(handed & (self.sure == UNKNOWN))
        right, asked, over, unknown = (
            self._by_case(each * self.taken) for each in (self._right, asked, over, unknown)
        )
        return right, asked, over, unknown

    def by_chance(self, share: float) -> Any:
        """The expected share of right results of each case, if chance hands over this share.

        Of judgements with a confidence: those without one are always handed over.
        """
        chance = numpy.where(self.sure == UNKNOWN, 1.0, share)
        chance[self._is_small] = 1 - chance[self._is_small]
        chance[~self._is_small & ~self._is_large] = 1.0
        values = self._right.copy()
        numpy.multiply.at(values, self._turn, chance)
        return self._by_case(values)

    def _by_way(self, turns: Any) -> Any:
        return numpy.bincount(self._turn, turns, len(self.ways))

    def _by_case(self, values: Any) -> Any:
        return numpy.bincount(self._case, values * self._weight, len(self.cases))


def fit_escalation(
    cascade: Cascade, *, distance: float = 0.005, prices: tuple[float, float] = (0.0, 1.0)
) -> FittedEscalation:
    """The cheapest of up to 200 thresholds whose accuracy is within `distance` of the best.

    `prices` are US dollars of one judgement, of the small judge and of the large one.
    """
    cuts = [NEVER, *_cuts(sorted({float(sure) for sure in cascade.sure if sure != UNKNOWN}))]
    right, asked, handed, _ = numpy.array([cascade.at(cut) for cut in cuts]).mean(2).T
    far = right < right.max() - distance - 1e-12
    at = int(numpy.where(far, math.inf, prices[0] * asked + prices[1] * handed).argmin())
    low = max(numpy.flatnonzero(far[:at]), default=-1) + 1
    high = at + min(numpy.flatnonzero(far[at:]), default=len(cuts) - at) - 1
    return FittedEscalation(cuts[at], cuts[low], cuts[high], float(right.max()))


def _cuts(sure: Sequence[float]) -> list[float]:
    """Thresholds between neighbouring confidences, and above the highest one."""
    # Above the highest everything is handed over; of probabilities 1 is the highest threshold.
    ends = [*sure, 1.0 if 0 <= sure[-1] <= 1 else sure[-1] + 1] if sure else []
    pairs = list(pairwise(ends))
    step = max(1, len(pairs) / _CUTS)
    chosen = {pairs[int(k * step)] for k in range(int(len(pairs) / step))} | {*pairs[-1:]}
    return sorted(_between(low, high) for low, high in chosen if low < high)


def _between(low: float, high: float) -> float:
    """The number of fewest digits above `low` and up to `high`, near the middle of both."""
    rounded = (round((low + high) / 2, digits) for digits in range(1, 17))
    return next((number for number in rounded if low < number <= high), high)


def prove_escalation(
    cascade: Cascade, below: float, *, prices: tuple[float, float] | None = None
) -> Proof:
    """Prove a threshold beside the small judge, the large one, and chance.

    Gains are those of `compare_repeated`. Chance hands over the share that the cascade does on the
    same cases, and the error of that is in the interval: a case counts with its influence on the
    difference, which for one judgement per case is the covariance of being handed over and of what
    that gains.
    """
    groups = cascade.groups
    alone, asked_small, _, _ = cascade.at(NEVER)
    right, asked, handed, unknown = cascade.at(below)
    taken = compress(cascade.ways, cascade.taken)
    lacks = sorted({(way.lacks, case) for case, way in taken if way.lacks})
    large, asked_large = numpy.array([(case.large, case.asked) for case in cascade.cases]).T
    free, chosen = asked - unknown, handed - unknown
    share = float(chosen.sum() / (free.sum() or 1.0))
    ends = max(share - 1e-3, 0.0), min(share + 1e-3, 1.0)
    slope = (cascade.by_chance(ends[1]) - cascade.by_chance(ends[0])).mean() / (ends[1] - ends[0])
    chance = cascade.by_chance(share) + slope * (chosen - share * free) / (free.mean() or 1.0)
    arms = {
        "small": (alone, asked_small, 0 * handed), "cascade": (right, asked, handed),
        "chance": (chance, asked, handed), "large": (large, 0 * asked, asked_large),
    }  # fmt: skip

    def mean_by_case(values: Any) -> Interval | Unknown:
        each, middle = values.tolist(), float(values.mean())
        if min(each) == max(each):  # the price of one judgement each
            return Interval(middle, middle, middle, 0.95, "t", len(each))
        return mean_of(each, groups=groups)

    accuracy, price, gains = dict[str, Interval | Unknown](), dict[str, Interval | Unknown](), {}
    for name, (own, few, many) in arms.items():
        resampled = name != "chance" and bootstrap(own.tolist(), mean, groups=groups)
        accuracy[name] = resampled or mean_by_case(own)
        if prices:
            price[name] = mean_by_case(prices[0] * few + prices[1] * many)
        pairs = [*zip(own.tolist(), right.tolist(), strict=True)]
        gains[name] = compare_repeated(pairs, groups=groups)
    over = float(handed.sum() / (asked.sum() or 1.0))
    return Proof(accuracy, price, gains, over, Counter(node for node, _ in lacks))


def worse_segments(
    cases: Sequence[TwoJudges], segments: Mapping[str, Sequence[int]]
) -> list[tuple[str, int, float]]:
    """The segments in which the large judge is shown to be worse, corrected for their number.

    `segments` has the indices of the cases of each; those of fewer than 20 are left out. Returns
    name, number of cases, and how much worse it is there (0 to 1).
    """
    changes = numpy.array([case.small - case.large for case in cases])
    large = [name for name, own in segments.items() if len(own) >= _LEAST_SEGMENT]
    own = {name: changes[list(segments[name])] for name in large}
    counts = [(int((each > 0).sum()), int((each < 0).sum())) for each in own.values()]
    worse = compress(large, prove_more_often(counts))
    return [(name, len(own[name]), float(own[name].sum() / len(own[name]))) for name in worse]
