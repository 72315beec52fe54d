"""Worker processes on this machine, started and ended by this one; no scheduler in between.

They call what they are sent, and send the result. Both directions are frames: eight bytes of
length, then a pickle. A request is (number, _CALL, (function, arguments)), a reply (number, kind,
value). The last part is pickled by itself: if it cannot be read, whoever waits for this number is
told. Before its result a call may send news (see `telling`). A process ends when its standard input
does, so it never outlives whoever started it.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import pickle
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from functools import partial
from typing import Any, BinaryIO

import anyio

from dagengine.execution.cluster.shared_limits import Leases
from dagengine.system.safe_files import write_all

_START = "from dagengine.execution.cluster.processes import serve_calls; serve_calls()"
# Processes that may die over one request before it is given up.
_DEATHS = 4
# Seconds that a process gets to end.
_PATIENCE = 5

_LENGTH = 8
# A request, and the kinds of replies: something before the result, the result, and an exception in
# its place; or something about leases, which belongs to no request.
_CALL, _NEWS, _RESULT, _FAILURE, _LEASES = range(5)

telling: ContextVar[Callable[[object], None]] = ContextVar("telling")
"""What sends something before the result of the call that is at work; not set elsewhere."""

Tell = Callable[..., Awaitable[None]]
"""Tells a worker something about leases."""
HeardOf = Callable[["_Process", Sequence[Any]], None]
Heard = Callable[[Any], None]
"""Takes what a call says before its result; what it raises ends the call."""


_outputs: list[BinaryIO] = []  # of a worker process


def _frame(number: int | None, kind: int, value: object) -> bytes:
    """A request or a reply as it is sent."""
    packed = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    data = pickle.dumps((number, kind, packed), pickle.HIGHEST_PROTOCOL)
    return len(data).to_bytes(_LENGTH, "big") + data


class WorkersDiedError(Exception):
    """Processes died again and again while one request was in progress."""


class _DiedError(Exception):
    """The process ended before it answered."""


class Pool:
    """So many processes; each works on `places` requests at the same time.

    One that dies is replaced, and what it had in progress is done by others.
    """

    def __init__(self, count: int, places: int) -> None:
        self._count, self._places = count, places
        self._processes: list[_Process] = []
        self._replacing = anyio.Lock()
        self._leases: Leases | None = None
        self._tell: Tell

    @classmethod
    @asynccontextmanager
    async def of(cls, count: int, places: int) -> AsyncIterator[Pool]:
        """Start all processes, and end them afterwards, whatever they are doing."""
        pool = cls(count, places)
        try:
            for _ in range(count):
                pool._processes.append(await _Process.start(pool._heard))
            yield pool
        finally:
            with anyio.CancelScope(shield=True):
                await asyncio.gather(*(process.end() for process in pool._processes))

    @staticmethod
    def saying(run: str) -> Callable[..., None]:
        """Called in a worker: what tells the process that started it about leases; of one run."""
        return lambda *news: write_all(_outputs[0], _frame(None, _LEASES, news))

    async def lend(self, run: str, leases: Leases, tell: Tell) -> None:
        """Have all processes share the leases of a run; `tell` is called there."""
        self._leases, self._tell = leases, partial(tell, run)

    def _heard(self, process: _Process, news: Sequence[Any]) -> None:
        """Take a process's message about leases; do nothing when it has died."""
        if self._leases is None:
            return
        processes = {str(id(process)): process for process in self._processes}

        def send(worker: str, *said: Any) -> None:
            if worker in processes:
                processes[worker].say(self._tell, *said)

        if news:
            self._leases.hear(send, str(id(process)), *news)
        else:
            self._leases.drop_worker(send, str(id(process)))

    async def nthreads(self) -> dict[str, int]:
        """Requests that each process works on at the same time."""
        return dict.fromkeys(map(str, range(self._count)), self._places)

    async def submit(
        self, function: Callable[..., Awaitable[Any]], *arguments: Any, heard: Heard
    ) -> Any:
        """Call a coroutine function of a module in the least busy process.

        If that process dies, another one says everything again. Raises what the function or
        `heard` raises, and WorkersDiedError.
        """
        for _ in range(_DEATHS):
            process = min(self._processes, key=lambda candidate: candidate.busy)
            try:
                return await process.call(function, *arguments, heard=heard)
            # A request that kills each process it comes to would kill all of them, one after the
            # other, and the requests beside it with them. So it has a few tries only.
            except _DiedError:
                async with self._replacing:  # unless another request that lost it did so
                    if process in self._processes:
                        index = self._processes.index(process)
                        self._processes[index] = await _Process.start(self._heard)
                        await process.end()
        raise WorkersDiedError

    async def run(self, function: Callable[..., Awaitable[Any]], *arguments: Any) -> list[Any]:
        """Call in every process; None for those that die."""

        async def call(process: _Process) -> Any:
            with suppress(_DiedError):
                return await process.call(function, *arguments)
            return None

        return await asyncio.gather(*map(call, self._processes))


def _unheard(news: Any) -> None:
    """For calls that say nothing before their result."""


