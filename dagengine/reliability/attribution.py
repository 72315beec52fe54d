"""Where the noise of a case comes from: flips, what a flip moves, parts of the variance.

The unit is a case, repeated. Its score is a function of what the nodes said (`Counterfactual`). The
answers of a node are taken as independent draws of what it says about the case. The variance of the
score within the case then splits into Shapley effects (`shapley_effects`). They are unbiased if
each node that the case reached has two answers at least.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from dagengine.reliability.counterfactual import Counterfactual, NoReplyError, Reply
from dagengine.reliability.statistics.sums import SummedMeasure, Sums, Totals, quotient
from dagengine.test_case import TestCase

__all__ = ["CaseNoise", "Repetition", "attribute", "flip_effect", "flip_rate", "independence"]

# Combinations of answers looked at per case; beyond it the steadiest nodes are held fixed.
_COMBINATIONS = 4096

Counts = Mapping[Reply, int]
Alone = Mapping[int, Sequence[tuple[str, Reply]]]
"""What nodes said when they were asked by themselves, as (node, reply), by case."""


@dataclass(frozen=True, slots=True)
class Repetition:
    """One run of a metric on a case: what each node said, and the score from 0 to 1.

    Nodes that were not asked, or gave no usable answer, are absent.
    """

    replies: Mapping[str, Reply]
    score: float


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
    repetitions: Mapping[int, Sequence[Repetition]],
    cases: Sequence[TestCase] | None = None,
    alone: Alone | None = None,
) -> list[CaseNoise]:
    """The noise of every case that was repeated, by case number; asks nothing.

    `repetitions` are those of one setting. `cases` are needed where code reads fields of the
    case. `alone` are the answers of nodes that were asked by themselves; they count for their
    node and are not run. A node with one answer on a case, or none although other answers
    would have led to it, answers there as on all cases.
    """
    asked = alone or {}
    pooled = _counts(itertools.chain.from_iterable(repetitions.values()), *asked.values())
    scores: dict[object, float | None] = {}
    noise: list[CaseNoise] = []
    alike: dict[object, CaseNoise] = {}  # cases whose runs are equal, where nothing else is read
    for number, runs in sorted(repetitions.items()):
        if len(runs) > 1:
            case = None if cases is None else cases[number]
            lone = asked.get(number, ())
            key = (tuple((*run.replies.items(), run.score) for run in runs), *lone,
                   number if replay.computes else None)  # fmt: skip
            if key not in alike:
                alike[key] = _Case(replay, runs, lone, pooled, case, scores).noise(number)
            noise.append(replace(alike[key], case=number))
    # Cases that lacked an answer and got it count for those that lacked one and were not asked:
    # which of them were asked was drawn at random.
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


class _Case:
    """One case's repetitions, and the scores that other answers would have given."""

    def __init__(
        self,
        replay: Counterfactual,
        runs: Sequence[Repetition],
        alone: Sequence[tuple[str, Reply]],
        pooled: Mapping[str, Counts],
        case: TestCase | None,
        scores: dict[object, float | None],
    ) -> None:
        self._replay, self._runs, self._pooled, self._case = replay, runs, pooled, case
        self._known = scores
        self._said = _counts(runs, alone)
        self._own = case.content_hash() if case and replay.computes else None
        self._mean = math.fsum(run.score for run in runs) / len(runs)
        self._nodes = [speaker.node for speaker in replay.speakers]

    def noise(self, number: int) -> CaseNoise:
        counts = {
            node: tally if tally.total() > 1 else self._pooled[node]
            for node, tally in self._said.items()
        }
        axes, fixed = _axes(counts)
        # Until every node that some combination leads to has answers.
        while (scores := self.scores(counts, axes)) is None:
            axes, fixed = _axes(counts)
        modelled, parts = shapley_effects(scores, [list(counts[node].values()) for node in axes])
        answers = {node: tally.total() for node, tally in self._said.items()}
        flips: dict[str, float] = {}
        for node in self._nodes:
            if (count := answers.get(node, 0)) > 1:  # else there is no pair that could differ
                equal = sum(alike * (alike - 1) for alike in self._said[node].values())
                flips[node] = 1 - equal / (count * (count - 1))
        return CaseNoise(
            case=number,
            repetitions=len(self._runs),
            variance=math.fsum((run.score - self._mean) ** 2 for run in self._runs)
            / (len(self._runs) - 1),
            modelled=modelled,
            parts=dict(zip(axes, parts, strict=True)),
            flips=flips,
            moves=self.moves(),
            reached=Counter(node for run in self._runs for node in run.replies),
            answers=answers,
            fixed=fixed,
        )

    def scores(self, counts: dict[str, Counts], axes: Sequence[str]) -> list[float] | None:
        """Scores of all combinations; None after a node that was missing got its answers."""
        steady = {node: next(iter(tally)) for node, tally in counts.items() if node not in axes}
        scores: list[float] = []
        for combination in itertools.product(*(counts[node] for node in axes)):
            replies = {**steady, **dict(zip(axes, combination, strict=True))}
            try:
                key = self._own, frozenset(replies.items())
                if key not in self._known:
                    self._known[key] = self._replay.score(replies, self._case)
                score = self._known[key]
                scores.append(self._mean if score is None else score)
            except NoReplyError as error:
                if error.node in self._pooled:
                    counts[error.node] = self._pooled[error.node]
                    return None
                scores.append(self._mean)
        return scores

    def moves(self) -> dict[str, tuple[float, int]]:
        """|Δscore| and number of pairs of repetitions, by the node at which they part."""
        kinds = Counter((tuple(map(run.replies.get, self._nodes)), run.score) for run in self._runs)
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


def _counts(
    runs: Iterable[Repetition], *alone: Iterable[tuple[str, Reply]]
) -> dict[str, Counter[Reply]]:
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
