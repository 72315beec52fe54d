"""Which node is to blame: shares of the noise with intervals, or "not known" and why.

A share is a node's part of the variance within cases: a ratio of sums over cases, both of them
unbiased. Its interval leaves out one case at a time (the jackknife of the ratio's logit, with
quantiles of Student's t).
"""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from dagengine.reliability.attribution import CaseNoise
from dagengine.reliability.statistics.intervals import quantile_of_t
from dagengine.system.terminal import counted

LEAST_REACHED = 10
"""Cases that must have reached a node before its share is stated."""

MOST_ONCE = 0.2
"""The most cases, as a share, that may have only one answer of a node they reached."""

_LEVEL = 0.95
# What is nearer to 0, or to 1, is so except for rounding.
_EDGE = 1e-9


class Unknown(StrEnum):
    """Why the share of a node is not known."""

    UNSEEN = "no answer of a node is known"
    STEADY = "no answer of a node changed the score by more than rounding does"
    NOT_REPEATED = "no case has two runs with a score"
    REACHED_IN_FEW = "too few cases reached the node"
    ONE_CASE = "all of the noise is in one case"
    ASKED_ONCE = "too many cases have only one answer of a node that they reached"


@dataclass(frozen=True, slots=True)
class Blame:
    """The share of the noise that one node causes.

    `share` is from 0 to 1, and between `low` and `high` in 95 % of samples. All three are None if
    the share is not known, and `unknown` then says why. `varied` is False where the node moved no
    score in any case: its share is 0 and `high` a bound from above. `reached` of `cases` cases
    (groups, if there are any) reached the node, in `runs` runs each. `needed` is how many runs
    of each case would tell, None if more runs are not what is missing. `once` is the largest
    share of cases with one answer only of a node among those that reached that node. Cases that
    count nothing (`CaseNoise.weight`) are not among the reached.
    """

    node: str
    share: float | None
    low: float | None
    high: float | None
    unknown: Unknown | None
    varied: bool
    reached: int
    cases: int
    runs: int
    needed: int | None = None
    once: float = 0.0

    @property
    def why(self) -> str:
        """A sentence that says why the share is not known; empty if it is."""
        if self.unknown is Unknown.REACHED_IN_FEW:
            takes = f"{LEAST_REACHED}, which takes about {self.needed} runs"
            if self.needed is None:
                takes = f"{LEAST_REACHED} cases that reach it"
            return (
                f"{self.reached} of {counted(self.cases, 'case')} reached it in "
                f"{counted(self.runs, 'run')}; its share needs {takes}"
            )
        if self.unknown is Unknown.ASKED_ONCE:
            return (
                f"{100 * self.once:.0f} % of the cases that reached a node have only one answer of "
                "it; shares need second answers"
            )
        return "" if self.unknown is None else str(self.unknown)


def blame(
    noise: Sequence[CaseNoise], node: str, groups: Mapping[int, Hashable] | None = None
) -> Blame:
    """The share of the noise that a node causes, over all cases of `noise`.

    `noise` is what `attribute` found, under one setting or several. Cases of equal `groups` (by
    case number), for instance those made of one dialogue, are left out together. Without an entry a
    case is its own group. Raises MissingExtraError without scipy.
    """
    units = _units(noise, node, groups or {})
    reached = sum(unit.reached for unit in units)
    runs = max((case.repetitions for case in noise), default=0)
    once = single_answer_share(noise)
    peers = set[str]().union(*(case.answers for case in noise)) - {node}
    unknown = _unknown(units, reached, once, bool(peers))
    share = low = high = needed = None
    varied = any(abs(unit.part) > _EDGE for unit in units)
    if unknown is Unknown.REACHED_IN_FEW and reached and len(units) >= LEAST_REACHED:
        needed = math.ceil(runs * LEAST_REACHED / reached)
    elif unknown is None:
        share, low, high = _interval(units) if varied else (0.0, 0.0, _bound(units))
        if (
            low > 1 - _EDGE and peers
        ):  # no other node moved a score: what they may be to blame for is left
            low = max(1 - sum(_bound(_units(noise, peer, groups or {})) for peer in peers), 0.0)
    return Blame(node, share, low, high, unknown, varied, reached, len(units), runs, needed, once)


