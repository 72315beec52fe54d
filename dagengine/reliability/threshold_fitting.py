"""What labels ask for: a threshold, a probability below which to abstain, examples for a prompt.

A case passes if its score is not below the threshold. To pass a case that people fail has one cost,
to fail one that they pass another; the best threshold has the least mean cost. A verdict is given
if its probability is not below another threshold, for a promised rate of errors.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from random import Random
from types import MappingProxyType
from typing import Any

from dagengine.errors import InputError
from dagengine.graph.examples_and_quotes import Example
from dagengine.graph.node import AskingNode
from dagengine.graph.nodes import RatingNode
from dagengine.prompts.evidence import as_text
from dagengine.reliability.observations import Vote
from dagengine.reliability.statistics.intervals import Unknown
from dagengine.reliability.statistics.paired_comparisons import Comparison, compare_means, is_gain
from dagengine.reliability.statistics.sums import groups_of, indices, mean_score, numpy
from dagengine.test_case import TestCase, read_field

Scored = Sequence[tuple[float, bool]]
"""The score of each labelled case (0 to 1), and whether people pass it."""

LEAST_LABELS = 20
"""Cases (or groups of them) below which no threshold is fitted, and at least 3 of each label."""
_LEAST_EACH = 3
_FOLDS, _RESAMPLES, _MOST_CUTS = 10, 500, 100
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class FittedThreshold:
    """The threshold (0 to 1) with the least cost on the labels, and what is known of it.

    From `low` to `high` are the thresholds that the labels do not rule out as the best, at 95 %.
    `cost` is the mean cost of a case on cases that the threshold was not fitted on, `cost_now` that
    of the present threshold `now`. `gain` is how much less the fitted one costs there, with its
    interval.
    """

    threshold: float
    low: float
    high: float
    now: float
    cost: float
    cost_now: float
    gain: Comparison | Unknown
    items: int

    @property
    def is_better(self) -> bool:
        """Return whether the labels show that this threshold is better than the present one.

        They rule the present one out, and the gain on held-out cases is above 0 with its interval.
        """
        return not self.low <= self.now <= self.high and is_gain(self.gain)


def fit_threshold(
    scored: Scored,
    *,
    now: float = 0.5,
    cost_pass: float = 1.0,
    cost_fail: float = 1.0,
    groups: Sequence[Hashable] | None = None,
    seed: int = 0,
) -> FittedThreshold | Unknown:
    """Fit a threshold to labelled scores; Unknown with too few labels.

    `cost_pass` is the cost of passing a case that people fail, `cost_fail` that of failing one that
    they pass. Of thresholds with equal cost the one nearest to `now` is taken. The costs are those
    of held-out cases: ten folds, each judged by the threshold of the nine others. Cases of equal
    `groups` stay together.

    The interval inverts a test: a threshold is ruled out if another one is better by more than the
    largest advantage that resampling gives any other one by chance (a studentized maximum over all
    thresholds, as in White 2000, https://doi.org/10.1111/1468-0262.00152).

    Raises InputError for costs that are not positive and groups that do not fit, MissingExtraError
    without numpy.
    """
    if not (0 < cost_pass < math.inf and 0 < cost_fail < math.inf):
        raise InputError(f"costs are positive numbers: got {cost_pass:g} and {cost_fail:g}")
    names = groups_of(groups, len(scored))
    items, labels = len(set(names)), [bool(label) for _, label in scored]
    rarer = min(labels.count(True), labels.count(False))
    if items < LEAST_LABELS:
        return Unknown("too few labels", items, LEAST_LABELS)
    if rarer < _LEAST_EACH:
        return Unknown("too few labels", items, detail=f"only {rarer} of the rarer label")
    scores = numpy.array([score for score, _ in scored])
    cuts = _cuts(scores.tolist(), now)
    passed = scores[None, :] >= numpy.array(cuts)[:, None]
    by_case = numpy.where(numpy.array(labels), (~passed) * cost_fail, passed * cost_pass)
    costs = _Costs(by_case, numpy.array(indices(names)), items, cuts, now, seed)
    chosen = costs.best()
    low, high = costs.not_ruled_out(chosen, (cost_pass, cost_fail))
    held, before = costs.held_out(), by_case[cuts.index(now)]
    return FittedThreshold(
        threshold=cuts[chosen],
        low=low,
        high=high,
        now=now,
        cost=float(held.mean()),
        cost_now=float(before.mean()),
        gain=compare_means(
            list(zip(held.tolist(), before.tolist(), strict=True)),
            groups=None if groups is None else list(names),
        ),
        items=items,
    )


def _cuts(scores: Sequence[float], now: float) -> list[float]:
    """The thresholds that matter: between neighbouring scores, 0, and the present one."""
    values = sorted(set(scores))
    between = [(low + high) / 2 for low, high in pairwise(values)]
    if len(between) > _MOST_CUTS:
        step = len(between) / _MOST_CUTS
        between = [between[int(index * step)] for index in range(_MOST_CUTS)]
    above = [] if values[-1] >= 1 else [(values[-1] + 1) / 2]
    return sorted({0.0, now, *between, *above})


@dataclass(frozen=True, slots=True)
class _Costs:
    """What each threshold of `cuts` (row) costs on each case (column).

    `group` has the number of the group of each case, of `items` groups.
    """

    by_case: Any
    group: Any
    items: int
    cuts: Sequence[float]
    now: float
    seed: int

    def best(self, chosen: Any = slice(None)) -> int:
        """Index of the threshold with the least cost; of equal ones the nearest to the present."""
        means = self.by_case[:, chosen].mean(axis=1)
        ties: list[int] = numpy.flatnonzero(means <= means.min() + 1e-12).tolist()
        return min(ties, key=lambda index: (abs(self.cuts[index] - self.now), self.cuts[index]))

    def held_out(self) -> Any:
        """The cost of each case by the threshold that the other folds ask for."""
        order = list(range(self.items))
        Random(self.seed).shuffle(order)
        fold = numpy.empty(self.items, dtype=int)
        fold[order] = numpy.arange(self.items) % _FOLDS
        held = numpy.zeros(self.by_case.shape[1])
        for number in range(_FOLDS):
            out = fold[self.group] == number
            held[out] = self.by_case[self.best(~out), out]
        return held

    def not_ruled_out(self, chosen: int, prices: tuple[float, float]) -> tuple[float, float]:
        """The lowest and the highest threshold that may be the best one.

        Few cases may lack a costly kind altogether: each pair of thresholds is compared with one
        more case, which speaks for the dearer of them.
        """
        cases, size = len(self.group), self.items + 1
        sums = numpy.zeros((len(self.cuts), self.items))
        numpy.add.at(sums.T, self.group, self.by_case.T)
        sums /= cases
        generator = numpy.random.default_rng(self.seed)
        drawn = generator.multinomial(size, [1 / size] * size, size=_RESAMPLES).T - 1
        weights, last = drawn[:-1], drawn[-1]
        moved = sums @ weights  # how far the mean cost of each threshold is off in each resample
        kept: list[float] = []
        for index, cut in enumerate(self.cuts):
            apart = sums[index] - sums  # by group: how much dearer than each other threshold
            real = apart.any(axis=1)
            if not real.any():
                kept.append(cut)
                continue
            # A lower threshold is dearer by what it passes: a good case speaks for it.
            for_it = numpy.where(numpy.array(self.cuts) > cut, prices[1], prices[0]) / cases
            error = numpy.sqrt((apart**2).sum(axis=1) + for_it**2)[real]
            lead = float(((apart.sum(axis=1) - for_it)[real] / error).max())
            noise = (moved[index] - moved - for_it[:, None] * last)[real]
            chance = (noise / error[:, None]).max(axis=0)
            if index == chosen or lead <= numpy.quantile(chance, 0.95):
                kept.append(cut)
        return min(kept), max(kept)


# When to abstain.


@dataclass(frozen=True, slots=True)
class Abstention:
    """Verdicts with a probability below `below` are not given.

    Then at most the share `promised` of all cases gets a wrong verdict, on average over samples of
    labels. On the labels `answered` is the share of cases that keep their verdict, and `wrong` the
    share of these that is wrong. `below` is above 1 if no verdict may be given.
    """

    below: float
    promised: float
    answered: float
    wrong: float | None
    items: int


def abstain_below(
    stated: Sequence[tuple[float, bool]],
    promised: float,
    *,
    groups: Sequence[Hashable] | None = None,
) -> Abstention | Unknown:
    """The lowest probability at which a verdict may be given; Unknown with too few labels.

    `stated` has, for each labelled case, the probability (0 to 1) that the judge gave to its
    verdict, and whether the verdict is right. `promised` is the share of all cases (0 to 1) that
    may get a wrong verdict that is not called unsure.

    Conformal risk control (Angelopoulos et al. 2024, https://arxiv.org/abs/2208.02814): the rate on
    n labels plus 1/(n + 1) for the next case must not exceed the promise. It holds if the labelled
    cases and the cases to come are exchangeable: drawn at random from the same traffic, by the same
    judge. With `groups` it holds for the mean over groups. With fewer than 1/promised - 1 labels
    nothing can be promised. Raises InputError for numbers outside of their range.
    """
    if not 0 < promised < 1:
        raise InputError(f"the promised rate lies between 0 and 1, got {promised:g}")
    if any(not 0 <= chance <= 1 for chance, _ in stated):
        raise InputError("probabilities lie between 0 and 1")
    names = groups_of(groups, len(stated))
    sizes = Counter(names)
    items = len(sizes)
    needed = math.ceil(1 / promised - 1e-9) - 1
    if items < needed:
        return Unknown("too few labels", items, needed)
    # From the surest verdict down: what is wrong so far, each group with the weight of one item.
    ranked = sorted(zip(stated, names, strict=True), key=lambda pair: -pair[0][0])
    room = promised * (items + 1) - 1
    below, errors = math.nextafter(1.0, 2.0), 0.0
    for chance, same in groupby(ranked, key=lambda pair: pair[0][0]):
        errors += sum(1 / sizes[name] for (_, right), name in same if not right)
        if errors > room + 1e-9:
            break
        below = chance
    kept = [right for chance, right in stated if chance >= below]
    return Abstention(
        below=below,
        promised=promised,
        answered=len(kept) / len(stated),
        wrong=mean_score(not right for right in kept),
        items=items,
    )


# Examples: few, of every answer, unlike each other.


@dataclass(frozen=True, slots=True)
class Solved:
    """An example that a label would make: of which case, and whether the judge gets it wrong."""

    case: int
    example: Example
    wrong: bool = False

    @property
    def words(self) -> frozenset[str]:
        """The words of all that it shows."""
        words = _WORD.findall("\n".join(self._texts))
        return frozenset(map(str.casefold, words))

    @property
    def size(self) -> int:
        """The characters that it adds to a prompt, about."""
        return sum(map(len, self._texts)) + len(self.example.reason or "")

    @property
    def _texts(self) -> list[str]:
        reads = self.example.reads
        return [*map(as_text, reads.values() if isinstance(reads, Mapping) else [reads])]


def solved_cases(
    node: AskingNode,
    answers: Mapping[int, Sequence[Vote]],
    cases: Sequence[TestCase],
    *,
    judged: Mapping[int, Vote] = MappingProxyType({}),
    outputs: Mapping[int, Mapping[str, Any]] = MappingProxyType({}),
    sealed: Collection[int] = (),
) -> list[Solved]:
    """The examples that people's answers to a node would make, in the order of the cases.

    `answers` are those of people by the number of the case (`HumanLabels.walked`; ratings from 0 to
    1), `judged` those of the judge, `outputs` what the nodes that it reads gave, by label. Cases of
    which people differ, that are `sealed`, or that lack something that the node reads are left out;
    so is a text with two answers. Nodes that go over lists have no example by case.
    """
    made: list[Solved] = []
    answers_to = defaultdict[str, set[Any]](set)
    wanted = node.names_in_examples(
        [*node.evaluation_params, *(source.output_label or source.title for source in node.inputs)]
    )
    for number in sorted((answers.keys() & range(len(cases))) - set(sealed)):
        replies = {_answer(node, vote) for vote in answers[number]}
        answer = replies.pop() if len(replies) == 1 else None  # None if people differ
        fields = {path: read_field(cases[number], path) for path in node.evaluation_params}
        values = {**fields, **outputs.get(number, {})}
        reads = {name: values[name] for name in wanted if values.get(name) is not None}
        if answer is not None and len(reads) == len(wanted):
            vote = judged.get(number)
            differs = vote is not None and _answer(node, vote) != answer
            made.append(Solved(number, Example(reads, answer), differs))
            answers_to[repr(reads)].add(answer)
    return [solved for solved in made if len(answers_to[repr(solved.example.reads)]) == 1]


def _answer(node: AskingNode, vote: Vote) -> Any:
    """A vote as an answer of the node: a rating from 0 to 1 is one on its scale."""
    if not isinstance(node, RatingNode):
        return vote if vote in node.exemplary else None
    low, high = node.points.ends
    number = low + float(vote) * (high - low)
    steps = node.points.steps
    if not steps:
        return round(number)
    label = min(steps, key=lambda step: abs(steps[step] - number))
    return label if isinstance(node.scale, Mapping) else int(steps[label])


def pick_examples(
    solved: Iterable[Solved], count: int = 4, *, most_characters: int = 4_000
) -> list[Solved]:
    """A few varied examples, in the order in which a prompt should show them.

    Every answer gets about as many as every other. Cases that the judge gets wrong come before
    others, then those that share the fewest words with what is chosen already (Jaccard), then the
    shorter. All of them together have at most so many characters. Equal input gives equal examples.
    """
    left = sorted(solved, key=lambda candidate: candidate.case)
    chosen: list[Solved] = []
    often: Counter[Any] = Counter()
    room = most_characters
    while len(chosen) < count:
        fitting = [candidate for candidate in left if candidate.size <= room]
        if not fitting:
            break
        answers = dict.fromkeys(candidate.example.answer for candidate in fitting)
        rarest = min(answers, key=lambda answer: (often[answer], str(answer)))
        best = min(
            (candidate for candidate in fitting if candidate.example.answer == rarest),
            key=lambda candidate: (
                not candidate.wrong,
                _likeness(candidate, chosen),
                candidate.size,
                candidate.case,
            ),
        )
        left.remove(best)
        chosen.append(best)
        often[rarest] += 1
        room -= best.size
    return chosen


def _likeness(candidate: Solved, chosen: Sequence[Solved]) -> float:
    """The largest share of words that an example has in common with one of those chosen."""
    words = candidate.words
    shares = (len(words & earlier.words) / (len(words | earlier.words) or 1) for earlier in chosen)
    return max(shares, default=0.0)
