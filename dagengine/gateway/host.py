"""The running node that code belongs to: what this code measures joins the node's own run.

A metric's own code may measure other metrics. Their questions then go to the gateway of the
run that the code is part of, under its limits, its budget and its store::

    run ── node at work ── own code ── metric.measure(case) ──┐
     ▲                                                        │ a thread, a task, another loop
     └────────────── Host: same gateway, same loop ◀──────────┘

The host is found by a context variable. Tasks inherit it; `in_daemon_thread` and
`asyncio.to_thread` hand it on. A plain thread and a job of a pool get it from `joined_threads`.
Whoever starts them decides. So a thread of a web server, or a pool that nodes and other code share,
keeps its other work to itself.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import ContextVar, Token
from functools import partial, wraps
from typing import Any, NamedTuple, Protocol, TypeVar

from pydantic import BaseModel

from dagengine.errors import InputError
from dagengine.gateway.limits import Limits
from dagengine.gateway.packs.packing import Hold
from dagengine.gateway.tracing import NoSpans
from dagengine.gateway.waits import Resting
from dagengine.question import NO_USAGE, Answer, Judge, Question, ServerFacts
from dagengine.results import Spent, Totals, Waiting
from dagengine.threads import Home, LoopCall

T = TypeVar("T", bound=BaseModel)
R = TypeVar("R")
Change = Callable[[Question[Any]], Question[Any]]


class Asks(Protocol):
    """What a run needs of its gateway."""

    @property
    def home(self) -> Home: ...

    @property
    def limits(self) -> Limits: ...

    @property
    def totals(self) -> Totals: ...

    @property
    def waiting(self) -> list[Waiting]: ...

    @property
    def spent(self) -> tuple[Spent, ...]: ...

    @property
    def resting(self) -> Resting: ...

    @property
    def replays(self) -> bool: ...

    @property
    def spans(self) -> NoSpans: ...

    async def meet(self, judges: Iterable[Judge]) -> None: ...

    def facts(self, judge: Judge) -> ServerFacts: ...

    def stored_as(self, judge: Judge, question: Question[Any]) -> str | None: ...

    async def ask(
        self, judge: Judge, question: Question[T], place: int = 0, hold: Hold | None = None
    ) -> Answer[T]: ...


# Held while a thread looks whether its node has ended, and leaves its call.
_door = threading.RLock()


class Host:
    """A node at work, as the gateway of whatever its own code measures.

    What is called inside `with host:` belongs to this node; at the end all of it is stopped.

    `judge` is the node's own. `change` is what the run does to the node's questions, for
    instance another sample for each vote; `place` is that of the node's case. `blocked` is set
    once the code has waited, in the thread of the run's event loop, for something that needs
    this loop. `hold` is the node's own.
    """

    usage = NO_USAGE
    blocked = False
    _asking = 0
    _over = False

    def __init__(
        self,
        gateway: Asks,
        judge: Judge,
        change: Change | None = None,
        place: int = 0,
        hold: Hold | None = None,
    ) -> None:
        self.judge = judge
        self._place = place
        self._hold = hold
        self._gateway = gateway
        self._change = change
        self.home = gateway.home
        self._calls: set[LoopCall[Any]] = set()

    @property
    def limits(self) -> Limits:
        """The limits of the whole run."""
        return self._gateway.limits

    @property
    def totals(self) -> Totals:
        """What the whole run asked and used so far."""
        return self._gateway.totals

    @property
    def waiting(self) -> list[Waiting]:
        """The questions of the whole run that wait to be asked again."""
        return self._gateway.waiting

    @property
    def spent(self) -> tuple[Spent, ...]:
        """The same by metric, node and judge."""
        return self._gateway.spent

    @property
    def resting(self) -> Resting:
        """The questions of the whole run that hold no place."""
        return self._gateway.resting

    @property
    def replays(self) -> bool:
        """Whether the run takes every answer from a store."""
        return self._gateway.replays

    @property
    def spans(self) -> NoSpans:
        """The run's tracing."""
        return self._gateway.spans

    async def meet(self, judges: Iterable[Judge]) -> None:
        """Take up judges (see `Gateway.meet`)."""
        await self._gateway.meet(judges)

    def facts(self, judge: Judge) -> ServerFacts:
        """What the server of a judge that was met says of itself."""
        return self._gateway.facts(judge)

    def stored_as(self, judge: Judge, question: Question[Any]) -> str | None:
        """What the run's store has a question under (see `Gateway.stored_as`)."""
        asked = question if self._change is None else self._change(question)
        return self._gateway.stored_as(judge, asked)

    async def ask(
        self, judge: Judge, question: Question[T], place: int = 0, hold: Hold | None = None
    ) -> Answer[T]:
        """A valid answer through the run's gateway, as urgent as the node; raises JudgeError.

        `place` is that of the code's own case, which the run does not know, `hold` is that of
        its node. The node that the code belongs to holds no packs up meanwhile.
        """
        self.require_open()
        asked = question if self._change is None else self._change(question)
        with self._resting():
            answer = await self._gateway.ask(judge, asked, self._place, hold)
        self.usage += answer.usage
        return answer

    @contextmanager
    def _resting(self) -> Iterator[None]:
        """Let packs of the node's case go while its code waits for answers."""
        self._asking += 1
        if self._hold is not None and self._asking == 1:
            self._hold.rest()
        try:
            yield
        finally:
            self._asking -= 1
            if self._hold is not None and not self._asking:
                self._hold.resume()

    def require_open(self) -> None:
        """Raise InputError when the node has ended: there is no run to join any more."""
        if self._over:
            raise _ended()

    def __enter__(self) -> Host:
        self._outer: Token[Host | None] = _host.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        _host.reset(self._outer)
        with _door:
            self._over = True
        for call in tuple(self._calls):
            self._end(call)

    def call(self, make: Callable[[], Awaitable[R]]) -> R:
        """What a coroutine function gives on the run's event loop, for code in a thread.

        Raises InputError in the thread of that loop, which would wait for itself, and when the
        node has ended.
        """
        self.require_open()
        if self.home.is_here:
            self.blocked = True
            raise InputError(
                "this would block the run of this code: await a_measure() or a_evaluate(), or use "
                "a function that is not async"
            )
        call = LoopCall(self.home, make, _ended)
        self._send(call)
        return call.outcome.result()

    def _send(self, call: LoopCall[Any]) -> None:
        """Leave a call for the loop, which runs as long as the node does."""
        with _door:
            self.require_open()
            self._calls.add(call)
            call.outcome.add_done_callback(lambda _: self._calls.discard(call))
            if isinstance(self._gateway, Host):
                self._gateway._send(call)
            else:
                self.home.soon(call.start)

    def _end(self, call: LoopCall[Any]) -> None:
        if self.home.is_here:
            call.end()
            return
        with suppress(RuntimeError):  # the loop has ended, and with it the call
            self.home.soon(call.end)