def single_answer_share(noise: Iterable[CaseNoise]) -> float:
    """Of the cases that reached a node, the share with one answer of it: the largest of all."""
    # By node: how many cases have so many answers of it.
    counts = defaultdict[str, Counter[int]](Counter)
    for case in noise:
        if case.weight:
            for node, answers in case.answers.items():
                counts[node][answers] += 1
    return max((own[1] / own.total() for own in counts.values()), default=0.0)


@dataclass(slots=True)
class _Unit:
    """What one case, or one group of cases, adds up to; `seen` sums shares of runs."""

    part: float = 0.0
    whole: float = 0.0
    reached: bool = False
    seen: float = 0.0


def _units(noise: Iterable[CaseNoise], node: str, groups: Mapping[int, Hashable]) -> list[_Unit]:
    units: defaultdict[Hashable, _Unit] = defaultdict(_Unit)
    for case in noise:
        unit = units[("group", groups[case.case]) if case.case in groups else case.case]
        unit.part += case.weight * case.parts.get(node, 0.0)
        unit.whole += case.weight * case.modelled
        unit.reached |= bool(case.weight) and node in case.answers
        unit.seen += case.weight * case.reached.get(node, 0) / case.repetitions
    return list(units.values())


def _unknown(units: Sequence[_Unit], reached: int, once: float, peers: bool) -> Unknown | None:
    if not units:
        return Unknown.NOT_REPEATED
    if not reached and not peers:
        return Unknown.UNSEEN
    if not any(abs(unit.whole) > _EDGE for unit in units):
        return Unknown.STEADY
    if reached and not peers:
        return None  # all of the noise is its own
    if reached < LEAST_REACHED:
        return Unknown.REACHED_IN_FEW
    if once > MOST_ONCE:
        return Unknown.ASKED_ONCE
    # Without any one of the cases there has to be noise left that can be shared out.
    whole = math.fsum(unit.whole for unit in units)
    return None if whole > max(0.0, *(unit.whole for unit in units)) else Unknown.ONE_CASE


def _interval(units: Sequence[_Unit]) -> tuple[float, float, float]:
    """The share and its jackknife interval, on the logit wherever there is one."""
    part = math.fsum(unit.part for unit in units)
    whole = math.fsum(unit.whole for unit in units)
    ratio = part / whole
    share = min(max(ratio, 0.0), 1.0)
    # No other node moved a score in any case: nothing varies that an interval could be made of.
    if all(unit.part == unit.whole for unit in units):
        return 1.0, 1.0, 1.0
    left_out = [(part - unit.part) / (whole - unit.whole) for unit in units]
    # On the logit no end is beyond 0 or 1; but 0 and 1 themselves have none.
    if all(_EDGE < estimate < 1 - _EDGE for estimate in (ratio, *left_out)):
        half = _half_width([*map(_logit, left_out)])
        return share, _share(_logit(ratio) - half), _share(_logit(ratio) + half)
    half = _half_width(left_out)
    return share, max(share - half, 0.0), min(share + half, 1.0)


def _half_width(left_out: Sequence[float]) -> float:
    size, centre = len(left_out), statistics.fmean(left_out)
    variance = (size - 1) / size * math.fsum((estimate - centre) ** 2 for estimate in left_out)
    return quantile_of_t(_LEVEL, size) * math.sqrt(variance)


def _bound(units: Sequence[_Unit]) -> float:
    """The largest share of a node that moved no score, from how seldom it can then flip.

    None of n cases flipped: Wilson's interval with quantiles of t ends at t²/(n + t²). A flip
    moves the score by 1 at most, and adds half its square to the variance.
    """
    reached = [unit.seen for unit in units if unit.reached]
    t = quantile_of_t(_LEVEL, len(reached)) ** 2
    most = math.fsum(reached) * t / (len(reached) + t) / 2
    return most / (most + math.fsum(unit.whole for unit in units))


def _logit(share: float) -> float:
    return math.log(share / (1 - share))


def _share(logit: float) -> float:
    return 1 / (1 + math.exp(-logit))
