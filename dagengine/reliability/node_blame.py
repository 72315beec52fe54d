"""Where noise comes from: flips in a case and what they move, and which node is to blame over all.

The unit is a case, repeated. Its score is a function of what the nodes said (`Counterfactual`). The
answers of a node are taken as independent draws of what it says about the case. The variance of the
score within the case then splits into Shapley effects (`shapley_effects`). They are unbiased if
each node that the case reached has two answers at least.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType

from dagengine.reliability.counterfactual import Counterfactual, NoReplyError, Reply
from dagengine.reliability.observed_runs import Answers, Run
from dagengine.reliability.statistics.intervals import jackknife_variance, quantile_of_t
from dagengine.reliability.statistics.sums import SummedMeasure, Sums, Totals, present, quotient
from dagengine.system.terminal_text import counted
from dagengine.test_case import TestCase

# Combinations of answers looked at per case; beyond it the steadiest nodes are held fixed.
_COMBINATIONS = 4096

Counts = Mapping[Reply, int]
LEAST_REACHED = 10
"""Cases that must have reached a node before its share is stated."""
MOST_ONCE = 0.2
"""The most cases, as a share, that may have only one answer of a node they reached."""
_LEVEL = 0.95
# What is nearer to 0, or to 1, is so except for rounding.
_EDGE = 1e-9


@dataclass(frozen=True, slots=True)
class CaseNoise:
    """Where the noise of one case comes from.

    `variance` of the score is that over the repetitions. `modelled` is that of independent answers,
    which `parts` divide by node. All are unbiased, so those of a single case may be negative.
    `flips` are, per node with two answers or more, the shares of its pairs of answers that differ.
    `moves` sum |Δscore| over pairs of repetitions whose first difference is at the node, and count
    them. `reached` counts the repetitions that asked a node, `answers` its answers in these and
    alone. `fixed` nodes vary, but were held at their commonest answer, since there were too many
    combinations. `weight` is how many cases it counts for. If only a random sample of the cases
    that lacked an answer got one, these count for the others, which count nothing.
    """

    case: int
    repetitions: int
    variance: float
    modelled: float
    parts: Mapping[str, float]
    flips: Mapping[str, float]
    moves: Mapping[str, tuple[float, int]]
    reached: Mapping[str, int] = field(default_factory=dict)
    answers: Mapping[str, int] = field(default_factory=dict)
    fixed: tuple[str, ...] = ()
    weight: float = 1.0

    @property
    def lacked(self) -> bool:
        """Whether a node answered once in all runs."""
        return 1 in self.reached.values()

    @property
    def known(self) -> bool:
        """Whether each node that the case reached has two answers."""
        return 1 not in self.answers.values()


def attribute(
    replay: Counterfactual,
    runs: Mapping[int, Sequence[Run]],
    cases: Sequence[TestCase] = (),
    alone: Mapping[int, Answers] = MappingProxyType({}),
) -> list[CaseNoise]:
    """The noise of every case that was repeated, by case number; asks nothing.

    `runs` are those of one setting with a score. `cases` are needed where code reads fields of the
    case. `alone` are the answers of nodes that were asked by themselves; they count for their
    node and are not run. A node with one answer on a case, or none although other answers
    would have led to it, answers there as on all cases.
    """
    pooled = _counts(itertools.chain.from_iterable(runs.values()), *alone.values())
    attribution = _Attribution(replay, pooled)
    noise: list[CaseNoise] = []
    alike: dict[object, CaseNoise] = {}  # cases whose runs are equal, where nothing else is read
    for number, own in sorted(runs.items()):
        if len(own) > 1:
            lone = alone.get(number, ())
            key = (tuple((*run.replies.items(), run.score) for run in own), *lone,
                   number if replay.computes else None)  # fmt: skip
            if key not in alike:
                case = cases[number] if cases else None
                alike[key] = attribution.noise(number, own, lone, case)
            noise.append(replace(alike[key], case=number))
    return _weigh(noise)


def _weigh(noise: list[CaseNoise]) -> list[CaseNoise]:
    """Let cases that lacked an answer and got it count for those that were not asked.

    Which of the cases that lacked one were asked was drawn at random.
    """
    lacked = [case for case in noise if case.lacked]
    answered = sum(case.known for case in lacked)
    if not answered:
        return noise
    weights = {True: len(lacked) / answered, False: 0.0}
    return [replace(case, weight=weights[case.known]) if case.lacked else case for case in noise]


@SummedMeasure
def flip_rate(cases: Sequence[CaseNoise], node: str) -> Sums:
    """The probability that two answers of a node to one question differ, averaged over cases."""
    items: list[Totals] = [{} for _ in cases]
    for index, case in enumerate(cases):
        # A case that tells in its own runs was not drawn, so it counts for itself alone.
        weight = 1.0 if case.reached.get(node, 0) > 1 else case.weight
        if node in case.flips and weight:
            items[index] = {"items": weight, "value": weight * case.flips[node]}
    return quotient(items, "value", "items", most=1.0)


@SummedMeasure
def flip_effect(cases: Sequence[CaseNoise], node: str) -> Sums:
    """Mean |Δscore|, from 0 to 1, of two runs of one case that part first at this node."""
    moves = [case.moves.get(node, (0.0, 0)) for case in cases]
    items = [{"moved": moved, "pairs": float(pairs)} if pairs else {} for moved, pairs in moves]
    return quotient(items, "moved", "pairs")


@SummedMeasure
def independence(cases: Sequence[CaseNoise]) -> Sums:
    """Variance of independent answers over that observed: near 1 where nodes flip by themselves.

    Below 1 nodes err together, above 1 they make up for one another, and shares are those
    of a judge that does neither.
    """
    items = [{"modelled": case.weight * case.modelled, "seen": case.variance} for case in cases]
    return quotient(items, "modelled", "seen")


class _Attribution:
    """What the runs of each case say, and the scores that other answers would have given.

    `pooled` counts the answers of each node on all cases.
    """

    def __init__(self, replay: Counterfactual, pooled: Mapping[str, Counts]) -> None:
        self._replay, self._pooled = replay, pooled
        self._nodes = [speaker.node for speaker in replay.speakers]
        self._scores: dict[object, float | None] = {}

    def noise(
        self, number: int, runs: Sequence[Run], alone: Answers, case: TestCase | None
    ) -> CaseNoise:
        seen = present(run.score for run in runs)
        mean = statistics.fmean(seen)
        tallies = _counts(runs, alone)
        answers = {node: tally.total() for node, tally in tallies.items()}
        counts: dict[str, Counts] = {**tallies}
        flips: dict[str, float] = {}
        for node, count in answers.items():
            if count > 1:
                equal = sum(alike * (alike - 1) for alike in tallies[node].values())
                flips[node] = 1 - equal / (count * (count - 1))
            else:  # there is no pair that could differ
                counts[node] = self._pooled[node]
        axes, fixed = _axes(counts)
        # Until every node that some combination leads to has answers.
        while (scores := self.scores(counts, axes, case, mean)) is None:
            axes, fixed = _axes(counts)
        modelled, parts = shapley_effects(scores, [list(counts[node].values()) for node in axes])
        return CaseNoise(
            case=number,
            repetitions=len(runs),
            variance=math.fsum((score - mean) ** 2 for score in seen) / (len(runs) - 1),
            modelled=modelled,
            parts=dict(zip(axes, parts, strict=True)),
            flips=flips,
            moves=self.moves(runs, seen),
            reached=Counter(node for run in runs for node in run.replies),
            answers=answers,
            fixed=fixed,
        )

    def scores(
        self, counts: dict[str, Counts], axes: Sequence[str], case: TestCase | None, mean: float
    ) -> list[float] | None:
        """Scores of all combinations; None after a node that was missing got its answers."""
        own = case.content_hash() if case and self._replay.computes else None
        steady = {node: next(iter(tally)) for node, tally in counts.items() if node not in axes}
        scores: list[float] = []
        for combination in itertools.product(*(counts[node] for node in axes)):
            replies = {**steady, **dict(zip(axes, combination, strict=True))}
            try:
                key = own, frozenset(replies.items())
                if key not in self._scores:
                    self._scores[key] = self._replay.score(replies, case)
                score = self._scores[key]
                scores.append(mean if score is None else score)
            except NoReplyError as error:
                if error.node in self._pooled:
                    counts[error.node] = self._pooled[error.node]
                    return None
                scores.append(mean)
        return scores

    def moves(self, runs: Sequence[Run], scores: Sequence[float]) -> dict[str, tuple[float, int]]:
        """|Δscore| and number of pairs of repetitions, by the node at which they part."""
        replies_of = (tuple(map(run.replies.get, self._nodes)) for run in runs)
        kinds = Counter(zip(replies_of, scores, strict=True))
        moves: dict[str, tuple[float, int]] = {}
        for (first, some), (second, more) in itertools.combinations(kinds.items(), 2):
            turns = zip(self._nodes, first[0], second[0], strict=True)
            node, *replies = next((turn for turn in turns if turn[1] != turn[2]), ("", None))
            # Where only one of them answered, they parted before, at something that is no answer.
            if None not in replies:
                moved, pairs = moves.get(node, (0.0, 0))
                count = some * more
                moves[node] = moved + count * abs(first[1] - second[1]), pairs + count
        return moves


def _counts(runs: Iterable[Run], *alone: Answers) -> dict[str, Counter[Reply]]:
    """Counts of the answers of each node, the commonest first."""
    answers = itertools.chain(*(run.replies.items() for run in runs), *alone)
    counts: defaultdict[str, Counter[Reply]] = defaultdict(Counter)
    for node, reply in answers:
        counts[node][reply] += 1
    return {node: Counter(dict(tally.most_common())) for node, tally in counts.items()}


def _axes(counts: Mapping[str, Counts]) -> tuple[list[str], tuple[str, ...]]:
    """The nodes to vary, and those held fixed because there are too many combinations."""
    # The chance that two draws of what was said are equal: the higher, the less a node can move.
    noisy: list[tuple[float, str]] = []
    for node, tally in counts.items():
        if len(tally) > 1:
            total = sum(tally.values())
            noisy.append((math.fsum((count / total) ** 2 for count in tally.values()), node))
    kept, fixed = list[str](), list[str]()
    size = 1
    for _, node in sorted(noisy):  # the least consistent first
        if size * len(counts[node]) <= _COMBINATIONS:
            kept.append(node)
            size *= len(counts[node])
        else:
            fixed.append(node)
    return kept, tuple(sorted(fixed))


# Shapley effects of answers that were drawn.
#
# The Shapley effect of a node is the part of a variance that is attributed to it. It is what the
# node explains beside a set of other nodes, averaged over all orders in which nodes can be fixed.
# (Owen 2014, https://doi.org/10.1137/130936233; Song, Nelson and Staum 2016,
# https://doi.org/10.1137/15M1048070.) It is built from the variance of E[score | nodes in S], an
# expectation over two runs that share the answers of S. So pairs of answers are weighed, not odds:
# two runs that share a node see one answer, others two different draws of it. The effects of the
# odds that were seen would put the noise of a node with few answers down to its parents.


def shapley_effects(
    scores: Sequence[float], counts: Sequence[Sequence[int]]
) -> tuple[float, list[float]]:
    """The variance of a function of independent answers, and each variable's Shapley effect.

    `counts` say per variable how often each answer was drawn, at least two draws in all. `scores`
    are the function on the product of the answers, the last variable fastest. Both results are
    unbiased over draws, so single ones may be negative; the effects add up to the variance.
    """
    squares = _squares(scores, counts)
    for axis, drawn in enumerate(counts):
        # Of m answers the variance is m/(m - 1) of that seen, and the square of the mean is too
        # large by the variance of a mean, which is 1/m of it.
        bit, draws = 1 << axis, sum(drawn)
        for members in range(len(squares)):
            if members & bit:
                squares[members ^ bit] -= squares[members] / (draws - 1)
                squares[members] *= draws / (draws - 1)
    effects: list[float] = []
    for axis in range(len(counts)):
        own = (members for members in range(len(squares)) if members & 1 << axis)
        effects.append(math.fsum(squares[members] / members.bit_count() for members in own))
    return math.fsum(squares[1:]), effects


def _squares(scores: Sequence[float], counts: Sequence[Sequence[int]]) -> list[float]:
    """The components of the variance under the odds seen, by the set of variables (as bits)."""
    values = list(scores)
    for drawn in reversed(counts):  # each turn works on the last axis and puts it first
        size = len(drawn)
        lines = [
            _contrasts(values[start : start + size], drawn) for start in range(0, len(values), size)
        ]
        values = [line[column] for column in range(size) for line in lines]
    squares = [0.0] * (1 << len(counts))
    axes = itertools.product(*(range(len(drawn)) for drawn in counts))
    for column, value in zip(axes, values, strict=True):
        squares[sum(1 << axis for axis, index in enumerate(column) if index)] += value**2
    return squares


def _contrasts(values: Sequence[float], drawn: Sequence[int]) -> list[float]:
    """The mean, then orthonormal contrasts whose squares sum to the variance.

    Each value against the mean of those before it, as in Welford's algorithm.
    """
    draws, seen = sum(drawn), drawn[0]
    mean, contrasts = values[0], [0.0]
    for value, count in zip(values[1:], drawn[1:], strict=True):
        weight = seen * count / ((seen + count) * draws)
        contrasts.append(math.sqrt(weight) * (value - mean))
        seen += count
        mean += count / seen * (value - mean)
    return [mean, *contrasts[1:]]


# Which node is to blame: shares of the noise with intervals, or "not known" and why.
#
# A share is a node's part of the variance within cases: a ratio of sums over cases, both of them
# unbiased. Its interval leaves out one case at a time (the jackknife of the ratio's logit, with
# quantiles of Student's t).


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
    """The share of the noise that one node causes, over so many cases (groups, if there are any).

    `share` is from 0 to 1, and between `low` and `high` in 95 % of samples. All three are None if
    the share is not known; `unknown` then says why, and `why` in a sentence. If the node moved no
    score in any case, its share is 0 and `high` a bound from above.
    """

    cases: int
    share: float | None = None
    low: float | None = None
    high: float | None = None
    unknown: Unknown | None = None
    why: str = ""


def blame(
    noise: Sequence[CaseNoise], node: str, groups: Mapping[int, Hashable] = MappingProxyType({})
) -> Blame:
    """The share of the noise that a node causes, over all cases of `noise`.

    `noise` is what `attribute` found, under one setting or several. Cases of equal `groups` (by
    case number), for instance those made of one dialogue, are left out together. Without an entry a
    case is its own group. Raises MissingExtraError without scipy.
    """
    units = _units(noise, node, groups)
    # Cases that count nothing (`CaseNoise.weight`) are not among the reached.
    reached, once = sum(unit.reached for unit in units), single_answer_share(noise)
    peers = set[str]().union(*(case.answers for case in noise)) - {node}
    unknown = _unknown(units, reached, once, bool(peers))
    if unknown is None:
        share, low, high = _interval(units)
        if low > 1 - _EDGE and peers:
            # No other node moved a score: what they may be to blame for is left.
            low = max(1 - sum(_bound(_units(noise, peer, groups)) for peer in peers), 0.0)
        return Blame(len(units), share, low, high)
    why = str(unknown)
    if unknown is Unknown.REACHED_IN_FEW:
        runs, takes = max(case.repetitions for case in noise), f"{LEAST_REACHED}"
        if reached and len(units) >= LEAST_REACHED:
            takes += f", which takes about {math.ceil(runs * LEAST_REACHED / reached)} runs"
        else:  # more runs are not what is missing
            takes += " cases that reach it"
        many = f"{reached} of {counted(len(units), 'case')}"
        why = f"{many} reached it in {counted(runs, 'run')}; its share needs {takes}"
    elif unknown is Unknown.ASKED_ONCE:
        why = (
            f"{100 * once:.0f} % of the cases that reached a node have only one answer of it; "
            "shares need second answers"
        )
    return Blame(len(units), unknown=unknown, why=why)


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
    if not peers:
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
    if all(abs(unit.part) <= _EDGE for unit in units):
        return 0.0, 0.0, _bound(units)
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
    return quantile_of_t(_LEVEL, len(left_out)) * math.sqrt(jackknife_variance(left_out))


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
