"""The order of calls: the most urgent one first, within the limits of each judge."""

from __future__ import annotations

import itertools
import math
import time
from dataclasses import dataclass
from operator import itemgetter

import anyio

from dagengine.errors import JUDGE_FAILURES, JudgeTimeoutError, ProviderError
from dagengine.gateway.adaptive_concurrency import AdaptiveConcurrency
from dagengine.gateway.circuit_breaker import CircuitBreaker
from dagengine.gateway.limits import Limits
from dagengine.gateway.rate_limit import RateLimit
from dagengine.gateway.urgency import Queue, Urgency
from dagengine.gateway.waits import Resting, one_waits, reason
from dagengine.results import Waiting

_OVERLOAD = frozenset({429, 502, 503, 504, 529})
# How a call may end that says something about the judge.
_TELLING = (*JUDGE_FAILURES, JudgeTimeoutError, ProviderError)


@dataclass(slots=True, eq=False)
class Call:
    """One call, from waiting for its turn to its end; `serial` is 0 until it may start.

    It takes a place for each of its questions; `left` of them have not ended; `told` says whether
    its end was taken note of.
    """

    tokens: int
    places: int = 1
    left: int = 1
    told: bool = False
    serial: int = 0
    turn: anyio.Event | None = None
    wakes_at: float = -math.inf


class Lane:
    """The limits of one judge, and the calls that wait for it."""

    def __init__(self, name: str, limits: Limits, *, elastic: bool = False) -> None:
        """`name` is the judge's identity; an elastic one needs no careful start."""
        self.name = name
        self._elastic = elastic
        self._ceiling = ceiling = limits.max_in_flight
        self.concurrency = AdaptiveConcurrency(ceiling, ceiling if elastic else None)
        self.breaker = CircuitBreaker(name, limits.patience)
        self.in_flight = 0
        self.waiting: Queue[Call] = Queue()
        self._paused_until = -math.inf
        self._held = "", -math.inf
        requests, tokens = limits.requests_per_minute, limits.tokens_per_minute
        self._requests = None if requests is None else RateLimit(requests)
        self._tokens = None if tokens is None else RateLimit(tokens)

    def expect(self, places: int | None) -> None:
        """Begin with as many calls as the server works on at the same time, if that is known."""
        if places is not None and not self._elastic:
            most = min(self._ceiling, places)
            self.concurrency = AdaptiveConcurrency(most, most)

    def opens_at(self) -> float:
        """When a call may start at the earliest, whatever the number in progress."""
        opens = max(self._paused_until, self.breaker.opens_at)
        if self._requests is self._tokens:  # neither: most runs have no rate
            return opens
        for pace in (self._requests, self._tokens):
            if pace is not None:
                opens = max(opens, pace.opens_at())
        return opens

    def has_room(self) -> bool:
        """Whether a call may start now."""
        if self.in_flight >= self.concurrency.limit:
            return False
        opens = self.opens_at()
        return opens == -math.inf or opens <= anyio.current_time()

    def is_first(self, call: Call) -> bool:
        """Whether a call is the most urgent of those that wait."""
        first = self.waiting.first()
        return first is not None and first[1] is call

    @property
    def held(self) -> Waiting | None:
        """The calls that a failing judge keeps waiting; may be read from any thread."""
        why, until = self._held
        if not self.waiting or not (self.breaker.is_open or until > time.monotonic()):
            return None
        return one_waits(why, until, len(self.waiting))

    def require_hope(self) -> None:
        """Raise ProviderError when the judge is given up."""
        if self.breaker.given_up is not None:
            raise ProviderError(self.breaker.given_up, transient=False)

    def started(self, call: Call) -> None:
        """Count a call that starts now."""
        call.serial = self.concurrency.start()
        self.in_flight += 1
        self.breaker.started(call.serial)
        if self._requests is not None:
            self._requests.take(call.places, anyio.current_time())
        if self._tokens is not None:
            self._tokens.take(call.tokens, anyio.current_time())

    def used(self, estimated: int, tokens: int) -> None:
        """The server counted other tokens for a question than were estimated."""
        if self._tokens is not None:
            self._tokens.correct(tokens - estimated)

    def ended(self, call: Call, error: BaseException | None) -> None:
        """A question of a call ended: the first that says something speaks for all of them."""
        call.left -= 1
        says = error is None or isinstance(error, _TELLING)
        if not call.told and (says or not call.left):
            call.told = True
            self._learn(call, error)
        if not call.left:
            self.in_flight -= 1

    def _learn(self, call: Call, error: BaseException | None) -> None:
        """Learn from how a call ended; a refusal and nonsense are answers, too."""
        if error is None or isinstance(error, JUDGE_FAILURES):
            self.concurrency.succeeded(call.serial, self.in_flight)
            self.breaker.answered()
        elif isinstance(error, JudgeTimeoutError):
            self._failed(call, error, overload=True)
        elif not isinstance(error, ProviderError):
            self.breaker.ended(call.serial)
        elif error.transient:
            overload = error.status is None or error.status in _OVERLOAD
            self._failed(call, error, overload, error.retry_after or 0.0)
        else:
            self.breaker.refused(call.serial, error.status, str(error))

    def _failed(
        self, call: Call, error: Exception, overload: bool, retry_after: float = 0.0
    ) -> None:
        now = anyio.current_time()
        self.breaker.failed(call.serial, now, str(error), self.in_flight, retry_after)
        for_all = overload and self.concurrency.rejected(call.serial, self.in_flight)
        if retry_after and (for_all or self.breaker.is_open):
            self._paused_until = max(self._paused_until, now + retry_after)
        if for_all or self.breaker.is_open:
            opens = max(self._paused_until, self.breaker.opens_at)
            self._held = reason(error), time.monotonic() + opens - now


