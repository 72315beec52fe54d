"""`dagengine test run`: pytest with evaluations, with the flags of similar tools."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated
from xml.etree import ElementTree

import typer
from typer import Argument, Option

from dagengine.cli.common.command import Commands
from dagengine.cli.common.output import EXIT_INTERRUPTED, report, wants_json
from dagengine.errors import MissingExtraError

app = Commands("test", "Run evaluations as pytest tests.")

STORE = ".dagengine/answers.db"
"""Where `-c` keeps answers."""
_PYTEST_INTERRUPTED = 2


@app.command()
def run(
    paths: Annotated[
        list[str] | None,
        Argument(
            metavar="PATHS",
            help="Test files and folders; arguments after `--` are passed to pytest.",
        ),
    ] = None,
    processes: Annotated[
        int | None,
        Option("-n", "--num-processes", min=1, help="Run in this many processes at once."),
    ] = None,
    cache: Annotated[
        bool,
        Option(
            "-c",
            "--use-cache",
            help=f"Keep answers in {STORE}; do not ask answered questions again.",
        ),
    ] = False,
    ignore_errors: Annotated[
        bool,
        Option("-i", "--ignore-errors", help="Skip a test without a score, instead of failing it."),
    ] = False,
    repeat: Annotated[
        int,
        Option(
            "-r",
            "--repeat",
            min=1,
            help="Judge every test this number of times, with new answers each time.",
        ),
    ] = 1,
    exit_first: Annotated[
        bool, Option("-x", "--exit-on-first-failure", help="Stop at the first failure.")
    ] = False,
    verbose: Annotated[
        bool, Option("-v", "--verbose", help="Print the name of every test.")
    ] = False,
) -> None:
    """Run tests with pytest; the exit code is that of pytest, and 130 for an interrupt.

    For all other options use `pytest` directly: the plugin is the same.
    """
    _require("pytest")
    command = [sys.executable, "-m", "pytest", *(paths or [])]
    if processes is not None:
        _require("xdist", "pytest-xdist")
        command += ["-n", str(processes)]
    if cache:
        command += [f"--evals-store={STORE}"]
    if repeat > 1:
        command += [f"--evals-repeat={repeat}"]
    for chosen, flag in ((ignore_errors, "--evals-ignore-errors"), (exit_first, "-x"),
                         (verbose, "-v")):  # fmt: skip
        command += [flag] if chosen else []
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder, "junit.xml")
        if wants_json():
            command.append(f"--junitxml={results}")
        code = _code(command)
        cases = ElementTree.parse(results).iter("testcase") if results.exists() else ()
        ends = ((case, {part.tag: part.get("message") for part in case}) for case in cases)
        report(tests=[case.attrib | end for case, end in ends])  # nothing more: it passed
    raise typer.Exit(code)


def _require(module: str, package: str | None = None) -> None:
    if importlib.util.find_spec(module) is None:
        name = package or module
        raise MissingExtraError(f"tests need {name}, which is not installed: pip install {name}")


def _code(command: list[str]) -> int:
    """The exit code of a command; an interrupt is the command's own, and it ends by itself."""
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
