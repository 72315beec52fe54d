"""How many nodes ask at the same time: as many as calls may be in progress, and who waits aside."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import anyio
import pytest
from trio.testing import MockClock

from dagengine import Limits, stream
from dagengine.errors import ProviderError
from dagengine.judges import ScriptedJudge
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode, CodeNode, TaskNode
from dagengine.question import Capabilities, Question
from dagengine.results import CaseResult
from dagengine.test_case import LLMTestCase

MOST = 4


def test_a_case_whose_time_is_over_asks_nothing_more() -> None:
    asked: list[str] = []

    async def answer(question: Question[Any]) -> bool:
        asked.append(question.name)
        await anyio.sleep(0.6)
        return True

    metrics = [DAGMetric(name, DAG(judgement(name))) for name in ("first", "second", "third")]
    limits = Limits(max_in_flight=1, case_timeout=1)
    rows: list[CaseResult] = []

    async def work() -> None:
        cases = [LLMTestCase(input="a case")]
        await stream(cases, metrics, rows.append, model=ScriptedJudge(answer), limits=limits)

    anyio.run(work, backend="trio", backend_options={"clock": MockClock(autojump_threshold=0)})
    assert asked == ["first", "second"]
    assert [result.outcome for result in rows[0].metrics] == ["ok", "timeout", "timeout"]


class Careful(ScriptedJudge):
    """Is asked by few at first, as a server is."""

    capabilities = Capabilities()


def judgement(name: str = "good") -> BinaryJudgementNode:
    return BinaryJudgementNode(
        f"Is it {name}?", evaluation_params=["input"], then={True: 10, False: 0}, name=name
    )


async def rows_of(
    inputs: list[str], metrics: list[DAGMetric], limits: Limits, **settings: Any
) -> int:
    """How many rows a run has, all of them with a score; it may not hang."""
    rows: list[CaseResult] = []
    with anyio.fail_after(120):
        cases = (LLMTestCase(input=text) for text in inputs)
        await stream(cases, metrics, rows.append, limits=limits, **settings)
    assert all(result.failure is None for row in rows for result in row.metrics)
    return len(rows)


@pytest.mark.anyio
async def test_no_more_cases_are_begun_than_can_be_asked_about() -> None:
    begun, full, seen = 0, anyio.Event(), list[int]()

    def cases() -> Iterator[LLMTestCase]:
        nonlocal begun
        for number in range(100):
            begun += 1
            yield LLMTestCase(input=f"{number}")

    async def answer(question: Question[Any]) -> bool:
        seen.append(begun)
        if len(seen) == MOST:
            full.set()
        await full.wait()
        return True

    rows: list[CaseResult] = []
    await stream(
        cases(), [DAGMetric("m", DAG(judgement()))], rows.append, model=ScriptedJudge(answer),
        limits=Limits(max_in_flight=MOST),
    )  # fmt: skip
    assert len(rows) == 100
    assert all(count <= place + MOST for place, count in enumerate(seen))


@pytest.mark.anyio
async def test_code_goes_on_while_as_many_nodes_ask_as_may() -> None:
    asked, counted = 0, 0
    far = anyio.Event()

    async def count(text: str) -> str:
        nonlocal counted
        counted += 1
        if counted == MOST + 1:  # one more than may ask at the same time
            far.set()
        await anyio.lowlevel.checkpoint()
        return text

    async def answer(question: Question[Any]) -> bool:
        nonlocal asked
        asked += 1
        await far.wait()
        return True

    last = CodeNode(lambda text: 1.0, inputs=[CodeNode(count, [], ["input"], name="n")], name="l")
    metrics = [DAGMetric("asks", DAG(judgement())), DAGMetric("counts", DAG(last))]
    inputs = [f"{number}" for number in range(30)]
    limits = Limits(max_in_flight=MOST)
    judge = ScriptedJudge(answer)
    assert await rows_of(inputs, metrics, limits, model=judge) == 30
    assert (asked, counted) == (30, 30)


@pytest.mark.anyio
async def test_as_many_nodes_of_plain_python_are_at_work_as_may_ask() -> None:
    at_work, most = 0, 0

    async def measure(text: str) -> float:
        nonlocal at_work, most
        at_work += 1
        most = max(most, at_work)
        for _ in range(3):
            await anyio.lowlevel.checkpoint()
        at_work -= 1
        return 1.0

    metric = DAGMetric("measures", DAG(CodeNode(measure, [], ["input"], name="measure")))
    inputs = [f"{number}" for number in range(30)]
    assert await rows_of(inputs, [metric], Limits(max_in_flight=MOST)) == 30
    assert most == MOST


@pytest.mark.anyio
async def test_others_are_asked_while_questions_wait_for_the_answer_to_an_equal_one() -> None:
    other = anyio.Event()

    async def answer(question: Question[Any]) -> bool:
        if "other" in question.messages[-1]["content"]:
            other.set()
        await other.wait()
        return True

    inputs = ["the same"] * (2 * MOST) + ["the other"]
    limits = Limits(max_in_flight=MOST)
    judge = ScriptedJudge(answer)
    assert await rows_of(inputs, [DAGMetric("m", DAG(judgement()))], limits, model=judge) == 9


@pytest.mark.anyio
async def test_others_are_asked_while_cases_wait_for_what_is_the_same_for_all() -> None:
    other = anyio.Event()

    async def answer(question: Question[Any]) -> Any:
        if question.name == "other":
            other.set()
        await other.wait()
        return "steps" if question.name == "steps" else True

    steps = TaskNode("List the steps.", "steps")
    last = BinaryJudgementNode("Done?", inputs=[steps], then={True: 10, False: 0}, name="done")
    gate = CodeNode(
        lambda text: text == "last", [], ["input"],
        then={True: judgement("other"), False: 0}, name="gate",
    )  # fmt: skip
    metrics = [DAGMetric("first", DAG(last)), DAGMetric("second", DAG(gate))]
    inputs = [f"{number}" for number in range(2 * MOST)] + ["last"]
    limits = Limits(max_in_flight=MOST)
    assert await rows_of(inputs, metrics, limits, model=ScriptedJudge(answer)) == 2 * MOST + 1


@pytest.mark.anyio
async def test_others_are_asked_while_questions_wait_for_a_retry() -> None:
    other, failed = anyio.Event(), set[str]()

    async def answer(question: Question[Any]) -> Any:
        text = question.messages[-1]["content"]
        if "later" in text:
            other.set()
        elif text not in failed:
            failed.add(text)
            return ProviderError("HTTP 500", transient=True, status=500, retry_after=0.05)
        await other.wait()
        return True

    inputs = [f"number {number}" for number in range(MOST)] + ["later"]
    limits = Limits(max_in_flight=MOST, attempts=2)
    judge = ScriptedJudge(answer)
    assert await rows_of(inputs, [DAGMetric("m", DAG(judgement()))], limits, model=judge) == 5
    assert len(failed) == MOST


@pytest.mark.anyio
async def test_one_judge_is_asked_while_another_one_takes_no_more_calls() -> None:
    second = anyio.Event()
    at_first = 16  # calls that a judge gets at once before it has answered any

    async def slow(question: Question[Any]) -> bool:
        await second.wait()
        return True

    async def quick(question: Question[Any]) -> bool:
        second.set()
        return True

    def only(last: bool, name: str, judge: ScriptedJudge) -> DAGMetric:
        """A metric that asks about the last case only, or about all others."""
        gate = CodeNode(
            lambda text: (text == "last") is last, [], ["input"],
            then={True: judgement(f"{name} asks"), False: 0}, name=f"{name} gate",
        )  # fmt: skip
        return DAGMetric(name, DAG(gate), model=judge)

    metrics = [
        only(last=False, name="slow", judge=Careful(slow, name="slow")),
        only(last=True, name="quick", judge=Careful(quick, name="quick")),
    ]
    inputs = [f"{number}" for number in range(at_first + 8)] + ["last"]
    limits = Limits(max_in_flight=at_first + 1)
    assert await rows_of(inputs, metrics, limits) == at_first + 9
