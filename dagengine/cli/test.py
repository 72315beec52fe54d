"""`dagengine test run`: pytest with evaluations, by the flags that people know from elsewhere."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from typing import Annotated

import typer

from dagengine.cli.common.command import Commands
from dagengine.errors import MissingExtraError

app = Commands(
    name="test",
    help="Run evaluations that are written as pytest tests.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)

STORE = ".dagengine/answers.db"
"""Where `-c` keeps answers."""


@app.callback()
def tests() -> None:
    """Run evaluations that are written as pytest tests."""


@app.command()
def run(
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PATHS]...",
            help="Files and folders of tests; what follows `--` goes to pytest as it is.",
        ),
    ] = None,
    processes: Annotated[
        int | None,
        typer.Option("-n", "--num-processes", min=1, help="Run in this many processes at once."),
    ] = None,
    cache: Annotated[
        bool,
        typer.Option(
            "-c", "--use-cache", help=f"Keep answers in {STORE}, and ask nothing again that is."
        ),
    ] = False,
    ignore_errors: Annotated[
        bool,
        typer.Option(
            "-i", "--ignore-errors", help="Skip a test whose metric got no score; do not fail it."
        ),
    ] = False,
    repeat: Annotated[
        int, typer.Option("-r", "--repeat", min=1, help="Judge every test so often, each anew.")
    ] = 1,
    exit_first: Annotated[
        bool, typer.Option("-x", "--exit-on-first-failure", help="Stop at the first failure.")
    ] = False,
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="Name every test.")] = False,
) -> None:
    """Run tests with pytest; its exit code is this command's.

    Everything else that pytest can do, it does by `pytest` itself: the plugin is the same.
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
    raise typer.Exit(_code(command))


def _require(module: str, package: str | None = None) -> None:
    if importlib.util.find_spec(module) is None:
        name = package or module
        raise MissingExtraError(f"{name} is not installed, and tests need it: pip install {name}")


def _code(command: list[str]) -> int:
    """The exit code of a command; an interrupt is the command's own, and it ends by itself."""
    with subprocess.Popen(command) as process:
        while True:
            try:
                code = process.wait()
            except KeyboardInterrupt:
                continue
            return code if code >= 0 else 128 - code  # as a shell names a signal
