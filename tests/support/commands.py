"""`dagengine` in a process of its own that has its imports behind it.

A command of the suite costs its work and not the second that its imports take: a server loads the
program once and forks a process for each command. Where the start itself, its streams or signals
are what is tried, a test starts `python -m dagengine`.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

PROGRAM = [
    "dagengine.cli.commands",
    "dagengine.judges",
    "dagengine.metrics.dag",
    "dagengine.report",
]
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload([*PROGRAM, "instructor", "openai", "pygraphviz", "rich.table"])


def _command(
    arguments: list[str], folder: str, environment: dict[str, str], files: list[str]
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
    sys.argv = ["dagengine", *arguments]
    from dagengine.cli import main

    main()


def run_command(
    folder: Path, *arguments: str, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command of `dagengine` in a folder, to its end."""
    variables = dict(os.environ) if environment is None else environment
    with tempfile.NamedTemporaryFile() as output, tempfile.NamedTemporaryFile() as errors:
        files = [output.name, errors.name]
        process = FORKS.Process(
            target=_command, args=(list(arguments), str(folder), variables, files)
        )
        process.start()
        process.join()
        assert process.exitcode is not None
        printed, complaint = (Path(name).read_text("utf-8") for name in files)
    return subprocess.CompletedProcess(arguments, process.exitcode, printed, complaint)
