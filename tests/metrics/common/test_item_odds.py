"""Odds of scores over lists equal brute force, and metrics that take them say what is unknown."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
from graphs.contract import case_for, judge, make, metric_classes
from hypothesis import given
from hypothesis import strategies as st
from servers.decision_server import DecisionServer, always

from dagengine import evaluate
from dagengine.graph.node_values import Judgement
from dagengine.judges import DecisionJudge
from dagengine.metrics import (
    AnswerRelevancyMetric,
    ContextualPrecisionMetric,
    ContextualRecallMetric,
    ContextualRelevancyMetric,
    FactualCorrectness,
    FaithfulnessMetric,
    RagasMetric,
)
from dagengine.metrics.common.prebuilt import MOST_ENUMERATED, order_odds, share, share_odds
from dagengine.metrics.contextual_precision import mean_precision
from dagengine.metrics.dag import DAG, CodeNode, DAGMetric, MapNode
from dagengine.results import MetricResult
from dagengine.test_case import LLMTestCase
from dagengine.voting import voted

VERDICTS = ("yes", "idk", "no")
GOOD = ("yes", "idk")


@st.composite
def judged(draw: st.DrawFn) -> Judgement:
    """A judgement with odds, or one that stands as it is."""
    weights = [draw(st.integers(0, 5)) for _ in VERDICTS]
    weights[0] += not sum(weights)
    if draw(st.booleans()) and draw(st.booleans()):
        return Judgement(verdict=draw(st.sampled_from(VERDICTS)))
    odds = tuple((v, w / sum(weights)) for v, w in zip(VERDICTS, weights, strict=True))
    return Judgement(verdict=max(odds, key=lambda one: one[1])[0], odds=odds)


def brute_force(judgements: list[Judgement], score: Any) -> dict[float, float]:
    """Every combination of verdicts, with the score that the metric itself gives it."""
    found: dict[float, float] = {}
    odds = [one.odds or ((one.verdict, 1.0),) for one in judgements]
    for combination in itertools.product(*odds):
        number = score([Judgement(verdict=verdict) for verdict, _ in combination]).score
        found[number] = found.get(number, 0.0) + math.prod(chance for _, chance in combination)
    return {number: mass for number, mass in found.items() if mass > 0}


def good_share(judgements: list[Judgement]) -> Any:
    items = [str(place) for place in range(len(judgements))]
    return share(items, judgements, GOOD, what="items", passed="good", empty=1.0)


@given(st.lists(judged(), max_size=6))
def test_the_odds_of_a_share_and_of_an_order_equal_brute_force(items: list[Judgement]) -> None:
    for score in (good_share, mean_precision):
        odds: Any = score(items).odds
        if all(one.odds is None for one in items):
            assert odds is None
        else:
            assert dict(odds) == pytest.approx(brute_force(items, score))


def test_long_lists_have_the_odds_of_their_share_and_not_of_their_order() -> None:
    items = [Judgement(verdict="yes", odds=(("yes", 0.75), ("no", 0.25)))] * 300
    odds = share_odds(items, ("yes",))
    assert odds is not None
    assert math.fsum(mass for _, mass in odds) == pytest.approx(1)
    assert math.fsum(number * mass for number, mass in odds) == pytest.approx(0.75)
    spread = math.fsum((number - 0.75) ** 2 * mass for number, mass in odds)
    assert spread == pytest.approx(0.75 * 0.25 / 300)
    assert mean_precision(items[: MOST_ENUMERATED + 1]).odds is None
    assert order_odds(items[:MOST_ENUMERATED], ("yes",), lambda hits: sum(hits) / 10) is not None


def result_of(metric: Any, *chances: float, case: Any = None) -> MetricResult:
    with DecisionServer(always(*chances)) as server:
        model = DecisionJudge(base_url=server.base_url, writer=judge(0))
        case = case or case_for(metric)
        result: MetricResult = (
            evaluate([case], [metric], model=model, show=False).rows[0].metrics[0]
        )
    return result


@pytest.mark.parametrize("kind", [AnswerRelevancyMetric, FaithfulnessMetric])
def test_a_share_has_an_expected_score_and_a_chance_to_pass(kind: Any) -> None:
    result = result_of(kind(threshold=1.0), 0.5, 0.25, 0.25)
    (step,) = [one for one in result.steps if one.item_odds]
    items = len(step.item_odds)
    assert items > 0
    assert result.score == 1.0  # yes is likeliest for every item
    assert result.odds is not None
    assert result.odds.unknown == 0
    assert result.odds.expected == pytest.approx(0.75)
    assert result.odds.pass_bounds == pytest.approx((0.75**items, 0.75**items))
    expected = result_of(kind(threshold=1.0, expected=True), 0.5, 0.25, 0.25)
    assert expected.score == pytest.approx(0.75)
    assert (expected.success, expected.mode) == (False, "expected")


def test_contextual_metrics_have_theirs() -> None:
    case = LLMTestCase(
        input="a", actual_output="b", expected_output="One. Two.", retrieval_context=["c", "d"]
    )
    result = result_of(ContextualRecallMetric(), 0.8, 0.2, case=case)
    assert result.odds is not None
    assert result.odds.expected == pytest.approx(0.8)
    result = result_of(ContextualRelevancyMetric(), 0.8, 0.2, case=case)
    assert [len(step.item_odds) for step in result.steps if step.item_odds] == [2]
    assert result.odds is not None
    assert result.odds.expected == pytest.approx(0.8)
    assert result.odds.unknown == 0
    result = result_of(ContextualPrecisionMetric(), 0.8, 0.2, case=case)
    assert result.odds is not None  # 1 unless the second alone is relevant, or none
    assert result.odds.expected == pytest.approx(0.8 + 0.2 * 0.8 / 2)


def test_scores_of_several_lists_are_known_as_they_stand_and_unknown_otherwise() -> None:
    for kind in (FactualCorrectness, RagasMetric):
        result = result_of(kind(expected=True), 0.9, 0.1)
        assert result.odds is not None
        listed = [odds for step in result.steps for odds in step.item_odds]
        sure = math.prod(max(chance for _, chance in odds or ()) for odds in listed)
        (only,) = result.odds.paths
        assert only.probability == pytest.approx(sure)
        assert only.score == pytest.approx(result.score)
        assert result.odds.unknown == pytest.approx(1 - sure)
        assert result.mode == f"likeliest ({1 - sure:.3g} of the probability is unknown)"


def vowels(score: Any) -> DAGMetric:
    over = CodeNode(lambda: ["a", "b"], output_label="things", name="things")
    each = MapNode("Is it a vowel?", over, "vowels", answer=bool, item_label="thing")
    return DAGMetric("Vowels", DAG(CodeNode(score, inputs=[each], name="share")))


def test_code_of_a_users_own_leaves_a_list_unknown_beyond_what_it_read() -> None:
    def score(found: list[Judgement]) -> float:
        return [one.verdict for one in found].count(True) / len(found)

    result = result_of(vowels(score), 0.9, 0.1, case=LLMTestCase(input="a", actual_output="b"))
    assert result.odds is not None
    assert result.odds.unknown == pytest.approx(0.19)
    assert result.odds.expected_bounds == pytest.approx((0.81, 1.0))


def test_a_list_that_two_nodes_read_is_counted_once() -> None:
    def scored(found: list[Judgement]) -> Any:
        return share(["a", "b"], found, (True,), what="x", passed="y", empty=0.0)  # type: ignore[arg-type]

    over = CodeNode(lambda: ["a", "b"], output_label="things", name="things")
    each = MapNode("Is it a vowel?", over, "vowels", answer=bool, item_label="thing")
    long = CodeNode(lambda found: len(found) > 1, inputs=[each], then={True: 10, False: 0})
    nodes = [CodeNode(scored, inputs=[each], name="share"), long]
    metric = DAGMetric("Two", DAG(root_nodes=nodes), combine="mean")
    result = result_of(metric, 0.9, 0.1, case=LLMTestCase(input="a", actual_output="b"))
    assert result.odds is not None
    (only,) = result.odds.paths
    assert (only.score, only.probability) == pytest.approx((1.0, 0.81))
    assert result.odds.unknown == pytest.approx(0.19)


def test_votes_on_items_stand_as_they_are() -> None:
    result = result_of(voted(FaithfulnessMetric(), 3), 0.5, 0.25, 0.25)
    assert any(step.votes for step in result.steps)
    assert not any(step.item_odds for step in result.steps)
    assert result.odds is None


@pytest.mark.parametrize("kind", metric_classes(), ids=lambda kind: kind.__name__)
def test_the_odds_of_every_metric_add_up(kind: Any) -> None:
    metric = make(kind)
    with DecisionServer() as server:
        model = DecisionJudge(base_url=server.base_url, writer=judge(0))
        result = evaluate([case_for(metric)], [metric], model=model, show=False).rows[0].metrics[0]
    if result.odds is None:
        assert not any(step.item_odds for step in result.steps if not step.votes)
        return
    known = math.fsum(one.probability for one in result.odds.paths)
    assert known + result.odds.unknown == pytest.approx(1)