class _Nobody(Host):
    """Where code is only looked at: it can ask nothing."""

    def __init__(self) -> None:
        self._over = True

    def require_open(self) -> None:
        raise InputError("no calls are possible here: this code is run only to see what it reads")

    def call(self, make: Callable[[], Awaitable[R]]) -> R:
        self.require_open()
        raise AssertionError("unreachable")


def _ended() -> InputError:
    return InputError("this code belongs to a node that has ended, so it cannot ask questions")


_host: ContextVar[Host | None] = ContextVar("dagengine node at work", default=None)


def current_host() -> Host | None:
    """The node that this code belongs to; None outside of a run."""
    return _host.get()


class _Wrapped(NamedTuple):
    """A method of a class as it was, and what stands in its place."""

    kind: type
    name: str
    plain: Callable[..., Any]
    joined: Callable[..., Any]


_wrapping = threading.Lock()
_runs = 0  # in progress, with code of a caller
_wrapped: tuple[_Wrapped, ...] = ()


@contextmanager
def joined_threads() -> Iterator[None]:
    """Inside, threads and pools work for the node whose code starts a thread or submits a job.

    It holds for the whole process until the last run ends; outside of nodes nothing changes.
    `Thread.start` and `ThreadPoolExecutor.submit` are wrapped, as tracers do it. Python 3.11 has no
    event for a thread that starts, and no version has one for a job of a pool.
    """
    global _runs, _wrapped
    with _wrapping:
        _runs += 1
        if _runs == 1:
            _wrapped = _wrap()
    try:
        yield
    finally:
        with _wrapping:
            _runs -= 1
            if not _runs:
                _unwrap(_wrapped)


def _wrap() -> tuple[_Wrapped, ...]:
    start, submit = threading.Thread.start, ThreadPoolExecutor.submit
    wrapped = (
        _Wrapped(threading.Thread, "start", start, _joined_start(start)),
        _Wrapped(ThreadPoolExecutor, "submit", submit, _joined_submit(submit)),
    )
    for kind, name, _, joined in wrapped:
        setattr(kind, name, joined)
    return wrapped


def _unwrap(wrapped: tuple[_Wrapped, ...]) -> None:
    for kind, name, plain, joined in wrapped:
        if getattr(kind, name) is joined:  # else another tool has wrapped it meanwhile
            setattr(kind, name, plain)


def _joined_start(start: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(start)
    def joined(thread: threading.Thread) -> None:
        host = _host.get()
        if host is not None:
            vars(thread)["run"] = partial(_working_for, host, thread.run)
        start(thread)

    return joined


def _joined_submit(submit: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(submit)
    def joined(pool: Any, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> Any:
        host = _host.get()
        if host is None:
            return submit(pool, function, *arguments, **named)
        with no_host():  # a thread that the pool starts now works for others later
            return submit(pool, _working_for, host, function, *arguments, **named)

    return joined


def _working_for(host: Host, function: Callable[..., R], /, *arguments: Any, **named: Any) -> R:
    token = _host.set(host)
    try:
        return function(*arguments, **named)
    finally:
        _host.reset(token)


@contextmanager
def asking_nobody() -> Iterator[None]:
    """Refuse whatever is measured by what is called inside, as in a plan."""
    token = _host.set(_Nobody())
    try:
        yield
    finally:
        _host.reset(token)


class no_host:
    """Let what is called inside belong to no run, as a judge's own code."""

    __slots__ = ("_outer",)

    def __enter__(self) -> None:
        self._outer = _host.set(None)

    def __exit__(self, *_: object) -> None:
        _host.reset(self._outer)


@contextmanager
def asking_with(change: Change) -> Iterator[None]:
    """Have `change` made to every question of metrics that a node's own code measures."""
    host = _host.get()
    if host is None:
        yield
        return
    with Host(host, host.judge, change):  # as urgent as the node
        yield
