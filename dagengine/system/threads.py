"""Code in threads: a caller's blocking code runs in one, and has work done on the run's loop."""

from __future__ import annotations

import contextvars
import math
import threading
from collections.abc import Awaitable, Callable, Generator
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, suppress
from functools import partial
from types import coroutine
from typing import Any, Generic, NamedTuple, TypeVar, cast

import anyio
import anyio.lowlevel
import sniffio
from anyio.from_thread import BlockingPortal

from dagengine.errors import DagengineError, EngineClosedError

T = TypeVar("T")

# Seconds that a thread has to put its things away.
_PATIENCE = 10.0


class EventLoop(NamedTuple):
    """An event loop (of asyncio, or the token of trio's), and its thread."""

    native: Any
    library: str
    thread: int

    @classmethod
    def here(cls) -> EventLoop:
        """The loop that runs now."""
        token = anyio.lowlevel.current_token()
        return cls(token.native_token, sniffio.current_async_library(), threading.get_ident())

    @property
    def is_here(self) -> bool:
        """Return whether this thread is that of the loop."""
        return threading.get_ident() == self.thread

    def soon(self, function: Callable[[], object]) -> None:
        """Have the loop call a function, without waiting; RuntimeError when it has ended.

        A loop that ends first never calls it.
        """
        if self.library == "asyncio":
            self.native.call_soon_threadsafe(function)
        else:
            self.native.run_sync_soon(function)

    def spawn(
        self,
        work: Callable[[], Awaitable[None]],
        context: contextvars.Context,
        ended: Callable[[], object],
    ) -> object:
        """Start a task on the loop itself; it must be kept.

        `ended` is called when it is over, also if it was cancelled before its first step: then
        nothing of `work` has run, and nothing in it can tell who waits for its end.
        """
        context.run(sniffio.current_async_library_cvar.set, self.library)
        if self.library == "asyncio":
            task = self.native.create_task(_coroutine(work), context=context)
            task.add_done_callback(lambda _: ended())
            return task
        import trio

        async def run() -> None:  # trio begins every task
            try:
                await work()
            finally:
                ended()

        return trio.lowlevel.spawn_system_task(run, context=context)


# asyncio makes tasks of coroutines only, and `work` may give any awaitable.
async def _coroutine(work: Callable[[], Awaitable[None]]) -> None:
    await work()


class Kept:
    """Work in a task of its own on this loop: its end is always heard, and any task may end it.

    `over` is set when the task has ended. Then `error` is what the work raised, also where it was
    cancelled by the loop, perhaps before its first step; None where it ended by itself or was
    ended.
    """

    def __init__(
        self, work: Callable[[], Awaitable[object]], on_end: Callable[[], object] | None = None
    ) -> None:
        """Begin at once; `on_end` is called after the end."""
        self.over = anyio.Event()
        self.error: BaseException | None = DagengineError(
            "the run was cancelled before its last row: its task was ended"
        )
        self._work, self._on_end, self._scope = work, on_end, anyio.CancelScope()
        loop = EventLoop.here()
        self._task = loop.spawn(self._run, contextvars.copy_context(), self._finish)

    async def _run(self) -> None:
        try:
            with self._scope:
                await self._work()
            self.error = None
        except anyio.get_cancelled_exc_class():
            raise
        except BaseException as error:  # noqa: BLE001 - raised by whoever waits for the end
            self.error = error

    def _finish(self) -> None:
        self.over.set()
        if self._on_end is not None:
            self._on_end()

    async def end(self) -> None:
        """Cancel the work, and return when all of it is put away."""
        self._scope.cancel()
        with anyio.CancelScope(shield=True):
            await self.over.wait()


class KeptOpen(Kept, Generic[T]):
    """A context that a task of its own holds open: another may close it than has opened it.

    Whatever has a cancel scope of anyio inside must be entered and left by one task.
    """

    def __init__(self, context: AbstractAsyncContextManager[T]) -> None:
        """Begin to open it at once."""
        self.value: T
        self._context, self._opened, self._closing = context, anyio.Event(), anyio.Event()
        super().__init__(self._hold, self._opened.set)

    async def _hold(self) -> None:
        async with self._context as self.value:
            self._opened.set()
            await self._closing.wait()

    async def is_open(self) -> bool:
        """Wait until it is open, and has its `value`; False where it has ended."""
        if not self._opened.is_set():
            await self._opened.wait()
        return not self.over.is_set()

    async def wait_open(self) -> T:
        """Give its `value`; raises what kept it from opening. A caller who is cancelled ends it."""
        try:
            if not await self.is_open():
                raise self.error or EngineClosedError("it was closed while it was opened")
        except BaseException:
            await self.end()
            raise
        return self.value

    async def close(self) -> None:
        """Leave the context, and return when it is left; a caller who is cancelled cancels it."""
        self._closing.set()
        try:
            await self.over.wait()
        finally:
            await self.end()


