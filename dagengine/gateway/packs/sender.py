"""The way of packs to one judge: places for all questions, then one request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from dagengine.errors import JudgeError, ProviderError, TooLongError, UnsupportedError
from dagengine.gateway.budget import Budget
from dagengine.gateway.limiter import UNSAID, Call, JudgeLimiter, Limiter
from dagengine.gateway.prices import Price
from dagengine.gateway.urgency import Urgency
from dagengine.question import NO_USAGE, Answer, Judge, Packs, Question, Usage

Outcome = Answer[Any] | JudgeError
# A request that is refused as it stands may be too much of one: its questions may pass.
_TOO_MUCH = frozenset({400, 413, 422})


class PackingJudge(Judge, Protocol):
    """A judge whose questions about one state may travel together (`Capabilities.packs`)."""

    async def answer_all(
        self, questions: Sequence[Question[Any]], *, on_request: Callable[[], None], ahead: int
    ) -> list[Outcome]:
        """Send questions and return their outcomes; raises JudgeError if all failed alike.

        `on_request` is called for every request that is made. Nobody wants the last `ahead`
        questions yet: where they would cost requests of their own they are UnsupportedErrors.
        """
        ...


@dataclass(slots=True)
class PackCounts:
    """What travelled in packs, over a run.

    `questions` are the calls that did, `requests` those that were made for them; `ahead` were
    asked before anybody wanted them, `consumed` of these were wanted. `usage` is that of `ahead`.
    """

    questions: int = 0
    requests: int = 0
    ahead: int = 0
    consumed: int = 0
    usage: Usage = NO_USAGE


@dataclass(frozen=True, slots=True)
class PackSender:
    """What the packs of one judge need of the gateway.

    `packs` says how much a request may hold. `in_time` ends what takes too long; `knows` says
    whether the answer to a question is there, or in progress.
    """

    judge: PackingJudge
    packs: Packs
    judge_limiter: JudgeLimiter
    limiter: Limiter
    budget: Budget
    price: Price | None
    counts: PackCounts
    knows: Callable[[Question[Any]], bool]
    in_time: Callable[[Judge, Callable[[], Awaitable[list[Outcome]]]], Awaitable[list[Outcome]]]

    def key(self, question: Question[Any]) -> tuple[str, str]:
        """Key of a question of this judge."""
        return self.judge_limiter.name, question.key

    async def enter(
        self, tokens: int, urgency: Urgency, places: int, question: Question[Any]
    ) -> Call:
        """Wait for so many places; raises ProviderError when the judge is given up."""
        return await self.limiter.enter(self.judge_limiter, tokens, urgency, places, question)

    def leave(self, call: Call) -> None:
        """Give one place back."""
        self.limiter.leave(self.judge_limiter, call, UNSAID)

    async def send(self, questions: Sequence[Question[Any]], ahead: int) -> list[Outcome]:
        """Send questions and return their outcomes; nobody wants the last `ahead` of them yet."""
        count = len(questions) - ahead
        outcomes = await self._request(questions, ahead)
        if all(map(_is_too_much, outcomes)) and len(questions) > 1:
            own_questions = questions[:count]
            parts = await self._request(own_questions) if ahead else outcomes
            if count > 1 and all(map(_is_too_much, parts)):
                parts = await self._halves(own_questions)
            outcomes = [*parts, *outcomes[count:]]
        for outcome in outcomes[count:]:
            if isinstance(outcome, UnsupportedError):
                continue
            usage = outcome.usage if isinstance(outcome, Answer) else Usage(*outcome.tokens)
            self.counts.ahead += 1
            self.counts.usage += usage
            self.budget.charge(0.0, None if self.price is None else self.price.of(usage))
        return outcomes

    async def _request(self, questions: Sequence[Question[Any]], ahead: int = 0) -> list[Outcome]:
        make = partial(self.judge.answer_all, questions, on_request=self._count, ahead=ahead)
        try:
            return await self.in_time(self.judge, make)
        except JudgeError as error:
            return [error] * len(questions)

    async def _halves(self, questions: Sequence[Question[Any]]) -> list[Outcome]:
        """Send questions that are too much for one request by halves."""
        half = len(questions) // 2
        joined: list[Outcome] = []
        for part in (questions[:half], questions[half:]):
            outcomes = await self._request(part)
            again = len(part) > 1 and all(map(_is_too_much, outcomes))
            joined += await self._halves(part) if again else outcomes
        return joined

    def _count(self) -> None:
        self.counts.requests += 1


def _is_too_much(outcome: Outcome) -> bool:
    rejected = isinstance(outcome, ProviderError) and outcome.status in _TOO_MUCH
    return rejected or isinstance(outcome, TooLongError)
