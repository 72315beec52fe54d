"""What the compiler makes of metrics: one graph, shared units, nested metrics."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import networkx as nx
import pytest
from graphs.shapes import SHAPES, deep_chain, lattice, summary_tree
from graphs.trees import yes_no

from dagengine import compile_metrics, evaluate
from dagengine.compiler.execution_plan import ALWAYS
from dagengine.errors import GraphError
from dagengine.graph import Graph, NodeValue
from dagengine.judges import ScriptedJudge
from dagengine.metrics import BaseMetric, DAGMetric
from dagengine.metrics.dag import (
    DAG,
    BinaryJudgementNode,
    CodeNode,
    FieldNode,
    RatingNode,
    TaskNode,
)
from dagengine.question import Answer, Question, TokenChoice
from dagengine.results import OutcomeKind
from dagengine.test_case import ArenaTestCase, LLMTestCase

CASE = LLMTestCase(input="x", actual_output="y")


def test_all_metrics_become_one_acyclic_networkx_graph() -> None:
    plan = compile_metrics(
        [DAGMetric(name, shape.build(), combine="max") for name, shape in SHAPES.items()]
    )
    graph = plan.graph
    assert isinstance(graph, nx.DiGraph)
    assert nx.is_directed_acyclic_graph(graph)
    assert set(graph) == {unit.index for unit in plan.units}


def test_the_graph_of_the_summary_tree_has_its_three_edges() -> None:
    plan = compile_metrics([DAGMetric("m", summary_tree())])
    names = nx.get_node_attributes(plan.graph, "name")
    edges = {(names[a], names[b]) for a, b in plan.graph.edges}
    assert edges == {("Headings", "headings"), ("Headings", "order"), ("headings", "order")}


@pytest.mark.parametrize(
    "make",
    [partial(deep_chain, sys.getrecursionlimit() + 100), partial(lattice, 40)],
    ids=["chain", "lattice"],
)
def test_large_graphs_compile_without_recursion(make: Callable[[], DAG]) -> None:
    dag = make()
    plan = compile_metrics([DAGMetric("large", dag)])
    assert len(plan.units) == len(dag.nodes())


def test_fields_read_are_known_from_the_plan() -> None:
    plan = compile_metrics([DAGMetric("m", summary_tree())])
    assert plan.fields == ("actual_output",)


def test_problems_of_all_metrics_are_reported_at_once() -> None:
    empty = DAGMetric("first", Graph())
    badly = DAGMetric("second", DAG(root_node=yes_no("j", yes=11)))
    with pytest.raises(GraphError) as caught:
        compile_metrics([empty, badly])
    assert [problem.code for problem in caught.value.problems] == ["no-root", "score-range"]
    assert "first" in str(caught.value)
    assert "second" in str(caught.value)


def test_a_metric_under_a_verdict_runs_exactly_as_configured_by_itself() -> None:
    inner = DAGMetric("inner", DAG(root_node=yes_no("i", yes=9, no=3)), strict_mode=True)
    outer = DAGMetric("outer", DAG(root_node=yes_no("o", yes=inner, no=1)))
    judge = ScriptedJudge({"i": True, "outer > i": True, "o": True, "inner > i": True})
    done = evaluate([CASE], [inner, outer], model=judge, show=False)
    alone, nested = done.rows[0].metrics
    assert alone.score == 0.0  # 0.9 is not perfect
    assert nested.score == 0.0
    assert [step.node for step in nested.steps] == ["o", "inner > i"]
    assert done.totals.calls == 2  # the inner judgement is shared


def test_the_graph_of_a_plan_leads_from_a_verdict_into_a_nested_metric() -> None:
    inner = DAGMetric("inner", DAG(root_node=yes_no("i")))
    graph = compile_metrics([DAGMetric("outer", DAG(root_node=yes_no("o", yes=inner)))]).graph
    names = nx.get_node_attributes(graph, "name")
    assert [(names[a], names[b]) for a, b in graph.edges] == [("o", "inner > i")]


@pytest.mark.parametrize(("how", "success"), [("last", True), ("min", False), ("mean", True)])
def test_the_threshold_judges_a_combined_score_whatever_its_parts_say(
    how: Any, success: bool
) -> None:
    bad = CodeNode(lambda: NodeValue(0.2, success=False), name="bad")
    good = CodeNode(lambda: NodeValue(0.8, success=True), name="good")
    metric = DAGMetric("m", DAG(root_nodes=[bad, good]), combine=how, threshold=0.5)
    assert evaluate([CASE], [metric], show=False).rows[0].metrics[0].success is success


@pytest.mark.parametrize("verdict", [True, False])
def test_what_a_metric_always_runs_lives_and_dies_with_it(verdict: bool) -> None:
    # `words` makes `last` live, which makes `words` live: by themselves they would never die.
    words = TaskNode("List the words.", "words", evaluation_params=["input"])
    last = yes_no("last", yes=8, inputs=[words])
    words.children.append(last)
    inner = DAGMetric("inner", DAG(root_node=words))
    outer = DAGMetric("outer", DAG(root_node=yes_no("o", yes=inner, no=1)))
    assert not any(slot.tangle for slot in compile_metrics([outer]).slots)
    judge = ScriptedJudge({"o": verdict, "words": "some", "last": True})
    result = evaluate([CASE], [outer], model=judge, show=False).rows[0].metrics[0]
    assert (result.score, len(result.steps)) == ((0.8, 3) if verdict else (0.1, 1))


def test_what_a_metric_always_runs_is_known_to_run_under_a_verdict_too() -> None:
    # `end` always runs, as `last` reads it, so that a verdict leads to it says nothing new; else
    # `gate` would wait to learn whether `extra` runs, which `end` brings about by reading `first`.
    end = yes_no("end", yes=9, no=3)
    gate = yes_no("gate", yes=end, no=2)
    extra = TaskNode("List more.", "extra", children=[gate], evaluation_params=["input"])
    first = yes_no("first", yes=extra, no=1)
    end.inputs = (first,)
    last = CodeNode(lambda ended: 1.0, inputs=[end], name="last")
    choose = yes_no("choose", yes=gate, no=4)
    inner = DAGMetric("inner", DAG(root_nodes=[last, choose]), combine="min")
    outer = DAGMetric("outer", DAG(root_node=yes_no("o", yes=inner, no=1)))
    names = ("first", "gate", "end", "choose")
    for verdicts in itertools.product((True, False), repeat=len(names)):
        known = dict(zip(names, verdicts, strict=True))
        judge = ScriptedJudge({"o": True, "extra": "that", **known})
        done = evaluate([CASE], [inner, outer], model=judge, show=False)
        alone, under = done.rows[0].metrics
        assert alone.failure is None
        assert (under.score, len(under.steps)) == (alone.score, len(alone.steps) + 1)


def test_a_nested_metric_keeps_its_own_judge_and_lends_its_parents_otherwise() -> None:
    own = ScriptedJudge({"a": False}, name="own")
    one = DAGMetric("one", DAG(root_node=yes_no("a", yes=10, no=2)), model=own)
    two = DAGMetric("two", DAG(root_node=yes_no("b", yes=one, no=0)))
    parent = ScriptedJudge({"b": True, "top": True}, name="parent")
    top = DAGMetric("top metric", DAG(root_node=yes_no("top", yes=two, no=0)), model=parent)
    done = evaluate([CASE], [top], show=False)
    assert done.rows[0].metrics[0].score == 0.2


def test_a_failure_inside_a_nested_metric_fails_the_outer_one_and_names_the_node() -> None:
    inner = DAGMetric("inner", DAG(root_node=CodeNode(lambda: 1 / 0, name="divide")))
    outer = DAGMetric("outer", DAG(root_node=yes_no("o", yes=inner, no=1)))
    done = evaluate([CASE], [outer], model=ScriptedJudge({"o": True}), show=False)
    failure = done.rows[0].metrics[0].failure
    assert failure is not None
    assert failure.kind == OutcomeKind.CODE_ERROR
    assert "inner" in failure.node


def test_a_nested_metric_of_ones_own_runs_as_a_branch() -> None:
    class Length(BaseMetric):
        def measure(self, test_case: LLMTestCase) -> float:
            self.score = 0.25
            self.reason = "short"
            return self.score

    outer = DAGMetric("outer", DAG(root_node=yes_no("o", yes=Length(), no=1)))
    done = evaluate([CASE], [outer], model=ScriptedJudge({"o": True}), show=False)
    result = done.rows[0].metrics[0]
    assert result.score == 0.25
    assert result.reason is not None
    assert "short" in result.reason


@pytest.mark.parametrize(
    ("combine", "score"), [("last", 0.3), ("min", 0.3), ("max", 1.0), ("mean", 0.65)]
)
def test_terminals_combine_as_the_metric_says(combine: Any, score: float) -> None:
    dag = DAG(root_nodes=[yes_no("a"), yes_no("b", yes=3)])
    metric = DAGMetric("m", dag, combine=combine, model=ScriptedJudge({"a": True, "b": True}))
    assert metric.measure(CASE) == pytest.approx(score)


def test_two_terminals_under_error_are_a_typed_failure() -> None:
    dag = DAG(root_nodes=[yes_no("a"), yes_no("b", yes=3)])
    metric = DAGMetric("m", dag, combine="error", model=ScriptedJudge({"a": True, "b": True}))
    failure = evaluate([CASE], [metric], show=False).rows[0].metrics[0].failure
    assert failure is not None
    assert "2 scores" in failure.message


def test_the_deepest_terminal_is_the_last_one_whatever_the_order_of_roots() -> None:
    def score(swapped: bool) -> float:
        deep = yes_no("deep", yes=yes_no("deeper", yes=7))
        roots = [deep, yes_no("flat", yes=2)]
        dag = DAG(root_nodes=roots[::-1] if swapped else roots)
        judge = ScriptedJudge(lambda question: True)
        return DAGMetric("m", dag, model=judge).measure(CASE)

    assert score(False) == score(True) == 0.7


def test_a_code_node_decides_scores_and_is_checked() -> None:
    def words(text: str) -> str:
        return "long" if len(text.split()) > 3 else "short"

    root = CodeNode(words, evaluation_params=["input"], then={"long": 4, "short": 10})
    metric = DAGMetric("m", DAG(root_node=root))
    assert metric.measure(LLMTestCase(input="a b")) == 1.0
    assert metric.measure(LLMTestCase(input="a b c d")) == 0.4

    wrong = CodeNode(lambda text: "medium", evaluation_params=["input"], then={"a": 1, "b": 2})
    failure = evaluate([CASE], [DAGMetric("m", DAG(root_node=wrong))], show=False)
    assert "'medium'" in str(failure.rows[0].metrics[0].failure)


@pytest.mark.parametrize("value", [1.5, -0.1, "text", None, float("nan")])
def test_a_score_outside_zero_to_one_is_never_clamped(value: Any) -> None:
    metric = DAGMetric("m", DAG(root_node=CodeNode(lambda: value, name="score")))
    result = evaluate([CASE], [metric], show=False).rows[0].metrics[0]
    assert result.score is None
    assert result.outcome == OutcomeKind.CODE_ERROR


def test_a_field_node_reads_a_path_of_the_case() -> None:
    node = FieldNode("contestants.GPT-4.1.actual_output", output_label="answer")
    score = CodeNode(lambda text: 1.0 if text == "Paris" else 0.0, inputs=[node])
    case = ArenaTestCase(
        contestants={"GPT-4.1": LLMTestCase(input="capital?", actual_output="Paris")}
    )
    assert DAGMetric("m", DAG(root_node=score)).measure(case) == 1.0


def test_a_rating_is_weighted_by_token_probabilities_and_says_so() -> None:
    class Rater(ScriptedJudge):
        async def answer(self, question: Question[Any]) -> Answer[Any]:
            raw = '{"reason": "8 of 10 words", "score": 8}'
            tokens = (
                TokenChoice('{"reason": "8 of 10 words", "score": ', ()),
                TokenChoice("8", (("8", -0.6931471805599453), ("10", -0.6931471805599453))),
                TokenChoice("}", ()),
            )
            return Answer(question.answer_type.model_validate_json(raw), raw, tokens)

    node = RatingNode("How good?", ["input"], name="rating")
    metric = DAGMetric("m", DAG(root_node=node), model=Rater({}))
    assert metric.measure(CASE) == pytest.approx(0.9)
    assert metric.result is not None
    assert metric.result.mode == "weighted"
    plain = DAGMetric("m", DAG(root_node=node), model=ScriptedJudge({"rating": 8}))
    assert plain.measure(CASE) == pytest.approx(0.8)
    assert plain.result is not None
    assert plain.result.mode is not None
    assert plain.result.mode.startswith("raw")


def test_tools_and_lists_reach_a_prompt_item_by_item() -> None:
    prompts: list[str] = []

    def answer(question: Question[Any]) -> Any:
        prompts.append(question.messages[1]["content"])
        return True

    node = BinaryJudgementNode(
        "Supported?", [], ["retrieval_context"], then={True: 10, False: 0}, name="j"
    )
    case = LLMTestCase(input="x", retrieval_context=["first", "second"])
    DAGMetric("m", DAG(root_node=node), model=ScriptedJudge(answer)).measure(case)
    assert "BEGIN retrieval_context (1 of 2)>>>\nfirst\n" in prompts[0]


def test_both_ways_of_writing_are_the_same_graph() -> None:
    def from_the_parent() -> DAG:
        judgement = BinaryJudgementNode("Good?", name="j")
        judgement.add_verdict(True, score=10)
        judgement.add_verdict(False, score=0)
        return DAG(root_node=TaskNode("Extract", "Facts", [judgement], ["input"]))

    def from_the_child() -> DAG:
        task = TaskNode("Extract", "Facts", evaluation_params=["input"])
        return DAG(
            root_node=BinaryJudgementNode(
                "Good?", inputs=[task], then={True: 10, False: 0}, name="j"
            )
        )

    seen = []
    for dag in (from_the_parent(), from_the_child()):
        prompts: list[bytes] = []

        def answer(question: Question[Any], kept: list[bytes] = prompts) -> Any:
            kept.append(question.canonical)
            return "facts" if question.name == "Facts" else True

        metric = DAGMetric("m", dag, model=ScriptedJudge(answer))
        metric.measure(CASE)
        assert metric.result is not None
        seen.append((prompts, metric.result))
    assert seen[0] == seen[1]


def detours(count: int) -> DAG:
    """Gates one after the other, each with a way around through two tasks: nobody is sure of it."""
    last = yes_no("end")
    for number in range(count):
        second = TaskNode("Do", f"second {number}", [last], ["input"])
        first = TaskNode("Do", f"first {number}", [second], ["input"])
        then = {True: first, False: last}
        last = BinaryJudgementNode("ok?", (), ["input"], then=then, name=f"gate {number}")
    return DAG(last)


def test_what_a_detour_brings_is_uncertain_where_the_ways_meet_and_certain_on_it() -> None:
    units = {unit.name: unit for unit in compile_metrics([DAGMetric("m", detours(3))]).units}
    certain = {
        unit.name: [slot == ALWAYS for _, _, slot in unit.sources] for unit in units.values()
    }
    assert certain["second 1"] == [True]
    assert certain["gate 0"] == certain["gate 1"] == certain["end"] == [False]


def test_twice_as_many_detours_take_about_twice_the_work() -> None:
    def calls(count: int) -> int:
        metric, number = DAGMetric("m", detours(count)), itertools.count()
        sys.setprofile(lambda frame, event, argument: next(number) and None)
        try:
            compile_metrics([metric])
        finally:
            sys.setprofile(None)
        return next(number)

    calls(2)  # what is made once is made
    assert calls(120) < 2.3 * calls(60)