class Limiter:
    """Lets calls start: urgent ones first, within each lane's limits and one ceiling."""

    def __init__(self, ceiling: int, resting: Resting | None = None) -> None:
        """At most `ceiling` calls are in progress in all lanes together.

        Where there are several lanes, calls that wait for their turn count as `resting`.
        """
        self._resting = resting or Resting()
        self._ceiling = self._free = ceiling
        self._wide = 0  # calls of several places that wait
        self._lanes: list[Lane] = []
        self._turns = itertools.count()

    @property
    def in_flight(self) -> int:
        """Questions in progress."""
        return self._ceiling - self._free

    @property
    def held(self) -> list[Waiting]:
        """The calls that failing judges keep waiting."""
        return [held for lane in self._lanes if (held := lane.held) is not None]

    def open(self, lane: Lane) -> None:
        """Take up a lane."""
        self._lanes.append(lane)

    async def enter(self, lane: Lane, tokens: int, urgency: Urgency, places: int = 1) -> Call:
        """Wait for the call's turn; raises ProviderError when the judge is given up.

        The call that is returned has to `leave` as often as it has `places`, which are no more
        than may be in progress at all. It waits for all of them, and holds none meanwhile.
        """
        lane.require_hope()
        call = Call(tokens, places, places)
        if urgency.turn is None:
            urgency.turn = next(self._turns)
        if self._free >= places and not self._wide and not lane.waiting and lane.has_room():
            self._start(lane, call)
        elif len(self._lanes) == 1:
            await self._wait(lane, call, urgency)
        else:
            with self._resting:  # another lane may have room
                await self._wait(lane, call, urgency)
        return call

    def leave(self, lane: Lane, call: Call, error: BaseException | None) -> None:
        """End one question of a call that has started, however it ended."""
        self._free += 1
        lane.ended(call, error)
        self._admit()

    def _start(self, lane: Lane, call: Call) -> None:
        self._free -= call.places
        lane.started(call)

    async def _wait(self, lane: Lane, call: Call, urgency: Urgency) -> None:
        lane.waiting.add(call, urgency)
        self._wide += call.places > 1
        try:
            if self._wide:  # what kept it from starting may be a call that it goes before
                self._admit()
            while not call.serial:
                await self._rest(lane, call)
                if not call.serial:
                    lane.require_hope()
                    self._admit()
        except BaseException as error:
            if call.serial:  # its turn came at the moment it was cancelled
                for _ in range(call.places):
                    self.leave(lane, call, error)
            elif call in lane.waiting:
                lane.waiting.remove(call)
                self._wide -= call.places > 1
                self._admit()
            raise

    async def _rest(self, lane: Lane, call: Call) -> None:
        """Wait for the turn; the first call also wakes when the lane opens."""
        call.turn = turn = anyio.Event()
        opens = lane.opens_at()
        if math.isinf(opens) or opens <= anyio.current_time() or not lane.is_first(call):
            await turn.wait()
            return
        call.wakes_at = opens
        with anyio.CancelScope(deadline=opens):
            await turn.wait()

    def _admit(self) -> None:
        """Start the calls that may start; the first of the others wakes when its lane opens."""
        while self._free > 0 and (lane := self._next_lane()) is not None:
            call = lane.waiting.take()
            self._wide -= call.places > 1
            self._start(lane, call)
            _wake(call)
        for lane in self._lanes:
            if lane.waiting:
                self._remind(lane)

    def _next_lane(self) -> Lane | None:
        """The lane with the most urgent call, of those with room.

        None if this call needs more places than are free: all others wait behind it.
        """
        ready = [
            (first[0], lane, first[1])
            for lane in self._lanes
            if (first := lane.waiting.first()) is not None and lane.has_room()
        ]
        if not ready:
            return None
        _, lane, call = ready[0] if len(ready) == 1 else min(ready, key=itemgetter(0))
        return lane if call.places <= self._free else None

    def _remind(self, lane: Lane) -> None:
        """Have the first call that waits mind the time; wake all if there is no hope."""
        if lane.breaker.given_up is not None:
            while lane.waiting:
                call = lane.waiting.take()
                self._wide -= call.places > 1
                _wake(call)
            return
        opens = lane.opens_at()
        first = lane.waiting.first() if math.isfinite(opens) else None
        if first is None:
            return
        if first[1].wakes_at != opens and opens > anyio.current_time():
            _wake(first[1])


def _wake(call: Call) -> None:
    if call.turn is not None:
        call.turn.set()
