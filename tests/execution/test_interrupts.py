"""Ctrl-C: work is cancelled once, and puts its things away however often the key is hit."""

import asyncio
import os
import signal
import sys
import threading
import time
from collections.abc import Callable

import anyio
import pytest

from dagengine.execution import sync

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="event loops take no signals")


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize("times", [1, 2, 5])
def test_interrupts_let_the_work_put_its_things_away(times: int) -> None:
    put_away: list[str] = []

    async def work() -> None:
        try:
            for _ in range(times):
                interrupt()
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                interrupt()
                await anyio.sleep(0.01)
                put_away.append("all")

    with pytest.raises(KeyboardInterrupt):
        sync(work)
    assert put_away == ["all"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_code_that_blocks_the_event_loop_is_interrupted_after_a_moment() -> None:
    put_away: list[str] = []

    async def work() -> None:
        try:
            interrupt()
            while True:  # as a judge that never comes back
                time.sleep(60)
        finally:
            put_away.append("all")

    with pytest.raises(KeyboardInterrupt):
        sync(work)
    assert put_away == ["all"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_work_that_was_done_before_the_interrupt_counts() -> None:
    async def work() -> int:
        interrupt()
        return 3

    assert sync(work) == 3


@pytest.mark.parametrize(
    "error", [ValueError("no"), SystemExit(3), BaseExceptionGroup("several", [KeyError(1)])]
)
def test_what_work_raises_comes_out_as_it_is(error: BaseException) -> None:
    async def work() -> None:
        raise error

    with pytest.raises(type(error)) as raised:
        sync(work)
    assert raised.value is error


def test_a_handler_of_ones_own_stays_in_charge() -> None:
    seen: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: seen.append(number))

    async def work() -> str:
        interrupt()
        await anyio.sleep(0)
        return "done"

    try:
        assert sync(work) == "done"
    finally:
        signal.signal(signal.SIGINT, before)
    assert seen == [signal.SIGINT]


def test_other_threads_take_no_signals() -> None:
    def run(take: Callable[[str], None]) -> None:
        async def work() -> str:
            return "done"

        take(sync(work))

    found: list[str] = []
    thread = threading.Thread(target=run, args=[found.append])
    thread.start()
    thread.join()
    assert found == ["done"]


def test_a_callback_in_a_running_loop_waits_for_work_in_another() -> None:
    async def work() -> str:
        await anyio.sleep(0)
        return "done"

    async def main() -> list[str]:
        loop, results = asyncio.get_running_loop(), list[str]()
        finished = asyncio.Event()
        loop.call_soon(lambda: results.append(sync(work)))
        loop.call_soon(finished.set)
        await finished.wait()
        return results

    assert asyncio.run(main()) == ["done"]
