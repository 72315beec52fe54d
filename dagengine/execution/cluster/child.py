"""What a worker process of a `processes.Pool` does: call what it is sent, and send the result.

Both directions are frames: eight bytes of length, then a pickle. A request is (number, CALL,
(function, arguments)), a reply (number, kind, value). The last part is pickled by itself: if it
cannot be read, whoever waits for this number is told. Before its result a call may send news (see
`telling`). The process ends when its standard input does, so it never outlives whoever started it.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from contextvars import ContextVar
from typing import BinaryIO

from dagengine.regular_files import write_all

LENGTH = 8
# A request, and the kinds of replies: something before the result, the result, and an exception in
# its place; or something about leases, which belongs to no request.
CALL, NEWS, RESULT, FAILURE, LEASES = range(5)

telling: ContextVar[Callable[[object], None]] = ContextVar("telling")
"""What sends something before the result of the call that is at work; not set elsewhere."""


_outputs: list[BinaryIO] = []  # of a worker process


def saying(run: str) -> Callable[..., None]:
    """Sender of news about leases to the process that started this one; it has one run."""
    return lambda *news: write_all(_outputs[0], frame(None, LEASES, news))


def frame(number: int | None, kind: int, value: object) -> bytes:
    """A request or a reply as it is sent."""
    packed = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    data = pickle.dumps((number, kind, packed), pickle.HIGHEST_PROTOCOL)
    return len(data).to_bytes(LENGTH, "big") + data


def main() -> None:
    """Serve until the standard input ends."""
    # Ctrl-C reaches every process of a terminal; ours are ended by whoever started them.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _outputs.append(os.fdopen(os.dup(1), "wb", buffering=0))
    os.dup2(2, 1)  # what the caller's code prints must not get among the frames
    asyncio.run(_serve(sys.stdin.buffer, _outputs[0]))


async def _serve(requests: BinaryIO, out: BinaryIO) -> None:
    loop = asyncio.get_running_loop()
    coming: asyncio.Queue[bytes | None] = asyncio.Queue()

    def read() -> None:
        while len(head := requests.read(LENGTH)) == LENGTH:
            length = int.from_bytes(head, "big")
            data = requests.read(length)
            if not data or len(data) != length:  # the end cut it off
                break
            loop.call_soon_threadsafe(coming.put_nowait, data)
        loop.call_soon_threadsafe(coming.put_nowait, None)

    threading.Thread(target=read, name="requests", daemon=True).start()
    tasks: set[asyncio.Task[None]] = set()
    while (data := await coming.get()) is not None:
        task = asyncio.create_task(_answer(data, out))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
    os._exit(0)  # nobody is there any more; what is in progress is stopped at once


async def _answer(data: bytes, out: BinaryIO) -> None:
    number, _, packed = pickle.loads(data)
    telling.set(lambda news: write_all(out, frame(number, NEWS, news)))
    try:
        function, arguments = pickle.loads(packed)
        reply = frame(number, RESULT, await function(*arguments))
    except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - the other side is told
        try:
            ended = isinstance(error, asyncio.CancelledError)
            reply = frame(number, FAILURE, RuntimeError("it was cancelled") if ended else error)
        except Exception:  # noqa: BLE001 - the pickling of the caller's objects may raise anything
            text = "".join(traceback.format_exception(error))
            reply = frame(number, FAILURE, RuntimeError(text))
    write_all(out, reply)
