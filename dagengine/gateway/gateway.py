"""The only place where a judge is called: dedupe, limits, deadline, retry, re-ask, ledger."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar, cast

import anyio
from pydantic import BaseModel

from dagengine.errors import (
    CopiedError,
    JudgeError,
    JudgeTimeoutError,
    ProviderError,
    RunawayError,
    TooLongError,
    UnparseableError,
)
from dagengine.gateway.answering import answered, hiding, secrets_of, without_secrets
from dagengine.gateway.budget import Budget, Estimates, Purse
from dagengine.gateway.ledger import Ledger
from dagengine.gateway.limiter import Call, Lane, Limiter
from dagengine.gateway.limits import DEFAULT_LIMITS as DEFAULT_LIMITS
from dagengine.gateway.limits import Limits as Limits
from dagengine.gateway.packs.carrier import Carrier, PackCounts, PackingJudge
from dagengine.gateway.packs.packing import Hold, Passage, Seat
from dagengine.gateway.packs.prompt_cache import PromptCacheOrder, prefix_of
from dagengine.gateway.prices import Price
from dagengine.gateway.single_flight import SingleFlight
from dagengine.gateway.tracing import NO_SPANS, NoSpans
from dagengine.gateway.urgency import Urgency
from dagengine.gateway.waits import Resting, Waits, merged
from dagengine.gateway.window.whole_prompts import WholePrompts, counting, explained
from dagengine.prompts.parsing import read_part
from dagengine.question import (
    NO_FACTS,
    NO_USAGE,
    PART,
    Answer,
    Judge,
    Packs,
    Question,
    ServerFacts,
    Usage,
    durable_identity,
    facts_of,
)
from dagengine.results import Attempt, OutcomeKind, Spent, Totals, Waiting
from dagengine.store.answers import Answers
from dagengine.store.rows import key_of, short_key
from dagengine.threads import Home

T = TypeVar("T", bound=BaseModel)
R = TypeVar("R")
Sink = Callable[[Attempt], None]

# Answers that are remembered of a judge whose answers are stored, in kB as `_weight` has it.
_RECENT = 2_000
_ALONE = Packs(questions=1, characters=0)  # of a judge that has just given up packing
_ALTERNATIVE = 150  # bytes that one alternative of a token takes in memory


@dataclass(frozen=True, slots=True)
class _Desk:
    """What the gateway keeps of one judge; judges of one identity share all but themselves.

    `name` is what the ledger calls it: the same in every process, if there is such a name.
    `prompts` sees to it that they are read whole, where a server may cut them and not say so. The
    `secrets` are hidden in its answers.
    """

    judge: Judge
    name: str
    durable: str | None
    lane: Lane
    price: Price | None
    estimates: Estimates = field(default_factory=Estimates)
    prompts: WholePrompts | None = None
    secrets: tuple[str, ...] = ()


@dataclass(slots=True)
class _Errand:
    """One question on its way to an answer.

    `attempts` counts its calls; `held` is the one that succeeded, which keeps its place. With a
    `passage` it may travel with others. One that was `late` gets more time.
    """

    urgency: Urgency
    passage: Passage | None = None
    held: Call | None = None
    attempts: int = 0
    late: bool = False


class Gateway:
    """Asks judges on behalf of one run, and the answers of earlier runs before them."""

    def __init__(
        self,
        limits: Limits = DEFAULT_LIMITS,
        sink: Sink | None = None,
        stored: Answers | None = None,
        spans: NoSpans = NO_SPANS,
        purse: Purse | None = None,
    ) -> None:
        self.limits = limits
        self._sink = sink
        self.sink_error: Exception | None = None
        self._stored = stored
        self.spans = spans
        self._home: Home | None = None
        self._cached = 0
        self.resting = Resting()
        self._flights: SingleFlight[Answer[Any]] = SingleFlight(limits.remembered, _weight)
        # What a store holds it finds again: only the latest answers are worth their memory.
        recent = min(limits.remembered, _RECENT)
        self._stored_flights: SingleFlight[Answer[Any]] = SingleFlight(recent, _weight)
        self._limiter = Limiter(limits.max_in_flight, self.resting)
        self._budget = Budget(limits, purse)
        self._desks: dict[str, _Desk] = {}
        self._facts: dict[str, ServerFacts] = {}
        self._prefixes = PromptCacheOrder(self.resting)
        self._waits = Waits()
        self._estimating = limits.budget is not None or limits.tokens_per_minute is not None
        self._ledger = Ledger()
        self._asked = self._calls = self._retried = self._failed = 0
        self._packs = PackCounts()
        self._usage = Usage()

    @property
    def replays(self) -> bool:
        """Whether every answer comes from a store, and no judge is asked."""
        return self._stored is not None and self._stored.replays

    @property
    def home(self) -> Home:
        """The event loop of the run, whose code asks for it first."""
        if self._home is None:
            self._home = Home.here()
        return self._home

    @property
    def totals(self) -> Totals:
        """Sums over all attempts so far."""
        return Totals(
            asked=self._asked,
            shared=self._flights.shared + self._stored_flights.shared,
            calls=self._calls,
            retried=self._retried,
            failed=self._failed,
            usage=self._usage + self._packs.usage,
            cached=self._cached,
            damaged=0 if self._stored is None else self._stored.damaged,
            cost=self._budget.cost,
            in_flight=self._limiter.in_flight,
            requests=self._calls - self._packs.questions + self._packs.requests,
            speculated=self._packs.ahead,
            unneeded=self._packs.ahead - self._packs.used,
        )

    @property
    def waiting(self) -> list[Waiting]:
        """The questions that wait to be asked again; may be read from any thread."""
        return merged([*self._waits.now(), *self._limiter.held])

    @property
    def spent(self) -> tuple[Spent, ...]:
        """The same by metric, node and judge."""
        return self._ledger.entries

    async def meet(self, judges: Iterable[Judge]) -> None:
        """Take up open judges before they are asked, and hear what their servers say.

        Raises InputError when a budget cannot be kept because a price is not known.
        """
        new = {judge.identity: judge for judge in judges if judge.identity not in self._facts}
        for identity, judge in new.items():
            self._desk(judge)
            self._facts[identity] = NO_FACTS
        async with anyio.create_task_group() as group:
            for judge in new.values():
                group.start_soon(self._hear, judge)

    async def _hear(self, judge: Judge) -> None:
        facts = self._facts[judge.identity] = await facts_of(judge)
        self._desk(judge).lane.expect(facts.places)

    def facts(self, judge: Judge) -> ServerFacts:
        """What the server of a judge said of itself; nothing before `meet`."""
        return self._facts.get(judge.identity, NO_FACTS)

    async def ask(
        self, judge: Judge, question: Question[T], place: int = 0, hold: Hold | None = None
    ) -> Answer[T]:
        """A valid answer, from an equal question when there is one; raises JudgeError.

        Where questions wait, those with a smaller `place` (that of their case) go first. With a
        `hold` (that of the node which asks) it travels with others of its case.
        Of a list of verdicts that does not fit after all re-asks the answer holds the verdicts
        that can be used.
        """
        self._asked += 1
        if self.limits.max_tokens is not None:
            question = question.limited(self.limits.max_tokens)
        desk = self._desk(judge)
        self._ledger.asked(question, desk.name)
        key, flights, urgency = (
            (desk.lane.name, question.key),
            self._flights_of(desk),
            Urgency(place),
        )
        if hold is None:
            errand = _Errand(urgency)
            answer = await flights.get(
                key, lambda: self._find(desk, question, errand), urgency, self.resting
            )
            return cast(Answer[T], answer)
        errand = _Errand(urgency, passage := Passage(hold))
        passage.rest()  # also while another one asks the same, or another process
        try:
            answer = await flights.get(
                key, lambda: self._find(desk, question, errand), urgency, self.resting
            )
        finally:
            passage.resume()
        return cast(Answer[T], answer)

    def stored_as(self, judge: Judge, question: Question[Any]) -> str | None:
        """The beginning of the key that a store has a question under.

        The same whether there is a store or not; None for a judge without a durable identity.
        """
        durable = self._desk(judge).durable
        return None if durable is None else short_key(key_of(durable, question))

    def _flights_of(self, desk: _Desk) -> SingleFlight[Answer[Any]]:
        stored = self._stored is not None and desk.durable is not None
        return self._stored_flights if stored else self._flights

    def _desk(self, judge: Judge) -> _Desk:
        identity = judge.identity
        desk = self._desks.get(identity)
        if desk is None:
            able = judge.capabilities
            lane = Lane(identity, self.limits, elastic=able.elastic, batched=able.batched)
            durable = durable_identity(judge)
            price, prompts = self._budget.price_of(judge), None
            if getattr(judge, "may_cut", False):
                prompts = WholePrompts(judge, partial(self._count, lane, judge, price))
            desk = _Desk(
                judge, durable or identity, durable, lane, price, prompts=prompts,
                secrets=secrets_of(judge),
            )  # fmt: skip
            self._desks[identity] = desk
            self._limiter.open(desk.lane)
        return desk if desk.judge is judge else replace(desk, judge=judge)

    async def _find(self, desk: _Desk, question: Question[T], errand: _Errand) -> Answer[T]:
        """The stored answer if there is one, else the judge's.

        A call keeps its place until its answer is in the store. So a killed run never has to ask
        more again than the calls in progress.
        """
        judge, stored = desk.judge, self._stored
        try:
            if stored is None:
                return await self._settle(desk, question, errand)
            answer = await stored.get(
                judge, question, lambda: self._settle(desk, question, errand), self.resting
            )
        finally:
            if errand.held is not None:
                self._limiter.leave(desk.lane, errand.held, None)
        if answer.origin != "live":
            self._cached += 1
            if self._sink is not None:
                self._note(
                    Attempt(
                        question.name, judge.identity, question.key, 0, OutcomeKind.OK, 0.0,
                        mode=answer.mode, origin=answer.origin,
                    )
                )  # fmt: skip
        return answer

    def _note(self, attempt: Attempt) -> None:
        """Hand an attempt to the ledger; the first error of its code is kept for the end."""
        assert self._sink is not None
        try:
            self._sink(attempt)
        except Exception as error:  # noqa: BLE001 - what was answered was paid for
            self.sink_error = self.sink_error or error

    async def _settle(self, desk: _Desk, question: Question[T], errand: _Errand) -> Answer[T]:
        """Ask until the answer fits, or the limits are reached; through transient failures.

        While the judge is out of order, failures are counted by its circuit breaker and not
        by the questions that happen to probe it. A question that has no answer in time is asked
        once more, with more time: the judge may still be at work on it.
        """
        asked, reasks, failures, out_of_order = question, 0, 0, desk.lane.breaker
        ran_away = False
        if desk.prompts is not None:
            await desk.prompts.require_fit(question)
        while True:
            try:
                return await self._attempt(desk, asked, errand)
            except UnparseableError as error:
                if reasks >= self.limits.reasks or not desk.judge.capabilities.repeatable:
                    return _part(question, error)
                reasks, failures = reasks + 1, 0
                if isinstance(error, CopiedError) and reasks == 1:
                    asked = question.without_copy()
                    continue
                if not isinstance(error, RunawayError):
                    asked = question.again(error.raw, _complaint(error))
                    continue
                if ran_away or error.cause == "thinking":
                    return _part(question, error)
                ran_away = True
                asked = question.shorter(error.raw)
                continue
            except (ProviderError, JudgeTimeoutError) as error:
                if not _is_transient(error) or (_is_late(error) and errand.late):
                    raise
                errand.late = errand.late or _is_late(error)
                failures += not out_of_order.is_open
                if failures >= self.limits.attempts:
                    raise
                desk.lane.require_hope()
                now = out_of_order.is_open or _is_late(error)
                wait = 0.0 if now else self._wait(failures, error)
                why = error
            with self._waits.during(why, wait), self.resting:
                await anyio.sleep(wait)

    def _wait(self, failures: int, error: JudgeError) -> float:
        """Seconds until the next attempt; raises ProviderError when that is too late."""
        import tenacity  # only its way of waiting: an attempt that works costs no machinery

        growing = tenacity.wait_random_exponential(self.limits.backoff, self.limits.max_backoff)
        state = tenacity.RetryCallState(tenacity.AsyncRetrying(), None, (), {})
        state.attempt_number = failures
        asked = (error.retry_after if isinstance(error, ProviderError) else None) or 0.0
        left = anyio.current_effective_deadline() - anyio.current_time()
        if asked > left:
            late = f"{error}; it asks to wait {asked:g} s, and {left:.1f} s are left for the case"
            raise ProviderError(late, transient=False)
        return max(growing(state), asked)

    def _attempt(self, desk: _Desk, question: Question[T], errand: _Errand) -> Awaitable[Answer[T]]:
        """One attempt."""
        ordered = desk.judge.capabilities.caches_prefixes
        prefix = prefix_of(question.messages) if ordered else None
        if prefix is None:
            return self._in_turn(desk, question, errand)
        return self._after_first(desk, question, errand, prefix)

    async def _after_first(
        self, desk: _Desk, question: Question[T], errand: _Errand, prefix: bytes
    ) -> Answer[T]:
        """One attempt, after the first of those whose prompts begin alike."""
        async with self._prefixes.turn(desk.lane.name, prefix, errand.urgency):
            return await self._in_turn(desk, question, errand)

    async def _in_turn(self, desk: _Desk, question: Question[T], errand: _Errand) -> Answer[T]:
        """Wait for a turn and call; the place of a call that failed is free at once."""
        estimate = desk.estimates.of(question) if self._estimating else NO_USAGE
        tokens = estimate.input_tokens + estimate.output_tokens
        if errand.passage is not None:
            return await self._together(desk, question, errand, errand.passage, estimate)
        call = await self._limiter.enter(desk.lane, tokens, errand.urgency, question=question)
        try:
            reserved = self._budget.reserve(desk.price, estimate)
            answer = await self._call(desk, question, errand, tokens, reserved)
        except BaseException as error:
            self._limiter.leave(desk.lane, call, error)
            raise
        errand.held = call
        return answer

    async def _together(
        self,
        desk: _Desk,
        question: Question[T],
        errand: _Errand,
        passage: Passage,
        estimate: Usage,
    ) -> Answer[T]:
        """The same with others of the case, unless the answer came ahead with some of them."""
        packing, tokens = passage.hold.packing, estimate.input_tokens + estimate.output_tokens
        there = packing.ahead.pop((desk.lane.name, question.key), None)
        if there is not None:
            return self._taken(desk, question, *there)
        seat = Seat(self._carrier(desk), question, tokens, errand.urgency, passage)
        pack = await packing.join(seat, self.limits.max_in_flight)
        call = await pack.enter(seat)
        try:
            reserved = self._budget.reserve(desk.price, estimate)
            self._packs.questions += 1
            answer = await self._call(desk, question, errand, tokens, reserved, seat)
        except BaseException as error:
            pack.drop(seat)
            self._limiter.leave(desk.lane, call, error)
            raise
        errand.held = call
        return answer

    def _carrier(self, desk: _Desk) -> Carrier:
        judge = cast(PackingJudge, desk.judge)
        flights = self._flights_of(desk)
        return Carrier(
            judge, judge.capabilities.packs or _ALONE, desk.lane, self._limiter, self._budget,
            desk.price, self._packs,
            lambda question: (desk.lane.name, question.key) in flights,
            partial(_in_time, desk.lane),
        )  # fmt: skip

    def _taken(
        self, desk: _Desk, question: Question[T], answer: Answer[T], seconds: float
    ) -> Answer[T]:
        """An answer that came before it was asked for is a call from now on."""
        answer = without_secrets(answer, desk.secrets)
        self._calls += 1
        self._packs.questions += 1
        self._packs.used += 1
        self._ledger.called(
            question, desk.name, failed=False, usage=answer.usage, seconds=seconds,
            cost=_cost(desk.price, answer, answer.usage),
        )  # fmt: skip
        if self._sink is not None:
            self._note(
                Attempt(
                    question.name, desk.lane.name, question.key, 0, OutcomeKind.OK, seconds,
                    answer.usage, answer.mode,
                )
            )  # fmt: skip
        return answer

    async def _call(
        self,
        desk: _Desk,
        question: Question[T],
        errand: _Errand,
        tokens: int,
        reserved: float,
        seat: Seat | None = None,
    ) -> Answer[T]:
        """One call, and its entry in the ledger."""
        number = errand.attempts
        errand.attempts += 1
        self._calls += 1
        self._retried += number > 0
        started = time.perf_counter()
        usage, mode, failure = NO_USAGE, None, None
        answer: Answer[T] | None = None
        try:
            with self.spans.call(desk.lane.name, question, number) as span:
                with hiding(desk.secrets):
                    if seat is not None and seat.pack is not None:
                        answer = await seat.pack.answer(seat)
                    else:
                        answer = await self._whole(desk, question, late=errand.late)
                    answer = without_secrets(answer, desk.secrets)
                    question.require_fit(answer)
                self.spans.answered(span, answer)
            usage, mode = answer.usage, answer.mode
            return answer
        except JudgeError as error:
            usage, failure = Usage(*error.tokens), error
            raise
        except anyio.get_cancelled_exc_class():
            failure = JudgeTimeoutError("the call was cancelled with its case")
            raise
        finally:
            seconds, cost = time.perf_counter() - started, _cost(desk.price, answer, usage)
            self._usage += usage
            self._failed += failure is not None
            self._ledger.called(
                question, desk.name, failed=failure is not None, usage=usage, seconds=seconds,
                cost=cost,
            )  # fmt: skip
            self._budget.settle(reserved, cost)
            if self._estimating and usage.input_tokens:
                desk.estimates.learn(question, usage)
                desk.lane.used(tokens, usage.input_tokens + usage.output_tokens)
            if self._sink is not None:
                kind = OutcomeKind(failure.kind) if failure else OutcomeKind.OK
                self._note(
                    Attempt(
                        question.name, desk.lane.name, question.key, number, kind,
                        seconds, usage, mode, str(failure) if failure else None,
                    )
                )  # fmt: skip

    async def _whole(self, desk: _Desk, question: Question[T], *, late: bool) -> Answer[T]:
        """What a judge answers to the whole prompt."""
        try:
            make = partial(desk.judge.answer, question)
            answer = await _in_time(desk.lane, desk.judge, make, late=late)
        except UnparseableError as error:
            if desk.prompts is not None:  # a part of it might be used
                await desk.prompts.require_whole(question, Usage(*error.tokens))
            raise
        except TooLongError as error:
            if desk.prompts is not None:
                raise desk.prompts.explained(question, error) from None
            raise explained(question, error) from None
        if desk.prompts is not None:
            await desk.prompts.require_whole(question, answer.usage)
        return answer

    async def _count(
        self,
        lane: Lane,
        judge: Judge,
        price: Price | None,
        question: Question[Any],
        messages: Any,
    ) -> int:
        """The tokens that a server counts for messages, by a call for one token; 0 if it is silent.

        It is a call like any other; who asks has a place already.
        """
        if not judge.capabilities.text:
            return 0
        probe, usage = counting(question, messages), NO_USAGE
        reserved = self._budget.reserve(price, NO_USAGE)
        self._calls += 1
        try:
            answer = await _in_time(lane, judge, partial(judge.answer, probe))
            usage = answer.usage
        except UnparseableError as error:
            usage = Usage(*error.tokens)
        finally:
            self._usage += usage
            self._budget.settle(reserved, _cost(price, None, usage))
        return usage.input_tokens


def _in_time(
    lane: Lane, judge: Judge, make: Callable[[], Awaitable[R]], *, late: bool = False
) -> Awaitable[R]:
    """What a judge answers within its time limit; whatever else it does is a JudgeError."""
    return answered(make, None if judge.capabilities.batched else lane.seconds_for(late=late))


def _part(question: Question[T], error: UnparseableError) -> Answer[T]:
    """What can be used of the last answer; raises `error` where that is nothing."""
    value = read_part(question, error.raw)
    if value is None:
        raise error
    return Answer(value, error.raw, usage=Usage(*error.tokens), mode=PART)


def _weight(answer: Answer[Any]) -> int:
    """About how many kB an answer takes in memory, and at least 1."""
    alternatives = sum(len(choice.alternatives) for choice in answer.tokens or ())
    return 1 + (len(answer.raw) + _ALTERNATIVE * alternatives) // 1000


def _is_late(error: JudgeError) -> bool:
    return isinstance(error, JudgeTimeoutError)


def _is_transient(error: JudgeError) -> bool:
    return _is_late(error) or (isinstance(error, ProviderError) and error.transient)


def _complaint(error: UnparseableError) -> str:
    return (
        f"That answer cannot be used: {error}. Answer the same question again, in exactly the "
        "form that was asked for and with nothing else."
    )


def _cost(price: Price | None, answer: Answer[Any] | None, usage: Usage) -> float | None:
    """US dollars of one call: as the model says, else by its price; None if neither tells."""
    if answer is not None and answer.cost is not None:
        return answer.cost
    silent = answer is not None and usage == NO_USAGE
    return None if price is None or silent else price.of(usage)
