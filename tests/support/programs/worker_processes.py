"""Worker processes of this machine that are forked from one with their imports behind them.

They are processes as those that a run starts: with pipes, a session and an exit code of their own.
Only `python -c` and the imports are left out, which is a second of processor for each.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import Any

import anyio
import pytest

from dagengine.execution.cluster.processes import serve_calls
from programs.commands import FORKS


def _serve(requests: Connection, replies: Connection, environment: dict[str, str]) -> None:
    os.setsid()
    os.environ.clear()
    os.environ.update(environment)
    for descriptor, pipe in enumerate((requests, replies)):
        os.dup2(pipe.fileno(), descriptor)
        pipe.close()
    sys.stdin = os.fdopen(0, "r", encoding="utf-8", closefd=False)
    serve_calls()


class _Forked:
    """What `asyncio.subprocess.Process` is for a process that was started."""

    def __init__(
        self, process: Any, stdin: asyncio.StreamWriter, stdout: asyncio.StreamReader
    ) -> None:
        self._process, self.stdin, self.stdout = process, stdin, stdout
        self.kill = process.kill

    @property
    def returncode(self) -> int | None:
        code: int | None = self._process.exitcode
        return code

    async def wait(self) -> int | None:
        await anyio.wait_readable(self._process.sentinel)
        self._process.join()
        return self.returncode


async def forked_worker(*words: str, env: Mapping[str, str], **settings: Any) -> _Forked:
    """In the place of `asyncio.create_subprocess_exec`, which only starts workers."""
    requests, stdin = FORKS.Pipe(duplex=False)
    stdout, replies = FORKS.Pipe(duplex=False)
    process = FORKS.Process(target=_serve, args=(requests, replies, dict(env)))
    process.start()
    requests.close()
    replies.close()
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    ends = [os.fdopen(os.dup(pipe.fileno()), "r+b", buffering=0) for pipe in (stdin, stdout)]
    stdin.close()
    stdout.close()
    transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, ends[0])
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), ends[1])
    return _Forked(process, asyncio.StreamWriter(transport, protocol, None, loop), reader)


def fork_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have runs of this process fork their workers."""
    monkeypatch.setattr("asyncio.create_subprocess_exec", forked_worker)


class Unreadable:
    """What can be sent, and not be read."""

    def __reduce__(self) -> Any:
        return int, ("no number",)


async def unreadable(count: int, value: object = None) -> list[Unreadable]:
    """So many things that cannot be read."""
    return [Unreadable()] * count


def raise_error(kind: type[BaseException]) -> None:
    """Raise an error of a kind, as a class of a caller may when it is read."""
    raise kind("read")


class Raising(Unreadable):
    """What raises an error of a kind where it is read."""

    def __init__(self, kind: type[BaseException]) -> None:
        self.kind = kind

    def __reduce__(self) -> Any:
        return raise_error, (self.kind,)


async def raising(kind: type[BaseException], *, at_once: bool) -> Raising:
    """Raise an error of a kind, here or where the answer is read."""
    if at_once:
        raise kind("cancelled from within")
    return Raising(kind)


async def waiting() -> None:
    """Wait for ever."""
    await asyncio.Event().wait()
