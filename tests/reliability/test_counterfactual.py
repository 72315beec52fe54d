"""Replayed with what was said, every metric gives the score that it had."""

from __future__ import annotations

from typing import Any

import pytest
from graphs.contract import case_for, judge, make, metric_classes
from graphs.random_graphs import Script, build, drawings
from hypothesis import assume, given, settings

from dagengine.errors import GraphError
from dagengine.evaluation import evaluate
from dagengine.graph.graph import Metric
from dagengine.metrics import DAGMetric
from dagengine.metrics.common.prebuilt import PrebuiltMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode, CodeNode, RatingNode
from dagengine.reliability.counterfactual import Counterfactual, Reply
from dagengine.results import MetricResult
from dagengine.test_case import LLMTestCase, TestCase

CASE = LLMTestCase(input="the input", context=["first", "second"])


def replayed(metric: Metric, result: MetricResult, case: TestCase) -> float | None:
    """The score that a metric's recorded steps lead to."""
    replay = Counterfactual(metric)
    said = {replay.name_of(s.node): Reply(s.verdict, s.score) for s in result.steps}
    return replay.score(said, case)


@settings(max_examples=30)
@given(drawings())
def test_random_graphs_give_back_their_scores(drawing: dict[str, Any]) -> None:
    script = Script()
    metric = DAGMetric("m", build(drawing, script), combine=drawing["combine"])
    try:
        metric.spec()
        result = evaluate([CASE], [metric], model=script.judge(), show=False)[0].metrics[0]
    except GraphError:
        assume(False)
        return
    assume(result.score is not None)
    assert replayed(metric, result, CASE) == result.score


@pytest.mark.parametrize("kind", metric_classes(), ids=lambda kind: kind.__name__)
def test_every_metric_gives_back_its_score(kind: type[PrebuiltMetric]) -> None:
    metric = make(kind)
    case = case_for(metric)
    result = evaluate([case], [metric], model=judge(0), show=False)[0].metrics[0]
    if result.score is not None:
        assert replayed(metric, result, case) == pytest.approx(result.score)


def test_code_reads_the_case_again_and_gets_ratings_on_their_scale() -> None:
    rating = RatingNode("How good?", ["input"], scale=(1, 5), name="rating")
    mixed = CodeNode(
        lambda text, stars: (len(text) + stars) / 10,
        evaluation_params=["input"],
        inputs=[rating],
        name="mixed",
    )
    replay = Counterfactual(DAGMetric("mixed", DAG(root_nodes=[rating, mixed])))
    assert replay.score({"rating": Reply(score=0.5)}, LLMTestCase(input="abc")) == 0.6


def test_code_that_fails_on_answers_that_did_not_occur_gives_no_score() -> None:
    picky = CodeNode(lambda found: {True: 1}[found.verdict], name="picky")
    asked = BinaryJudgementNode(
        "Good?", then={True: picky, False: picky}, name="asked", evaluation_params=["input"]
    )
    picky.inputs = (asked,)
    replay = Counterfactual(DAGMetric("picky", DAG(asked)))
    assert replay.score({"asked": Reply(verdict=True)}, CASE) == 1
    assert replay.score({"asked": Reply(verdict=False)}, CASE) is None


def test_strict_metrics_are_replayed_strictly() -> None:
    asked = BinaryJudgementNode(
        "Good?", then={True: 9, False: 0}, name="asked", evaluation_params=["input"]
    )
    replay = Counterfactual(DAGMetric("strict", DAG(asked), strict_mode=True))
    assert replay.score({"asked": Reply(verdict=True)}) == 0
