"""`dagengine` in a process of its own that has its imports behind it.

A command of the suite costs its work and not the second that its imports take: a server loads the
program once and forks a process for each command, or program of a test. Where the start itself or
its streams are what is tried, a test starts `python -m dagengine`.
"""

from __future__ import annotations

import asyncio
import atexit
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from multiprocessing import forkserver, resource_tracker
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from dagengine.cli.commands import app
from dagengine.system.file_locks import one_writer

PROGRAM = [
    "dagengine.cli.commands",
    "dagengine.judges",
    "dagengine.metrics.dag",
    "dagengine.report",
]
FORKS = multiprocessing.get_context("forkserver")
# What a run imports when it reads, judges and writes; pyarrow imports pandas for its first array.
LATER = [
    "anyio._backends._asyncio",
    "datasketch",
    "dagengine.estimate",
    "dagengine.loading",
    "dagengine.traces.score_sending",
    "dagengine.voting",
    "pandas",
    "pyarrow.parquet",
    "pypdf",
    "scipy.optimize",
    "scipy.stats",
]
FORKS.set_forkserver_preload([
    *PROGRAM, *LATER, "distributed.nanny", "instructor", "openai", "pygraphviz", "rich.table",
    "programs.frozen",
])  # fmt: skip

_RUN = os.environ.get("PYTEST_XDIST_TESTRUNUID")
_SERVER: Any = forkserver._forkserver
_ensure_running = _SERVER.ensure_running


