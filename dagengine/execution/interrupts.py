"""Runs for callers without an event loop, and Ctrl-C: it cancels a run once, which then closes."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import wraps
from types import FrameType
from typing import Any, Generic, ParamSpec, TypeVar

import anyio
import sniffio
from anyio.abc import TaskStatus
from anyio.from_thread import BlockingPortal, start_blocking_portal

from dagengine.gateway.inner_metrics import current_host
from dagengine.gateway.single_flight import SingleFlight
from dagengine.judges import as_judge, open_judges
from dagengine.question import Judge
from dagengine.system.threads import LoopThread

P = ParamSpec("P")
R = TypeVar("R")

# Seconds for which further interrupts are taken for the first one.
_MOMENT = 1.0


class _BlockedError(BaseException):
    """Ends code that blocks the event loop; the loop itself goes on, and what is open is closed.

    asyncio stops at a KeyboardInterrupt in a task: threads and tasks that are left are never ended.
    """


class _Interruptible(Generic[R]):
    """Work in an event loop of its own, which an interrupt cancels once.

    Without this a second interrupt is raised in the middle of closing what is open, which
    then may never end.

    The event loop hears an interrupt between two steps of tasks. A judge whose code blocks it
    (`time.sleep`) is interrupted in that code, every moment until the loop has heard.
    """

    def __init__(self, work: Callable[[], Awaitable[R]]) -> None:
        self._work, self._thread = work, threading.get_ident()
        self._interrupts: list[float] = []
        self._heard, self._reminded = threading.Event(), threading.Event()
        self._results: list[R] = []
        self._failure: BaseException | None = None

    def run(self) -> R:
        """The result of the work; raises what it raises, and KeyboardInterrupt at an interrupt."""
        try:
            anyio.run(self._main)
        except BaseException:  # code that blocked may have been the loop's own
            if not self._interrupts:
                raise
        finally:
            self._heard.set()
        if self._interrupts and not self._results:
            raise KeyboardInterrupt
        if self._failure is not None:
            raise self._failure
        return self._results[0]

    async def _main(self) -> None:
        async with anyio.create_task_group() as group:
            self._working = anyio.CancelScope()
            await group.start(self._watch)
            with self._working:
                try:
                    self._results.append(await self._work())
                except anyio.get_cancelled_exc_class():
                    raise
                except BaseException as error:  # noqa: BLE001 - comes out as it is, in no group
                    self._failure = error
            group.cancel_scope.cancel()

    async def _watch(self, *, task_status: TaskStatus[None]) -> None:
        with anyio.open_signal_receiver(signal.SIGINT) as received:
            self._tell: Any = signal.getsignal(signal.SIGINT)
            signal.signal(signal.SIGINT, self._note)
            task_status.started()
            async for _ in received:
                self._heard.set()
                self._working.cancel()

    def _note(self, number: int, frame: FrameType | None) -> None:
        """Take a signal: an interrupt, or that the loop has not heard of it yet."""
        if self._reminded.is_set():
            self._reminded.clear()
            if not self._heard.is_set():
                self._working.cancel()  # before the next task blocks, too
                raise _BlockedError
            return
        self._interrupts.append(time.monotonic())
        if self._interrupts[-1] - self._interrupts[0] >= _MOMENT:
            os._exit(130)
        if len(self._interrupts) == 1:
            threading.Thread(target=self._remind, daemon=True).start()
        self._tell(number, frame)

    def _remind(self) -> None:
        while not self._heard.wait(_MOMENT):
            self._reminded.set()
            signal.pthread_kill(self._thread, signal.SIGINT)


def _in_event_loop() -> bool:
    try:
        sniffio.current_async_library()
    except sniffio.AsyncLibraryNotFoundError:
        # sniffio knows tasks. A callback of asyncio is none, nor is what a loop of greenlets runs
        # (Playwright's sync API between two calls), and no second loop can run in either.
        with suppress(RuntimeError):
            asyncio.get_running_loop()
            return True
        return False
    return True


class JudgesOf:
    """Makes judges of what stands for them, and the same one for the same."""

    def __init__(self) -> None:
        self._made: dict[Any, tuple[Any, Judge]] = {}

    def __call__(self, model: Any) -> Judge:
        key = model if isinstance(model, str) else id(model)
        if key not in self._made:
            self._made[key] = model, as_judge(model)
        return self._made[key][1]

    def open(self, judges: Sequence[Judge]) -> AbstractAsyncContextManager[None]:
        """Open judges for a run; raises JudgeSetupError."""
        return open_judges(judges)

    def once(self, judge: Judge) -> SingleFlight[Any] | None:
        """The answers of a judge that are equal for all cases, if other runs want them, too."""
        return None


class KeptJudges(JudgesOf):
    """The judges of a thread that measures again and again, open on a loop of their own.

    Connections and answers to questions that are equal for all cases stay until the environment
    changes, or the judges are more than `_JUDGES`. Then all end with their loop: a client that a
    caller gave lets go of its connections only where the loop that it is used on ends.
    """

    def __init__(self) -> None:
        super().__init__()
        self.thread = LoopThread("dagengine measures")
        self._answers: dict[Judge, SingleFlight[Any]] = {}
        self._environment = dict(os.environ)
        _by_loop[self.thread.portal.call(threading.get_ident)] = self
        weakref.finalize(self, self.thread.close)

    @property
    def is_over(self) -> bool:
        """Whether the next measure needs others."""
        return (
            not self.thread.is_alive
            or self._environment != os.environ
            or max(len(self._made), len(self._answers)) > _JUDGES
        )

    @asynccontextmanager
    async def open(self, judges: Sequence[Judge]) -> AsyncIterator[None]:
        for judge in judges:
            if judge not in self._answers:
                await self.thread.keep(open_judges([judge]))
                self._answers[judge] = SingleFlight(_ANSWERS)
        async with open_judges(judges):
            yield

    def once(self, judge: Judge) -> SingleFlight[Any] | None:
        return self._answers.get(judge)


_JUDGES, _ANSWERS = 8, 1_000
_own = threading.local()
_by_loop = weakref.WeakValueDictionary[int, KeptJudges]()  # by the threads of their loops


def kept_judges() -> KeptJudges | None:
    """The judges that are kept on the event loop of this thread, if they are measured with."""
    return _by_loop.get(threading.get_ident())


def sync(make: Callable[[], Awaitable[R]], *, lasting: bool = False) -> R:
    """Run a coroutine function to its end, also from inside a running event loop.

    A `lasting` loop in a thread of its own stays for the next call from this thread, with what is
    open on it.

    A running loop is left as it is: the work gets a thread and its own loop. Inside a
    node's own code the work joins the node's run (see `gateway.inner_metrics`).

    An interrupt (Ctrl-C) cancels the work, lets it clean up, and is raised as KeyboardInterrupt.
    Another one a second later ends the process immediately.
    """

    async def main() -> R:
        return await make()

    host = current_host()
    if host is not None:
        return host.call(main)
    if lasting:
        kept: KeptJudges | None = getattr(_own, "judges", None)
        if kept is None or kept.is_over:
            if kept is not None:
                kept.thread.close()
            kept = _own.judges = KeptJudges()
        return _result(kept.thread.portal, main)
    if not _in_event_loop():
        is_main = threading.current_thread() is threading.main_thread()
        unclaimed = signal.getsignal(signal.SIGINT) is signal.default_int_handler
        # On Windows event loops do not take signals.
        takes_signals = is_main and unclaimed and sys.platform != "win32"
        return _Interruptible(main).run() if takes_signals else anyio.run(main)
    with start_blocking_portal() as portal:
        return _result(portal, main)


def blocking(door: Callable[P, Awaitable[R]]) -> Callable[P, R]:
    """Make an async function one for callers without an event loop (it works inside one, too).

    It has the same arguments, and the same name without `a_`, also in errors about arguments.
    """

    @wraps(door)
    def call(*arguments: P.args, **settings: P.kwargs) -> R:
        try:
            return sync(lambda: door(*arguments, **settings))
        except TypeError as error:
            if str(error).startswith(f"{door.__qualname__}()"):
                error.args = (str(error).replace(door.__qualname__, call.__qualname__, 1),)
            raise

    call.__name__ = door.__name__.removeprefix("a_")
    call.__qualname__ = f"{door.__qualname__.removesuffix(door.__name__)}{call.__name__}"
    return call


def _result(portal: BlockingPortal, main: Callable[[], Awaitable[R]]) -> R:
    """Result of work in the thread of a portal; an interrupt here ends it there, too."""
    work = portal.start_task_soon(main)
    try:
        return work.result()
    finally:
        work.cancel()
