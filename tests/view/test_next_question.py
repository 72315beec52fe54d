"""A person's walk: the tree asks, code is filled in, branches not taken are never asked."""

from __future__ import annotations

from typing import Any

import pytest
from folders.runs import READS, cases, judge_of, support_metric, usual
from graphs.random_graphs import KINDS, Script, drawings, metric_of
from hypothesis import given, settings

from dagengine import compile_metrics, evaluate
from dagengine.graph.graph import Metric
from dagengine.judges import LexicalJudge
from dagengine.metrics import DAGMetric, FaithfulnessMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode, CodeNode, RatingNode
from dagengine.record.run_json import metrics_of
from dagengine.test_case import LLMTestCase
from dagengine.view.next_question import WHOLE, Position, Walk


def walk(metric: Metric, judge: Any = None, case: LLMTestCase | None = None, **said: Any) -> Any:
    """Where answers lead, given by the names of nodes with _ for blanks."""
    result = evaluate(
        [case or cases(1)[0]], [metric], model=judge or judge_of(usual), show=False
    ).rows[0].metrics[0]  # fmt: skip
    (record,) = metrics_of(compile_metrics([metric]))

    def to(**answers: Any) -> Position:
        given = {name.replace("_", " "): answer for name, answer in answers.items()}
        return Walk(record, result, given).position()

    return to


def asked(position: Position) -> tuple[str, list[str]]:
    assert position.asked is not None
    return position.asked.node, [choice.label for choice in position.asked.choices]


def test_questions_come_in_the_order_of_the_tree_and_answers_choose_the_branch() -> None:
    to = walk(support_metric())
    assert asked(to()) == ("Kind", ["help", "other"])
    assert asked(to(Kind="other")) == ("Tone", ["warm", "rude", "apologetic"])
    step = to(Kind="help")
    assert asked(step) == ("Next step", ["True", "False"])
    assert step.asked is not None
    assert step.asked.evidence == (("Steps", "1. Ask about answer 0."),)
    end = to(Kind="help", Next_step=False)
    assert (end.done, end.score, end.success) == (True, 0.3, False)
    assert [(one.node, one.by) for one in end.steps] == [
        ("Length", "code"), ("Kind", "person"), ("Next step", "person")
    ]  # fmt: skip


def test_a_rating_has_the_points_of_its_scale_and_scores() -> None:
    to = walk(support_metric())
    node, labels = asked(to(Kind="other", Tone="apologetic"))
    assert (node, labels) == ("Empathy", [str(number) for number in range(11)])
    end = to(Kind="other", Tone="apologetic", Empathy=0.4)
    assert (end.score, end.success) == (0.4, False)


def test_answers_to_branches_that_were_left_count_for_nothing() -> None:
    to = walk(support_metric())
    end = to(Kind="other", Next_step=False, Tone="warm")
    assert (end.score, [one.node for one in end.steps]) == (1.0, ["Length", "Kind", "Tone"])


def test_a_walk_ends_where_the_person_cannot_tell() -> None:
    end = walk(support_metric())(Kind="other", Tone=None)
    assert (end.done, end.score, end.why) == (True, None, "cannot tell at Tone")


def test_code_that_the_run_did_not_compute_leads_to_a_question_about_the_case() -> None:
    count = CodeNode(lambda text: len(text) > 3, evaluation_params=READS, then={True: 10, False: 0})
    count.name = "Count"
    first = BinaryJudgementNode(
        "Is it one?", evaluation_params=READS, name="First", then={True: 10, False: count}
    )
    to = walk(DAGMetric("m", DAG(first)), judge_of(lambda node, text: True))
    assert asked(to(First=False)) == (WHOLE, ["It passes", "It fails"])
    end = to(**{"First": False, WHOLE: False})
    assert (end.done, end.success, end.score) == (True, False, None)


@pytest.mark.parametrize(("answer", "done"), [(0.5, True), (0.9, False)])
def test_code_holds_only_while_what_it_reads_is_answered_as_in_the_run(
    answer: float, done: bool
) -> None:
    rating = RatingNode("How good?", evaluation_params=READS, name="Rating")
    twice = CodeNode(lambda given: given / 10, inputs=[rating], name="Twice")
    to = walk(DAGMetric("m", DAG(twice)), judge_of(lambda *_: 5))
    assert asked(to())[0] == "Rating"
    found = to(Rating=answer)
    assert found.done is done
    assert (found.score == 0.5) if done else asked(found)[0] == WHOLE


