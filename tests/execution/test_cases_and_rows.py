"""Rows flow: what an earlier case asks goes before what later ones ask, retries included."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from dagengine import Limits, stream
from dagengine.errors import ProviderError
from dagengine.judges import ScriptedJudge
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode, TaskNode
from dagengine.question import Question
from dagengine.results import CaseResult
from dagengine.test_case import LLMTestCase

DEPTH = 3


def chain() -> DAGMetric:
    """Three questions, one after the other."""
    last = BinaryJudgementNode("Good?", evaluation_params=["input"], then={True: 10, False: 0})
    middle = BinaryJudgementNode("Fair?", evaluation_params=["input"], then={True: last, False: 0})
    return DAGMetric("tree", DAG(TaskNode("Extract", "facts", [middle], ["input"])))


class Run:
    """A run whose judge takes 50 ms and rejects what `rejects` says, on a clock that jumps."""

    def __init__(self, rejects: Callable[[str, int], bool]) -> None:
        self.rejects = rejects
        self.tries = Counter[str]()
        self.rows: list[CaseResult] = []
        self.made: list[int] = []  # attempts by the time that each row left

    async def answer(self, question: Question[Any]) -> Any:
        name = f"{question.name} {question.messages[-1]['content']}"
        self.tries[name] += 1
        if self.rejects(name, self.tries[name]):
            return ProviderError("HTTP 429", transient=True, status=429)
        await anyio.sleep(0.05)
        return "facts" if "facts" in question.name else True

    def take(self, row: CaseResult) -> None:
        self.rows.append(row)
        self.made.append(self.tries.total())

    def over(self, cases: int, limits: Mapping[str, Any]) -> Run:
        data = [LLMTestCase(input=f"case {number}.") for number in range(cases)]

        async def work() -> None:
            given = Limits(attempts=20, **limits)
            await stream(data, [chain()], self.take, model=ScriptedJudge(self.answer), limits=given)

        clock = MockClock(autojump_threshold=0)
        anyio.run(work, backend="trio", backend_options={"clock": clock})
        return self


@pytest.mark.parametrize(
    ("limits", "first", "sixtieth"),
    # Without a rate the whole run takes but three waits of a question that is rejected twice.
    [({"max_in_flight": 64}, 0.25, 0.9), ({"requests_per_minute": 900}, 0.03, 0.15)],
)
def test_with_a_twentieth_of_the_calls_rejected_rows_leave_from_the_beginning(
    limits: dict[str, Any], first: float, sixtieth: float
) -> None:
    # Who is rejected must not depend on who asks first, which trio draws by lot.
    def rejects(name: str, number: int) -> bool:
        return random.Random(f"{name} {number}").random() < 0.05

    run = Run(rejects).over(600, limits)
    assert run.made[0] <= first * run.made[-1]
    assert run.made[59] <= sixtieth * run.made[-1]


@settings(max_examples=25, deadline=None)
@given(
    rejected=st.sets(st.integers(0, 59)),
    limits=st.sampled_from(
        [{"max_in_flight": 1}, {"max_in_flight": 3}, {"requests_per_minute": 600.0}]
    ),
)
def test_no_row_waits_for_more_than_its_part_whoever_is_rejected(
    rejected: set[int], limits: dict[str, Any]
) -> None:
    """Without waits between attempts, later cases get at most every other call."""
    order: dict[str, int] = {}

    def rejects(name: str, number: int) -> bool:
        return order.setdefault(name, len(order)) in rejected and number < 3

    run = Run(rejects).over(20, {**limits, "backoff": 1e-6, "max_backoff": 1e-6, "patience": 1e9})
    plain = Run(lambda name, number: False).over(20, limits)
    assert run.rows == plain.rows
    own = 0
    for index, made in enumerate(run.made):
        own += sum(count for name, count in run.tries.items() if f"case {index}." in name)
        assert made <= 2 * own + 20, (index, run.made)