def _start_server() -> None:
    """Start a server that finds what it imports."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
        _ensure_running()


def _join_server() -> None:
    """Fork from the server of that worker of pytest-xdist that was the first to need one.

    Its imports take four seconds of processor. It runs as long as anybody has the end of a pipe
    that its worker made, which Linux lets others open. Its address is gone with its worker: then
    the next one starts another.
    """
    resource_tracker.ensure_running()
    if os.path.exists(_SERVER._forkserver_address or ""):
        return
    note = Path(tempfile.gettempdir(), f"dagengine-forks-{_RUN}")
    with one_writer(note, wait=True):
        address, _, pipe = (note.read_text() if note.exists() else "").partition("\n")
        with suppress(OSError):  # nobody has started one, or who did is just ending
            os.stat(address)
            _SERVER._forkserver_alive_fd = os.open(pipe, os.O_WRONLY)
            _SERVER._forkserver_address = address
            return
        _SERVER._forkserver_pid = None  # that of another process is not waited for
        _start_server()
        end = f"/proc/{os.getpid()}/fd/{_SERVER._forkserver_alive_fd}"
        note.write_text(f"{_SERVER._forkserver_address}\n{end}")
    atexit.register(note.unlink, missing_ok=True)


_SHARED = _RUN is not None and sys.platform == "linux"
_SERVER.ensure_running = _join_server if _SHARED else _start_server
forkserver.ensure_running = _SERVER.ensure_running


def _command(arguments: list[str]) -> None:
    sys.argv = ["dagengine", *arguments]
    from dagengine.cli import main
    from programs.worker_processes import forked_worker

    asyncio.create_subprocess_exec = forked_worker  # type: ignore[assignment]
    main()


def _program(code: str, *arguments: str) -> None:
    sys.argv = ["-c", *arguments]
    names = vars(sys.modules["__main__"])
    exec(compile(code, "<string>", "exec"), names)


CLOSED, LEFT = None, "|"
"""Of a standard stream: it is closed; it is a pipe whose reader has gone."""


def _forked(
    folder: str,
    environment: dict[str, str],
    streams: Mapping[int, str | None],
    server: str,
    work: Callable[..., None],
    *arguments: Any,
) -> None:
    # What it forks comes from where it comes from.
    _SERVER._forkserver_address, _SERVER.ensure_running = server, lambda: None
    random.seed(0)  # every fork draws anew
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    for descriptor, path in streams.items():
        if path == LEFT:
            reader, number = os.pipe()
            os.close(reader)
        else:
            number = os.open(path or os.devnull, os.O_RDWR if descriptor else os.O_RDONLY)
        os.dup2(number, descriptor)
        os.close(number)
    encoding = environment.get("PYTHONIOENCODING", "utf-8")
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        stream = None  # as the interpreter has it of a closed one
        if streams[descriptor] is CLOSED:
            os.close(descriptor)
        else:
            mode = "r" if name == "stdin" else "w"
            stream = os.fdopen(descriptor, mode, encoding=encoding, closefd=False)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    warnings.simplefilter("error", SyntaxWarning)
    work(*arguments)


class Started:
    """A process that was forked, and what it prints."""

    def __init__(
        self,
        folder: Path,
        environment: dict[str, str] | None,
        work: Callable[..., None],
        *arguments: Any,
        streams: Mapping[int, str | None] | None = None,
        asks: bool = False,
    ) -> None:
        self._streams = tempfile.TemporaryDirectory()
        standard_input = Path(self._streams.name, "input") if asks else Path(os.devnull)
        if asks:
            os.mkfifo(standard_input)
        self._files = [Path(self._streams.name, name) for name in ("output", "errors")]
        for file in self._files:
            file.touch()
        variables = dict(os.environ) if environment is None else environment
        paths = dict(enumerate(map(str, [standard_input, *self._files]))) | dict(streams or {})
        _SERVER.ensure_running()
        server = _SERVER._forkserver_address
        self._process = FORKS.Process(
            target=_forked, args=(str(folder), variables, paths, server, work, *arguments)
        )
        self._process.start()
        self._input = standard_input.open("w", encoding="utf-8") if asks else None

    @property
    def pid(self) -> int:
        number = self._process.pid
        assert number is not None
        return number

    def poll(self) -> int | None:
        """The exit status; None while it runs."""
        return self._process.exitcode

    @property
    def printed(self) -> str:
        """Its output so far."""
        return self._files[0].read_text("utf-8")

    def line(self, number: int = 0) -> str:
        """A line of its output; waits until it is there."""
        while self.printed.count("\n") <= number:
            assert self.poll() is None, self.ended().stderr
            time.sleep(0.005)
        return self.printed.splitlines()[number]

    def type(self, text: str) -> None:
        """Write to its standard input."""
        assert self._input is not None
        self._input.write(text)
        self._input.flush()

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):  # its end is known before it is told here
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def ended(self) -> subprocess.CompletedProcess[str]:
        """End its input, and wait for its end; the status is negative for a signal."""
        if self._input is not None:
            self._input.close()
        self._process.join()
        code = self._process.exitcode
        assert code is not None
        printed, complaint = (file.read_text("utf-8") for file in self._files)
        self._streams.cleanup()
        return subprocess.CompletedProcess([], code, printed, complaint)


def start_command(
    folder: Path,
    *arguments: str,
    environment: dict[str, str] | None = None,
    streams: Mapping[int, str | None] | None = None,
) -> Started:
    """Start a command of `dagengine` in a folder; some of its streams are other files."""
    return Started(folder, environment, _command, list(arguments), streams=streams)


def run_command(
    folder: Path,
    *arguments: str,
    environment: dict[str, str] | None = None,
    streams: Mapping[int, str | None] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a command of `dagengine` in a folder, to its end."""
    return start_command(folder, *arguments, environment=environment, streams=streams).ended()


def start_program(
    code: str, *arguments: str, environment: dict[str, str] | None = None, asks: bool = False
) -> Started:
    """Start a Python program (as `python -c` does) that has its imports behind it.

    A program that `asks` reads what is typed; the others have no input.
    """
    return Started(Path.cwd(), environment, _program, code, *arguments, asks=asks)


_PYTHON = """
import asyncio, os, runpy, sys
from programs.worker_processes import forked_worker

asyncio.create_subprocess_exec = forked_worker
del sys.argv[0]
sys.path.insert(0, os.getcwd())
if sys.argv[0] == "-m":
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
else:
    exec(open(sys.argv[0]).read())  # not by `runpy`: workers would look for the file
"""


def run_python(
    folder: Path, *words: str, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run `python FILE` or `python -m MODULE` with its arguments in a folder, to its end."""
    return Started(folder, environment, _program, _PYTHON, *words).ended()


def output_of(*words: str, code: int = 0, **settings: Any) -> str:
    """What a command prints in this process, which ends with `code`."""
    done = CliRunner().invoke(app, words, catch_exceptions=False, **settings)
    assert done.exit_code == code, done.output
    return str(done.output)
