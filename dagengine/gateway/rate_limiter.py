"""The order of calls: the most urgent one first, within the limits of each judge."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter
from typing import Any, Protocol, TypeVar

import anyio
import anyio.lowlevel
from pydantic import BaseModel

from dagengine.errors import JudgeError, JudgeFailure, JudgeTimeoutError, ProviderError
from dagengine.gateway.call_priorities import Queue, Resting, Urgency, reason
from dagengine.gateway.laws.adaptive_concurrency import AdaptiveConcurrency
from dagengine.gateway.laws.circuit_breaker import CircuitBreaker
from dagengine.gateway.laws.throughput import ThroughputLimit
from dagengine.limits import Limits
from dagengine.question import Answer, Judge, Question, Usage, judge_name
from dagengine.results import Waiting
from dagengine.store.claims import Ask, Wait

T = TypeVar("T", bound=BaseModel)
_OVERLOAD = frozenset({429, 529})
_AWAY = frozenset({502, 503, 504})
MORE_TIME = 2
"""A call gets so many times the time limit when it is repeated because it was late."""
_LONG = 60.0  # seconds without an answer after which it is said what is waited for
_SOON = 0.25  # a judge that needs a smaller share of the time limit is quick
# How a call may end that says something about the judge.
_TELLING = (JudgeFailure, JudgeTimeoutError, ProviderError)
UNSAID = Exception("says nothing about the judge")
_BURST = 1.0  # seconds' worth that may start at once


class RateLimit:
    """A rate as the time at which everything that has started would be paid for.

    (The generic cell rate algorithm, ITU-T I.371: a leaky bucket in one number.) A single
    amount may be larger than any bucket; whatever follows it waits the longer. `taken` is what has
    started in all, `per_minute` the rate at the moment.
    """

    def __init__(self, per_minute: float) -> None:
        """`per_minute` units are let through in a minute."""
        self._paid = -math.inf
        self.taken = 0.0
        self.change(per_minute)

    def change(self, per_minute: float) -> None:
        """From now on so many units are let through in a minute; none of them with 0."""
        self.per_minute = per_minute
        self._seconds = 60.0 / per_minute if per_minute > 0 else 0.0

    def opens_at(self) -> float:
        """When the next amount may start; the first one may at any time."""
        return self._paid - _BURST if self.per_minute > 0 else math.inf

    def take(self, amount: float, now: float) -> None:
        """Start `amount` units at `now`."""
        self._paid = max(self._paid, now) + amount * self._seconds
        self.taken += amount

    def correct(self, difference: float) -> None:
        """Correct what was taken by an amount, which may be negative."""
        self._paid += difference * self._seconds


@dataclass(slots=True, eq=False)
class Call:
    """One call, from waiting for its turn to its end; `serial` is 0 until it may start.

    It takes `width` places, one for each of its questions; `unfinished` of them have not ended;
    `noted` says whether its end was noted. `question` is one of them; a `harmless` one goes first.
    It began at `began`, as one of `level` calls in progress, in an `epoch` of the number of calls.
    """

    tokens: int
    width: int = 1
    unfinished: int = 1
    question: Question[Any] | None = None
    noted: bool = False
    serial: int = 0
    began: float = 0.0
    level: int = 0
    epoch: int = 0
    turn: anyio.Event | None = None
    wakes_at: float = -math.inf
    harmless: bool = False


class JudgeLimiter:
    """The limits of one judge, and the calls that wait for it.

    `time_limit` is how many seconds a call may take (None: as many as it likes). A judge that took
    longer, or was silent for so long, gets more time until it answers quickly again. `rates` are
    those that are limited, by the names of the limits.
    """

    def __init__(
        self, name: str, limits: Limits, *, elastic: bool = False, batched: bool = False
    ) -> None:
        """An `elastic` judge needs no careful start; a `batched` one may be silent for hours."""
        self.name = name
        self._batched = batched
        self._elastic = elastic
        self._ceiling = ceiling = limits.max_in_flight
        self.time_limit = limits.call_timeout
        self._given_limit = limits.call_timeout or math.inf
        start = ceiling if elastic else None
        self.concurrency = AdaptiveConcurrency(ceiling, start)
        self.throughput = ThroughputLimit(ceiling, self.time_limit, start)
        self.breaker = CircuitBreaker(judge_name(name), *limits.patience_of_a_judge, slow=batched)
        self.gone = anyio.Event()  # when the judge is given up
        self.ask_harmless: Callable[[], Awaitable[tuple[Usage, JudgeError | None]]]
        self._calls: dict[Call, None] = {}  # in progress, the oldest first
        self._heard = 0.0  # when the last answer came, or none was missing
        self._was_away = False
        self.waiting: Queue[Call] = Queue()
        self._paused_until = -math.inf
        self._held = "", -math.inf
        requests, tokens = limits.requests_per_minute, limits.tokens_per_minute
        self._requests = None if requests is None else RateLimit(requests)
        self._tokens = None if tokens is None else RateLimit(tokens)
        both = {"requests_per_minute": self._requests, "tokens_per_minute": self._tokens}
        self.rates = {name: rate for name, rate in both.items() if rate is not None}

    @cached_property
    def clock(self) -> Callable[[], float]:
        """The clock of the event loop that calls the judge, which is looked up only once."""
        return getattr(anyio.lowlevel.current_token().native_token, "time", anyio.current_time)

    def expect(self, places: int | None) -> None:
        """Begin with the calls that the server takes at once, if known, and one to keep it busy."""
        if places is not None and not self._elastic:
            ceiling = min(self._ceiling, places + 1)
            self.throughput = ThroughputLimit(ceiling, self.time_limit, places)

    @property
    def late_limit(self) -> float | None:
        """Seconds that a call may take which is repeated because it was late."""
        if self.time_limit is None:
            return None
        return max(self.time_limit, MORE_TIME * self._given_limit)

    def opens_at(self) -> float:
        """When a call may start at the earliest, whatever the number in progress."""
        opens = self._paused_until
        if self.breaker.is_open:
            opens = max(opens, self.breaker.opens_at)
        if not self.rates:  # most runs have none
            return opens
        return max(opens, *(rate.opens_at() for rate in self.rates.values()))

    @property
    def demand(self) -> int:
        """Number of calls that would be in progress if there were places for all of them."""
        waiting = sum(call.width for call in self.waiting.things)
        return min(len(self._calls) + waiting, self.throughput.limit, self.concurrency.limit)

    def has_room(self) -> bool:
        """Return whether a call may start now."""
        calls = len(self._calls)
        if calls >= self.throughput.limit or calls >= self.concurrency.limit:
            return False
        opens = self.opens_at()
        return opens == -math.inf or opens <= self.clock()

    def is_first(self, call: Call) -> bool:
        """Return whether a call is the most urgent of those that wait."""
        head = self.waiting.first()
        return head is not None and head[1] is call

    @property
    def in_flight(self) -> int:
        """Number of calls in progress."""
        return len(self._calls)

    @property
    def held(self) -> Waiting | None:
        """The calls that a failing judge keeps waiting; may be read from any thread."""
        why, until = self._held
        if not self.waiting.things or not (self.breaker.is_open or until > time.monotonic()):
            return None
        return Waiting(why, len(self.waiting.things), max(0.0, until - time.monotonic()))

    @property
    def status(self) -> str:
        """Its state in words, and why it is not in order; may be read from any thread."""
        away = f"out of order: {self._held[0]}" if self.breaker.is_open else "in order"
        return self.breaker.given_up or away

    @property
    def silence(self) -> Waiting | None:
        """The calls in progress after a minute without an answer; may be read from any thread."""
        calls, seconds = list(self._calls), time.monotonic() - self._heard
        if not calls or seconds < _LONG or self._batched:
            return None
        question = calls[0].question
        why = "no node" if question is None else f"node {question.name!r}"
        if not self.breaker.has_answered:
            why += "; the server has not answered yet: loading the model?"
        return Waiting(why, len(calls), 0.0, seconds)

    def require_hope(self) -> None:
        """Raise ProviderError when the judge is given up."""
        if self.breaker.given_up is not None:
            raise ProviderError(self.breaker.given_up, transient=False, lasting=True)

    def note_start(self, call: Call) -> None:
        """Count a call that starts now."""
        # This is the way of every call: what is only counted is counted here.
        self.concurrency.serial += 1
        call.serial = self.breaker.last = self.concurrency.serial
        call.began = self.clock()
        if not self._calls:
            self._heard = time.monotonic()
        self._calls[call] = None
        call.level, call.epoch = len(self._calls), self.throughput.epoch
        if self.breaker.is_open:
            call.harmless = self.breaker.note_start(call.serial, call.began)
            if self.breaker.given_up is not None:
                self.gone = anyio.Event()
        if self._requests is not None:
            self._requests.take(call.width, self.clock())
        if self._tokens is not None:
            self._tokens.take(call.tokens, self.clock())

    def correct_tokens(self, estimated: int, tokens: int) -> None:
        """Note that the server counted other tokens for a question than were estimated."""
        if self._tokens is not None:
            self._tokens.correct(tokens - estimated)

    def note_end(self, call: Call, error: BaseException | None) -> None:
        """Note that a question of a call ended: the first that says something speaks for all."""
        call.unfinished -= 1
        says = error is None or isinstance(error, _TELLING)
        if not call.noted and (says or not call.unfinished):
            call.noted = True
            # A refusal and nonsense are answers, too: the judge is there, and had the time.
            if error is None or isinstance(error, JudgeFailure):
                self._note_answer(call)
            elif isinstance(error, JudgeTimeoutError):
                self._late(call, error)
            elif not isinstance(error, ProviderError):
                self.breaker.note_end(call.serial)
            elif error.lasting or (error.retry_after or 0.0) > self.breaker.patience:
                self._note_doubt(call, error)
            elif error.transient:
                self._note_failure(call, error)
            else:
                self.breaker.note_refusal(call.serial, error.status)
        if not call.unfinished:
            del self._calls[call]

    def _note_answer(self, call: Call) -> None:
        """The judge is in order; where it was away, what was rejected then says nothing of it."""
        self.breaker.note_answer()
        self._heard = time.monotonic()
        if self._was_away:
            self._was_away = False
            self.concurrency = AdaptiveConcurrency(self._ceiling)
            self.throughput.restart()
            return
        # A place that throughput does not allow yet is as good as taken.
        in_flight = len(self._calls)
        if in_flight >= self.throughput.limit:
            in_flight = max(in_flight, self.concurrency.limit)
        self.concurrency.note_success(call.serial, in_flight)
        if self._elastic:
            return
        seconds = self.clock() - call.began
        if seconds > self._given_limit:
            self._give_time(MORE_TIME)
        elif seconds < _SOON * self._given_limit:
            self._give_time(1)
        kind = None if call.question is None else call.question.answer_type
        self.throughput.note_answer(kind, call.level, call.epoch, seconds)

    def _late(self, call: Call, error: JudgeTimeoutError) -> None:
        """A judge that answered others meanwhile is slow, and not out of order."""
        if not self._elastic:
            self.throughput.late(call.epoch)
        if self.breaker.has_answered_since(call.serial):
            self.breaker.note_end(call.serial)
            return
        error.lasting = True
        self._give_time(MORE_TIME)
        moment = self.clock()
        self.breaker.note_failure(call.serial, moment, str(error), self.in_flight, status=0)
        if self.breaker.is_open:
            self._held = reason(error), time.monotonic() + self.breaker.opens_at - moment

    def _give_time(self, times: int) -> None:
        """Let calls take so many times the time limit that was given."""
        if self.time_limit is not None:
            self.time_limit = self.throughput.time_limit = times * self._given_limit

    def _note_doubt(self, call: Call, error: ProviderError) -> None:
        """An error that holds for all calls, or for this one: others go on until that is known."""
        why = f"{error}; it asks to wait {s:.0f} s" if (s := error.retry_after) else str(error)
        moment = self.clock()
        self.breaker.note_doubt(call.serial, moment, why, self.in_flight, error.status, s)
        self._held = reason(error), -math.inf

    def _note_failure(self, call: Call, error: ProviderError) -> None:
        """An error that may pass: too many calls, or a judge that is away.

        A server that was never there, or loads its model, rejects no call for its number.
        """
        moment, status, retry_after = self.clock(), error.status, error.retry_after
        self.breaker.note_failure(call.serial, moment, str(error), self.in_flight, status)
        away = status is None or status in _AWAY
        self._was_away = away and (self._was_away or self.breaker.is_open)
        overload = status in _OVERLOAD or (away and self.breaker.has_answered)
        for_all = overload and self.concurrency.note_rejection(call.serial, self.in_flight)
        if retry_after and (for_all or self.breaker.is_open):
            self._paused_until = max(self._paused_until, moment + retry_after)
        if for_all or self.breaker.is_open:
            opens = max(self._paused_until, self.breaker.opens_at)
            self._held = reason(error), time.monotonic() + opens - moment


class Lease(Protocol):
    """Limits that hold for several processes, of which this one has a part that changes.

    Their questions are in common, too.
    """

    def limit(self, limiter: Limiter) -> None:
        """Have a limiter allow only what this process has."""

    def meet(self, judge: JudgeLimiter) -> None:
        """The same for the rates of a judge."""

    def look(self) -> None:
        """A call waits, perhaps for what others have."""

    def give_back(self) -> None:
        """A call ended whose place is asked back."""

    async def get(
        self, judge: Judge, question: Question[T], ask: Ask[T], waiting: Wait = None
    ) -> Answer[T]:
        """The answer that a process has, or that `ask` gets; waits for others in `waiting`."""
        ...


class Limiter:
    """Lets calls start: urgent ones first, within each judge's limits and one ceiling.

    With a `lease` the ceiling is this process's part of that of the run, and changes.
    """

    def __init__(self, ceiling: int, resting: Resting | None = None) -> None:
        """At most `ceiling` calls are in progress of all judges together.

        Where there are several judges, calls that wait for their turn count as `resting`.
        """
        self._resting = resting or Resting()
        self._ceiling = self._free = ceiling
        self._wide = 0  # calls of several places that wait
        self._judges: list[JudgeLimiter] = []
        self._turns = itertools.count()
        self.lease: Lease | None = None

    @property
    def in_flight(self) -> int:
        """Questions in progress."""
        return self._ceiling - self._free

    @property
    def held(self) -> list[Waiting]:
        """The calls that failing judges keep waiting, and those that silent ones do."""
        waits = [wait for judge in self._judges for wait in (judge.held, judge.silence)]
        return [wait for wait in waits if wait is not None]

    def open(self, judge: JudgeLimiter) -> None:
        """Take up a judge."""
        self._judges.append(judge)

    def resize(self, ceiling: float) -> float:
        """Have another ceiling from now on; returns how many calls are in progress."""
        self._free += int(ceiling) - self._ceiling
        self._ceiling = int(ceiling)
        self.admit()
        return self.in_flight

    def demand(self) -> tuple[int, int]:
        """The places without which nothing goes on, and those that would be used."""
        heads = [head[1].width for judge in self._judges if (head := judge.waiting.first())]
        least = min(heads, default=0)
        return least, max(least, sum(judge.demand for judge in self._judges))

    async def enter(
        self,
        judge: JudgeLimiter,
        tokens: int,
        urgency: Urgency,
        places: int = 1,
        question: Question[Any] | None = None,
    ) -> Call:
        """Wait for the call's turn; raises ProviderError when the judge is given up.

        The call that is returned has to `leave` as often as it has `places`, which are no more
        than may be in progress at all. It waits for all of them, and holds none meanwhile.
        `question` is what it asks, or one of those that it asks together.
        """
        tries = False
        if judge.breaker.given_up is not None:
            moment = judge.clock()
            tries = judge.breaker.may_try(moment)
            if not tries and not judge.breaker.is_tried(moment):
                judge.require_hope()
        call = Call(tokens, places, places, question)
        if urgency.turn is None:
            urgency.turn = next(self._turns)
        if (
            self._free >= places
            and not self._wide
            and not judge.waiting.things
            and judge.has_room()
        ):
            self._start(judge, call)
        elif tries:
            judge.require_hope()
        elif len(self._judges) == 1:
            await self._wait(judge, call, urgency)
        else:
            with self._resting:  # another judge may have room
                await self._wait(judge, call, urgency)
        if not call.harmless:
            return call
        end: Exception | None = UNSAID
        try:
            _, end = await judge.ask_harmless()
        finally:
            for _ in range(places):
                self.leave(judge, call, end)
        return await self.enter(judge, tokens, urgency, places, question)

    def leave(self, judge: JudgeLimiter, call: Call, error: BaseException | None) -> None:
        """End one question of a call that has started, however it ended."""
        self._free += 1
        judge.note_end(call, error)
        if self._free <= 0 and self.lease is not None:
            self.lease.give_back()
        self.admit()

    def _start(self, judge: JudgeLimiter, call: Call) -> None:
        self._free -= call.width
        judge.note_start(call)

    async def _wait(self, judge: JudgeLimiter, call: Call, urgency: Urgency) -> None:
        judge.waiting.add(call, urgency)
        self._wide += call.width > 1
        if self.lease is not None:
            self.lease.look()
        try:
            if self._wide:  # what kept it from starting may be a call that it goes before
                self.admit()
            while not call.serial:
                await self._rest(judge, call)
                if not call.serial:
                    judge.require_hope()
                    self.admit()
        except BaseException as error:
            if call.serial:  # its turn came at the moment it was cancelled
                for _ in range(call.width):
                    self.leave(judge, call, error)
            elif call in judge.waiting.things:
                judge.waiting.remove(call)
                self._wide -= call.width > 1
                self.admit()
            raise

    async def _rest(self, judge: JudgeLimiter, call: Call) -> None:
        """Wait for the turn; the first call also wakes when the judge may be called."""
        call.turn = turn = anyio.Event()
        opens = judge.opens_at()
        if not (-math.inf < opens < math.inf and judge.clock() < opens and judge.is_first(call)):
            await turn.wait()
            return
        call.wakes_at = opens
        with anyio.CancelScope(deadline=opens):
            await turn.wait()

    def admit(self) -> None:
        """Start the calls that may start; the first of the others wakes when its judge opens."""
        # Places are free for all judges, but waiting is done at one of them:
        #
        #     judge A   waiting: case 3, case 5     no room   ──▶ stays
        #     judge B   waiting: case 4, case 9     room      ──▶ case 4 starts
        #     judge C   waiting: case 8 (4 places)  room      ──▶ next, if 4 places are free
        #
        # The most urgent call of those whose judge has room goes first, so a judge that is slow or
        # away never holds up the others. A pack needs several places at once. Once it is the most
        # urgent, nobody passes it, even where fewer places would do: they would take each place
        # that becomes free, and the pack might wait for ever.
        while self._free > 0 and (judge := self._next_judge()) is not None:
            call = judge.waiting.take()
            self._wide -= call.width > 1
            self._start(judge, call)
            _wake(call)
        # No task watches the clock for a judge. The first call that waits there does so: it sleeps
        # until the judge opens, and whoever comes to be the first is woken to take this over.
        for judge in self._judges:
            breaker = judge.breaker
            if breaker.given_up is not None and not breaker.is_tried(judge.clock()):
                # No hope: all of them may fail now.
                judge.gone.set()
                while judge.waiting.things:
                    call = judge.waiting.take()
                    self._wide -= call.width > 1
                    _wake(call)
            if not judge.waiting.things:
                continue
            opens = judge.opens_at()
            head = judge.waiting.first() if -math.inf < opens < math.inf else None
            if head is not None:
                waiting = head[1]
                if waiting.wakes_at != opens and opens > judge.clock():
                    _wake(waiting)

    def _next_judge(self) -> JudgeLimiter | None:
        """The judge with the most urgent call, of those with room.

        None if this call needs more places than are free: all others wait behind it.
        """
        ready = []
        for judge in self._judges:
            head = judge.waiting.first() if judge.waiting.things else None
            if head is not None and judge.has_room():
                ready.append((head[0], judge, head[1]))
        if not ready:
            return None
        _, judge, call = ready[0] if len(ready) == 1 else min(ready, key=itemgetter(0))
        return judge if call.width <= self._free else None


def _wake(call: Call) -> None:
    if call.turn is not None:
        call.turn.set()
