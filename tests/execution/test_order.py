"""What asks nothing starts before what asks, and holds no question up."""

from __future__ import annotations

from typing import Any, cast

import anyio
import pytest

from dagengine import Limits, a_evaluate, compile_metrics, evaluate
from dagengine.errors import MissingFieldError, ProviderError
from dagengine.graph import NodeValue
from dagengine.judges import ScriptedJudge
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode, CodeNode, RatingNode, TaskNode
from dagengine.question import Question
from dagengine.results import OutcomeKind
from dagengine.test_case import LLMTestCase

CASES = [LLMTestCase(input="x"), LLMTestCase(input="y")]


def nothing_to_judge(*read: Any) -> Any:
    raise MissingFieldError("there is nothing to judge")


def checked(name: str, question: TaskNode, *checks: CodeNode) -> DAGMetric:
    """A metric whose rating reads checks of the case and the answer to a question."""
    rating = RatingNode("How good?", inputs=[*checks, question], name="rating")
    return DAGMetric(name, DAG(root_node=rating))


async def asked_by(metrics: list[DAGMetric], limit: int) -> tuple[list[str], list[Any]]:
    """Names of the questions that a run put, and its results."""
    asked: list[str] = []

    def answer(question: Question[Any]) -> Any:
        asked.append(question.name)
        return 5 if question.name == "rating" else "an answer"

    done = await a_evaluate(
        CASES, metrics, model=ScriptedJudge(answer), limits=Limits(max_in_flight=limit), show=False
    )
    return asked, [result for row in done.rows for result in row.metrics]


@pytest.mark.anyio
@pytest.mark.parametrize("limit", [1, 64])
@pytest.mark.parametrize("reads", [[], ["input"]], ids=["once per run", "once per case"])
async def test_a_case_with_nothing_to_judge_asks_nothing_whatever_nodes_are_called(
    limit: int, reads: list[str]
) -> None:
    question = TaskNode("List steps.", "a question", evaluation_params=reads)
    first = CodeNode(str, [], ["input"], name="y first", output_label="first")
    last = CodeNode(nothing_to_judge, inputs=[first], name="z last", output_label="last")
    asked, results = await asked_by([checked("m", question, last)], limit)
    assert asked == []
    assert {(result.outcome, result.steps[-1].node) for result in results} == {
        (OutcomeKind.MISSING_FIELD, "z last")
    }


@pytest.mark.anyio
async def test_a_question_that_waits_for_another_metric_too_comes_after_its_check() -> None:
    # The question has its place in the first metric, where it waits for a verdict.
    question = TaskNode("List steps.", "a question", evaluation_params=["input"])
    rated = RatingNode("How good?", inputs=[question], name="rating")
    gate = CodeNode(lambda text: "no", [], ["input"], then={"yes": rated, "no": 0}, name="gate")
    first = DAGMetric("first", DAG(root_node=gate))
    check = CodeNode(nothing_to_judge, [], ["input"], name="z check", output_label="check")
    asked, results = await asked_by([first, checked("second", question, check)], 64)
    assert asked == []
    assert [result.score for result in results] == [0.0, None, 0.0, None]


@pytest.mark.anyio
async def test_a_question_does_not_wait_for_code_that_it_does_not_read() -> None:
    answered = anyio.Event()
    order: list[str] = []

    async def wait(text: str) -> str:
        order.append("code")
        await answered.wait()  # would wait for ever if the question came after it
        return text

    def answer(question: Question[Any]) -> Any:
        order.append(question.name)
        answered.set()
        return 5 if question.name == "rating" else "an answer"

    question = TaskNode("List steps.", "a question", evaluation_params=["input"])
    code = CodeNode(wait, [], ["input"], name="z code", output_label="code")
    metric = checked("m", question, code)
    with anyio.fail_after(120):
        done = await a_evaluate(CASES[:1], [metric], model=ScriptedJudge(answer), show=False)
    assert done.scores("m") == [0.5]
    assert order == ["code", "a question", "rating"]


