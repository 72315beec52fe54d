"""A question on its way to an answer: asked again for less, as the law of demands says."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import Final, Generic, TypeVar

import anyio
from pydantic import BaseModel

from dagengine.errors import (
    JudgeError,
    ProviderError,
    RefusedError,
    RunawayError,
    TooLongError,
    UnparseableError,
)
from dagengine.judges.wire.dialects.error_responses import Complaint
from dagengine.judges.wire.dialects.feature_fallback import (
    ROOM,
    Demands,
    Hypotheses,
    Lowering,
    RequestDemands,
    Trial,
)
from dagengine.question import NO_USAGE, Answer, Question, Usage

T = TypeVar("T", bound=BaseModel)

# Statuses of rejections whose words count.
_WORDED: Final = frozenset({400, 402, 403, 404, 422, 500})


@dataclass(slots=True)
class Attempt(RequestDemands, Generic[T]):
    """One way of asking a question: what it demands, and how it is sent.

    `room` says whether thoughts may be given more tokens.
    """

    send: Callable[[], Awaitable[Answer[T] | JudgeError]] = field(kw_only=True)
    room: bool = False
    explores: bool = True

    def lowerings(self, failure: JudgeError, law: Hypotheses) -> list[Lowering] | None:
        """The lower demands that a failure names; None if it is about no demand at all."""
        complaint = failure.complaint
        if isinstance(failure, RunawayError) and self.room and failure.cause == "thinking":
            return [Lowering("thoughts", ROOM)]
        if complaint is None or isinstance(failure, RunawayError | UnparseableError | RefusedError):
            return None
        if isinstance(failure, TooLongError):
            return self._room_for_prompt(failure, complaint) or None
        lowerings = self.named_lowerings(complaint)
        if lowerings and complaint.status in _WORDED:
            return lowerings
        # What lasts has a cause that is known: the model, the quota.
        lasts = complaint.status != 404 and isinstance(failure, ProviderError) and failure.lasting
        return [] if not lasts and law.is_rejection(complaint) else None

    def _room_for_prompt(self, failure: TooLongError, complaint: Complaint) -> list[Lowering]:
        # Only the limit makes room: such messages count the tokens of the schema, too.
        is_full = (failure.needed or 0) > (failure.window or math.inf)
        return [] if is_full else self.limit_lowerings(complaint.said)


async def ask_lawfully(
    law: Hypotheses,
    question: Question[T],
    exploring: anyio.Lock,
    attempt: Callable[[Demands], Attempt[T]],
) -> Answer[T] | JudgeError:
    """The answer to a question, asked for less where it is rejected; else the first error.

    `attempt` makes the way of asking with such demands. `exploring` is held while a question finds
    out, without any words, what others then need not.
    """
    way = attempt(law.standing)
    outcome = await way.send()
    if isinstance(outcome, Answer):
        if not way.fields <= law.proven:
            law.note_success(way.fields)
        return outcome
    reported = failure = outcome
    spent, trial = NO_USAGE, Trial(law, question.key)
    async with AsyncExitStack() as stack:
        explores = False
        while (lowerings := way.lowerings(failure, law)) is not None:
            spent += Usage(*failure.tokens)
            # A step that leaves the words as they were, but for numbers, is taken back.
            complaint = failure.complaint
            shape = str(failure) if complaint is None else complaint.shape
            rungs = way.ladder() if way.explores else []
            if not trial.lower(shape, lowerings, rungs):
                break
            if trial.explores and not explores:
                await stack.enter_async_context(exploring)
                explores = True
                if not trial.reconsider(rungs):
                    break
            way = attempt(trial.demands)
            outcome = await way.send()
            if isinstance(outcome, Answer):
                trial.note_success(way.fields)
                return replace(outcome, usage=outcome.usage + spent)
            failure = outcome
        else:
            # The model was reached, or the server failed in a way that is not about demands.
            if isinstance(failure, UnparseableError):
                trial.note_success(way.fields)
            reported, spent = failure, spent + Usage(*failure.tokens)
    # Thoughts without an end in all the room that there is say more than the first ones.
    if isinstance(failure, RunawayError):
        reported = failure
    reported.tokens = spent.counts
    return reported
