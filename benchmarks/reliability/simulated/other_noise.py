"""Whole cards of judges whose noise is of another kind than that of `drawn_cards`.

Nothing was tuned on these: odds of three verdicts that are U-shaped over cases, a judge that
changes at once in the middle of the run, nodes that err together, ratings that flip to the next
point only, odds with a spike at coins, dialogues whose cases flip in bursts, drift beside wrong
labels, one failing case in fifty, a judge that always passes, and scores with heavy tails. The
truth is that of a hundred thousand cases.
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
from dagengine.reliability.observations import Condition, Observation
from dagengine.test_case import LLMTestCase

LARGE = 100_000
DIALOGUE = 5
FIVE = (0, 2, 5, 8, 10)
Turns = tuple[tuple[str, Any], ...]


@dataclass(frozen=True)
class Kind:
    """A kind of noise: the scores of a population's cases in all runs, with labels and paths.

    `draw` gives for so many cases and runs the scores (cases x runs), the labels (pass or fail)
    and what the nodes said by name (cases x runs each; None where a node was not asked).
    So many cases that follow each other are one `dialogue`. `shapes` are the numbers of cases
    and runs.
    """

    name: str
    metric: Callable[[], DAGMetric]
    draw: Callable[[np.random.Generator, int, int], tuple[Any, Any, Mapping[str, Any]]]
    shapes: Sequence[tuple[int, int]] = ((20, 5), (40, 9), (100, 3))
    dialogue: int = 1


def u_shaped(random: np.random.Generator, cases: int, runs: int) -> tuple[Any, Any, Any]:
    """Odds of three verdicts near the corners, most often the corner of the truth."""
    truth = random.integers(3, size=cases)
    alphas = np.full((cases, 3), 0.2)
    alphas[np.arange(cases), truth] = 0.8
    odds = random.standard_gamma(alphas) + 1e-12
    ends = (odds / odds.sum(1, keepdims=True)).cumsum(1)
    said = (random.random((cases, runs, 1)) > ends[:, None, :2]).sum(2)
    return said / 2, truth > 0, {"which": said}


def stepping(random: np.random.Generator, cases: int, runs: int) -> tuple[Any, Any, Any]:
    """From the middle of the run on a third of the cases is judged by other odds."""
    truth = random.random(cases) < 0.7
    wrong = random.choice([0.02, 0.15], size=cases)
    later = np.where(random.random(cases) < 1 / 3, random.choice([0.4, 0.9], size=cases), wrong)
    chance = np.where(np.arange(runs) < runs / 2, wrong[:, None], later[:, None])
    said = truth[:, None] ^ (random.random((cases, runs)) < chance)
    return said.astype(float), truth, {"good": said}


def together(random: np.random.Generator, cases: int, runs: int) -> tuple[Any, Any, Any]:
    """Two nodes, the second behind the first; half of their draws are one draw in common."""
    truth = random.random((cases, 2)) < 0.8
    wrong = random.choice([0.05, 0.3], size=(cases, 1))
    common, shared = random.random((cases, runs)), random.random((cases, runs)) < 0.5
    first, second = (
        truth[:, [node]] ^ (np.where(shared, common, random.random((cases, runs))) < wrong)
        for node in (0, 1)
    )
    none = np.full((cases, runs), None)
    scores = np.where(first, np.where(second, 1.0, 0.5), 0.0)
    return (
        scores,
        truth[:, 0],
        {"first": first, "second": np.where(first, second.astype(object), none)},
    )


def neighbours(random: np.random.Generator, cases: int, runs: int) -> tuple[Any, Any, Any]:
    """Five ordered verdicts, most of them high, of which only neighbours are mistaken."""
    worth = random.choice(5, size=(cases, 1), p=[0.03, 0.05, 0.12, 0.3, 0.5])
    odds = random.choice([0.02, 0.1, 0.4], size=(cases, 1))
    step = np.where(random.random((cases, runs)) < odds, random.choice([-1, 1], (cases, runs)), 0)
    said = np.clip(worth + step, 0, 4)
    return np.array(FIVE)[said] / 10, worth[:, 0] >= 2, {"which": said}


def spiked(random: np.random.Generator, cases: int, runs: int) -> tuple[Any, Any, Any]:
    """Odds of two beta distributions, and coins."""
    kind = random.choice(3, size=cases, p=[0.6, 0.25, 0.15])
    odds = np.choose(
        kind, [random.beta(0.5, 8, cases), random.beta(2, 5, cases), np.full(cases, 0.5)]
    )
    return _erring(random, 0.7, odds[:, None], cases, runs)


def bursting(random: np.random.Generator, cases: int, runs: int) -> tuple[Any, Any, Any]:
    """In some runs all cases of a dialogue are judged badly; in some dialogues never."""
    dialogues = -(-cases // DIALOGUE)
    often = random.choice([0.0, 0.1, 0.4], size=(dialogues, 1))
    burst = np.repeat(random.random((dialogues, runs)) < often, DIALOGUE, axis=0)[:cases]
    return _erring(random, 0.7, np.where(burst, 0.6, 0.02), cases, runs)


def drifting(random: np.random.Generator, cases: int, runs: int) -> tuple[Any, Any, Any]:
    """Errors grow over the run, and people are wrong about one case in seven."""
    first = random.choice([0.02, 0.2], size=(cases, 1))
    scores, truth, nodes = _erring(random, 0.8, first + 0.2 * np.arange(runs) / runs, cases, runs)
    return scores, truth ^ (random.random(cases) < 1 / 7), nodes


def seldom_failing(random: np.random.Generator, cases: int, runs: int) -> tuple[Any, Any, Any]:
    """One case in fifty fails, and is judged worse."""
    truth = random.random(cases) < 0.98
    said = truth[:, None] ^ (random.random((cases, runs)) < np.where(truth, 0.04, 0.4)[:, None])
    return said.astype(float), truth, {"good": said}


def skewed(random: np.random.Generator, cases: int, runs: int) -> tuple[Any, Any, Any]:
    """Odds that fall off over the cases."""
    return _erring(random, 0.6, random.beta(1, 4, size=(cases, 1)), cases, runs)


def passing(random: np.random.Generator, cases: int, runs: int) -> tuple[Any, Any, Any]:
    """Every case passes, always."""
    said = np.ones((cases, runs), bool)
    return said.astype(float), random.random(cases) < 0.8, {"good": said}


def far_cases(random: np.random.Generator, cases: int, runs: int) -> tuple[Any, Any, Any]:
    """The cases' own scores have heavy tails (t with three degrees of freedom)."""
    centre = 0.7 + 0.07 * random.standard_t(3, size=(cases, 1))
    return _rated(centre + 0.03 * random.standard_normal((cases, runs)))


