"""What asks the judge: a node that runs, and a metric that wants its reason written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar, cast

import anyio
from pydantic import BaseModel

from dagengine.errors import JudgeError
from dagengine.gateway import Gateway
from dagengine.prompts import Evidence, messages_for, output_type
from dagengine.question import Answer, Judge, Question
from dagengine.results import MetricResult

T = TypeVar("T", bound=BaseModel)

_REASON = (
    "Explain in two or three sentences, to somebody who reads a report, why an evaluation "
    "ended with this score. Use only the recorded path."
)


class Ask:
    """What a running node asks with: its unit's judge, through the gateway."""

    def __init__(self, gateway: Gateway, judge: Judge) -> None:
        self._gateway = gateway
        self._judge = judge

    async def __call__(self, question: Question[T]) -> Answer[T]:
        return await self._gateway.ask(self._judge, question)

    async def each(self, questions: Sequence[Question[T]]) -> list[Answer[T]]:
        """All at once. The failure reported is that of the first question that failed."""
        answers: list[Answer[T] | JudgeError | None] = [None] * len(questions)

        async def one(place: int, question: Question[T]) -> None:
            try:
                answers[place] = await self(question)
            except JudgeError as error:
                answers[place] = error

        async with anyio.create_task_group() as group:
            for place, question in enumerate(questions):
                group.start_soon(one, place, question)
        for answer in answers:
            if isinstance(answer, JudgeError):
                raise answer
        return cast("list[Answer[T]]", answers)


async def write_reason(result: MetricResult, ask: Ask, deadline: float) -> MetricResult:
    """One last call; when it fails the composed reason stays, and says so."""
    evidence = [
        Evidence("path", result.reason or ""),
        Evidence("score", f"{result.score:.4g} of 1"),
    ]
    shape = output_type(str)
    question = Question(messages_for(_REASON, evidence), shape, name=f"{result.metric} reason")
    why = "the case's time was over"
    with anyio.CancelScope(deadline=deadline):
        try:
            answer: Any = await ask(question)
            return replace(result, reason=answer.value.output)
        except JudgeError as error:
            why = str(error)
    note = f"(no reason written by the judge: {why})"
    return replace(result, reason=f"{result.reason or ''}\n{note}".strip())