def test_a_walk_ends_with_the_score_that_code_computes_and_not_with_one_that_it_weighs() -> None:
    # It is deeper than the code, so that the last score of the graph would be its own.
    first = BinaryJudgementNode(
        "1?", evaluation_params=READS, name="First", then={True: 10, False: 0}
    )
    shared = CodeNode(lambda verdict: 1, inputs=[first], name="Shared")
    weighs = CodeNode(lambda verdict, one: 0.25, inputs=[first, shared], name="Weighs")
    to = walk(DAGMetric("m", DAG(weighs), combine="mean"), judge_of(lambda *_: True))
    assert to(First=True).score == 0.25


def test_a_metric_inside_a_metric_is_walked_and_keeps_its_strictness() -> None:
    rating = RatingNode("How good?", evaluation_params=READS, name="Rating")
    gate = BinaryJudgementNode(
        "Open?", evaluation_params=READS, name="Gate", then={True: rating, False: 0}
    )
    outer = BinaryJudgementNode(
        "Is it?", evaluation_params=READS, name="Outer",
        then={True: DAGMetric("Inner", DAG(gate), strict_mode=True), False: 0},
    )  # fmt: skip
    to = walk(DAGMetric("m", DAG(outer)), judge_of(lambda node, _: node != "Rating" or 10))
    assert asked(to())[0] == "Outer"
    assert asked(to(Outer=True))[0] == "Inner > Gate"
    open_ = {"Outer": True, "Inner > Gate": True}
    assert asked(to(**open_))[0] == "Inner > Rating"
    assert to(**open_, **{"Inner > Rating": 0.9}).score == 0.0
    assert to(**open_, **{"Inner > Rating": 1.0}).score == 1.0
    assert to(Outer=False).score == 0.0


def test_a_metric_without_small_questions_asks_about_the_whole_case() -> None:
    case = LLMTestCase(
        input="Where?", actual_output="In Paris. It rains.", retrieval_context=["It is in Paris."]
    )
    to = walk(FaithfulnessMetric(), LexicalJudge(), case)
    found = to()
    assert asked(found)[0] == WHOLE
    assert not any(step.node == "score" for step in found.steps)  # it tells the judge's answer
    assert found.asked.question == "Does this case pass Faithfulness?"
    assert {"actual_output", "retrieval_context"} <= set(found.asked.reads)


def test_a_rating_that_a_later_node_behind_another_gate_reads_is_asked_as_in_the_run() -> None:
    rating = RatingNode("How good?", evaluation_params=READS, name="Rating")
    first = BinaryJudgementNode(
        "Is it one?", evaluation_params=READS, name="First", then={True: rating, False: 2}
    )
    last = BinaryJudgementNode("Enough?", inputs=[rating], then={True: 10, False: 0}, name="Last")
    second = BinaryJudgementNode(
        "Is it two?", evaluation_params=READS, name="Second", then={True: last, False: 0}
    )
    metric = DAGMetric("m", DAG([first, BinaryJudgementNode(
        "Is it there?", evaluation_params=READS, name="There", then={True: second, False: 0}
    )]))  # fmt: skip
    judge = judge_of(lambda node, text: 5 if node == "Rating" else node != "First")
    (row,) = evaluate(cases(1), [metric], model=judge, show=False)
    assert {step.node for step in row.metrics[0].steps} == {
        *("First", "There", "Second", "Rating", "Last")
    }
    to = walk(metric, judge)
    assert asked(to(First=False))[0] == "There"
    assert asked(to(First=False, There=True))[0] == "Second"
    assert asked(to(First=False, There=True, Second=True))[0] == "Rating"
    assert asked(to(First=False, There=True, Second=True, Rating=0.5))[0] == "Last"
    assert (
        to(First=False, There=True, Second=True, Rating=0.5, Last=True).score
        == row.metrics[0].score
    )


# What code made of a judge's words a walk does not repeat.
@settings(max_examples=60)
@given(drawings([kind for kind in KINDS if kind != "map"]))
def test_a_person_is_asked_what_the_engine_asks_and_gets_its_score(drawing: dict[str, Any]) -> None:
    script = Script()
    metric = metric_of(drawing, script)
    case = LLMTestCase(input="x", context=["a", "b"])
    result = evaluate([case], [metric], model=script.judge(), show=False).rows[0].metrics[0]
    (record,) = metrics_of(compile_metrics([metric]))
    position = Walk(record, result, dict(script.verdicts)).position()
    decided = {node for node in script.ran if node in script.verdicts}
    assert {step.node for step in position.steps} == decided
    if any(step.by == "person" for step in position.steps):
        assert (position.score, position.success) == (result.score, result.success)
    else:
        assert position.asked is not None
        assert position.asked.node == WHOLE
