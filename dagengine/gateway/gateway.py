"""The only place where a judge is called: what one run knows of its judges, and its pipeline."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Any, Protocol, TypeVar, cast

import anyio
from pydantic import BaseModel

from dagengine.errors import InputError
from dagengine.gateway.budget import Account, Budget, Ledger
from dagengine.gateway.call_priorities import Resting, Urgency, Waits, merge_waits
from dagengine.gateway.deadlines import secrets_of
from dagengine.gateway.otel_spans import NO_SPANS, NoSpans
from dagengine.gateway.packs.packing import Pause
from dagengine.gateway.packs.prompt_cache import sticky_places
from dagengine.gateway.rate_limiter import JudgeLimiter, Lease, Limiter
from dagengine.gateway.request import JudgeState, Request
from dagengine.gateway.retry_pipeline import (
    Attempts,
    Limited,
    Once,
    Remembered,
    Retried,
    Shared,
    Sink,
    Stored,
)
from dagengine.gateway.window.truncated_prompts import WholePrompts
from dagengine.limits import CHANGEABLE
from dagengine.limits import DEFAULT_LIMITS as DEFAULT_LIMITS
from dagengine.limits import Limits as Limits
from dagengine.prompts.decisions import harmless_question
from dagengine.question import (
    Answer,
    Judge,
    Question,
    ServerFacts,
    durable_identity,
    facts_of,
    judge_name,
)
from dagengine.redaction import secrets_of_environment
from dagengine.results import Spent, Totals, Waiting
from dagengine.store.answer_journal import OpenStore
from dagengine.store.database import key_of, short_key
from dagengine.system.threads import EventLoop

T = TypeVar("T", bound=BaseModel)
_log = logging.getLogger(__name__)


class Asks(Protocol):
    """What nodes ask through: the gateway of a run, or what stands before it."""

    @property
    def run(self) -> Gateway:
        """The gateway in the end: the limits, the counts and the event loop of the run."""
        ...

    @property
    def replays(self) -> bool:
        """Return whether every answer is there already, and no judge is asked."""
        ...

    async def answer(self, request: Request) -> Answer[Any]:
        """A valid answer; raises JudgeError."""
        ...


class Gateway:
    """Asks judges on behalf of one run, and the answers of earlier runs before them."""

    def __init__(
        self,
        limits: Limits = DEFAULT_LIMITS,
        sink: Sink | None = None,
        stored: OpenStore | None = None,
        spans: NoSpans = NO_SPANS,
        account: Account | None = None,
        leased: Lease | None = None,
        *,
        returns: bool = False,
        once: Once | None = None,
    ) -> None:
        """A judge that is given up is tried again, from time to time, if it `returns`.

        `once` knows where answers are that are equal for all cases, of other runs, too.
        """
        self.limits = limits
        self._returns = returns
        self.indices = itertools.count()
        self.spans = spans
        self.resting = Resting()
        self._answers = stored
        self._loop: EventLoop | None = None
        self._judges: dict[int, JudgeState] = {}  # by the ids of judges, which the states keep
        self._states: dict[tuple[str, tuple[Any, ...]], JudgeState] = {}
        self._met: set[int] = set()
        self._attempts = Attempts(sink)
        self._budget = Budget(limits, account)
        self._ledger = Ledger()
        self._limiter = Limiter(limits.max_in_flight, self.resting)
        self._leased = leased
        if leased is not None:
            leased.limit(self._limiter)
        elsewhere = stored is not None or leased is not None
        self._remembered = Remembered(limits.remembered, stored=elsewhere)
        self._waits = Waits()
        self._limited = Limited(
            limits, self._limiter, self._budget, self._ledger, self._remembered, self._attempts,
            spans, self.resting,
        )  # fmt: skip
        retried = Retried(self._limited, limits, self._waits, self.resting)
        answers = Stored(
            retried, stored, leased, self._limiter, self._ledger, self._attempts, self.resting
        )
        self._pipeline = Shared(answers, self._remembered, self.resting, once)

    @property
    def run(self) -> Gateway:
        """Itself: nothing stands behind it."""
        return self

    @property
    def replays(self) -> bool:
        """Return whether every answer comes from a store, and no judge is asked."""
        return self._answers is not None and self._answers.replays

    @property
    def sink_error(self) -> Exception | None:
        """The first error of the code that gets every attempt."""
        return self._attempts.error

    @property
    def loop(self) -> EventLoop:
        """The event loop of the run, whose code asks for it first."""
        if self._loop is None:
            self._loop = EventLoop.here()
        return self._loop

    @property
    def totals(self) -> Totals:
        """Sums over all attempts so far."""
        ledger, packs = self._ledger, self._limited.packs
        return Totals(
            asked=ledger.asked,
            shared=self._remembered.shared,
            calls=ledger.calls,
            retried=ledger.retried,
            failed=ledger.failed,
            usage=ledger.usage + packs.usage,
            cached=ledger.cached,
            damaged=0 if self._answers is None else self._answers.damaged,
            cost=self._budget.cost,
            in_flight=self._limiter.in_flight,
            requests=ledger.calls - packs.questions + packs.requests,
            speculated=packs.ahead,
            unneeded=packs.ahead - packs.consumed,
            saved=ledger.saved,
        )

    @property
    def judges(self) -> dict[str, str]:
        """The states of the judges that were asked: "in order", or why not; from any thread."""
        states = list(self._states.values())
        return {judge_name(state.limiter.name): state.limiter.status for state in states}

    @property
    def withdrawn(self) -> set[int]:
        """The indices of cases that nobody waits for: nothing more is asked for them."""
        return self._limited.withdrawn

    def change_limits(self, limits: Limits) -> None:
        """Have others from now on; raises InputError for those that hold for a whole run."""
        changeable = {name: getattr(self.limits, name) for name in CHANGEABLE}
        if replace(limits, **changeable) != self.limits:
            raise InputError(f"only {', '.join(CHANGEABLE)} can be changed while an engine is open")
        self._budget.keep_to(limits)
        for state in self._states.values():
            state.price = self._budget.price_of(state.judges[0])
        self.limits = limits
        self._limited.estimating |= limits.budget is not None

    @property
    def waiting(self) -> list[Waiting]:
        """The questions that wait to be asked again; may be read from any thread."""
        return merge_waits([*self._waits.now(), *self._limiter.held])

    @property
    def spent(self) -> tuple[Spent, ...]:
        """Spending by metric, node and judge."""
        return self._ledger.spent

    async def meet(self, judges: Iterable[Judge]) -> None:
        """Take up open judges before they are asked, and hear what their servers say.

        Raises InputError when a budget cannot be kept because a price is not known.
        """
        new = {id(self._state(judge)): judge for judge in judges}
        for key in self._met & new.keys():
            del new[key]
        self._met |= new.keys()
        if self._answers is not None and self._leased is None:  # else another says it
            await self._answers.meet(new.values())

        async def hear(judge: Judge) -> None:
            facts = await facts_of(judge)
            state = self._state(judge)
            state.limiter.expect(facts.slots)
            state.facts, state.sticky = facts, sticky_places(facts, self.resting)

        async with anyio.create_task_group() as group:
            for judge in new.values():
                group.start_soon(hear, judge)

    def try_again(self) -> None:
        """Let questions probe the judges that were given up."""
        for state in self._states.values():
            state.limiter.breaker.try_again(anyio.current_time())
            state.limiter.gone = anyio.Event()

    def facts(self, judge: Judge) -> ServerFacts:
        """The facts that the server of a judge told about itself; none before `meet`."""
        return self._state(judge).facts

    async def ask(self, judge: Judge, question: Question[T], rank: int = 0) -> Answer[T]:
        """A valid answer, from an equal question when there is one; raises JudgeError.

        Where questions wait, those with a smaller `rank` go first. Of a list of verdicts that does
        not fit after all re-asks the answer holds the verdicts that can be used.
        """
        return cast(Answer[T], await self.answer(Request(judge, question, rank)))

    async def answer(self, request: Request) -> Answer[Any]:
        """The same for a question with its context."""
        if self.limits.max_tokens is not None:
            request.question = request.question.with_notes(max_tokens=self.limits.max_tokens)
        question = request.question
        request.state = state = self._state(request.judge)
        metric, node = question.asker or ("", question.name)
        request.entry = self._ledger.entries[metric, node, state.name]
        request.entry.asked += 1
        self._ledger.asked += 1
        request.urgency = Urgency(request.rank)
        if request.participant is not None:
            request.pause = Pause(request.participant)
        return await self._pipeline(request)

    def store_key(self, judge: Judge, question: Question[Any]) -> str | None:
        """The beginning of the key that a store has a question under.

        The same whether there is a store or not; None for a judge without a durable identity.
        """
        durable = self._state(judge).durable
        return None if durable is None else short_key(key_of(durable, question))

    def _state(self, judge: Judge) -> JudgeState:
        """The state of a judge, which is taken up the first time.

        Judges of one identity share answers, and limits only if they are asked in one way, with
        the same keys: a key that is wrong, or used up, says nothing of another one.
        """
        state = self._judges.get(id(judge))
        if state is not None:
            return state
        identity, able = judge.identity, judge.capabilities
        keys = frozenset(getattr(judge, "secrets", ())) - {*secrets_of_environment()}
        way = able.elastic, able.batched, str(getattr(judge, "journal", None)), keys
        state = self._states.get((identity, way))
        if state is None:
            twins = [twin for name, twin in self._states if name == identity]
            if len(twins) == 1:
                apart = "their key" if twins[0][:-1] == way[:-1] else "how they are asked"
                line = "these judges differ only in %s: answers are shared (%s)"
                _log.warning(line, apart, judge_name(identity))
            durable = durable_identity(judge)
            limiter = JudgeLimiter(
                identity, self.limits, elastic=able.elastic, batched=able.batched
            )
            limiter.breaker.returns = self._returns
            price = self._budget.price_of(judge)
            state = JudgeState(durable or identity, durable, limiter, price)
            # Only of a server that may cut a prompt it has to be found out whether it did.
            if getattr(judge, "may_cut", False):
                count = partial(self._limited.count_tokens, state, judge)
                state.prompts = WholePrompts(judge, count)
            ask, question = self._limited.ask_aside, harmless_question(judge)
            limiter.ask_harmless = partial(ask, state, judge, question)
            self._limiter.open(limiter)
            if self._leased is not None:
                self._leased.meet(limiter)
            self._states[identity, way] = state
        self._judges[id(judge)] = state
        state.judges.append(judge)
        state.secrets = tuple(dict.fromkeys((*state.secrets, *secrets_of(judge))))
        return state


class Resampled:
    """Stands before a gateway and asks for another sample: nobody has an answer to it yet."""

    def __init__(self, asks: Asks, attempt: int) -> None:
        self._asks = asks
        self._attempt = attempt

    @property
    def run(self) -> Gateway:
        return self._asks.run

    @property
    def replays(self) -> bool:
        return self._asks.replays

    async def answer(self, request: Request) -> Answer[Any]:
        question = request.question
        options = replace(question.options, sample=question.options.sample + self._attempt)
        request.question = replace(question, options=options)
        return await self._asks.answer(request)
