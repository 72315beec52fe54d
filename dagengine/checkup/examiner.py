"""One judge, asked question after question within the time of a checkup."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

import anyio
from pydantic import BaseModel

from dagengine.errors import JudgeError, JudgeTimeoutError
from dagengine.execution.node_run import address_question
from dagengine.gateway.answering import await_answer
from dagengine.question import NO_USAGE, Answer, Judge, Question, Usage

T = TypeVar("T", bound=BaseModel)


class OutOfTimeError(Exception):
    """The time of the checkup is over."""


@dataclass(frozen=True, slots=True)
class Timed(Generic[T]):
    """An answer, and the seconds that it took."""

    answer: Answer[T]
    seconds: float


class Examiner:
    """Asks one judge, each question once, and counts its calls and tokens."""

    def __init__(self, judge: Judge) -> None:
        self.judge = judge
        self.calls = 0
        self.usage: Usage = NO_USAGE
        self._end = float("inf")

    def begin(self, seconds: float) -> None:
        """Ask for so many seconds from now on."""
        self._end = anyio.current_time() + seconds

    @property
    def left(self) -> float:
        """The seconds that are left."""
        return self._end - anyio.current_time()

    async def ask(self, question: Question[T], judge: Judge | None = None) -> Timed[T]:
        """The answer of the judge, or of another one; raises JudgeError and OutOfTimeError.

        A judge that only decides is asked in its own form, and its writer everything else.
        """
        target, own = address_question(judge or self.judge, question)
        seconds = self.left
        if seconds <= 0:
            raise OutOfTimeError
        self.calls += 1
        begin = anyio.current_time()
        try:
            answer = await await_answer(lambda: target.answer(own), seconds, anyio.current_time)
        except JudgeTimeoutError:
            if self.left <= 0:
                raise OutOfTimeError from None
            raise
        except JudgeError as error:
            self.usage += Usage(*error.tokens)
            raise
        self.usage += answer.usage
        return Timed(answer, anyio.current_time() - begin)
