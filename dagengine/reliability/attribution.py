"""Which node a score's noise comes from: flips, what a flip moves, shares of the variance.

The unit is a case, repeated. Its score is a function of what the nodes said (`Counterfactual`);
each node's answers are taken as independent draws from those that it gave in the case's
repetitions. The variance of the score within the case then splits into Shapley effects:
a node's variance with every set of others held fixed, averaged over all orders in which
nodes can be fixed (Owen 2014, https://doi.org/10.1137/130936233; Song, Nelson and Staum
2016, https://doi.org/10.1137/15M1048070). They are never negative and add up to all of it.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from dagengine.reliability.counterfactual import Counterfactual, NoReplyError, Reply
from dagengine.reliability.statistics import consistency as agreement
from dagengine.reliability.statistics.sums import Sums, mean, measure
from dagengine.test_case import TestCase

__all__ = [
    "CaseNoise",
    "Repetition",
    "attribute",
    "flip_effect",
    "flip_rate",
    "independence",
    "shapley_effects",
    "variance_share",
]

# Combinations of answers looked at per case; beyond it the steadiest nodes are held fixed.
_COMBINATIONS = 4096

Odds = dict[Reply, float]


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

    `variance` of the score is the unbiased one over the repetitions, `modelled` that of
    independent answers, which `parts` divide by node. `flips` are, per node that was asked
    more than once, the shares of its pairs of answers that differ; `moves` sum |Δscore| over
    pairs of repetitions whose first difference is at the node, and count them. `fixed` nodes
    vary, but were held at their commonest answer, since there were too many combinations.
    """

    case: int
    repetitions: int
    variance: float
    modelled: float
    parts: Mapping[str, float]
    flips: Mapping[str, float]
    moves: Mapping[str, tuple[float, int]]
    fixed: tuple[str, ...] = ()


def attribute(
    replay: Counterfactual,
    repetitions: Mapping[int, Sequence[Repetition]],
    cases: Sequence[TestCase] | None = None,
) -> list[CaseNoise]:
    """The noise of every case that was repeated, by case number; asks nothing.

    `cases` are needed where code reads fields of the case. A node that other answers would
    have led to, but that was never asked on a case, answers there as on all cases.
    """
    pooled = _odds(itertools.chain.from_iterable(repetitions.values()))
    known: dict[object, float | None] = {}
    found: list[CaseNoise] = []
    for number, runs in sorted(repetitions.items()):
        if len(runs) > 1:
            one = _Case(replay, runs, pooled, None if cases is None else cases[number], known)
            found.append(one.noise(number))
    return found


@measure
def flip_rate(cases: Sequence[CaseNoise], node: str) -> Sums:
    """The probability that two answers of a node to one question differ, averaged over cases."""
    return mean(case.flips.get(node) for case in cases)


@measure
def flip_effect(cases: Sequence[CaseNoise], node: str) -> Sums:
    """Mean |Δscore|, from 0 to 1, of two runs of one case that part first at this node."""
    moves = [case.moves.get(node, (0.0, 0)) for case in cases]
    items = [{"moved": moved, "pairs": float(pairs)} if pairs else {} for moved, pairs in moves]
    return Sums(items, lambda all_: all_["moved"] / all_["pairs"])


@measure
def variance_share(cases: Sequence[CaseNoise], node: str) -> Sums:
    """A node's Shapley effect as a share of the variance within cases, from 0 to 1."""
    items = [{"part": case.parts.get(node, 0.0), "whole": case.modelled} for case in cases]
    return Sums(items, lambda all_: all_["part"] / all_["whole"])


@measure
def independence(cases: Sequence[CaseNoise]) -> Sums:
    """Variance of independent answers over that observed: near 1 where nodes flip by themselves.

    Below 1 nodes err together, above 1 they make up for one another, and shares are those
    of a judge that does neither.
    """
    # Answers drawn from k repetitions vary by (k - 1) / k of the unbiased variance.
    items = [
        {
            "modelled": case.modelled * case.repetitions / (case.repetitions - 1),
            "seen": case.variance,
        }
        for case in cases
    ]
    return Sums(items, lambda all_: all_["modelled"] / all_["seen"])


def shapley_effects(
    scores: Sequence[float], weights: Sequence[Sequence[float]]
) -> tuple[float, list[float]]:
    """The variance of a function of independent answers, and each one's Shapley effect.

    `weights` are the probabilities of each variable's answers, `scores` the function on
    their product, the last variable fastest. The effect of a variable is the sum of the
    components of variance that it is part of, each divided by its number of variables.
    """
    values = list(scores)
    for weight in reversed(weights):  # each turn works on the last axis and puts it first
        size = len(weight)
        lines = [
            _contrasts(values[start : start + size], weight)
            for start in range(0, len(values), size)
        ]
        values = [line[place] for place in range(size) for line in lines]
    effects = [0.0] * len(weights)
    variance = 0.0
    places = itertools.product(*(range(len(weight)) for weight in weights))
    for place, value in zip(places, values, strict=True):
        varied = [axis for axis, index in enumerate(place) if index]
        if varied:
            variance += value**2
        for axis in varied:
            effects[axis] += value**2 / len(varied)
    return variance, effects


