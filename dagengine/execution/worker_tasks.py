"""The tasks of a run: each takes one piece of work after another, and rests when there is none."""

from __future__ import annotations

import contextvars
import itertools
import math
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Protocol, Self

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup

from dagengine.system.threads import in_steps

# Nodes of plain Python never wait; a worker lets others have a turn this often.
_TURNS = 64


class WorkerScope:
    """Where a worker runs nodes, one after another, under one cancel scope.

    A scope for every node would be a sixth of the engine's work for it, and hardly one is ever
    cancelled. One that was cancelled, or that has a deadline, serves no other node.
    """

    __slots__ = ("_scope",)

    def __init__(self) -> None:
        self._scope: anyio.CancelScope | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        scope, self._scope = self._scope, None
        return scope is not None and bool(scope.__exit__(kind, error, trace))

    def scope(self, deadline: float) -> anyio.CancelScope:
        """The scope of the node that comes; `deadline` is in seconds of the event loop's clock."""
        if self._scope is None:
            self._scope = anyio.CancelScope(deadline=deadline)
            self._scope.__enter__()
        elif deadline != math.inf:
            self._scope.deadline = deadline
        return self._scope

    def note_end(self) -> None:
        """The node has ended by itself."""
        scope = self._scope
        if scope is not None and (scope.cancel_called or scope.deadline != math.inf):
            self.__exit__(None, None, None)

    def is_cancellation(self, error: BaseException) -> bool:
        """Return whether an error that the node raised is no more than its own cancellation."""
        return self.__exit__(type(error), error, error.__traceback__)


Work = Callable[[WorkerScope], Awaitable[None]]


class WorkSource(Protocol):
    """Where workers find work."""

    @property
    def over(self) -> bool:
        """Return whether there is nothing to do, now or ever."""
        ...

    @property
    def busy(self) -> bool:
        """Return whether there may be something to do."""
        ...

    def next(self) -> Work | None:
        """The next work; None if there is nothing (now)."""
        ...


class WorkerTasks:
    """As many tasks as find something to do, and no more than `most` at work."""

    def __init__(self, source: WorkSource, most: int) -> None:
        self._source = source
        self._most = most
        self._idle: list[anyio.Event] = []
        self._count = 0
        self._parked = 0  # those whose work waits for a pack are not at work
        self._coming = False  # whether one was called and has not looked for work yet

    def start(self, group: TaskGroup) -> None:
        """Begin with one worker, in a group of tasks; all of them begin in the caller's context."""
        self._group, self._context = group, contextvars.copy_context()
        self._spawn()

    def _spawn(self) -> None:
        self._count += 1
        # Whoever calls may be in the middle of a node, whose spans and host are not for others.
        self._context.copy().run(self._group.start_soon, self._work)

    async def _work(self) -> None:
        source = self._source
        try:
            with WorkerScope() as worker:
                for turn in itertools.count(1):
                    self._coming = False
                    work = source.next() if self._most else None
                    if work is None:
                        if source.over or not self._most:
                            self.wake_all()
                            return
                        news = anyio.Event()
                        self._idle.append(news)
                        await news.wait()
                        continue
                    await in_steps(work(worker), self._calling_others())
                    # While its node waited for a pack it was not counted, so others were called.
                    # Now there is one too many, and whoever comes to an end first goes.
                    if self._count - self._parked > self._most:
                        self._count -= 1
                        self.news()  # for one of them that rests
                        return
                    if not turn % _TURNS:
                        await anyio.lowlevel.checkpoint()
        except BaseException:
            self._most = 0  # the group is about to end: nobody may join it any more
            raise

    def _calling_others(self) -> Callable[[Callable[[], Any]], Any]:
        """Runs the steps of some work; others are called once it waits, which gives them a turn."""
        alone = True

        def run(resume: Callable[[], Any]) -> Any:
            nonlocal alone
            waited = resume()  # raises StopIteration at the end
            if alone:
                alone = False
                self.wake()
            return waited

        return run

    def wake_all(self) -> None:
        """Have every worker look whether all is done."""
        for event in self._idle:
            event.set()
        self._idle.clear()

    def wake(self) -> None:
        """Have one more worker look if there may be work; who finds some calls the next."""
        if self._coming or not self._source.busy:
            return
        if self._idle:
            self._coming = True
            self._idle.pop().set()
        elif self._count - self._parked < self._most:
            self._coming = True
            self._spawn()

    def news(self) -> None:
        """There is something new to do, or the end has come."""
        if self._source.over:
            self.wake_all()
        else:
            self.wake()

    def park(self, change: int) -> None:
        """A node begins (1) or ends (-1) to wait for a pack: another one may have its worker."""
        self._parked += change
        if change > 0:
            self.wake()
