"""Whole cards of judges whose noise is of another kind than that of `drawn_cards`.

Nothing was tuned on these: odds of three verdicts that are U-shaped over cases, a judge that
changes at once in the middle of the run, and nodes that err together. The truth is that of a
hundred thousand cases.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import Any

import numpy as np
from rows import Answer, Trial

from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode, NonBinaryJudgementNode
from dagengine.reliability.card import make_card
from dagengine.reliability.observations import Condition, Observation
from dagengine.test_case import LLMTestCase

LARGE = 100_000
Turns = tuple[tuple[str, Any], ...]


@dataclass(frozen=True)
class Kind:
    """A kind of noise: the scores of a population's cases in all runs, with labels and paths.

    `draw` gives for so many cases and runs the scores (cases x runs), the labels (pass or fail)
    and what the nodes said by name (cases x runs each; None where a node was not asked).
    """

    name: str
    metric: Callable[[], DAGMetric]
    draw: Callable[[np.random.Generator, int, int], tuple[Any, Any, Mapping[str, Any]]]


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
    found = {
        "flip-rate": np.mean(2 * said * (runs - said) / pairs),
        "pass-rate": passing.mean(),
        "score-flip-rate": 1 - np.mean((values * (values - 1)).sum(0) / pairs),
        "mean-score": scores.mean(),
        "score-spread": scores.std(1, ddof=1).mean(),
        "test-retest": between / (between + within),
        "drift": np.mean(scores @ places) / (places @ places),
        "total-agreement": np.mean(values.max(0) == runs),
        "majority-share": np.mean(values.max(0) / runs),
        "accuracy": agree.mean(),
        "single-run-accuracy": np.mean(passing == labels[:, None]),
        "kappa": (agree.mean() - chance) / (1 - chance),
        "baseline": max(labels.mean(), 1 - labels.mean()),
    }
    return {name: float(value) for name, value in found.items()}


# What is drawn.


def trials() -> Iterator[Trial]:
    """Every kind with few and many cases and runs."""
    for place, kind in enumerate(KINDS):
        for cases, runs in ((20, 5), (40, 9), (100, 3)):

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
    data = [LLMTestCase(input=str(case)) for case in range(cases)]
    meant = {case: bool(label) for case, label in enumerate(labels)}
    card = make_card(seen, [kind.metric()], data, ["drawn"], labels=meant)
    yield from ((one.name, one) for one in card.metrics[0].settings[0].measures)


def _observed(
    case: int, run: int, score: float, nodes: Mapping[str, Sequence[Sequence[Any]]]
) -> Iterator[Observation]:
    at = Condition(run)
    said = [(node, _verdict(node, found[case][run])) for node, found in nodes.items()]
    path: Turns = tuple((node, verdict) for node, verdict in said if verdict is not None)
    yield Observation(case, "worth", "", at, None, score, path=path)
    yield from (Observation(case, "worth", node, at, verdict) for node, verdict in path)


def _verdict(node: str, said: Any) -> Any:
    if said is None:
        return None
    return "abc"[int(said)] if node == "which" else bool(said)
