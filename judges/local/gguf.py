"""A model file as the judge, without a server of one's own: `--judge gguf:model.gguf`."""

from __future__ import annotations

import json
import math
import os
import re
import secrets
import subprocess
import sys
import tempfile
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

from dagengine.errors import (
    InputError,
    JudgeError,
    JudgeSetupError,
    MissingExtraError,
    ProviderError,
)
from dagengine.judges.identity import durable_name
from dagengine.judges.local import llama_process
from dagengine.judges.local.model_file import ModelFile, read_model_file
from dagengine.judges.openai import OpenAIJudge
from dagengine.judges.wire.connection import Connection
from dagengine.question import Question, ServerFacts
from dagengine.system.threads import in_daemon_thread

# Calls at the same time; more of them would share the same processors and memory.
_PLACES = 4
# Tokens of a window that nobody asked for, and the fewest that a judge can do with.
_WINDOW, _LEAST = 8_192, 2_048
# Few texts have fewer bytes per token; and the tokens of instructions and answer.
_BYTES_PER_TOKEN, _BESIDE, _STEP = 3, 2_048, 1_024
# The part of the machine's memory that contexts may take: the model needs the rest.
_SHARE = 4
_FEW = 4  # processors that are all used
_GROUPS = Path("/sys/fs/cgroup")  # control groups of Linux
_UNKNOWN_MEMORY = 8 << 30
# What is shown of the log of a server that died.
_LINES, _WIDTH = 6, 200
_TIME_AND_LEVEL = re.compile(r"[\d.]+ [A-Z] ")

_lock = threading.Lock()
_servers: WeakValueDictionary[tuple[str, ServerSize], ModelServer] = WeakValueDictionary()


class GGUFJudge(OpenAIJudge):
    """Answers with the chat model in a file, for instance `qwen2.5-7b-instruct-q4_k_m.gguf`.

    A process on this machine serves it by llama.cpp while the judge is open, for instance for the
    time of a run. It needs the extra `llama`. `window` is the number of tokens that the prompt and
    the answer of one call may have together, `places` is the number of calls at the same time,
    `threads` the number of processors that work for them. They are chosen by model, memory, the
    longest case and the processors of this process if they are not given. `parameters` are added to
    every request body.

    The identity is that of the model in the file, wherever the file is, so stored answers are
    found again. Raises InputError for a file that is not a chat model.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        window: int | None = None,
        places: int | None = None,
        threads: int | None = None,
        parameters: dict[str, Any] | None = None,
    ) -> None:
        for name, number in (("window", window), ("places", places), ("threads", threads)):
            if number is not None and number < 1:
                raise InputError(f"{name} must be at least 1, got {number}")
        self.file = read_model_file(Path(path))
        super().__init__(self.file.path.stem, parameters=parameters)
        self._wanted = window, places, threads
        self._server = model_server_of(self.file, size_for(self.file, *self._wanted))

    @property
    def hosted(self) -> bool:
        """It never asks a provider."""
        return False

    @property
    def window(self) -> int:
        """The tokens that the prompt and the answer of one call may have together."""
        return self._server.size.window

    @property
    def places(self) -> int:
        """The number of calls at the same time."""
        return self._server.size.places

    @property
    def base_url(self) -> str | None:
        """None: the address is another one in every run, and nobody else may ask there."""
        return None

    @cached_property
    def _identity(self) -> str:
        """The model's own name, what tells its content apart, and parameters."""
        return self.durable_identity or f"{self._name} with {self._parameters!r}"

    @property
    def durable_identity(self) -> str | None:
        """The same: it has neither a path nor an address."""
        return durable_name(self._name, self._parameters)

    @property
    def _name(self) -> str:
        return f"gguf {self.file.name} {self.file.digest}"

    def _public_state(self) -> dict[str, Any]:
        return {**super()._public_state(), "_address": None, "_server": self._server.size}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _server=model_server_of(state["file"], state["_server"]))

    @asynccontextmanager
    async def session(self) -> AsyncIterator[Connection]:
        """Keep the server running and connections open while inside.

        Raises MissingExtraError without xllamacpp, and JudgeSetupError with the last lines of the
        server's log when it does not start.
        """
        async with self._server.running() as address:
            self._address, self._api_key = address
            async with super().session() as client:
                yield client

    def make_room(self, material: int) -> None:
        """Choose the window for prompts with so many bytes of material, before the model is loaded.

        It never gets smaller, and stays as it is if the user chose it or the model is at work.
        """
        if not self._clients:
            size = size_for(self.file, *self._wanted, material=material)
            if size.window > self.window:
                self._server = model_server_of(self.file, size)

    async def facts(self) -> ServerFacts:
        """Window and places of the server, which are known without asking it."""
        return ServerFacts("model file", self.window, self.places)

    async def require_reachable(self) -> None:
        """Raise MissingExtraError without xllamacpp; the model is loaded when a run begins."""
        require_llama()

    def failure(self, error: Any, question: Question[Any]) -> JudgeError:
        import openai

        death = self._server.death()
        if death is not None and isinstance(error, openai.APIConnectionError):
            return ProviderError(death, transient=False)
        return super().failure(error, question)


