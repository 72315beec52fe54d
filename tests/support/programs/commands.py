"""`dagengine` in a process of its own that has its imports behind it.

A command of the suite costs its work and not the second that its imports take: a server loads the
program once and forks a process for each command, or program of a test. Where the start itself or
its streams are what is tried, a test starts `python -m dagengine`.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from dagengine.cli.commands import app

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
    "dagengine.traces.sending",
    "dagengine.voting",
    "pandas",
    "pyarrow.parquet",
    "pypdf",
    "scipy.optimize",
    "scipy.stats",
]
FORKS.set_forkserver_preload(
    [*PROGRAM, *LATER, "distributed.nanny", "instructor", "openai", "pygraphviz", "rich.table"]
)


def _command(arguments: list[str]) -> None:
    sys.argv = ["dagengine", *arguments]
    from dagengine.cli import main

    main()


def _program(code: str, *arguments: str) -> None:
    sys.argv = ["-c", *arguments]
    names = vars(sys.modules["__main__"])
    exec(compile(code, "<string>", "exec"), names)


def _forked(
    folder: str,
    environment: dict[str, str],
    files: list[str],
    work: Callable[..., None],
    *arguments: Any,
) -> None:
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    for descriptor, path in enumerate([os.devnull, *files]):
        stream = os.open(path, os.O_RDWR)
        os.dup2(stream, descriptor)
        os.close(stream)
    sys.stdin = os.fdopen(0, "r", encoding="utf-8", closefd=False)
    sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = os.fdopen(2, "w", encoding="utf-8", closefd=False)
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
    ) -> None:
        self._streams = tempfile.TemporaryDirectory()
        self._files = [Path(self._streams.name, name) for name in ("output", "errors")]
        for file in self._files:
            file.touch()
        variables = dict(os.environ) if environment is None else environment
        names = list(map(str, self._files))
        self._process = FORKS.Process(
            target=_forked, args=(str(folder), variables, names, work, *arguments)
        )
        self._process.start()

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

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def ended(self) -> subprocess.CompletedProcess[str]:
        """Wait for its end; the status is negative for a signal."""
        self._process.join()
        code = self._process.exitcode
        assert code is not None
        printed, complaint = (file.read_text("utf-8") for file in self._files)
        self._streams.cleanup()
        return subprocess.CompletedProcess([], code, printed, complaint)


def start_command(
    folder: Path, *arguments: str, environment: dict[str, str] | None = None
) -> Started:
    """Start a command of `dagengine` in a folder."""
    return Started(folder, environment, _command, list(arguments))


def run_command(
    folder: Path, *arguments: str, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command of `dagengine` in a folder, to its end."""
    return start_command(folder, *arguments, environment=environment).ended()


def start_program(code: str, *arguments: str, environment: dict[str, str] | None = None) -> Started:
    """Start a Python program (as `python -c` does) that has its imports behind it."""
    return Started(Path.cwd(), environment, _program, code, *arguments)


def output_of(*words: str, code: int = 0, **settings: Any) -> str:
    """What a command prints in this process, which ends with `code`."""
    done = CliRunner().invoke(app, words, catch_exceptions=False, **settings)
    assert done.exit_code == code, done.output
    return str(done.output)
