"""Runs for callers without an event loop, and Ctrl-C: it cancels a run once, which then closes."""

from __future__ import annotations

import asyncio
import contextvars
import os
import signal
import sys
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from types import FrameType
from typing import Any, TypeVar

import anyio
import sniffio
from anyio.abc import TaskStatus
from anyio.from_thread import start_blocking_portal

from dagengine.errors import JudgeSetupError
from dagengine.gateway.inner_metrics import current_host
from dagengine.gateway.single_flight import SingleFlight
from dagengine.judges import as_judge, open_judges
from dagengine.question import Judge
from dagengine.threads import KeptOpen

R = TypeVar("R")
T = TypeVar("T")

# Seconds for which further interrupts are taken for the first one.
_MOMENT = 1.0


def _has_signals() -> bool:
    """Whether interrupts come to this thread, and the program has no handler of its own."""
    here = threading.current_thread() is threading.main_thread()
    unclaimed = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    # On Windows event loops do not take signals.
    return here and unclaimed and sys.platform != "win32"


class _BlockedError(BaseException):
    """Ends code that blocks the event loop; the loop itself goes on, and what is open is closed.

    asyncio stops at a KeyboardInterrupt in a task: threads and tasks that are left are never ended.
    """


def _run_interruptible(
    work: Callable[[], Awaitable[R]], run: Callable[[Callable[[], Coroutine[Any, Any, None]]], None]
) -> R:
    """Return what `work` gives in a loop that `run` runs; raises KeyboardInterrupt at an interrupt.

    Without this a second interrupt is raised in the middle of closing what is open, which
    then may never end.

    The event loop hears an interrupt between two steps of tasks. A judge whose code blocks it
    (`time.sleep`) is interrupted in that code, every moment until the loop has heard.
    """
    interrupts: list[float] = []
    heard, reminded, thread = threading.Event(), threading.Event(), threading.get_ident()
    failure: BaseException | None = None
    results: list[R] = []

    def remind() -> None:
        while not heard.wait(_MOMENT):
            reminded.set()
            signal.pthread_kill(thread, signal.SIGINT)

    async def watch(working: anyio.CancelScope, *, task_status: TaskStatus[None]) -> None:
        with anyio.open_signal_receiver(signal.SIGINT) as received:
            tell: Any = signal.getsignal(signal.SIGINT)

            def note(number: int, frame: FrameType | None) -> None:
                if reminded.is_set():
                    reminded.clear()
                    if not heard.is_set():
                        working.cancel()  # before the next task blocks, too
                        raise _BlockedError
                    return
                interrupts.append(time.monotonic())
                if interrupts[-1] - interrupts[0] >= _MOMENT:
                    os._exit(130)
                if len(interrupts) == 1:
                    threading.Thread(target=remind, daemon=True).start()
                tell(number, frame)

            signal.signal(signal.SIGINT, note)
            task_status.started()
            async for _ in received:
                heard.set()
                working.cancel()

    async def main() -> None:
        nonlocal failure
        async with anyio.create_task_group() as group:
            working = anyio.CancelScope()
            await group.start(watch, working)
            with working:
                try:
                    results.append(await work())
                except anyio.get_cancelled_exc_class():
                    raise
                except BaseException as error:  # noqa: BLE001 - comes out as it is, in no group
                    failure = error
            group.cancel_scope.cancel()

    try:
        run(main)
    except BaseException:  # code that blocked may have been the loop's own
        if not interrupts:
            raise
    finally:
        heard.set()
    if interrupts and not results:
        raise KeyboardInterrupt
    if failure is not None:
        raise failure
    return results[0]


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
    """Makes judges of what stands for them, and the same one for the same: those `made`."""

    def __init__(self) -> None:
        self.made: dict[Any, tuple[Any, Judge]] = {}

    def __call__(self, model: Any) -> Judge:
        key = model if isinstance(model, str) else id(model)
        if key not in self.made:
            self.made[key] = model, as_judge(model)
        return self.made[key][1]


