"""Runs a caller's blocking code in threads that never keep a finished program alive."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from typing import TypeVar

import anyio
import anyio.from_thread
import anyio.lowlevel
import sniffio

T = TypeVar("T")


async def in_daemon_thread(function: Callable[[], T]) -> T:
    """Run `function` in a thread of its own, with the caller's context; abandon it if cancelled.

    The threads of anyio's pool are joined at exit, so one call that hangs would keep the
    whole program from ending.
    """
    token = anyio.lowlevel.current_token()
    done, outcome = anyio.Event(), list[T | BaseException]()
    context = contextvars.copy_context()
    context.run(sniffio.current_async_library_cvar.set, None)  # no loop runs in that thread

    def work() -> None:
        try:
            outcome.append(context.run(function))
        except BaseException as error:  # noqa: BLE001 - raised in the task that waits
            outcome.append(error)
        try:
            anyio.from_thread.run_sync(done.set, token=token)
        except RuntimeError:  # the event loop has ended meanwhile: no task waits any more
            return

    threading.Thread(target=work, daemon=True, name="dagengine blocking call").start()
    await done.wait()
    found = outcome[0]
    if isinstance(found, BaseException):
        raise found
    return found