def uneven_cases(random: np.random.Generator, cases: int, runs: int) -> tuple[Any, Any, Any]:
    """Some cases vary ten times as much as others (log-normal)."""
    spread = 0.03 * np.exp(random.standard_normal((cases, 1)))
    centre = 0.5 + 0.15 * random.standard_normal((cases, 1))
    return _rated(centre + spread * random.standard_normal((cases, runs)))


def one_in_ten(random: np.random.Generator, cases: int, runs: int) -> tuple[Any, Any, Any]:
    """Nine cases in ten are alike and sure, one is anywhere and noisy."""
    other = random.random((cases, 1)) < 0.1
    centre = np.where(other, random.random((cases, 1)), 0.9)
    spread = np.where(other, 0.2, 0.02)
    return _rated(centre + spread * random.standard_normal((cases, runs)))


def _erring(
    random: np.random.Generator, prevalence: float, odds: Any, cases: int, runs: int
) -> tuple[Any, Any, Any]:
    truth = random.random(cases) < prevalence
    said = truth[:, None] ^ (random.random((cases, runs)) < odds)
    return said.astype(float), truth, {"good": said}


def _rated(scores: Any) -> tuple[Any, Any, Any]:
    """Scores by hundredths; people find good what is above the middle on average."""
    seen = np.round(np.clip(scores, 0, 1), 2)
    return seen, seen.mean(1) > 0.5, {"rate": seen}


def _rating() -> DAGMetric:
    return DAGMetric("worth", DAG(RatingNode("How good?", ["input"], name="rate")), threshold=0.5)


def _five_verdicts() -> DAGMetric:
    then: Any = dict(zip("abcde", FIVE, strict=True))
    node = NonBinaryJudgementNode("Which?", name="which", evaluation_params=["input"], then=then)
    return DAGMetric("worth", DAG(node), threshold=0.5)


def _three_verdicts() -> DAGMetric:
    node = NonBinaryJudgementNode(
        "Which?", name="which", evaluation_params=["input"], then={"a": 0, "b": 5, "c": 10}
    )
    return DAGMetric("worth", DAG(node), threshold=0.5)


def _yes_or_no() -> DAGMetric:
    return DAGMetric("worth", DAG(_node("good", {True: 10, False: 0})), threshold=0.5)


def _two_nodes() -> DAGMetric:
    first = _node("first", {True: _node("second", {True: 10, False: 5}), False: 0})
    return DAGMetric("worth", DAG(first), threshold=0.5)


def _node(name: str, then: Mapping[Any, Any]) -> BinaryJudgementNode:
    return BinaryJudgementNode("So?", name=name, evaluation_params=["input"], then=then)