def _contrasts(values: Sequence[float], weights: Sequence[float]) -> list[float]:
    """The mean, then orthonormal contrasts whose squares sum to the variance.

    Each value against the mean of those before it, as in Welford's algorithm.
    """
    mean, total, found = values[0], weights[0], [0.0]
    for value, weight in zip(values[1:], weights[1:], strict=True):
        found.append(math.sqrt(total * weight / (total + weight)) * (value - mean))
        total += weight
        mean += weight / total * (value - mean)
    return [mean, *found[1:]]


class _Case:
    """One case's repetitions, and the scores that other answers would have given."""

    def __init__(
        self,
        replay: Counterfactual,
        runs: Sequence[Repetition],
        pooled: Mapping[str, Odds],
        case: TestCase | None,
        known: dict[object, float | None],
    ) -> None:
        self._replay, self._runs, self._pooled, self._case = replay, runs, pooled, case
        self._known = known
        self._own = case.content_hash() if case and replay.computes else None
        self._mean = math.fsum(run.score for run in runs) / len(runs)
        self._nodes = [speaker.node for speaker in replay.speakers]

    def noise(self, number: int) -> CaseNoise:
        odds = _odds(self._runs)
        axes, fixed = _axes(odds)
        # Until every node that some combination leads to has answers.
        while (scores := self._scores(odds, axes)) is None:
            axes, fixed = _axes(odds)
        modelled, parts = shapley_effects(scores, [list(odds[node].values()) for node in axes])
        return CaseNoise(
            case=number,
            repetitions=len(self._runs),
            variance=math.fsum((run.score - self._mean) ** 2 for run in self._runs)
            / (len(self._runs) - 1),
            modelled=modelled,
            parts=dict(zip(axes, parts, strict=True)),
            flips=self._flips(),
            moves=self._moves(),
            fixed=fixed,
        )

    def _scores(self, odds: dict[str, Odds], axes: Sequence[str]) -> list[float] | None:
        """Scores of all combinations; None after a node that was missing got its answers."""
        steady = {node: _commonest(found) for node, found in odds.items() if node not in axes}
        scores: list[float] = []
        for combination in itertools.product(*(odds[node] for node in axes)):
            replies = {**steady, **dict(zip(axes, combination, strict=True))}
            try:
                scores.append(self._score(replies))
            except NoReplyError as error:
                if error.node in self._pooled:
                    odds[error.node] = self._pooled[error.node]
                    return None
                scores.append(self._mean)
        return scores

    def _score(self, replies: Mapping[str, Reply]) -> float:
        key = self._own, frozenset(replies.items())
        if key not in self._known:
            self._known[key] = self._replay.score(replies, self._case)
        found = self._known[key]
        return self._mean if found is None else found

    def _flips(self) -> dict[str, float]:
        rates: dict[str, float] = {}
        for node in self._nodes:
            said = [run.replies[node] for run in self._runs if node in run.replies]
            rate = agreement.flip_rate([said])
            if rate is not None:
                rates[node] = rate
        return rates

    def _moves(self) -> dict[str, tuple[float, int]]:
        """|Δscore| and number of pairs of repetitions, by the node at which they part."""
        kinds = Counter(
            (tuple(run.replies.get(node) for node in self._nodes), run.score) for run in self._runs
        )
        moves: dict[str, tuple[float, int]] = {}
        for (one, some), (other, more) in itertools.combinations(kinds.items(), 2):
            node = self._parting(one[0], other[0])
            if node is not None:
                moved, pairs = moves.get(node, (0.0, 0))
                count = some * more
                moves[node] = moved + count * abs(one[1] - other[1]), pairs + count
        return moves

    def _parting(self, one: Sequence[Reply | None], other: Sequence[Reply | None]) -> str | None:
        """The first node that answered otherwise; None where one of the two has no answer."""
        for node, first, second in zip(self._nodes, one, other, strict=True):
            if first != second:
                return None if first is None or second is None else node
        return None


def _odds(runs: Iterable[Repetition]) -> dict[str, Odds]:
    """How likely each answer of each node is, most likely first."""
    counts: dict[str, Counter[Reply]] = {}
    for run in runs:
        for node, reply in run.replies.items():
            counts.setdefault(node, Counter())[reply] += 1
    return {
        node: {reply: count / found.total() for reply, count in found.most_common()}
        for node, found in counts.items()
    }


def _axes(odds: Mapping[str, Odds]) -> tuple[list[str], tuple[str, ...]]:
    """The nodes to vary, and those held fixed because there are too many combinations."""
    noisy = [node for node, found in odds.items() if len(found) > 1]
    noisy.sort(key=lambda node: (math.fsum(p * p for p in odds[node].values()), node))
    kept: list[str] = []
    size = 1
    for node in noisy:  # the least steady first
        if size * len(odds[node]) <= _COMBINATIONS:
            kept.append(node)
            size *= len(odds[node])
    return kept, tuple(sorted(set(noisy) - set(kept)))


def _commonest(odds: Odds) -> Reply:
    return next(iter(odds))