class _Process:
    """One process, and the requests that it has in progress."""

    def __init__(self, process: asyncio.subprocess.Process, heard: HeardOf) -> None:
        self._process = process
        self._heard = heard
        self._numbers = itertools.count()
        self._waiting: dict[int, tuple[asyncio.Future[Any], Heard]] = {}
        self._dead = False
        self._reading = asyncio.create_task(self._read())
        self._reading.add_done_callback(self._give_up)

    @classmethod
    async def start(cls, heard: HeardOf) -> _Process:
        """A new process; it finds the modules that this one finds.

        `heard` gets what it says of leases, and nothing when it has died.
        """
        path = os.pathsep.join(filter(None, sys.path))
        return cls(
            await asyncio.create_subprocess_exec(
                sys.executable, "-c", _START,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                # In a session of its own Ctrl-C does not reach it: this process ends it.
                env={**os.environ, "PYTHONPATH": path}, start_new_session=True,
            ),
            heard,
        )  # fmt: skip

    @property
    def busy(self) -> int:
        """The requests in progress."""
        return len(self._waiting)

    async def call(
        self, function: Callable[..., Awaitable[Any]], *arguments: Any, heard: Heard = _unheard
    ) -> Any:
        """The result of a call there; raises what it or `heard` raised, or _DiedError."""
        if self._dead:
            raise _DiedError
        number = next(self._numbers)
        result: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[number] = result, heard
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(_frame(number, _CALL, (function, arguments)))
            with suppress(OSError):  # the reader notices
                await self._process.stdin.drain()
            return await result
        finally:
            self._waiting.pop(number, None)

    def say(self, function: Tell, *arguments: Any) -> None:
        """Have a function called there, whose result is not waited for."""
        assert self._process.stdin is not None
        if not (self._dead or self._process.stdin.is_closing()):
            self._process.stdin.write(_frame(None, _CALL, (function, arguments)))

    async def _read(self) -> None:
        replies = self._process.stdout
        assert replies is not None
        with suppress(asyncio.IncompleteReadError, OSError):
            while True:
                length = int.from_bytes(await replies.readexactly(_LENGTH), "big")
                self._take(*pickle.loads(await replies.readexactly(length)))

    def _give_up(self, reading: asyncio.Task[None]) -> None:
        """Nothing more is read, for whatever reason: tell all who wait for a reply."""
        self._dead = True
        why = None if reading.cancelled() else reading.exception()
        for future, _ in self._waiting.values():
            if not future.done():
                future.set_exception(_DiedError(why))
        self._heard(self, ())

    def _take(self, number: int | None, kind: int, packed: bytes) -> None:
        """One reply; nobody waits any more for one to a call that was cancelled."""
        if kind == _LEASES:
            self._heard(self, pickle.loads(packed))
        if number is None:
            return
        future, heard = self._waiting.get(number, (None, _unheard))
        if future is None or future.done():
            return
        try:
            value = pickle.loads(packed)
            if kind == _NEWS:
                heard(value)
            elif kind == _FAILURE:
                raise value
            else:
                future.set_result(value)
        except BaseException as error:  # noqa: BLE001 - the call ends with it; a future takes less
            plain = isinstance(error, Exception) and not isinstance(error, StopIteration)
            future.set_exception(error if plain else RuntimeError(f"the reply raised {error!r}"))

    async def end(self) -> None:
        """End the process and wait until it is gone, also while a run is being cancelled."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        with anyio.CancelScope(shield=True):
            try:
                await asyncio.wait_for(self._process.wait(), _PATIENCE)
            except TimeoutError:
                with suppress(ProcessLookupError):
                    self._process.kill()
                await self._process.wait()
            await asyncio.wait((self._reading,))


def serve_calls() -> None:
    """Do what a worker process does: call what it is sent until the standard input ends."""
    # Ctrl-C reaches every process of a terminal; ours are ended by whoever started them.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _outputs.append(os.fdopen(os.dup(1), "wb", buffering=0))
    os.dup2(2, 1)  # what the caller's code prints must not get among the frames
    asyncio.run(_serve(sys.stdin.buffer, _outputs[0]))


async def _serve(requests: BinaryIO, out: BinaryIO) -> None:
    loop = asyncio.get_running_loop()
    coming: asyncio.Queue[bytes | None] = asyncio.Queue()

    def read() -> None:
        while len(head := requests.read(_LENGTH)) == _LENGTH:
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
    telling.set(lambda news: write_all(out, _frame(number, _NEWS, news)))
    try:
        function, arguments = pickle.loads(packed)
        reply = _frame(number, _RESULT, await function(*arguments))
    except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - the other side is told
        try:
            ended = isinstance(error, asyncio.CancelledError)
            reply = _frame(number, _FAILURE, RuntimeError("it was cancelled") if ended else error)
        except Exception:  # noqa: BLE001 - the pickling of the caller's objects may raise anything
            text = "".join(traceback.format_exception(error))
            reply = _frame(number, _FAILURE, RuntimeError(text))
    write_all(out, reply)
