"""Nodes merged and split: the same results where every question is answered right, and bounds."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from dagengine import evaluate
from dagengine.graph.examples_and_quotes import Example
from dagengine.judges import ScriptedJudge
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import (
    DAG,
    BinaryJudgementNode,
    NonBinaryJudgementNode,
    TaskNode,
    VerdictNode,
)
from dagengine.test_case import LLMTestCase
from dagengine.voting.metric_rewrites import can_split, halves, merge_nodes, pair_at, split_node

READS = ["actual_output"]


def question(name: str, then: dict[bool, Any], **more: Any) -> BinaryJudgementNode:
    return BinaryJudgementNode(
        f"Is it {name}?", evaluation_params=READS, then=then, name=name, **more
    )


def chain(first: bool = True, second: bool = True, **more: Any) -> DAGMetric:
    """P leads to C by its verdict `first`, C to a last question by `second`, else both to 2."""
    last = question("last", {True: 10, False: 4})
    child = question("C", {second: last, not second: 2}, **more)
    return DAGMetric("Chain", DAG(question("P", {first: child, not first: 2})), threshold=0.5)


def scores(metric: DAGMetric | Any, truths: dict[str, bool]) -> list[float | None]:
    judge = ScriptedJudge(truths)
    case = LLMTestCase(input="Write.", actual_output="It is.")
    return evaluate([case], [metric], model=judge, show=False).scores(metric.spec().name)


@pytest.mark.parametrize(("first", "second"), list(product((True, False), repeat=2)))
def test_two_merged_questions_give_the_score_of_both(first: bool, second: bool) -> None:
    metric = chain(first, second)
    whole = merge_nodes(metric, "P")
    assert [node.title for node in whole.spec().graph.nodes()] == ["P and C", "last"]
    for p, c, last in product((True, False), repeat=3):
        truths = {"P": p, "C": c, "P and C": p is first and c is second, "last": last}
        assert scores(whole, truths) == scores(metric, truths)
    text = whole.spec().graph.nodes()[0].text
    assert "Is it P?" in text
    assert f"the second one is {'yes' if second else 'no'}" in text


@pytest.mark.parametrize("word", ["AND", "OR"])
@pytest.mark.parametrize("verdicts", [False, True])
def test_a_question_that_was_split_gives_the_same_score(word: str, verdicts: bool) -> None:
    metric = chain()
    if verdicts:  # the same node with its verdicts as nodes
        last = question("last", {True: 10, False: 4})
        ends = [VerdictNode(True, child=last), VerdictNode(False, score=2)]
        child = BinaryJudgementNode("Is it C?", ends, evaluation_params=READS, name="C")
        metric = DAGMetric("Chain", DAG(question("P", {True: child, False: 2})))
    parts = split_node(metric, "C", f"Is it sweet? {word} Is it sour?")
    texts = [node.text for node in parts.spec().graph.nodes()]
    assert {"Is it sweet?", "Is it sour?"} < set(texts)
    for one, two, last_one in product((True, False), repeat=3):
        both = one and two if word == "AND" else one or two
        truths = {"P": True, "last": last_one}
        split = scores(parts, {**truths, "C": one, "C, 2": two})
        assert split == scores(metric, {**truths, "C": both})
    assert [node.text for node in metric.spec().graph.nodes()][1] == "Is it C?"


def test_what_a_task_hands_on_is_read_by_both_halves_and_by_the_merged_question() -> None:
    child = question("C", {True: 10, False: 0})
    parent = question("P", {True: child, False: 0})
    task = TaskNode("Extract it.", output_label="It", evaluation_params=READS)
    task.children = [parent, child]
    metric = DAGMetric("Task", DAG(task))
    for made in (merge_nodes(metric, "C"), split_node(metric, "C", "Is it sweet? AND Is it sour?")):
        asked: dict[str, str] = {}

        def answer(question: Any, asked: dict[str, str] = asked) -> Any:
            asked[question.name] = question.messages[-1]["content"]
            return "extracted words" if question.name == "It" else True

        case = LLMTestCase(input="Write.", actual_output="It is.")
        result = evaluate([case], [made], model=ScriptedJudge(answer), show=False)
        assert result.scores("Task") == [1.0]
        assert all("extracted words" in text for name, text in asked.items() if name != "It")


def test_a_node_is_merged_with_its_child_before_its_parent() -> None:
    last = question("last", {True: 10, False: 2})
    child = question("C", {True: last, False: 2})
    metric = DAGMetric("Chain", DAG(question("P", {True: child, False: 2})))
    for title, titles in (("P", ("P", "C")), ("C", ("C", "last")), ("last", ("C", "last"))):
        pair = pair_at(metric, title)
        assert pair is not None
        assert (pair.parent.title, pair.child.title) == titles


def shared() -> DAGMetric:
    child = question("C", {True: 10, False: 0})
    other = question("Q", {True: child, False: 3})
    return DAGMetric("Shared", DAG(question("P", {True: child, False: other})))


def read() -> DAGMetric:
    metric = chain()
    parent, child, last = metric.spec().graph.nodes()
    last.inputs = (parent, child)
    return metric


def grades() -> DAGMetric:
    child = NonBinaryJudgementNode(
        "How?", evaluation_params=READS, then={"good": 10, "bad": 0}, name="C"
    )
    return DAGMetric("Grades", DAG(question("P", {True: child, False: 0})))


@pytest.mark.parametrize(
    "metric",
    [
        DAGMetric(
            "Ends", DAG(question("P", {True: question("C", {True: 10, False: 3}), False: 0}))
        ),
        chain(examples=[Example("It is.", True)]),
        chain(quote="required"),
        shared(),
        read(),
        grades(),
    ],
    ids=["other ends", "examples", "settings", "two parents", "read", "grades"],
)
def test_what_is_no_yes_or_no_question_with_the_same_end_is_not_merged(metric: DAGMetric) -> None:
    pair = pair_at(metric, "C")
    assert pair is None or (pair.parent.title, pair.child.title) != ("P", "C")


def test_what_cannot_be_split_is_left_alone() -> None:
    assert can_split(chain(), "C")
    assert not can_split(read(), "P")
    assert not can_split(grades(), "C")
    assert not can_split(chain(examples=[Example("It is.", True)]), "C")
    assert halves("Is it? AND Is it not? OR what?") is None
    assert halves("Is it AND?") is None
