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
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import Token
from functools import partial, wraps
from typing import Any, TypeVar

from dagengine.errors import InputError
from dagengine.gateway.gateway import Asks, Gateway
from dagengine.gateway.packs.packing import Participant
from dagengine.gateway.request import Request
from dagengine.graph.current_node import Change, node_at_work, working_for
from dagengine.question import NO_USAGE, Answer, Judge
from dagengine.system.threads import LoopCall

R = TypeVar("R")

# Held while a thread looks whether its node has ended, and leaves its call.
_closing = threading.RLock()


class Host:
    """A node at work, as the gateway of whatever its own code measures.

    What is called inside `with host:` belongs to this node; at the end all of it is stopped.

    `judge` is the node's own. `change` is what the run does to the node's questions, for
    instance another sample for each vote; `rank` is that of the node's case. `blocked` is set
    once the code has waited, in the thread of the run's event loop, for something that needs
    this loop. `participant` is the node in the packs of its case.
    """

    usage = NO_USAGE
    blocked = False
    _asking = 0
    _over = False

    def __init__(
        self,
        gateway: Asks,
        judge: Judge,
        change: Change,
        rank: int = 0,
        participant: Participant | None = None,
    ) -> None:
        self.judge = judge
        self._rank = rank
        self._participant = participant
        self._gateway = gateway
        self._change = change
        self.loop = gateway.run.loop
        self._calls: set[LoopCall[Any]] = set()

    @property
    def run(self) -> Gateway:
        """The gateway of the whole run."""
        return self._gateway.run

    @property
    def replays(self) -> bool:
        """Return whether the run takes every answer from a store."""
        return self._gateway.replays

    async def answer(self, request: Request) -> Answer[Any]:
        """A valid answer through the run's gateway, as urgent as the node; raises JudgeError.

        The request's `rank` is that of the code's own case, which the run does not know, its
        `participant` the code's own node. The node that the code belongs to keeps no pack waiting
        meanwhile.
        """
        self.require_open()
        request.rank = self._rank
        request.question = self._change(request.question)
        with self._resting():
            answer = await self._gateway.answer(request)
        self.usage += answer.usage
        return answer

    @contextmanager
    def _resting(self) -> Iterator[None]:
        """Let packs of the node's case go while its code waits for answers."""
        self._asking += 1
        if self._participant is not None and self._asking == 1:
            self._participant.rest()
        try:
            yield
        finally:
            self._asking -= 1
            if self._participant is not None and not self._asking:
                self._participant.resume()

    def require_open(self) -> None:
        """Raise InputError when the node has ended: there is no run to join any more."""
        if self._over:
            raise _ended_error()

    def with_change(self, change: Change) -> Host:
        """A host as urgent as the node, which makes a change to every question first."""
        return Host(self, self.judge, change)

    def __enter__(self) -> Host:
        self._outer: Token[Host | None] = node_at_work.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        node_at_work.reset(self._outer)
        with _closing:
            self._over = True
        for call in tuple(self._calls):
            if self.loop.is_here:
                call.end()
            else:
                with suppress(RuntimeError):  # the loop has ended, and with it the call
                    self.loop.soon(call.end)

    def call(self, make: Callable[[], Awaitable[R]]) -> R:
        """Run a coroutine function on the run's event loop, for code in a thread.

        Raises InputError in the thread of that loop, which would wait for itself, and when the
        node has ended.
        """
        self.require_open()
        if self.loop.is_here:
            self.blocked = True
            raise InputError(
                "this would block the run of this code: await a_measure() or a_evaluate(), or use "
                "a function that is not async"
            )
        call = LoopCall(self.loop, make, _ended_error)
        self._send(call)
        return call.outcome.result()

    def _send(self, call: LoopCall[Any]) -> None:
        """Leave a call for the loop, which runs as long as the node does."""
        with _closing:
            self.require_open()
            self._calls.add(call)
            call.outcome.add_done_callback(lambda _: self._calls.discard(call))
            if isinstance(self._gateway, Host):
                self._gateway._send(call)
            else:
                self.loop.soon(call.start)


def _ended_error() -> InputError:
    return InputError("this code belongs to a node that has ended, so it cannot ask questions")


def current_host() -> Host | None:
    """The node that this code belongs to; None outside of a run."""
    host: Host | None = node_at_work.get()
    return host


_wrapping = threading.Lock()
_runs = 0  # in progress, with code of a caller
# Methods by class and name: as they were, and what stands in their place.
_wrapped: dict[tuple[type, str], tuple[Callable[..., Any], Callable[..., Any]]] = {}


@contextmanager
def joined_threads() -> Iterator[None]:
    """Inside, threads and pools work for the node whose code starts a thread or submits a job.

    It holds for the whole process until the last run ends; outside of nodes nothing changes.
    `Thread.start` and `ThreadPoolExecutor.submit` are wrapped, as tracers do it. Python 3.11 has no
    event for a thread that starts, and no version has one for a job of a pool.
    """
    global _runs
    with _wrapping:
        _runs += 1
        if _runs == 1:
            start, submit = threading.Thread.start, ThreadPoolExecutor.submit
            _wrapped[threading.Thread, "start"] = start, _joined_start(start)
            _wrapped[ThreadPoolExecutor, "submit"] = submit, _joined_submit(submit)
            for (kind, name), (_, joined) in _wrapped.items():
                setattr(kind, name, joined)
    try:
        yield
    finally:
        with _wrapping:
            _runs -= 1
            while not _runs and _wrapped:
                (kind, name), (plain, joined) = _wrapped.popitem()
                if getattr(kind, name) is joined:  # else another tool has wrapped it meanwhile
                    setattr(kind, name, plain)


def _joined_start(start: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(start)
    def start_joined(thread: threading.Thread) -> None:
        host = current_host()
        if host is not None:
            vars(thread)["run"] = partial(_work_for, host, thread.run)
        start(thread)

    return start_joined


def _joined_submit(submit: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(submit)
    def submit_joined(pool: Any, function: Any, /, *arguments: Any, **named: Any) -> Any:
        host = current_host()
        if host is None:
            return submit(pool, function, *arguments, **named)
        with working_for(None):  # a thread that the pool starts now works for others later
            return submit(pool, _work_for, host, function, *arguments, **named)

    return submit_joined


def _work_for(host: Host, function: Callable[..., R], /, *arguments: Any, **named: Any) -> R:
    with working_for(host):
        return function(*arguments, **named)
