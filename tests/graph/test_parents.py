"""Trees written from the parent, and mistakes that are refused where they are made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dagengine import evaluate
from dagengine.errors import GraphError, InputError
from dagengine.graph import MetricSpec
from dagengine.judges import ScriptedJudge
from dagengine.metrics import DAGMetric, GEval
from dagengine.metrics.dag import (
    DAG,
    BaseNode,
    BinaryJudgementNode,
    CodeNode,
    FieldNode,
    MapNode,
    NonBinaryJudgementNode,
    RatingNode,
    TaskNode,
    VerdictNode,
)
from dagengine.prompts.evidence import unfence
from dagengine.report import draw
from dagengine.test_case import LLMTestCase

CASE = LLMTestCase(input="?", actual_output="Intro. Body. Conclusion.")
ACTUAL = ["actual_output"]


def binary(*verdicts: Any) -> BinaryJudgementNode:
    return BinaryJudgementNode("All there?", [*verdicts], ACTUAL)


def kinds(*verdicts: Any) -> NonBinaryJudgementNode:
    return NonBinaryJudgementNode("Which order?", [*verdicts], ACTUAL)


def headings() -> DAGMetric:
    """The tree of the walkthrough, each node hung under its parent."""
    root = TaskNode("Extract all headings", "Headings", evaluation_params=ACTUAL, label="extract")
    present = root.add_node(BinaryJudgementNode("Are all three there?", label="present"))
    order = root.add_node(NonBinaryJudgementNode("Are they in order?", label="order"))
    present.add_verdict(False, score=0)
    present.add_verdict(True, then=order)
    order.add_verdict("Yes", score=10)
    order.add_verdict("Two are out of order", score=4)
    order.add_verdict("All out of order", score=2)
    return DAGMetric("Format", DAG(root))


def test_a_tree_from_the_parent_runs_like_one_from_the_child() -> None:
    judge = ScriptedJudge(
        {"extract": "intro, conclusion, body", "present": True, "order": "Two are out of order"}
    )
    done = evaluate([CASE], [headings()], model=judge, show=False)
    assert done.scores("Format") == [0.4]
    assert [step.node for step in done.rows[0].metrics[0].steps] == ["extract", "present", "order"]


def test_add_verdict_gives_back_the_verdict_and_keeps_its_target() -> None:
    judgement, metric = binary(), GEval("g", "Is it kind?", evaluation_params=ACTUAL)
    good = judgement.add_verdict(True, score=10)
    other = judgement.add_verdict(False, then=metric)
    assert (good.verdict, good.score, good.child) == (True, 10, None)
    assert (other.verdict, other.score, other.child) == (False, None, metric)
    assert judgement.children == [good, other]


HANDING_ON: list[Callable[[], BaseNode]] = [
    lambda: TaskNode("Read it.", "words", evaluation_params=ACTUAL),
    lambda: CodeNode(len, evaluation_params=ACTUAL, output_label="length"),
    lambda: FieldNode("actual_output"),
    lambda: RatingNode("How good?", ACTUAL, output_label="rating"),
    lambda: MapNode("Is {item} true?", "actual_output", "items"),
    lambda: binary(VerdictNode(False, score=0)),
]


@pytest.mark.parametrize("build", HANDING_ON)
def test_every_node_that_hands_on_takes_one_more_child(build: Callable[[], BaseNode]) -> None:
    node, child = build(), binary(VerdictNode(True, score=10), VerdictNode(False, score=0))
    before = list(node.children)
    assert node.add_node(child) is child
    assert node.children == [*before, child]


def test_a_label_is_the_name_of_a_node() -> None:
    node = TaskNode("Read it.", "words", evaluation_params=ACTUAL, label="reader")
    assert (node.name, node.label, node.title) == ("reader", "reader", "reader")
    assert VerdictNode(True, 10, label="passed").title == "passed"
    assert FieldNode("input", label="question").title == "question"
    with pytest.raises(InputError, match="name= and label= are the same setting"):
        TaskNode("Read it.", "words", name="a", label="b")


MISTAKES: list[tuple[Callable[[], object], str]] = [
    (lambda: VerdictNode(True), "verdict True needs either a score or a child; got neither"),
    (
        lambda: VerdictNode("a", 3, binary()),
        "'a' needs either a score or a child; got both",
    ),
    (lambda: VerdictNode(True, 11), "verdict True has score 11; scores go from 0 to 10"),
    (lambda: VerdictNode(True, -1), "score -1; scores go from 0 to 10"),
    (lambda: binary().add_verdict(True), "got neither"),
    (lambda: binary().add_verdict(True, 10, binary()), "got both"),
    (lambda: binary(VerdictNode("Yes", 10)), "a verdict is True or False, not 'Yes'"),
    (lambda: kinds(VerdictNode(True, 10)), "a verdict is a text, not True"),
    (lambda: binary(VerdictNode(True, 1), VerdictNode(True, 2)), "True is declared twice"),
    (
        lambda: kinds(VerdictNode("a", 1), VerdictNode("a", 2)),
        "NonBinaryJudgementNode: verdict 'a' is declared twice",
    ),
    (
        lambda: TaskNode("Read.", "words", [VerdictNode(True, 10)], label="reader"),
        "reader does not decide, so it cannot have verdict True",
    ),
    (lambda: VerdictNode(True, 10).add_node(binary()), "verdict True takes one child"),
]


@pytest.mark.parametrize(("mistake", "message"), MISTAKES)
def test_a_mistake_is_an_error_where_it_is_made(
    mistake: Callable[[], object], message: str
) -> None:
    with pytest.raises(InputError, match=message) as caught:
        mistake()
    assert isinstance(caught.value, ValueError)


def test_what_is_no_node_is_no_child() -> None:
    odd: Any = "a node"
    with pytest.raises(TypeError, match="TaskNode: a child is a node, not 'a node'"):
        TaskNode("Read.", "words", [odd])
    node = TaskNode("Read.", "words")
    with pytest.raises(TypeError, match="a child is a node, not 'a node'"):
        node.add_node(odd)
    assert node.children == []


def in_a_circle() -> BaseNode:
    first, second = TaskNode("a", "a"), TaskNode("b", "b")
    first.add_node(second).add_node(first)
    return first


def both_roots() -> list[BaseNode]:
    root = TaskNode("Read.", "words", evaluation_params=ACTUAL)
    return [root, root.add_node(TaskNode("Again.", "more"))]


def with_verdicts(node: Any, *verdicts: Any) -> list[BaseNode]:
    """The node, with verdicts added one by one: whether they fit is asked of the whole graph."""
    for verdict in verdicts:
        node.add_verdict(verdict, score=10)
    return [node]


def with_a_misplaced_verdict() -> list[BaseNode]:
    root = TaskNode("Read.", "words", evaluation_params=ACTUAL, label="reader")
    root.add_node(VerdictNode(True, 10))
    return [root]


HOPELESS: list[tuple[Callable[[], Any], str]] = [
    (list, "no-root"),
    (lambda: [...], "not-a-node"),
    (lambda: [VerdictNode(True, 10)], "verdict-root"),
    (lambda: [in_a_circle()], "cycle .*: the graph has a cycle: a -> b -> a"),
    (both_roots, "root-reachable"),
    (lambda: with_verdicts(binary(), True, False, True), "verdict-duplicate"),
    (lambda: with_verdicts(kinds(), "a", "b", "a"), "verdict-duplicate"),
    (lambda: with_verdicts(binary(), "yes", "no"), "verdict-type"),
    (lambda: with_verdicts(kinds(), True, False), "verdict-type"),
    (lambda: with_verdicts(binary(), True), "verdict-missing .*: verdict False leads nowhere"),
    (lambda: with_verdicts(kinds()), "verdict-missing .*: no verdict is declared"),
    (with_a_misplaced_verdict, "verdict-misplaced"),
    (lambda: [BinaryJudgementNode("Good?", then={True: 10, False: 0})], "reads-nothing"),
]


@pytest.mark.parametrize(("roots", "message"), HOPELESS)
def test_a_graph_that_can_never_compile_is_refused_when_it_is_made(
    roots: Callable[[], Any], message: str
) -> None:
    with pytest.raises(GraphError, match=message) as caught:
        DAG(root_nodes=roots())
    assert isinstance(caught.value, ValueError)


def test_a_judgement_that_names_nothing_reads_what_the_one_before_it_read() -> None:
    root = TaskNode("Extract", "Headings", evaluation_params=ACTUAL)
    present = root.add_node(BinaryJudgementNode("All there?", [], ["input"], label="present"))
    order = NonBinaryJudgementNode("Which order?", label="order")
    last = BinaryJudgementNode("Sure?", label="last")
    present.add_verdict(False, score=0)
    present.add_verdict(True, then=order)
    order.add_verdict("right", score=10)
    order.add_verdict("wrong", then=last)
    last.add_verdict(True, score=2)
    last.add_verdict(False, score=5)
    seen: dict[str, str] = {}

    def answer(question: Any) -> Any:
        seen[question.name] = question.messages[1]["content"]
        return {"Headings": "A, B", "present": True, "order": "wrong", "last": False}[question.name]

    dag = DAG(root)
    metric = DAGMetric("Format", dag, model=ScriptedJudge(answer))
    assert dag.check() == []
    assert metric.measure(LLMTestCase(input="Sum it up.", actual_output="A B")) == 0.5
    assert "Sum it up." in seen["present"]
    assert "A, B" in seen["present"]
    shown = [unfence(seen[name]) for name in ("order", "last", "present")]
    assert shown[0] == shown[1] == shown[2]
    questions = draw(MetricSpec("Format", dag)).mermaid
    assert questions.count("reads input") == 3


def test_a_list_where_a_task_was_to_write_a_text_is_taken_line_by_line() -> None:
    said: dict[str, Any] = {"Headings": {"output": ["A", "B"]}, "good": True}

    def answer(question: Any) -> Any:
        if question.name == "good":
            assert "A\nB" in question.messages[1]["content"]
        return said[question.name]

    root = TaskNode("Extract", "Headings", evaluation_params=ACTUAL)
    good = root.add_node(BinaryJudgementNode("Good?", label="good"))
    good.add_verdict(True, score=10)
    good.add_verdict(False, score=0)
    assert DAGMetric("Good", DAG(root), model=ScriptedJudge(answer)).measure(CASE) == 1.0


def test_private_names_of_deepeval_are_taken_by_measure_and_others_refused() -> None:
    good = binary(VerdictNode(True, 10), VerdictNode(False, 0))
    metric = DAGMetric("Good", DAG(good), model=ScriptedJudge(lambda question: True))
    assert metric.measure(CASE, _show_indicator=False) == 1.0
    with pytest.raises(TypeError, match=r"measure\(\) has no argument 'show_indicator'"):
        metric.measure(CASE, show_indicator=False)
    with pytest.raises(TypeError, match=r"measure\(\) takes one test case, got 2 arguments"):
        metric.measure(CASE, CASE)


def test_a_graph_that_is_not_finished_may_be_finished_later() -> None:
    root = TaskNode("Read.", "words", evaluation_params=ACTUAL)
    dag = DAG(root)
    assert [problem.code for problem in dag.check()] == ["leaf-without-score", "no-score"]
    judgement = root.add_node(BinaryJudgementNode("Good?"))
    assert "verdict-missing" not in [problem.code for problem in dag.check()]
    judgement.add_verdict(True, score=10)
    assert "verdict-missing" in [problem.code for problem in dag.check()]
    judgement.add_verdict(False, score=0)
    assert dag.check() == []
