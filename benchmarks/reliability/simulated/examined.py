"""Whole cards of judges that do what real ones do: the populations of an examination.

Dialogues of which turns are labelled, many labels, cases that ran differently often, answers that
cannot be parsed where a case is hard, copied answers, shocks that a run shares, people without a
gold label, labels on the first part of a mix that drifts, continuous scores of few cases, groups of
unequal size. Where a card refuses a figure, the row says how often; it counts as neither.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import Any

import numpy as np
from rows import Answer, Trial

from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode, NonBinaryJudgementNode, RatingNode
from dagengine.reliability.card import make_card
from dagengine.reliability.card.label_agreement import (
    LabelledRuns,
    compare_with_labels,
    corrected_figures,
)
from dagengine.reliability.card.repeats import again, not_repeats
from dagengine.reliability.card.types import Figure, JudgeCard
from dagengine.reliability.counterfactual import Counterfactual
from dagengine.reliability.human_labels import HumanLabels, labels_for, on_scale
from dagengine.reliability.observations import Condition, Observation
from dagengine.reliability.observed_runs import clusters, runs_of
from dagengine.results import OutcomeKind
from dagengine.test_case import LLMTestCase

LARGE = 100_000
LABELS = "abcdefgh"


@dataclass(frozen=True)
class Drawn:
    """One benchmark: what each run said (not a number: nothing), and what people say.

    `whole` is what would have been said had nothing been lost or copied, which the truth is about.
    `nodes` is what each of two nodes said, of which the second is asked after a yes of the first;
    `odds` are their chances of a yes, case by case. `texts` tell the answers of a case apart,
    `lengths` is how long what is judged is.
    """

    said: Any
    labels: Any
    groups: Any = None
    labelled: Any = None
    runs: Any = None
    whole: Any = None
    people: Any = None
    nodes: Any = None
    odds: Any = None
    texts: Any = None
    lengths: Any = None


Draw = Callable[[np.random.Generator, int, int], Drawn]


@dataclass(frozen=True)
class Kind:
    """A population, the figures that are examined, and their truth from a large sample."""

    name: str
    draw: Draw
    truth: Callable[[Drawn], Mapping[str, float]]
    shapes: Sequence[tuple[int, int]] = ((100, 3), (300, 3))
    metric: str = "yes or no"
    random: bool = False
    scale: tuple[float, float] | None = None


def dialogues(random: np.random.Generator, cases: int, runs: int) -> Drawn:
    """Ten turns each; how good and how hard they are is the dialogue's; a third has labels."""
    count = -(-cases // 10)
    good = np.repeat(random.beta(2, 1, count), 10)[:cases]
    wrong = np.repeat(random.choice([0.02, 0.4], count), 10)[:cases]
    truth = random.random(cases) < good
    chosen = np.zeros(cases, bool)
    chosen[random.permutation(cases)[: cases // 3]] = True
    said = truth[:, None] ^ (random.random((cases, runs)) < wrong[:, None])
    return Drawn(said, truth, np.repeat(np.arange(count), 10)[:cases], chosen)


def many_labels(random: np.random.Generator, cases: int, runs: int) -> Drawn:
    """Eight labels, all as frequent, met in 85 of 100 cases."""
    truth = random.integers(8, size=cases)
    own = np.where(random.random(cases) < 0.85, truth, random.integers(8, size=cases))
    return Drawn(np.repeat(own[:, None], runs, 1), truth)


def six_rare_labels(random: np.random.Generator, cases: int, runs: int) -> Drawn:
    """Six labels; each is met in 60 to 95 of 100 cases, the frequent ones more often."""
    truth = random.choice(6, size=cases, p=[0.3, 0.2, 0.2, 0.1, 0.1, 0.1])
    met = random.random(cases) < np.array([0.95, 0.9, 0.85, 0.75, 0.7, 0.6])[truth]
    own = np.where(met, truth, (truth + 1 + random.integers(5, size=cases)) % 6)
    return Drawn(np.repeat(own[:, None], runs, 1), truth)


def uneven_runs(random: np.random.Generator, cases: int, runs: int) -> Drawn:
    """A third of the cases is hard and ran nine times, the others ran twice."""
    hard = random.random(cases) < 1 / 3
    truth = random.random(cases) < 0.7
    wrong = np.where(hard, 0.35, 0.03)
    said = truth[:, None] ^ (random.random((cases, 9)) < wrong[:, None])
    return Drawn(said, truth, runs=np.where(hard, 9, 2))


def lost_where_hard(random: np.random.Generator, cases: int, runs: int) -> Drawn:
    """On hard cases half of the answers cannot be parsed."""
    hard = random.random(cases) < 0.3
    truth = random.random(cases) < 0.7
    said = truth[:, None] ^ (random.random((cases, runs)) < np.where(hard, 0.45, 0.03)[:, None])
    lost = random.random((cases, runs)) < np.where(hard, 0.5, 0.02)[:, None]
    return Drawn(np.where(lost, np.nan, said), truth, whole=said)


def copies(random: np.random.Generator, whole: Any) -> Any:
    """Seven of ten answers are those of the run before."""
    said = whole.copy()
    for run in range(1, whole.shape[1]):
        again = random.random(len(whole)) < 0.7
        said[again, run] = said[again, run - 1]
    return said


def update(random: np.random.Generator, whole: Any) -> Any:
    """From the middle on a quarter of what passes fails."""
    said, half = whole.copy(), whole.shape[1] // 2
    said[:, half:] &= random.random((len(whole), whole.shape[1] - half)) > 0.25
    return said


def breakage(random: np.random.Generator, whole: Any) -> Any:
    """One run answers at random."""
    said = whole.copy()
    said[:, random.integers(whole.shape[1])] = random.random(len(whole)) < 0.5
    return said


def noisy(shock: Callable[[np.random.Generator, Any], Any]) -> Draw:
    """Cases that are noisier than others, and a shock."""

    def draw(random: np.random.Generator, cases: int, runs: int) -> Drawn:
        truth, whole = _noisy(random, cases, runs)
        return Drawn(shock(random, whole), truth, whole=whole)

    return draw


def _two_nodes(
    random: np.random.Generator, cases: int, runs: int, shock: Callable[[Any], Any]
) -> Drawn:
    """Two nodes that flip by themselves, of which a shock changes answers of the second."""
    odds = np.stack([
        random.choice([0.98, 0.85, 0.02], size=cases, p=[0.5, 0.3, 0.2]),
        random.choice([0.97, 0.7, 0.1], size=cases, p=[0.5, 0.25, 0.25]),
    ])  # fmt: skip
    first, second = random.random((2, cases, runs)) < odds[:, :, None]
    second = shock(second)
    return Drawn(first & second, odds.prod(0) > 0.5, nodes=(first, second), odds=odds)


def _updated_by(share: float) -> Draw:
    """From the middle on this share of what the second node passes fails."""

    def draw(random: np.random.Generator, cases: int, runs: int) -> Drawn:
        def shock(said: Any) -> Any:
            kept = random.random(said.shape) > share
            kept[:, : runs // 2] = True
            return said & kept

        return _two_nodes(random, cases, runs, shock)

    return draw


def _broken_by(share: float) -> Draw:
    """In one run this share of the second node's answers is random."""

    def draw(random: np.random.Generator, cases: int, runs: int) -> Drawn:
        def shock(said: Any) -> Any:
            broken = np.zeros(said.shape, bool)
            broken[:, random.integers(runs)] = random.random(cases) < share
            return np.where(broken, random.random(said.shape) < 0.5, said)

        return _two_nodes(random, cases, runs, shock)

    return draw


def five_people(random: np.random.Generator, cases: int, runs: int) -> Drawn:
    """Five people, each case with its own share of people who would pass it."""
    share = random.beta(0.8, 0.5, cases)
    people = random.random((cases, 5)) < share[:, None]
    said = (share[:, None] > 0.5) ^ (random.random((cases, runs)) < 0.1)
    return Drawn(said, people.sum(1) > 2, people=people, whole=share)


def mix_drifts(random: np.random.Generator, cases: int, runs: int) -> Drawn:
    """Later cases fail more often; the first third has labels, said to be random."""
    place = np.arange(cases) / cases
    truth = random.random(cases) < 0.85 - 0.4 * place
    wrong = np.where(place < 1 / 3, 0.05, 0.2)
    said = truth[:, None] ^ (random.random((cases, runs)) < wrong[:, None])
    return Drawn(said, truth, labelled=place < 1 / 3)


def continuous(random: np.random.Generator, cases: int, runs: int) -> Drawn:
    """Half of the cases always get 1, the others any number by hundredths."""
    sure = random.random(cases) < 0.5
    centre = random.beta(4, 2, cases)
    spread = np.clip(centre[:, None] + 0.1 * random.standard_normal((cases, runs)), 0, 1)
    said = np.where(sure[:, None], 1.0, np.round(spread, 2))
    return Drawn(said, said.mean(1) > 0.5)


def varying(random: np.random.Generator, cases: int, runs: int) -> Drawn:
    """Every case gets any number, by thousandths."""
    said = np.round(random.beta(4, 2, (cases, 1)) * random.beta(9, 1, (cases, runs)), 3)
    return Drawn(said, said.mean(1) > 0.5)


def unequal_groups(random: np.random.Generator, cases: int, runs: int) -> Drawn:
    """Groups of 2 to 30 cases; the large ones are harder."""
    sizes: list[int] = []
    while sum(sizes) < cases:
        sizes.append(int(random.choice([2, 3, 5, 10, 30])))
    names = np.repeat(np.arange(len(sizes)), sizes)[:cases]
    size = np.repeat(sizes, sizes)[:cases]
    own = np.repeat(random.beta(3, 3, len(sizes)), sizes)[:cases]
    truth = random.random(cases) < np.repeat(random.beta(3, 2, len(sizes)), sizes)[:cases]
    wrong = np.where(size >= 10, 0.15 + 0.4 * own, 0.05)
    said = truth[:, None] ^ (random.random((cases, runs)) < wrong[:, None])
    return Drawn(said, truth, names)


def _noisy(random: np.random.Generator, cases: int, runs: int) -> tuple[Any, Any]:
    truth = random.random(cases) < 0.7
    wrong = random.choice([0.0, 0.15, 0.3, 0.5], size=(cases, 1), p=[0.5, 0.25, 0.15, 0.1])
    return truth, truth[:, None] ^ (random.random((cases, runs)) < wrong)


# The truth.


def _agreement(drawn: Drawn) -> dict[str, float]:
    """Of the majority of the runs, as the card has it: a tie is right about nothing."""
    said = drawn.said if drawn.whole is None else drawn.whole
    runs = said.shape[1]
    votes = said.sum(1)
    majority = np.where(2 * votes == runs, -1, 2 * votes > runs)
    truth = drawn.labels.astype(int)
    agree = float((majority == truth).mean())
    chance = sum(float((majority == k).mean() * (truth == k).mean()) for k in (0, 1))
    return {
        "accuracy": agree,
        "kappa": (agree - chance) / (1 - chance),
        "sensitivity of pass": float((majority == 1)[truth == 1].mean()),
        "specificity of pass": float((majority == 0)[truth == 0].mean()),
        "single-run-accuracy": float((said == truth[:, None]).mean()),
    }


def _flips(drawn: Drawn) -> dict[str, float]:
    said = drawn.said if drawn.whole is None else drawn.whole
    votes, runs = said.sum(1), said.shape[1]
    return {"flip-rate": float(np.mean(2 * votes * (runs - votes) / (runs * (runs - 1))))}


def _scores_flip(drawn: Drawn) -> dict[str, float]:
    scores = drawn.said
    runs = scores.shape[1]
    same = (scores[:, :, None] == scores[:, None, :]).sum((1, 2)) - runs
    return {"score-flip-rate": float(1 - same.mean() / (runs * (runs - 1)))}


def _balanced(drawn: Drawn) -> dict[str, float]:
    hits = drawn.said[:, 0] == drawn.labels
    kinds = np.unique(drawn.labels)
    return {"balanced-accuracy": float(np.mean([hits[drawn.labels == k].mean() for k in kinds]))}


def _corrected(drawn: Drawn) -> dict[str, float]:
    return {"corrected-pass-rate": float(drawn.labels.mean())}


def _uneven(drawn: Drawn) -> dict[str, float]:
    hard = drawn.runs == 9
    p = np.where(hard, np.where(drawn.labels, 0.65, 0.35), np.where(drawn.labels, 0.97, 0.03))
    within = float((p * (1 - p)).mean())
    right = float(np.where(hard, 0.65, 0.97).mean())
    return {
        "test-retest": float(p.var() / (p.var() + within)),
        "accuracy": right,
        "single-run-accuracy": right,
        "flip-rate": 2 * within,
    }


def _moved(drawn: Drawn) -> dict[str, float]:
    places = np.arange(drawn.said.shape[1]) / (drawn.said.shape[1] - 1) - 0.5
    return {
        "drift": float(np.mean(drawn.said @ places) / (places @ places)), **_flips(drawn),
    }  # fmt: skip


def of_two_nodes(drawn: Drawn) -> dict[str, float]:
    """Without the shock: flips with one vote and three, and Shapley effects of the two nodes."""
    first, second = drawn.odds
    passes = first * second
    most = passes**2 * (3 - 2 * passes)
    whole = passes * (1 - passes)
    alone = second**2 * first * (1 - first), first**2 * second * (1 - second)
    return {
        "flip-rate": float(2 * whole.mean()),
        "flips with 3 votes": float(2 * (most * (1 - most)).mean()),
        "share of first": float((alone[0] + whole - alone[1]).sum() / (2 * whole.sum())),
        "share of good": float((alone[1] + whole - alone[0]).sum() / (2 * whole.sum())),
    }


def _updated_nodes(drawn: Drawn) -> dict[str, float]:
    return {**_moved(drawn), **of_two_nodes(drawn)}


def _ceiling(drawn: Drawn) -> dict[str, float]:
    return {"ceiling": float(np.maximum(drawn.whole, 1 - drawn.whole).mean())}


KINDS = (
    Kind("dialogues, a third labelled", dialogues, _corrected, ((100, 1), (300, 1)), random=True),
    Kind("eight labels", many_labels, _balanced, ((40, 1), (100, 1), (300, 1)), "eight"),
    Kind("six labels, some rare", six_rare_labels, _balanced, ((60, 1), (298, 1)), "eight"),
    Kind("hard cases ran nine times, others twice", uneven_runs, _uneven, ((100, 2), (298, 2))),
    Kind("lost where hard", lost_where_hard, _agreement, ((100, 3), (298, 5))),
    Kind("70 % copied", noisy(copies), _flips, ((100, 5), (298, 5), (298, 10))),
    Kind("updated half-way", noisy(update), _moved, ((100, 6), (298, 10))),
    Kind("one broken run", noisy(breakage), _flips, ((100, 5), (298, 10))),
    *(Kind(f"two nodes, {100 * share:.0f} % of one updated half-way", _updated_by(share),
           _updated_nodes, ((100, 8), (298, 8)), "tree") for share in (0.05, 0.25)),
    *(Kind(f"two nodes, {100 * share:.0f} % of one run broken", _broken_by(share), of_two_nodes,
           ((100, 8), (298, 8)), "tree") for share in (0.1, 1.0)),
    Kind("five people", five_people, _ceiling, ((40, 3), (298, 3))),
    Kind("mix drifts, first third labelled", mix_drifts, _corrected, ((150, 1), (298, 1)),
         random=True),
    Kind("continuous scores, half sure", continuous, _scores_flip, ((10, 5), (20, 5)), "rating"),
    Kind("continuous scores", varying, _scores_flip, ((10, 5), (20, 5)), "rating"),
    Kind("unequal groups, large ones harder", unequal_groups, _agreement, ((150, 3), (298, 3))),
)  # fmt: skip


@cache
def truths(kind: Kind, runs: int) -> Mapping[str, float]:
    """Of a large sample, by definition."""
    return kind.truth(kind.draw(np.random.default_rng(1), LARGE, runs))


# What is drawn.


def metric(kind: str) -> DAGMetric:
    """One node that says what the population says."""
    if kind == "rating":
        node: Any = RatingNode("How good?", ["input"], name="good")
    elif kind == "tree":
        good = BinaryJudgementNode(
            "So?", name="good", evaluation_params=["input"], then={True: 10, False: 0}
        )
        node = BinaryJudgementNode(
            "First?", name="first", evaluation_params=["input"], then={True: good, False: 0}
        )
    elif kind == "eight":
        then: Any = {label: k for k, label in enumerate(LABELS)}
        node = NonBinaryJudgementNode("So?", name="good", evaluation_params=["input"], then=then)
    else:
        node = BinaryJudgementNode(
            "So?", name="good", evaluation_params=["input"], then={True: 10, False: 0}
        )
    return DAGMetric("good", DAG(node), threshold=0.5)


def card_of(kind: Kind, random: Random, cases: int, runs: int) -> JudgeCard:
    """The card of one benchmark."""
    made = made_of(kind, random, cases, runs)
    return make_card(
        made.seen, [metric(kind.metric)], made.data, ["drawn"], labels=made.labels,
        groups=made.groups, labels_random=kind.random, label_scale=kind.scale,
    )  # fmt: skip


def figures_of(kind: Kind, random: Random, cases: int, runs: int) -> Iterator[Figure]:
    """The figures of that card which are examined, made as the card makes them, in less time."""
    made, replay = made_of(kind, random, cases, runs), _replay(kind.metric)
    of = runs_of(made.seen, replay, clusters(made.data, (), made.groups))
    yield from map(not_repeats(of, 0.5).without, again(of, 0.5))
    given = HumanLabels(made.data, made.labels).by_case
    labels = labels_for(given, replay, made.data)
    if kind.scale is not None:
        labels = on_scale(labels, kind.scale)
    marked = LabelledRuns(of, 0.5, labels)
    yield from compare_with_labels(marked)
    places = {"place in the file": range(cases)}
    for corrected in corrected_figures(marked, kind.random, places):
        yield corrected.estimate


def shocked(kind: Kind, random: Random, cases: int, runs: int) -> Iterator[tuple[str, Figure]]:
    """Votes and blame, by name, which runs that are not repeats do not have."""
    card = card_of(kind, random, cases, runs)
    under = card.metrics[0].settings[0]
    yield from ((figure.name, figure) for figure in under.again)
    yield from ((f"flips with {voted.votes} votes", voted.flips) for voted in under.voted)
    yield from ((f"share of {node.node}", node.share) for node in under.nodes)


@cache
def _replay(kind: str) -> Counterfactual:
    return Counterfactual(metric(kind))


@dataclass(frozen=True)
class Made:
    """What a card is made of."""

    seen: Sequence[Observation]
    data: Sequence[LLMTestCase]
    labels: Mapping[int, Any]
    groups: str | None


def made_of(kind: Kind, random: Random, cases: int, runs: int) -> Made:
    """What is drawn, as a card takes it."""
    drawn = kind.draw(np.random.default_rng(random.randrange(2**32)), cases, runs)
    seen = [
        row
        for case in range(cases)
        for run in range(drawn.said.shape[1] if drawn.runs is None else int(drawn.runs[case]))
        for row in (
            _observed(
                case,
                Condition(run),
                drawn.said[case, run],
                kind.metric,
                None if drawn.texts is None else str(drawn.texts[case, run]),
            )
            if drawn.nodes is None
            else _walked(case, Condition(run), [bool(node[case, run]) for node in drawn.nodes])
        )
    ]
    data = [
        LLMTestCase(
            input=str(case),
            actual_output=None if drawn.lengths is None else "x" * int(drawn.lengths[case]),
            additional_metadata=None if drawn.groups is None else {"of": int(drawn.groups[case])},
        )
        for case in range(cases)
    ]
    chosen = range(cases) if drawn.labelled is None else np.flatnonzero(drawn.labelled).tolist()
    labels = {case: _label(drawn, case, kind.metric) for case in chosen}
    groups = None if drawn.groups is None else "additional_metadata.of"
    return Made(seen, data, labels, groups)


def _label(drawn: Drawn, case: int, kind: str) -> Any:
    if drawn.people is not None:
        return [bool(person) for person in drawn.people[case]]
    if kind == "eight":
        return LABELS[int(drawn.labels[case])]
    label = drawn.labels[case]
    return float(label) if drawn.labels.dtype.kind == "f" else bool(label)


def _observed(
    case: int, at: Condition, said: Any, kind: str, text: str | None = None
) -> Iterator[Observation]:
    if math.isnan(float(said)):
        yield Observation(case, "good", "", at, outcome=OutcomeKind.UNPARSEABLE)
        return
    if kind == "rating":
        yield Observation(case, "good", "", at, None, float(said))
        yield Observation(case, "good", "good", at, None, float(said))
        return
    verdict = LABELS[int(said)] if kind == "eight" else bool(said)
    score = int(said) / 10 if kind == "eight" else float(said)
    yield Observation(case, "good", "", at, None, score, raw=text, path=(("good", verdict),))
    yield Observation(case, "good", "good", at, verdict)


def _walked(case: int, at: Condition, answers: Sequence[bool]) -> Iterator[Observation]:
    """What one run of two nodes leaves: the second is asked after a yes of the first."""
    path = tuple(zip(("first", "good"), answers[: 1 + answers[0]], strict=False))
    yield Observation(case, "good", "", at, None, float(all(answers)), path=path)
    yield from (Observation(case, "good", node, at, answer) for node, answer in path)


def trials() -> Iterator[Trial]:
    """Every population with its numbers of cases and runs."""
    return trials_of(KINDS)


def trials_of(kinds: Sequence[Kind]) -> Iterator[Trial]:
    """Every population with its numbers of cases and runs."""
    for kind in kinds:
        for cases, runs in kind.shapes:

            def answers(
                random: Random, kind: Kind = kind, cases: int = cases, runs: int = runs
            ) -> dict[str, Answer]:
                if kind.metric == "tree":
                    return dict(shocked(kind, random, cases, runs))
                return {
                    f"{figure.name}{' of pass' if '“pass”' in figure.level else ''}": figure
                    for figure in figures_of(kind, random, cases, runs)
                }

            yield Trial(f"{kind.name}, {cases}x{runs}", truths(kind, runs), answers)
