"""`dagengine test run`: pytest with evaluations, with the flags of similar tools."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated
from xml.etree import ElementTree

import typer
from typer import Argument, Option

from dagengine.cli.common.commands_and_help import Commands
from dagengine.cli.common.output import EXIT_INTERRUPTED, report, wants_json
from dagengine.errors import MissingExtraError

app = Commands("test", "Run evaluations as pytest tests.")

_STORE = ".dagengine/answers.db"  # as the text of `-c` says
_PYTEST_INTERRUPTED = 2


@dataclass(frozen=True, kw_only=True)
class PytestOptions:
    """The options of `dagengine test run`."""

    paths: Annotated[list[str] | None, Argument(metavar="PATHS")] = None
    """Test files and folders; arguments after `--` are passed to pytest."""
    processes: Annotated[int | None, Option("-n", "--num-processes", min=1)] = None
    """Run in this many processes at once."""
    cache: Annotated[bool, Option("-c", "--use-cache")] = False
    """Keep answers in .dagengine/answers.db; do not ask answered questions again."""
    ignore_errors: Annotated[bool, Option("-i", "--ignore-errors")] = False
    """Skip a test without a score, instead of failing it."""
    repeat: Annotated[int, Option("-r", "--repeat", min=1)] = 1
    """Judge every test this number of times, with new answers each time."""
    exit_first: Annotated[bool, Option("-x", "--exit-on-first-failure")] = False
    """Stop at the first failure."""
    verbose: Annotated[bool, Option("-v", "--verbose")] = False
    """Print the name of every test."""

    def command(self) -> list[str]:
        """The command of pytest; raises MissingExtraError for a package that it lacks."""
        _require("pytest")
        command = [sys.executable, "-m", "pytest", *(self.paths or [])]
        if self.processes is not None:
            _require("xdist", "pytest-xdist")
            command += ["-n", str(self.processes)]
        flags = {
            f"--evals-store={_STORE}": self.cache,
            f"--evals-repeat={self.repeat}": self.repeat > 1,
            "--evals-ignore-errors": self.ignore_errors,
            "-x": self.exit_first,
            "-v": self.verbose,
        }
        return [*command, *(flag for flag, is_set in flags.items() if is_set)]


@app.command()
def run(options: PytestOptions) -> None:
    """Run tests with pytest; the exit code is that of pytest, and 130 for an interrupt.

    For all other options use `pytest` directly: the plugin is the same.
    """
    command = options.command()
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder, "junit.xml")
        if wants_json():
            command.append(f"--junitxml={results}")
        code = _exit_code(command)
        tests = list[dict[str, str | None]]()
        if results.exists():
            for case in ElementTree.parse(results).iter("testcase"):
                end = {part.tag: part.get("message") for part in case}  # empty: it passed
                tests.append({**case.attrib, **end})
        report(tests=tests)
    raise typer.Exit(code)


def _require(module: str, package: str | None = None) -> None:
    if importlib.util.find_spec(module) is None:
        name = package or module
        raise MissingExtraError(f"tests need {name}, which is not installed: pip install {name}")


def _exit_code(command: list[str]) -> int:
    """The exit code of a command; an interrupt reaches it, too, and it ends by itself."""
    interrupted = False
    with subprocess.Popen(command, stdout=subprocess.DEVNULL if wants_json() else None) as process:
        while True:
            try:
                code = process.wait()
            except KeyboardInterrupt:
                interrupted = True
                continue
            if interrupted and code == _PYTEST_INTERRUPTED:
                return EXIT_INTERRUPTED
            return code if code >= 0 else 128 - code  # as a shell names a signal