class LoopThread:
    """An event loop in a thread of its own, from its first use on, and what is kept open on it."""

    def __init__(self, name: str) -> None:
        self._ready, self._kept = threading.Event(), list[KeptOpen[Any]]()
        self._thread = threading.Thread(
            target=anyio.run, args=(self._main,), name=name, daemon=True
        )

    @property
    def is_alive(self) -> bool:
        """Whether it has begun, in this process, and not ended."""
        return self._thread.is_alive()

    @property
    def portal(self) -> BlockingPortal:
        """Takes calls from other threads."""
        if not self._thread.ident:
            self._thread.start()
            self._ready.wait()
        return self._portal

    async def keep(self, context: AbstractAsyncContextManager[T]) -> T:
        """Open a context, which is left at the end; raises what keeps it from opening."""
        kept = KeptOpen(context)
        value = await kept.wait_open()
        self._kept.append(kept)
        return value

    def close(self) -> bool:
        """End the thread and what is in progress in it; False when it does not end in time."""
        if self.is_alive:
            self._loop.soon(self._closing.set)
            if not self._loop.is_here:
                self._thread.join(_PATIENCE)
        return not self.is_alive

    async def _main(self) -> None:
        self._loop, self._closing = EventLoop.here(), anyio.Event()
        async with BlockingPortal() as self._portal:
            self._ready.set()
            await self._closing.wait()
            for kept in reversed(self._kept):
                await kept.close()


class LoopCall(Generic[T]):
    """What a coroutine function gives on an event loop, for a thread that waits for it.

    The coroutine is made on the loop, so a loop that stops before leaves none behind. Whoever
    owns the call says `end` while the loop still runs; then the outcome is what `ended` makes,
    unless there is one.
    """

    def __init__(
        self, loop: EventLoop, make: Callable[[], Awaitable[T]], ended: Callable[[], Exception]
    ) -> None:
        self.outcome: Future[T] = Future()
        self._loop, self._make, self._ended = loop, make, ended
        self._context = contextvars.copy_context()
        self._scope: anyio.CancelScope | None = None
        self._task: object = None

    def start(self) -> None:
        """Begin, unless it has been ended before; on the loop."""
        if not self.outcome.done():
            self._task = self._loop.spawn(self._work, self._context, self._give_up)

    def end(self) -> None:
        """Stop it; on the loop."""
        if self._scope is not None:
            self._scope.cancel()
        else:
            self._give_up()

    def _give_up(self) -> None:
        if not self.outcome.done():
            self.outcome.set_exception(self._ended())

    async def _work(self) -> None:
        if self.outcome.done():
            return
        with anyio.CancelScope() as self._scope:
            try:
                result = await self._make()
            except anyio.get_cancelled_exc_class():
                raise  # `_give_up` says so
            except BaseException as error:  # noqa: BLE001 - raised in the thread that waits
                self.outcome.set_exception(error)
            else:
                self.outcome.set_result(result)


@coroutine
def in_steps(work: Awaitable[T], run: Callable[[Callable[[], Any]], Any]) -> Generator[Any, Any, T]:
    """Await some work, and have each step of it, from one wait to the next, called by `run`."""
    steps = work.__await__()
    resume = partial(steps.send, None)
    while True:
        try:
            waited = run(resume)
        except StopIteration as end:
            return cast(T, end.value)
        try:
            resume = partial(steps.send, (yield waited))
        except BaseException as error:  # noqa: BLE001 - the work hears of it where it waits
            resume = partial(steps.throw, error)


def in_context(context: contextvars.Context, work: Awaitable[T]) -> Awaitable[T]:
    """The same work, every step of which runs in a copy of a context, in this task."""
    return in_steps(work, context.copy().run)


def is_cancelled() -> bool:
    """Return whether a cancellation comes from the run, and not from the caller's own code."""
    return anyio.current_effective_deadline() == -math.inf


async def in_daemon_thread(function: Callable[[], T]) -> T:
    """Run `function` in its own thread, with the caller's context; abandon it if cancelled.

    The threads of anyio's pool are joined at exit, so one call that hangs would keep the
    whole program from ending.
    """
    loop, finished_event, outcome = EventLoop.here(), anyio.Event(), Future[T]()
    context = contextvars.copy_context()
    context.run(sniffio.current_async_library_cvar.set, None)  # no loop runs in that thread

    def work() -> None:
        try:
            outcome.set_result(context.run(function))
        except BaseException as error:  # noqa: BLE001 - raised in the task that waits
            outcome.set_exception(error)
        with suppress(RuntimeError):  # the event loop has ended meanwhile: no task waits any more
            loop.soon(finished_event.set)

    threading.Thread(target=work, daemon=True, name="dagengine blocking call").start()
    await finished_event.wait()
    return outcome.result()
