"""Runs for callers without an event loop, and Ctrl-C: it cancels a run once, which then closes."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from types import FrameType
from typing import Any, TypeVar

import anyio
import sniffio
from anyio.abc import TaskStatus
from anyio.from_thread import start_blocking_portal

from dagengine.gateway.inner_metrics import current_host

R = TypeVar("R")

# Seconds for which further interrupts are taken for the first one.
_MOMENT = 1.0


def has_signals() -> bool:
    """Whether interrupts come to this thread, and the program has no handler of its own."""
    here = threading.current_thread() is threading.main_thread()
    unclaimed = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    # On Windows event loops do not take signals.
    return here and unclaimed and sys.platform != "win32"


async def interruptible(work: Callable[[], Awaitable[R]]) -> R:
    """What `work` gives; raises KeyboardInterrupt when it was interrupted.

    Without this a second interrupt is raised in the middle of closing what is open, which
    then may never end.

    The event loop hears an interrupt between two steps of tasks. A judge whose code blocks it
    (`time.sleep`) is interrupted in that code, when the loop has not heard for a moment.
    """
    interrupts: list[float] = []
    heard, main = threading.Event(), threading.get_ident()
    alarm = threading.Timer(_MOMENT, lambda: signal.pthread_kill(main, signal.SIGINT))
    alarm.daemon = True
    failure: BaseException | None = None
    results: list[R] = []

    async def watch(*, task_status: TaskStatus[None]) -> None:
        with anyio.open_signal_receiver(signal.SIGINT) as received:
            tell: Any = signal.getsignal(signal.SIGINT)

            def note(number: int, frame: FrameType | None) -> None:
                interrupts.append(time.monotonic())
                late = interrupts[-1] - interrupts[0] >= _MOMENT
                if late and heard.is_set():
                    os._exit(130)
                if late:
                    heard.set()
                    raise KeyboardInterrupt
                if len(interrupts) == 1:
                    alarm.start()
                tell(number, frame)

            signal.signal(signal.SIGINT, note)
            task_status.started()
            async for _ in received:
                heard.set()
                alarm.cancel()
                working.cancel()

    try:
        async with anyio.create_task_group() as group:
            working = anyio.CancelScope()
            await group.start(watch)
            with working:
                try:
                    results.append(await work())
                except anyio.get_cancelled_exc_class():
                    raise
                except BaseException as error:  # noqa: BLE001 - comes out as it is, in no group
                    failure = error
            group.cancel_scope.cancel()
    finally:
        alarm.cancel()
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


def sync(make: Callable[[], Awaitable[R]]) -> R:
    """Run a coroutine function to its end, also from inside a running event loop.

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
        return anyio.run(interruptible, main) if has_signals() else anyio.run(main)
    with start_blocking_portal() as portal:
        work = portal.start_task_soon(main)
        try:
            return work.result()
        finally:
            work.cancel()  # an interrupt ends the run in the other thread, too