KINDS = (
    Kind("U-shaped odds of three verdicts", _three_verdicts, u_shaped),
    Kind("a step in the middle of the run", _yes_or_no, stepping),
    Kind("nodes that err together", _two_nodes, together),
    Kind("neighbours of five", _five_verdicts, neighbours),
    Kind("betas and a spike of coins", _yes_or_no, spiked),
    Kind("bursts by dialogue", _yes_or_no, bursting, ((40, 5), (100, 3), (200, 5)), DIALOGUE),
    Kind("drift and wrong labels", _yes_or_no, drifting),
    Kind("one in fifty fails", _yes_or_no, seldom_failing, ((20, 5), (100, 3), (300, 3))),
    Kind("skewed odds", _yes_or_no, skewed, ((12, 19),)),
    Kind("always passing", _yes_or_no, passing, ((20, 3), (100, 3))),
    Kind("scores of far cases", _rating, far_cases, ((10, 5), (20, 3), (40, 5))),
    Kind("scores of uneven cases", _rating, uneven_cases, ((10, 5), (20, 3), (40, 5))),
    Kind("scores, one in ten far", _rating, one_in_ten, ((10, 5), (20, 3), (40, 5))),
)


# The truth.


@cache
def truths(place: int, runs: int) -> dict[str, float]:
    """Of a large sample, by definition."""
    scores, labels, _ = KINDS[place].draw(np.random.default_rng(1), LARGE, runs)
    passing = scores >= 0.5
    said = passing.sum(1)
    majority = np.where(2 * said == runs, -1, 2 * said > runs)
    values = np.stack([(scores == value).sum(1) for value in np.unique(scores)])
    within, means = scores.var(1, ddof=1).mean(), scores.mean(1)
    between = means.var(ddof=1) - within / runs
    places = np.arange(runs) / (runs - 1) - 0.5
    agree = majority == labels
    share = np.array([[np.mean((majority == m) & (labels == k)) for m in (1, 0, -1)]
                      for k in (1, 0)])  # fmt: skip
    chance = float(share.sum(1) @ share.sum(0)[:2])
    pairs = runs * (runs - 1)
    whole = between + within
    found = {
        "flip-rate": np.mean(2 * said * (runs - said) / pairs),
        "pass-rate": passing.mean(),
        "score-flip-rate": 1 - np.mean((values * (values - 1)).sum(0) / pairs),
        "mean-score": scores.mean(),
        "score-spread": scores.std(1, ddof=1).mean(),
        "test-retest": between / whole if whole else math.nan,
        "drift": np.mean(scores @ places) / (places @ places),
        "total-agreement": np.mean(values.max(0) == runs),
        "majority-share": np.mean(values.max(0) / runs),
        "accuracy": agree.mean(),
        "single-run-accuracy": np.mean(passing == labels[:, None]),
        "kappa": (agree.mean() - chance) / (1 - chance),
        "baseline": max(labels.mean(), 1 - labels.mean()),
    }
    return {name: float(value) for name, value in found.items() if not math.isnan(value)}


# What is drawn.


def trials(step: int = 1) -> Iterator[Trial]:
    """Every kind with its numbers of cases and runs, or every `step`-th of them."""
    shapes = [(place, shape) for place, kind in enumerate(KINDS) for shape in kind.shapes]
    for place, (cases, runs) in shapes[::step]:
        kind = KINDS[place]

        def answers(
            random: Random, kind: Kind = kind, cases: int = cases, runs: int = runs
        ) -> dict[str, Answer]:
            return dict(_figures(kind, random, cases, runs))

        yield Trial(f"{kind.name}, {cases}x{runs}", truths(place, runs), answers)


def _figures(kind: Kind, random: Random, cases: int, runs: int) -> Iterator[tuple[str, Answer]]:
    generator = np.random.default_rng(random.randrange(2**32))
    scores, labels, nodes = kind.draw(generator, cases, runs)
    seen: list[Observation] = []
    for case in range(cases):
        for run in range(runs):
            seen += _observed(case, run, float(scores[case, run]), nodes)
    data = [
        LLMTestCase(input=str(case), additional_metadata={"dialogue": case // kind.dialogue})
        for case in range(cases)
    ]
    meant = {case: bool(label) for case, label in enumerate(labels)}
    groups = "additional_metadata.dialogue" if kind.dialogue > 1 else None
    card = make_card(seen, [kind.metric()], data, ["drawn"], labels=meant, groups=groups)
    yield from ((one.name, one) for one in card.metrics[0].settings[0].measures)


def _observed(
    case: int, run: int, score: float, nodes: Mapping[str, Sequence[Sequence[Any]]]
) -> Iterator[Observation]:
    at = Condition(run)
    if "rate" in nodes:
        yield Observation(case, "worth", "", at, None, score)
        yield Observation(case, "worth", "rate", at, None, score)
        return
    said = [(node, _verdict(node, found[case][run])) for node, found in nodes.items()]
    path: Turns = tuple((node, verdict) for node, verdict in said if verdict is not None)
    yield Observation(case, "worth", "", at, None, score, path=path)
    yield from (Observation(case, "worth", node, at, verdict) for node, verdict in path)


def _verdict(node: str, said: Any) -> Any:
    if said is None:
        return None
    return "abcde"[int(said)] if node == "which" else bool(said)
