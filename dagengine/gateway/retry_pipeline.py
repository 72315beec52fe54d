"""The four stages of a question on its way to its judge.

::

    Gateway.answer(request)
       │
       ▼
    Shared    an equal question is asked once: later ones wait for its answer, or find it
       │
       ▼
    Stored    an answer in the store is taken; a new one is in the file before it is used
       │
       ▼
    Retried   failures that may pass are tried again, answers that do not fit are asked again
       │                                                   ▲
       ▼                                                   │ every attempt
    Limited   the call waits for its turn: the beginning of its prompt, its pack, the limits of
       │      the judge, the budget. Then it is made, within its time, and entered in the ledger.
       ▼
    judge.answer(question)

Each stage is called with the same `Request` and calls the next. The order matters. Questions are
shared before they are stored, so one process looks into the file once for equal ones. They are
stored outside of the retries, so the file holds what came in the end. They are retried outside of
the limits, so a question that waits for its next attempt takes no place from others.
"""

from __future__ import annotations

import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar, cast

import anyio

from dagengine.errors import (
    CopiedError,
    DoubtfulAnswerError,
    JudgeError,
    JudgeTimeoutError,
    ProviderError,
    RunawayError,
    TooLongError,
    UnparseableError,
)
from dagengine.gateway.budget import Budget, Ledger
from dagengine.gateway.call_priorities import FIRST, Resting, Waits
from dagengine.gateway.deadlines import await_answer, hide_secrets, without_secrets
from dagengine.gateway.otel_spans import NO_SPANS, NoSpans
from dagengine.gateway.packs.packing import PackCounts, PackEntry, PackingJudge, PackSender
from dagengine.gateway.packs.prompt_cache import PromptCacheOrder, beginning_of, least_shared
from dagengine.gateway.rate_limiter import UNSAID, JudgeLimiter, Lease, Limiter
from dagengine.gateway.request import JudgeState, Request
from dagengine.gateway.single_flight import SingleFlight, WithdrawnError
from dagengine.gateway.window.truncated_prompts import counting, explain_overflow
from dagengine.limits import Limits
from dagengine.prompts.parsing import is_enough, read_part, require_last_word
from dagengine.question import NO_USAGE, PART, Answer, Judge, Packs, Question, Usage, Warmth
from dagengine.results import Attempt, JudgeCall, OutcomeKind
from dagengine.results.prices import Price
from dagengine.store.answer_journal import OpenStore

R = TypeVar("R")
Once = Callable[[Judge], SingleFlight[Answer[Any]] | None]
"""Gives the answers of a judge that are equal for all cases, of other runs, too."""
Sink = Callable[[Attempt], None]

# Answers that are remembered of a judge whose answers are stored, in kB as `_weight` has it.
_RECENT = 2_000
_LONGEST_WAIT = 10.0  # times the patience that a case without a deadline waits for its judge
_UNWANTED = "not asked: nobody waits for the case any more"
_ENDS = ("}", "")  # of answers that are JSON, or a value without a text
_ALONE = Packs(questions=1, characters=0)  # of a judge that has just given up packing
_ALTERNATIVE = 150  # bytes that one alternative of a token takes in memory


class Attempts:
    """Hands every attempt to a caller's function; the first `error` of its code is kept."""

    def __init__(self, sink: Sink | None) -> None:
        self._sink = sink
        self.error: Exception | None = None

    def __bool__(self) -> bool:
        return self._sink is not None

    def note(self, attempt: Attempt) -> None:
        """Hand on an attempt."""
        assert self._sink is not None
        try:
            self._sink(attempt)
        except Exception as error:  # noqa: BLE001 - what was answered was paid for
            self.error = self.error or error


class Remembered:
    """The answers of a run that are on their way, or are kept for equal questions."""

    def __init__(self, size: int, *, stored: bool) -> None:
        """`size` is in kB; `stored` says whether there is a store of answers."""
        self._stored = stored
        self._all: SingleFlight[Answer[Any]] = SingleFlight(size, _weight)
        # What a store holds it finds again: only the latest answers are worth their memory.
        self._recent: SingleFlight[Answer[Any]] = SingleFlight(min(size, _RECENT), _weight)

    @property
    def shared(self) -> int:
        """The questions that took the answer of another one."""
        return self._all.shared + self._recent.shared

    def of(self, state: JudgeState) -> SingleFlight[Answer[Any]]:
        """The answers of one judge, and of others."""
        return self._recent if self._stored and state.durable is not None else self._all

    def knows(self, state: JudgeState, question: Question[Any]) -> bool:
        """Return whether the answer to a question is kept, or on its way."""
        return (state.limiter.name, question.key) in self.of(state)