class LastingLoop:
    """The event loop of a thread that measures again and again, and what stays open on it.

    These are the latest `judges`, as long as the environment is the same, with their connections
    and their answers to questions that are equal for all cases.
    """

    def __init__(self) -> None:
        self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        self._once: dict[Judge, SingleFlight[Any]] = {}
        self._kept: OrderedDict[Judge, KeptOpen[None]] = OrderedDict()
        self._environment, self._judges = dict(os.environ), JudgesOf()
        self.process, self.is_running = os.getpid(), False
        weakref.finalize(self, _put_away, self._runner, self._kept, self.process)

    @property
    def judges(self) -> JudgesOf:
        """The maker of judges, which gives the same ones as before."""
        if self._environment != os.environ or len(self._judges.made) > _JUDGES:
            self._environment, self._judges = dict(os.environ), JudgesOf()
        return self._judges

    async def keep_open(self, judges: Iterable[Judge]) -> None:
        """Open judges, and the oldest ones no more than fit; raises JudgeSetupError."""
        for judge in judges:
            kept = self._kept.pop(judge, None) or KeptOpen(open_judges([judge]))
            if not await kept.is_open():
                raise kept.error or JudgeSetupError(f"{judge.identity} is closed")
            self._kept[judge] = kept
            self._once.setdefault(judge, SingleFlight(_ANSWERS))
        while len(self._kept) > _JUDGES:
            judge, kept = self._kept.popitem(last=False)
            del self._once[judge]
            await kept.close()

    def once(self, judge: Judge) -> SingleFlight[Any] | None:
        """The answers of an open judge that are equal for all cases."""
        return self._once.get(judge)

    def run(self, main: Callable[[], Coroutine[Any, Any, R]]) -> R:
        """As `anyio.run`; what the work has left behind is cancelled, and what is kept stays."""
        context, self.is_running = contextvars.copy_context(), True
        context.run(sniffio.current_async_library_cvar.set, "asyncio")

        def run(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
            return self._runner.run(work(), context=context)

        try:
            return _run_interruptible(main, run) if _has_signals() else run(main)
        finally:
            self.is_running = False
            self._runner.run(self._end_others(), context=context)

    async def _end_others(self) -> None:
        """Cancel the tasks that nobody keeps."""
        mine = {asyncio.current_task(), *(kept.task for kept in self._kept.values())}
        others = asyncio.all_tasks() - mine
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)


_JUDGES, _ANSWERS = 8, 1_000  # that stay
_thread = threading.local()


def _put_away(runner: asyncio.Runner, kept: Mapping[Judge, KeptOpen[None]], process: int) -> None:
    """Close what is open at the end of the thread, or of the program."""
    if process != os.getpid() or _in_event_loop():
        return

    async def close() -> None:
        for opened in kept.values():
            await opened.close()

    with runner:
        runner.run(close())


def lasting_loop() -> LastingLoop | None:
    """The loop of this thread that runs what is measured now, if it is one that lasts."""
    loop: LastingLoop | None = getattr(_thread, "loop", None)
    return loop if loop is not None and loop.is_running else None


def sync(make: Callable[[], Awaitable[R]], *, lasting: bool = False) -> R:
    """Run a coroutine function to its end, also from inside a running event loop.

    A `lasting` loop stays, with what is open on it, for the next call from this thread.

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
    if not _in_event_loop():
        if lasting:
            loop: LastingLoop | None = getattr(_thread, "loop", None)
            if loop is None or loop.process != os.getpid():
                loop = _thread.loop = LastingLoop()
            return loop.run(main)
        return _run_interruptible(main, anyio.run) if _has_signals() else anyio.run(main)
    with start_blocking_portal() as portal:
        work = portal.start_task_soon(main)
        try:
            return work.result()
        finally:
            work.cancel()  # an interrupt ends the run in the other thread, too
