"""What asks the judge: a node that runs, and a metric that wants its reason written."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar, cast

import anyio
from pydantic import BaseModel

from dagengine.errors import JudgeError
from dagengine.gateway.gateway import Gateway
from dagengine.graph.graph import MetricSpec
from dagengine.graph.panel import Ballot
from dagengine.prompts.evidence import Evidence, messages_for, output_type
from dagengine.question import NO_USAGE, Answer, Judge, Message, Question
from dagengine.results import MetricResult

T = TypeVar("T", bound=BaseModel)
X = TypeVar("X")
R = TypeVar("R")

_REASON = (
    "Explain in two or three sentences, to somebody who reads a report, why an evaluation "
    "ended with this score. Use only the recorded path."
)


class Ask:
    """What one running node asks with: a judge of its unit, through the gateway.

    With a `ballot` every question is one vote of several.
    """

    def __init__(self, gateway: Gateway, judge: Judge, ballot: Ballot | None = None) -> None:
        self._gateway = gateway
        self._judge = judge
        self._ballot = ballot
        self.usage = NO_USAGE
        self.answers: list[str] = []

    async def __call__(self, question: Question[T]) -> Answer[T]:
        return self._noted(await self._ask(question))

    async def _ask(self, question: Question[T], place: int | None = None) -> Answer[T]:
        if self._ballot is not None:
            question = self._ballot.question(question, place)
        return await self._gateway.ask(self._judge, question)

    def _noted(self, answer: Answer[T]) -> Answer[T]:
        self.usage += answer.usage
        self.answers.append(answer.raw)
        return answer

    async def each(self, questions: Sequence[Question[T]]) -> list[Answer[T]]:
        """All at once. The failure reported is that of the first question that failed."""

        async def one(place: int, question: Question[T]) -> Answer[T] | JudgeError:
            try:
                return await self._ask(question, place)
            except JudgeError as error:
                return error

        answers = await together(one, questions)
        for answer in answers:
            if isinstance(answer, JudgeError):
                raise answer
        # Noted in the order of the questions, not in that of the answers.
        return [self._noted(answer) for answer in cast("list[Answer[T]]", answers)]


async def together(work: Callable[[int, X], Awaitable[R]], things: Sequence[X]) -> list[R]:
    """What `work` makes of every (place, thing), all at once."""
    results: dict[int, R] = {}

    async def one(place: int, thing: X) -> None:
        results[place] = await work(place, thing)

    async with anyio.create_task_group() as group:
        for place, thing in enumerate(things):
            group.start_soon(one, place, thing)
    return [results[place] for place in range(len(things))]


def wants_reason(spec: MetricSpec, result: MetricResult) -> bool:
    """Whether the judge is to write the reason of a result."""
    if result.score is None or not (spec.judged_reason and spec.include_reason):
        return False
    return spec.reason_if_perfect or result.score < 1


def reason_question(spec: MetricSpec, result: MetricResult) -> Question[Any]:
    """The question for a reason, in the metric's own words where it has some."""
    score, path = result.score or 0.0, result.reason or ""
    evidence = [Evidence("path", path), Evidence("score", f"{score:.4g} of 1")]
    messages: tuple[Message, ...] = messages_for(_REASON, evidence)
    if spec.reason_wording is not None:
        messages = ({"role": "user", "content": spec.reason_wording(score, path)},)
    return Question(messages, output_type(str), name=f"{result.metric} reason")


async def write_reason(
    result: MetricResult, question: Question[Any], ask: Ask, deadline: float
) -> MetricResult:
    """One last call; when it fails the composed reason stays, and says so."""
    why = "the case's time was over"
    with anyio.CancelScope(deadline=deadline):
        try:
            answer: Any = await ask(question)
            return replace(result, reason=answer.value.output)
        except JudgeError as error:
            why = str(error)
    note = f"(no reason written by the judge: {why})"
    return replace(result, reason=f"{result.reason or ''}\n{note}".strip())