@dataclass(slots=True, eq=False, repr=False)
class Shared:
    """The first stage: equal questions to one judge are asked once."""

    _next: Stored
    _remembered: Remembered
    _resting: Resting
    _once: Once | None

    async def __call__(self, request: Request) -> Answer[Any]:
        state, pause = request.state, request.pause
        flights = self._remembered.of(state)
        if self._once is not None and request.rank == FIRST:
            flights = self._once(request.judge) or flights
        key, ask = (state.limiter.name, request.question.key), partial(self._next, request)
        if pause is None:
            return await flights.get(key, ask, request.urgency, self._resting)
        pause.rest()  # also while another one asks the same, or another process
        try:
            return await flights.get(key, ask, request.urgency, self._resting)
        finally:
            pause.resume()


@dataclass(slots=True, eq=False, repr=False)
class Stored:
    """The second stage: the stored answer if there is one, else a new one, which is stored.

    What the store lacks another process of the run may have (`leased`). A call keeps its place
    until its answer is in the store. So a killed run never has to ask more again than the calls in
    progress.
    """

    _next: Retried
    _answers: OpenStore | None
    _leased: Lease | None
    _limiter: Limiter
    _ledger: Ledger
    _attempts: Attempts
    _resting: Resting

    async def __call__(self, request: Request) -> Answer[Any]:
        judge, question = request.judge, request.question
        try:
            if self._answers is None and self._leased is None:
                return await self._next(request)
            ask = partial(self._next, request)
            if self._leased is not None:
                ask = partial(self._leased.get, judge, question, ask, self._resting)
            if self._answers is None:
                answer = await ask()
            else:
                answer = await self._answers.get(judge, question, ask, self._resting)
        finally:
            if request.call is not None:
                self._limiter.leave(request.state.limiter, request.call, None)
        if answer.origin != "live":
            self._ledger.cached += 1
            if self._attempts:
                self._attempts.note(
                    Attempt(
                        question.name, judge.identity, question.key, 0, OutcomeKind.OK, 0.0,
                        mode=answer.mode, origin=answer.origin,
                    )
                )  # fmt: skip
        return answer


@dataclass(slots=True, eq=False, repr=False)
class Retried:
    """The third stage: ask until the answer fits, or the limits are reached.

    While the judge is out of order, failures are counted by its circuit breaker and not by the
    questions that happen to probe it. A question that has no answer in time is asked once more,
    with more time: the judge may still be at work on it.
    """

    _next: Limited
    _limits: Limits
    _waits: Waits
    _resting: Resting

    async def __call__(self, request: Request) -> Answer[Any]:
        limits, limiter = self._limits, request.state.limiter
        attempt, failures = request.question, 0
        if request.state.prompts is not None:
            await request.state.prompts.require_fit(attempt)
        while True:
            try:
                return await self._next(request, attempt)
            except UnparseableError as error:
                outcome = self._reconsider(request, error)
                if isinstance(outcome, Answer):
                    return outcome
                attempt, failures = outcome, 0  # the judge works: it has answered
                continue
            except (ProviderError, JudgeTimeoutError) as error:
                late = isinstance(error, JudgeTimeoutError)
                may_pass = error.transient if isinstance(error, ProviderError) else not request.late
                if not may_pass:
                    raise
                request.late = request.late or late
                # Behind an open breaker every question fails, whichever it is. If each counted that
                # as its own failure, an outage of a minute would end all cases in progress; so the
                # breaker alone decides how long there is hope.
                long = (error.retry_after or 0.0) > limiter.breaker.patience
                away = limiter.breaker.is_open and not long
                failures += not away
                if failures >= limits.attempts:
                    raise
                limiter.require_hope()
                wait = 0.0 if late or away else self._seconds(failures, error)
                why = error
            with self._waits.during(why, wait), self._resting:
                await (self._next.outlast(request, wait) if long else anyio.sleep(wait))

    def _reconsider(self, request: Request, error: UnparseableError) -> Answer[Any] | Question[Any]:
        """The usable part of an unfit answer, or the question to ask next; else raises `error`."""
        value = None
        if not isinstance(error, DoubtfulAnswerError):
            value = read_part(request.question, error.raw)
        if value is None or not is_enough(value, again=request.reasks > 0):
            again = self._asked_again(request, error)
            if again is not None:
                return again
        if isinstance(error, DoubtfulAnswerError):
            answer: Answer[Any] = error.answer  # the node decides about its verdict
            return answer
        if value is None:
            raise error
        return Answer(value, error.raw, usage=Usage(*error.tokens), mode=PART)

    def _asked_again(self, request: Request, error: UnparseableError) -> Question[Any] | None:
        """The question after an answer that does not fit; None where it is not asked again.

        What is said depends on the answer. One that copies the prompt is not shown, or it would be
        copied again (once: the next copy is). One without an end is asked for again only once, and
        shorter; where thinking took all the tokens, a shorter answer changes nothing. So is one
        that quotes what is not there, or says more after the answer. Any other is shown with what
        is wrong with it.
        """
        question, doubtful = request.question, isinstance(error, DoubtfulAnswerError)
        if doubtful and request.doubtful:
            return None
        request.doubtful = request.doubtful or doubtful
        if request.reasks >= self._limits.reasks or not request.judge.capabilities.repeatable:
            return None
        request.reasks += 1
        if isinstance(error, CopiedError) and request.reasks == 1:
            return question.without_copy()
        if not isinstance(error, RunawayError):
            return question.again(
                error.raw,
                f"That answer cannot be used: {error}. Answer the same question again, in exactly "
                "the form that was asked for and with nothing else.",
            )
        if request.ran_away or error.cause == "thinking":
            return None
        request.ran_away = True
        return question.shorter(error.raw)

    def _seconds(self, failures: int, error: JudgeError) -> float:
        """Seconds to wait for the next attempt; raises ProviderError when that is too late."""
        requested = error.retry_after or 0.0
        remaining = anyio.current_effective_deadline() - anyio.current_time()
        # Without a deadline a case would wait for hours, and the run with it.
        longest = _LONGEST_WAIT * self._limits.patience_of_a_judge[0]
        if requested > min(remaining, longest):
            limit = f"no case waits longer than {longest:g} s: run again later"
            if remaining < longest:
                limit = f"{remaining:.1f} s are left for the case"
            late = f"{error}; it asks to wait {requested:g} s, and {limit}"
            raise ProviderError(late, transient=False)
        # At random below a bound that doubles ("full jitter"): callers do not come together.
        bound = self._limits.backoff * 2.0 ** min(failures - 1, 1000)
        return max(random.uniform(0, min(bound, self._limits.max_backoff)), requested)