@pytest.mark.anyio
@pytest.mark.parametrize("late", ["code", "question"])
async def test_the_failure_of_code_counts_before_that_of_a_question(late: str) -> None:
    failed = anyio.Event()

    async def check(text: str) -> None:
        if late == "code":
            await failed.wait()
        nothing_to_judge()

    async def answer(question: Question[Any]) -> Any:
        failed.set()
        return ProviderError("no", transient=False)

    question = TaskNode("List steps.", "a question", evaluation_params=["input"])
    code = CodeNode(check, [], ["input"], name="z check", output_label="check")
    metric = checked("m", question, code)
    with anyio.fail_after(120):
        done = await a_evaluate(CASES[:1], [metric], model=ScriptedJudge(answer), show=False)
    failure = done.rows[0].metrics[0].failure
    assert failure is not None
    assert (failure.kind, failure.node) == (OutcomeKind.MISSING_FIELD, "z check")


def test_nodes_that_ask_nothing_come_first_in_the_topological_order() -> None:
    question = TaskNode("List steps.", "a question", evaluation_params=["input"])
    first = CodeNode(str, [], ["input"], name="y first", output_label="first")
    last = CodeNode(str, inputs=[first], name="z last", output_label="last")
    plan = compile_metrics([checked("m", question, last)])
    names = [slot.name for slot in plan.slots]
    assert names == ["y first", "z last", "a question", "rating"]


def decision(name: str, yes: int) -> BinaryJudgementNode:
    return BinaryJudgementNode(f"{name}?", (), ["input"], then={True: yes, False: 0}, name=name)


@pytest.mark.parametrize("names", [("zebra", "apple", "mango"), ("mango", "zebra", "apple")])
def test_steps_and_reasons_of_independent_nodes_come_as_declared(names: tuple[str, ...]) -> None:
    roots = [decision(name, yes) for yes, name in enumerate(names, 7)]
    judge = ScriptedJudge(lambda question: {"reason": "so", "verdict": True})
    done = evaluate(CASES, [DAGMetric("m", DAG(root_nodes=roots))], model=judge, show=False)
    result = done.rows[0].metrics[0]
    assert [step.node for step in result.steps] == list(names)
    assert [node for node, _ in result.path] == list(names)
    assert result.reason == "\n".join(f"{name} → True: so" for name in names)
    assert result.score == 0.9  # of the one declared last


def test_branches_of_one_depth_come_as_their_parents_are_declared() -> None:
    first, second = decision("z", 10), decision("y", 10)
    first.then[True], second.then[True] = decision("b", 3), decision("a", 4)
    metric = DAGMetric("m", DAG(root_nodes=[first, second]))
    done = evaluate(CASES, [metric], model=ScriptedJudge(lambda question: True), show=False)
    result = done.rows[0].metrics[0]
    assert [step.node for step in result.steps] == ["z", "y", "b", "a"]
    assert result.score == 0.4


def test_of_scores_at_one_depth_the_last_declared_counts_whatever_gives_it() -> None:
    text = TaskNode("Count.", "text", evaluation_params=["input"])
    rating = RatingNode("Good?", inputs=[text], name="rating")
    for roots, score in (([decision("d", 2), rating], 0.5), ([rating, decision("d", 2)], 0.2)):
        judge = ScriptedJudge({"text": "some", "d": True, "rating": 5})
        done = evaluate(CASES, [DAGMetric("m", DAG(root_nodes=roots))], model=judge, show=False)
        assert done.scores("m") == [score, score]


def test_a_verdict_of_any_kind_from_what_decides_nothing_ends_no_run() -> None:
    listed = CodeNode(lambda: NodeValue("v", verdict=cast(Any, ["l"])), name="listed")
    broken = CodeNode(lambda listed: 1 / 0, inputs=[listed], name="broken")
    done = evaluate(CASES, [DAGMetric("m", DAG(root_node=broken))], show=False)
    assert [row.metrics[0].outcome for row in done.rows] == [OutcomeKind.CODE_ERROR] * 2