class Address(NamedTuple):
    """Where a server listens, and the key that it wants."""

    base_url: str
    api_key: str


class ServerSize(NamedTuple):
    """The tokens of one call's prompt and answer, the calls at the same time, and the threads.

    Without `threads` the servers of this process share its processors.
    """

    window: int
    places: int
    threads: int | None = None


def size_for(
    file: ModelFile,
    window: int | None = None,
    places: int | None = None,
    threads: int | None = None,
    material: int = 0,
) -> ServerSize:
    """Share of the machine for a server, if its user does not say.

    The window that the model was trained for, up to 8,192 tokens or what prompts with so many
    bytes of `material` need, and 4 places; fewer if their memory would be more than a quarter of
    the machine's.
    """
    tokens = _memory() // _SHARE // max(file.bytes_per_token, 1)
    if window is None:
        tokens_needed = material // _BYTES_PER_TOKEN + _BESIDE
        useful_window = max(_WINDOW, math.ceil(tokens_needed / _STEP) * _STEP)
        window = min(file.trained_window or _WINDOW, useful_window, max(tokens, _LEAST))
    if places is None:
        places = max(1, min(_PLACES, tokens // window))
    return ServerSize(window, places, threads)


def own_threads() -> int:
    """Threads for a server that starts now: a thread per processor, of many at most half.

    Most machines with many processors count every core twice. Servers of other models in this
    process get equal shares. What else the machine does at this moment says nothing of the time to
    come: a run of hours that began beside another one would keep one thread to its end.
    """
    processors = _processors()
    if processors > _FEW:
        processors //= 2
    return max(1, processors // max(1, len(_servers)))


def _processors(groups: Path = Path("/proc/self/cgroup"), root: Path = _GROUPS) -> int:
    """The processors that this process may use: by its affinity, and by quotas of its groups."""
    try:
        processors = len(os.sched_getaffinity(0))
    except AttributeError:  # only Linux tells
        return os.cpu_count() or 1
    shares = [float(processors)]
    with suppress(OSError):
        for line in groups.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers and "cpu" not in controllers.split(","):
                continue
            # In a container, the group is at the root of what is mounted there.
            top = root / "cpu" if controllers else root
            group = top / path.lstrip("/")
            for folder in {top, group, *group.parents}:
                if folder == top or top in folder.parents:
                    shares.append(_quota(folder))
    return max(1, math.ceil(min(shares)))


def _quota(group: Path) -> float:
    """The processors that a control group may use, in both versions of their files."""
    for names in (("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us")):
        with suppress(OSError, ValueError):  # a quota of `max` is no number
            texts = " ".join((group / name).read_text() for name in names)
            quota, period = map(int, texts.split())
            return quota / period if quota > 0 else math.inf
    return math.inf


def _memory() -> int:
    """The memory of the machine in bytes."""
    with suppress(AttributeError, ValueError, OSError):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return _UNKNOWN_MEMORY


def require_llama() -> None:
    """Raise MissingExtraError when the package that serves model files is not installed."""
    if find_spec("xllamacpp") is None:
        raise MissingExtraError(
            'a model file as the judge needs xllamacpp: pip install "dagengine[llama]"'
        )


def model_server_of(file: ModelFile, size: ServerSize) -> ModelServer:
    """The server of a model in this process: several judges of one file share it."""
    with _lock:
        return _servers.setdefault((file.digest, size), ModelServer(file, size))


class ModelServer:
    """A model file, served while at least one `running` is open, on whatever event loop."""

    def __init__(self, file: ModelFile, size: ServerSize) -> None:
        self.file, self.size = file, size
        self._lock = threading.Lock()
        self._users = 0
        self._process: _Process | None = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Address]:
        """The address of the server, which has loaded the model.

        Raises MissingExtraError, and JudgeSetupError when the server does not start.
        """
        with self._lock:
            if self._process is None:
                require_llama()
                self._process = _Process(self.file, self.size)
            self._users += 1
            process = self._process
        try:
            address = process.address
            if address is None:  # a thread waits: the loop goes on, and can be interrupted
                address = await in_daemon_thread(process.wait_until_ready)
            yield address
        finally:
            with self._lock:
                self._users -= 1
                if self._users == 0:
                    process.end()
                    self._process = None

    def death(self) -> str | None:
        """Cause of the server's end, if it ended while somebody needs it."""
        process = self._process
        return None if process is None else process.death()


class _Process:
    """A child process with the server; it ends when this process does, whatever happens."""

    def __init__(self, file: ModelFile, size: ServerSize) -> None:
        self.address: Address | None = None
        self._file, self._key = file, secrets.token_urlsafe()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the process
        self._reading = threading.Lock()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", llama_process.__file__],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log,
                # It finds the modules that this process finds, and gets no Ctrl-C of its own.
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            raise JudgeSetupError(f"no process for the model file {file.path}: {error}") from None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        settings = {
            "path": str(file.path.absolute()),
            "api_key": self._key,
            "window": size.window,
            "places": size.places,
            "threads": size.threads or own_threads(),
            "parent": os.getpid(),
        }
        with suppress(OSError):  # it has died already; whoever waits for it hears why
            self._stdin.write(json.dumps(settings).encode() + b"\n")
            self._stdin.flush()

    def wait_until_ready(self) -> Address:
        """The address, once the model is loaded; raises JudgeSetupError when it never is."""
        with self._reading:
            if self.address is None:
                line = self._stdout.readline().decode().strip()
                if not line:
                    self._process.wait()
                    raise JudgeSetupError(str(self.death()))
                self.address = Address(f"{line}/v1", self._key)
            return self.address

    def death(self) -> str | None:
        """Cause of the process's end, with the end of its log; None while it lives."""
        status = self._process.poll()
        if status is None:
            return None
        reason, log = f"ended with status {status}", b""
        if status < 0:
            reason = f"was killed by signal {-status}"
        if status == -9:
            reason += "; the machine may have too little memory for the model"
        if not self._log.closed:
            self._log.seek(0)
            log = self._log.read()
        lines = log.decode(errors="replace").split("\n")
        texts = [_TIME_AND_LEVEL.sub("", line).strip()[:_WIDTH] for line in lines]
        last_texts = list(filter(None, texts))[-_LINES:]
        words = f": {'; '.join(last_texts)}" if last_texts else ""
        return f"the server of the model file {self._file.path} {reason}{words}"

    def end(self) -> None:
        """End the process; it has nothing to save."""
        self._process.kill()
        self._process.wait()
        with suppress(OSError):
            self._stdin.close()
        with self._reading:  # whoever still waits has read the end of the output by now
            self._stdout.close()
            self._log.close()
