"""The odds of paths equal brute-force enumeration, and nothing that was not asked is guessed."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from graphs.trees import tone_metric
from hypothesis import given, settings
from hypothesis import strategies as st
from servers.decision_server import Asked, DecisionServer

from dagengine import compile_metrics, evaluate
from dagengine.graph.node_values import Judgement, NodeValue
from dagengine.judges import DecisionJudge, ScriptedJudge
from dagengine.metrics import CriteriaMetric, DAGMetric, GEval
from dagengine.metrics.dag import DAG, BinaryJudgementNode, CodeNode, NonBinaryJudgementNode
from dagengine.semantics.path_odds import MOST_PATHS, odds_of, with_odds
from dagengine.semantics.scheduler import CaseState
from dagengine.test_case import LLMTestCase

READ = ["input"]
VERDICTS = ("a", "b", "c")
CASE = LLMTestCase(input="in", actual_output="out")


@st.composite
def trees(draw: st.DrawFn) -> DAG:
    """Decisions that share what comes after them; the first one is the root."""
    count = draw(st.integers(1, 5))
    nodes: list[Any] = []
    for place in range(count):  # the last ones first: a node leads to those made before it
        targets = st.one_of(st.integers(0, 10), *([st.sampled_from(nodes)] if nodes else []))
        if draw(st.booleans()):
            then: dict[Any, Any] = {verdict: draw(targets) for verdict in (True, False)}
            node: Any = BinaryJudgementNode("?", (), READ, then=then, name=f"n{place}")
        else:
            then = {verdict: draw(targets) for verdict in VERDICTS}
            node = NonBinaryJudgementNode("?", evaluation_params=READ, then=then, name=f"n{place}")
        nodes.append(node)
    return DAG(nodes[-1])


def drawn_odds(draw: st.DrawFn, verdicts: tuple[Any, ...]) -> tuple[tuple[Any, float], ...]:
    weights = [draw(st.integers(0, 5)) for _ in verdicts]
    weights[0] += not sum(weights)
    return tuple(
        (verdict, weight / sum(weights)) for verdict, weight in zip(verdicts, weights, strict=True)
    )


@st.composite
def problems(draw: st.DrawFn) -> tuple[DAGMetric, dict[str, Any]]:
    dag = draw(trees())
    nodes: list[Any] = list(dag.nodes())
    return DAGMetric("M", dag), {n.name: drawn_odds(draw, n.verdicts()) for n in nodes}


def said(odds: Any, verdict: Any) -> NodeValue:
    return NodeValue(Judgement(verdict=verdict), verdict=verdict, odds=odds)


def run(plan: Any, odds: Mapping[str, Any], verdicts: Mapping[str, Any]) -> CaseState:
    state = CaseState(plan)
    while state.ready:
        number = state.ready.pop()
        name = plan.units[number].name
        state.complete(number, said(odds[name], verdicts[name]))
    return state


def likeliest(odds: Any) -> Any:
    return max(odds, key=lambda one: one[1])[0]


@given(problems())
@settings(max_examples=200)
def test_the_odds_of_paths_equal_brute_force(problem: tuple[DAGMetric, dict[str, Any]]) -> None:
    metric, odds = problem
    plan = compile_metrics([metric])
    asked = run(plan, odds, {name: likeliest(found) for name, found in odds.items()})
    names = list(odds)
    heard = {plan.slots[number].name for number in asked.values}
    wanted: dict[Any, float] = {}
    unknown = 0.0
    for combination in itertools.product(*odds.values()):
        mass = math.prod(chance for _, chance in combination)
        if not mass:
            continue
        verdicts = {name: verdict for name, (verdict, _) in zip(names, combination, strict=True)}
        state = run(plan, odds, verdicts)
        (result,) = state.results()
        if {node for node, _ in result.path} <= heard:
            key = result.path, result.score
            wanted[key] = wanted.get(key, 0.0) + mass
        else:
            unknown += mass
    found = odds_of(plan, 0, asked.values)
    assert found is not None
    assert {(one.path, one.score): one.probability for one in found.paths} == pytest.approx(wanted)
    assert found.unknown == pytest.approx(unknown)
    low, high = found.expected_bounds
    mean = sum(score * mass for (_, score), mass in wanted.items())
    assert (low, high) == pytest.approx((mean, mean + unknown))
    assert found.pass_bounds[0] == pytest.approx(
        sum(mass for (_, score), mass in wanted.items() if score >= 0.5)
    )
    chances = [one.probability for one in found.paths]
    assert chances == sorted(chances, reverse=True)


def result_of(metric: Any, chances: Mapping[int, Any], model: Any = None) -> Any:
    def decide(state: Any, asked: Asked) -> Any:
        return chances[len(asked.options)]

    with DecisionServer(decide) as server:
        judge = model or DecisionJudge(base_url=server.base_url)
        return evaluate([CASE], [metric], model=judge, show=False).rows[0].metrics[0]


def test_a_result_has_the_odds_of_its_paths_the_expected_score_and_the_chance_to_pass() -> None:
    result = result_of(tone_metric(), {2: (0.8, 0.2), 3: (0.6, 0.3, 0.1)})
    assert result.score == 1.0
    found = {one.path[-1][1]: round(one.probability, 9) for one in result.odds.paths}
    assert found == {"warm": 0.48, "cold": 0.24, False: 0.2, "rude": 0.08}
    assert result.odds.unknown == 0
    assert result.odds.expected == pytest.approx(0.48 + 0.4 * 0.24)
    assert result.odds.pass_bounds == pytest.approx((0.48, 0.48))
    row = result.as_dict()["odds"]
    assert row["paths"][0]["path"] == [["right", True], ["tone", "warm"]]
    assert row["expected"] == pytest.approx([0.576, 0.576])


def test_what_was_not_asked_is_unknown_and_not_guessed() -> None:
    result = result_of(tone_metric(), {2: (0.3, 0.7), 3: (0.6, 0.3, 0.1)})
    assert result.score == 0.0
    assert result.odds.unknown == pytest.approx(0.3)
    assert result.odds.expected is None
    assert result.odds.expected_bounds == pytest.approx((0.0, 0.3))
    assert result.odds.pass_bounds == pytest.approx((0.0, 0.3))


def test_the_expectation_is_the_score_where_it_is_asked_for_and_known() -> None:
    metric = tone_metric(expected=True)
    result = result_of(metric, {2: (0.8, 0.2), 3: (0.6, 0.3, 0.1)})
    assert result.score == pytest.approx(0.576)
    assert (result.success, result.mode) == (True, "expected")
    result = result_of(metric, {2: (0.3, 0.7), 3: (0.6, 0.3, 0.1)})
    assert result.score == 0.0
    assert result.mode == "likeliest (0.3 of the probability is unknown)"


def test_a_rating_has_one_path_for_each_of_its_levels() -> None:
    metric = GEval("G", evaluation_steps=["Look."], evaluation_params=["input"])
    chances = [0.0] * 4 + [0.25] * 2 + [0.5] + [0.0] * 4
    result = result_of(metric, {11: chances})
    scores = {one.score: one.probability for one in result.odds.paths}
    assert scores == pytest.approx({0.4: 0.25, 0.5: 0.25, 0.6: 0.5})
    assert result.odds.expected == pytest.approx(result.score)
    assert result.odds.pass_bounds == pytest.approx((0.75, 0.75))


def test_a_criterion_has_the_odds_of_its_letters() -> None:
    result = result_of(CriteriaMetric("conciseness"), {2: (0.7, 0.3)})
    assert result.odds.expected == pytest.approx(0.7)


def test_code_that_read_another_verdict_is_unknown() -> None:
    node = BinaryJudgementNode("Right?", evaluation_params=READ, name="right", output_label="right",
                               then={True: 10, False: 0})  # fmt: skip
    code = CodeNode(lambda right: 1.0 if right.verdict else 0.5, inputs=[node], name="score")
    metric = DAGMetric("Code", DAG(code), combine="mean")
    plan = compile_metrics([metric])
    odds = ((True, 0.75), (False, 0.25))
    state = CaseState(plan)
    while state.ready:
        number = state.ready.pop()
        right = plan.units[number].name == "right"
        state.complete(number, said(odds, True) if right else NodeValue(1.0, score=1.0))
    found = odds_of(plan, 0, state.values)
    assert found is not None
    assert found.unknown == pytest.approx(0.25)


def test_judges_without_odds_leave_results_as_they_were() -> None:
    judge = ScriptedJudge({"right": True, "tone": "cold"})
    result = result_of(tone_metric(expected=True), {}, judge)
    assert result.odds is None
    assert "odds" not in result.as_dict()
    assert (result.score, result.mode) == (0.4, None)


def test_other_metrics_of_the_run_are_no_part_of_it() -> None:
    plan = compile_metrics([tone_metric(), DAGMetric("Other", tone_metric().dag)])
    odds: dict[str, Any] = {
        "right": ((True, 0.8), (False, 0.2)),
        "tone": (("warm", 0.6), ("cold", 0.3), ("rude", 0.1)),
    }
    state = run(plan, odds, {"right": True, "tone": "warm"})
    one, other = with_odds(plan, state.results(), state.values)
    assert one.odds is not None
    assert one.odds == other.odds


def test_more_paths_than_anybody_follows_are_unknown() -> None:
    last: Any = 10
    for place in range(12):
        last = BinaryJudgementNode(
            "?", evaluation_params=READ, then={True: last, False: last}, name=f"n{place}"
        )
    plan = compile_metrics([DAGMetric("Long", DAG(last))])
    even = ((True, 0.5), (False, 0.5))
    state = run(plan, {f"n{n}": even for n in range(12)}, {f"n{n}": True for n in range(12)})
    found = odds_of(plan, 0, state.values)
    assert found is not None
    assert len(found.paths) == MOST_PATHS
    assert found.unknown == pytest.approx(1 - MOST_PATHS / 4096)


def test_votes_of_a_panel_stand_as_they_are() -> None:
    plan = compile_metrics([tone_metric()])
    odds = ((True, 0.75), (False, 0.25))
    state = CaseState(plan)
    while state.ready:
        number = state.ready.pop()
        voted = replace(said(odds, True), votes=(True, True))
        name = plan.units[number].name
        state.complete(number, voted if name == "right" else said((("warm", 1.0),), "warm"))
    found = odds_of(plan, 0, state.values)
    assert found is not None
    assert [one.probability for one in found.paths] == [1.0]