@dataclass(eq=False, repr=False)
class Limited:
    """The last stage: one attempt, when the limits allow it, and its entry in the ledger.

    `withdrawn` are the indices of cases that nobody waits for.
    """

    _limits: Limits
    _limiter: Limiter
    _budget: Budget
    _ledger: Ledger
    _remembered: Remembered
    _attempts: Attempts
    _spans: NoSpans
    _resting: Resting
    withdrawn: set[int] = field(default_factory=set[int])
    packs: PackCounts = field(default_factory=PackCounts)

    def __post_init__(self) -> None:
        limits = self._limits
        self._ask = self._ask_judge if self._spans is NO_SPANS else self._ask_in_span
        self.estimating = limits.budget is not None or limits.tokens_per_minute is not None
        self._prefixes = PromptCacheOrder(self._resting)

    def __call__(self, request: Request, question: Question[Any]) -> Awaitable[Answer[Any]]:
        """An answer to `question`, which is that of the request in the words of this attempt."""
        if not question.shares:
            return self._in_turn(request, question)
        facts, caches = request.state.facts, request.state.caches
        least = least_shared(request.judge, facts, caches=caches)
        if least is None:
            return self._in_turn(request, question)
        beginning = beginning_of(question, least, with_schema=not facts.server)
        if beginning is None:
            return self._in_turn(request, question)
        return self._where_warm(request, question, beginning)

    async def _where_warm(
        self, request: Request, question: Question[Any], beginning: bytes
    ) -> Answer[Any]:
        """One attempt, where and when the server has read what the question begins with."""
        key, state, urgency = beginning.hex(), request.state, request.urgency
        if state.sticky is None:
            async with self._prefixes.turn(state.limiter.name, beginning, urgency):
                return await self._in_turn(request, question.with_notes(warmth=Warmth(key)))
        async with state.sticky.turn(beginning, urgency) as slot:
            return await self._in_turn(request, question.with_notes(warmth=Warmth(key, slot)))

    async def _in_turn(self, request: Request, question: Question[Any]) -> Answer[Any]:
        """Wait for a turn and call; the place of a call that failed is free at once."""
        state = request.state
        estimate = state.estimates.of(question) if self.estimating else NO_USAGE
        if request.pause is not None:
            return await self._call_in_pack(request, question, estimate)
        tokens = estimate.input_tokens + estimate.output_tokens
        call = await self._limiter.enter(state.limiter, tokens, request.urgency, question=question)
        try:
            if self.withdrawn and request.rank in self.withdrawn:
                raise WithdrawnError(_UNWANTED)
            answer = await self._call(request, question, estimate)
        except BaseException as error:
            self._limiter.leave(state.limiter, call, error)
            raise
        # The stage of the store gives the place back, when the answer is in the file.
        request.call = call
        return answer

    async def _call_in_pack(
        self, request: Request, question: Question[Any], estimate: Usage
    ) -> Answer[Any]:
        """A call with others of the case, unless the answer came ahead with some of them."""
        state, pause = request.state, request.pause
        assert pause is not None
        packing, tokens = pause.participant.packing, estimate.input_tokens + estimate.output_tokens
        early = packing.ahead.pop((state.limiter.name, question.key), None)
        if early is not None:
            # An answer that came before it was asked for is a call from now on.
            answer, seconds = early
            answer = without_secrets(answer, state.secrets)
            self.packs.questions += 1
            self.packs.consumed += 1
            self._ledger.calls += 1
            cost = _cost(state.price, answer, answer.usage)
            request.entry.spend(1, 0, answer.usage, cost, seconds)
            if self._attempts:
                self._attempts.note(
                    Attempt(
                        question.name, state.limiter.name, question.key, 0, OutcomeKind.OK, seconds,
                        answer.usage, answer.mode,
                    )
                )  # fmt: skip
            return answer
        judge = cast(PackingJudge, request.judge)
        sender = PackSender(
            judge, judge.capabilities.packs or _ALONE, state.limiter, self._limiter, self._budget,
            state.price, self.packs, partial(self._remembered.knows, state),
            partial(in_time, state.limiter),
        )  # fmt: skip
        entry = PackEntry(sender, question, tokens, request.urgency, pause)
        pack = await packing.join(entry, self._limits.max_in_flight)
        call = await pack.enter(entry)
        try:
            if self.withdrawn and request.rank in self.withdrawn:
                raise WithdrawnError(_UNWANTED)
            answer = await self._call(request, question, estimate, entry)
        except BaseException as error:
            pack.drop(entry)
            self._limiter.leave(state.limiter, call, error)
            raise
        request.call = call
        return answer

    async def _call(
        self,
        request: Request,
        question: Question[Any],
        estimate: Usage,
        entry: PackEntry | None = None,
    ) -> Answer[Any]:
        """One call, and its entry in the ledger; raises OverBudgetError before it is made."""
        state, ledger, budget, number = request.state, self._ledger, self._budget, request.attempts
        reserved = await budget.reserve(state.price, estimate) if budget.is_limited else 0.0
        self.packs.questions += entry is not None
        request.attempts += 1
        ledger.calls += 1
        ledger.retried += number > 0
        start = time.perf_counter()
        usage, mode, failure = NO_USAGE, None, None
        answer: Answer[Any] | None = None
        try:
            answer = await self._ask(request, question, number, entry)
            usage, mode = answer.usage, answer.mode
            state.caches = state.caches or usage.cached_tokens > 0
            return answer
        except JudgeError as error:
            usage, failure = Usage(*error.tokens), error
            raise
        except anyio.get_cancelled_exc_class():
            failure = JudgeTimeoutError("the call was cancelled with its case")
            raise
        # However it ended, it may have been paid for: the ledger, the budget and the limits hear of
        # it, and nothing is awaited on the way, so that a cancelled call is counted, too.
        finally:
            end = time.perf_counter()
            seconds, cost = end - start, _cost(state.price, answer, usage)
            ledger.usage += usage
            if usage.cached_tokens and state.price is not None:
                ledger.saved += state.price.savings(usage)
            failed = failure is not None
            ledger.failed += failed
            request.entry.spend(1, failed, usage, cost, seconds)
            budget.charge(reserved, cost)
            if self.estimating and usage.input_tokens:
                state.estimates.learn(question, usage)
                tokens = estimate.input_tokens + estimate.output_tokens
                state.limiter.correct_tokens(tokens, usage.input_tokens + usage.output_tokens)
            kind = OutcomeKind(failure.kind) if failure else OutcomeKind.OK
            message = str(failure) if failure else None
            if failure or number:
                waited = start - request.ended_at if number else 0.0
                request.calls.append(JudgeCall(kind, seconds, waited, usage, message))
                request.ended_at = end
            if self._attempts:
                self._attempts.note(
                    Attempt(
                        question.name, state.limiter.name, question.key, number, kind,
                        seconds, usage, mode, message,
                    )
                )  # fmt: skip

    async def _ask_in_span(
        self, request: Request, question: Question[Any], number: int, entry: PackEntry | None
    ) -> Answer[Any]:
        """The answer of `_ask_judge`, in a span."""
        name, decides = request.state.limiter.name, request.judge.capabilities.decides
        with self._spans.call(name, question, number, decides=decides) as span:
            answer = await self._ask_judge(request, question, number, entry)
            self._spans.note_answer(span, answer, decides=decides)
        return answer

    async def _ask_judge(
        self, request: Request, question: Question[Any], number: int, entry: PackEntry | None
    ) -> Answer[Any]:
        """The answer of the judge to the whole prompt; no secret of it is in answer or error."""
        secrets = request.state.secrets
        try:
            if entry is not None and entry.pack is not None:
                answer = await entry.pack.answer(entry)
            else:
                answer = await self._whole(request, question)
            answer = without_secrets(answer, secrets) if secrets else answer
        except JudgeError as error:
            hide_secrets(error, secrets)
            raise
        question.require_fit(answer)
        if answer.raw[-1:] not in _ENDS:
            require_last_word(question, answer)
        return answer

    async def _whole(self, request: Request, question: Question[Any]) -> Answer[Any]:
        """The answer of a judge to the whole prompt."""
        prompts = request.state.prompts
        try:
            make = partial(request.judge.answer, question)
            answer = await in_time(request.state.limiter, request.judge, make, late=request.late)
        except UnparseableError as error:
            if prompts is not None:  # a part of it might be used
                await prompts.require_whole(question, Usage(*error.tokens))
            raise
        except TooLongError as error:
            if prompts is not None:
                raise prompts.explain(question, error) from None
            raise explain_overflow(question, error) from None
        if prompts is not None:
            await prompts.require_whole(question, answer.usage)
        return answer

    async def count_tokens(
        self, state: JudgeState, judge: Judge, question: Question[Any], messages: Any
    ) -> int:
        """The tokens that a server counts for messages, asked for one token; 0 if it is silent."""
        if not judge.capabilities.text:
            return 0
        usage, failure = await self.ask_aside(state, judge, counting(question, messages))
        if failure is not None and not isinstance(failure, UnparseableError):
            raise failure
        return usage.input_tokens

    async def ask_aside(
        self, state: JudgeState, judge: Judge, question: Question[Any]
    ) -> tuple[Usage, JudgeError | None]:
        """The tokens and the failure of a call that is counted, and of which nobody hears."""
        usage, answer, failure = NO_USAGE, None, None
        reserved = await self._budget.reserve(state.price, NO_USAGE)
        self._ledger.calls += 1
        try:
            answer = await in_time(state.limiter, judge, partial(judge.answer, question))
            usage = answer.usage
        except JudgeError as error:
            usage, failure = Usage(*error.tokens), error
            hide_secrets(error, state.secrets)
        finally:
            self._ledger.usage += usage
            self._ledger.failed += answer is None
            self._budget.charge(reserved, _cost(state.price, answer, usage))
        return usage, failure

    async def outlast(self, request: Request, seconds: float) -> None:
        """Wait so long, or until the judge is given up; it is tried first where it is in doubt."""
        judge = request.state.limiter
        if judge.breaker.is_open:
            self._limiter.leave(judge, await self._limiter.enter(judge, 0, request.urgency), UNSAID)
        with anyio.move_on_after(seconds):
            await judge.gone.wait()


def in_time(
    limiter: JudgeLimiter, judge: Judge, make: Callable[[], Awaitable[R]], *, late: bool = False
) -> Awaitable[R]:
    """The answer of a judge within its time limit; whatever else it does is a JudgeError."""
    limit = limiter.late_limit if late else limiter.time_limit
    return await_answer(make, None if judge.capabilities.batched else limit, limiter.clock)


def _weight(answer: Answer[Any]) -> int:
    """About how many kB an answer takes in memory, and at least 1."""
    alternatives = sum(map(len, [token.alternatives for token in answer.tokens or ()]))
    return 1 + (len(answer.raw) + _ALTERNATIVE * alternatives) // 1000


def _cost(price: Price | None, answer: Answer[Any] | None, usage: Usage) -> float | None:
    """US dollars of one call: as the model says, else by its price; None if neither tells."""
    if answer is not None and answer.cost is not None:
        return answer.cost
    silent = answer is not None and usage == NO_USAGE
    return None if price is None or silent else price.of(usage)
