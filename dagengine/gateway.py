"""The only place where a judge is called: dedupe, limit, deadline, retry, re-ask, ledger."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import anyio
import tenacity
from pydantic import BaseModel

from dagengine.errors import (
    InputError,
    JudgeError,
    JudgeTimeoutError,
    ProviderError,
    UnparseableError,
)
from dagengine.flights import Flights
from dagengine.question import Answer, Judge, Question, Usage
from dagengine.results import Attempt, OutcomeKind, Totals
from dagengine.store import Answers

T = TypeVar("T", bound=BaseModel)
Sink = Callable[[Attempt], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How hard a run may try.

    `max_in_flight` bounds judge calls under way (not cases). `call_timeout` and
    `case_timeout` are seconds for one call and one case (None: no deadline). `attempts`
    counts calls for one question while failures are transient, `reasks` how often an
    answer that does not fit is asked for again. Waits between attempts grow from
    `backoff` to `max_backoff` seconds with jitter, and never undercut Retry-After.
    `remembered` answers are kept for equal questions later in the run.
    """

    max_in_flight: int = 64
    call_timeout: float | None = 120.0
    case_timeout: float | None = None
    attempts: int = 5
    reasks: int = 2
    backoff: float = 0.5
    max_backoff: float = 30.0
    remembered: int = 100_000

    def __post_init__(self) -> None:
        for name, least in (("max_in_flight", 1), ("attempts", 1), ("reasks", 0)):
            value = getattr(self, name)
            if not isinstance(value, int) or value < least:
                raise InputError(f"{name} must be a whole number from {least} on, got {value!r}")
        for name in ("call_timeout", "case_timeout"):
            value = getattr(self, name)
            if value is not None and not value > 0:  # NaN is not
                raise InputError(f"{name} must be a positive number of seconds, got {value!r}")
        for name in ("backoff", "max_backoff"):
            if not getattr(self, name) >= 0:
                raise InputError(f"{name} must not be negative, got {getattr(self, name)!r}")


DEFAULT_LIMITS = Limits()


def is_cancelled() -> bool:
    """Whether a cancellation comes from us, and not from inside somebody's code."""
    return anyio.current_effective_deadline() == -math.inf


class Gateway:
    """Asks judges on behalf of one run, and the answers of earlier runs before them."""

    def __init__(
        self,
        limits: Limits = DEFAULT_LIMITS,
        sink: Sink | None = None,
        stored: Answers | None = None,
    ) -> None:
        self.limits = limits
        self._sink = sink
        self._stored = stored
        self._cached = 0
        self._flights: Flights[Answer[Any]] = Flights(limits.remembered)
        self._limiter = anyio.CapacityLimiter(limits.max_in_flight)
        self._asked = self._calls = self._retried = self._failed = 0
        self._usage = Usage()

    @property
    def totals(self) -> Totals:
        """Sums over all attempts so far."""
        return Totals(
            asked=self._asked,
            shared=self._flights.shared,
            calls=self._calls,
            retried=self._retried,
            failed=self._failed,
            usage=self._usage,
            cached=self._cached,
        )

    async def ask(self, judge: Judge, question: Question[T]) -> Answer[T]:
        """A valid answer, from an equal question when there is one; raises JudgeError."""
        self._asked += 1
        key = (judge.identity, question.key)
        answer = await self._flights.get(key, lambda: self._find(judge, question))
        return cast(Answer[T], answer)

    async def _find(self, judge: Judge, question: Question[T]) -> Answer[T]:
        """The stored answer if there is one, else the judge's."""
        if self._stored is None:
            return await self._settle(judge, question)
        answer = await self._stored.get(judge, question, lambda: self._settle(judge, question))
        if answer.origin != "live":
            self._cached += 1
            if self._sink is not None:
                self._sink(
                    Attempt(
                        question.name, judge.identity, question.key, 0, OutcomeKind.OK, 0.0,
                        mode=answer.mode, origin=answer.origin,
                    )
                )  # fmt: skip
        return answer

    async def _settle(self, judge: Judge, question: Question[T]) -> Answer[T]:
        """Ask until the answer fits, or the limits are reached."""
        asked, reasks, numbers = question, 0, itertools.count()
        while True:
            try:
                return await self._persist(judge, asked, numbers)
            except UnparseableError as error:
                if reasks >= self.limits.reasks or not judge.capabilities.repeatable:
                    raise
                reasks += 1
                asked = question.again(error.raw, _complaint(error))

    async def _persist(
        self, judge: Judge, question: Question[T], numbers: Iterator[int]
    ) -> Answer[T]:
        """One answer, through transient failures."""
        first: JudgeError
        try:
            return await self._attempt(judge, question, next(numbers))
        except (ProviderError, JudgeTimeoutError) as error:
            if not _is_transient(error) or self.limits.attempts == 1:
                raise
            first = error
        replay = [first]

        async def again() -> Answer[T]:
            if replay:  # the first attempt is known already; tenacity counts and waits for it
                raise replay.pop()
            return await self._attempt(judge, question, next(numbers))

        retrying = tenacity.AsyncRetrying(
            stop=tenacity.stop_after_attempt(self.limits.attempts),
            wait=self._wait,
            retry=tenacity.retry_if_exception(_is_transient),
            sleep=anyio.sleep,
            reraise=True,
        )
        return await retrying(again)

    def _wait(self, state: tenacity.RetryCallState) -> float:
        jittered = tenacity.wait_random_exponential(self.limits.backoff, self.limits.max_backoff)
        error = state.outcome.exception() if state.outcome else None
        asked = error.retry_after if isinstance(error, ProviderError) else None
        return max(jittered(state), asked or 0.0)

    async def _attempt(self, judge: Judge, question: Question[T], number: int) -> Answer[T]:
        async with self._limiter:
            self._calls += 1
            self._retried += number > 0
            started = time.perf_counter()
            answer: Answer[T] | None = None
            try:
                with anyio.move_on_after(self.limits.call_timeout):
                    answer = await judge.answer(question)
                if answer is None:
                    limit = self.limits.call_timeout
                    raise JudgeTimeoutError(f"no answer within {limit} s; the call was ended")
            except anyio.get_cancelled_exc_class():
                if not is_cancelled():
                    own = ProviderError("the judge's own work was cancelled", transient=False)
                    self._note(judge, question, number, started, own)
                    raise own from None
                ended = JudgeTimeoutError("the call was ended with its case")
                self._note(judge, question, number, started, ended)
                raise
            except JudgeError as error:
                self._note(judge, question, number, started, error)
                raise
            except Exception as error:  # a judge may be anybody's code
                foreign = _foreign(error)
                self._note(judge, question, number, started, foreign)
                raise foreign from error
        self._usage += answer.usage
        if self._sink is not None:
            self._sink(
                Attempt(
                    question.name, judge.identity, question.key, number, OutcomeKind.OK,
                    time.perf_counter() - started, answer.usage, answer.mode,
                )
            )  # fmt: skip
        return answer

    def _note(
        self, judge: Judge, question: Question[Any], number: int, started: float, error: JudgeError
    ) -> None:
        self._failed += 1
        usage = Usage(*error.tokens)
        self._usage += usage
        if self._sink is not None:
            seconds = time.perf_counter() - started
            kind = OutcomeKind(error.kind)
            self._sink(
                Attempt(
                    question.name, judge.identity, question.key, number, kind, seconds,
                    usage, message=str(error),
                )
            )  # fmt: skip


def _foreign(error: Exception) -> JudgeError:
    """An exception of somebody's judge as one of ours, worth a retry where it may pass.

    Client libraries of all kinds carry the HTTP status in `status_code`.
    """
    text = f"{type(error).__name__}: {error}".rstrip(": ")
    if isinstance(error, TimeoutError):
        return JudgeTimeoutError(text)
    status = getattr(error, "status_code", None)
    passing = isinstance(status, int) and (status in (408, 425, 429) or status >= 500)
    return ProviderError(text, transient=passing or isinstance(error, ConnectionError))


def _is_transient(error: BaseException) -> bool:
    return isinstance(error, JudgeTimeoutError) or (
        isinstance(error, ProviderError) and error.transient
    )


def _complaint(error: UnparseableError) -> str:
    return (
        f"That answer cannot be used: {error}. Answer the same question again, in exactly the "
        "form that was asked for and with nothing else."
    )
