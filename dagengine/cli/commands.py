"""The command line: run, plan, check and draw metrics, maintain a store."""

from __future__ import annotations

import errno
import importlib.metadata
import sys
from typing import Annotated, NoReturn

import typer
from typer import Option

from dagengine.cli.check import check
from dagengine.cli.common.commands_and_help import Commands
from dagengine.cli.common.judge_access import collector_at_rest
from dagengine.cli.common.output import EXIT_INPUT, flush_output, open_streams, say
from dagengine.cli.explain import explain, guide, schema
from dagengine.cli.looking.diff import diff
from dagengine.cli.looking.merge import merge
from dagengine.cli.looking.show import show
from dagengine.cli.looking.sql import sql
from dagengine.cli.looking.view import view
from dagengine.cli.measuring.attack import attack
from dagengine.cli.measuring.benchmark import benchmark
from dagengine.cli.measuring.fit import app as fit_app
from dagengine.cli.measuring.improve import improve
from dagengine.cli.measuring.judge import app as judge_app
from dagengine.cli.measuring.judge import doors
from dagengine.cli.measuring.labels import app as labels_app
from dagengine.cli.migrate import migrate
from dagengine.cli.plan import plan
from dagengine.cli.render import render
from dagengine.cli.run import run
from dagengine.cli.send import send
from dagengine.cli.store import app as store_app
from dagengine.cli.synthesize import synthesize
from dagengine.cli.test import app as test_app
from dagengine.cli.watch import watch
from dagengine.errors import DagengineError

app = Commands(
    "dagengine",
    "Judge the output of language models with decision trees.",
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

app.add_typer(store_app)
app.add_typer(judge_app)
app.add_typer(doors)
app.add_typer(labels_app)
app.add_typer(fit_app)
app.add_typer(test_app)
for _command in (
    attack, benchmark, check, diff, guide, improve, merge, migrate, plan, render, run, schema,
    send, show, sql, synthesize, view, watch,
):  # fmt: skip
    app.command()(_command)
app.command("help")(explain)


@app.callback()
def about(version: Annotated[bool, Option("--version", help="Show the version.")] = False) -> None:
    """Judge the output of language models with decision trees."""
    if version:
        say(importlib.metadata.version("dagengine"))
        raise typer.Exit


def main() -> None:
    """Entry point: every error becomes one message and an exit code, never a traceback."""
    open_streams()
    with collector_at_rest():
        try:
            app()
        except DagengineError as error:
            _fail(str(error))
        except OSError as error:
            # Files are named where they are written; what has no name then is the output.
            source = error.filename or ("standard output" if error.errno == errno.ENOSPC else None)
            _fail(f"{source}: {error.strerror}" if source else str(error))
        except SystemExit as end:
            # Outside of a command, where Typer makes an exit code of it and says nothing
            if isinstance(getattr(end.__context__, "__cause__", None), KeyboardInterrupt):
                say("interrupted", err=True)
            lost = flush_output()
            if lost is not None and lost.errno != errno.EPIPE:
                _fail(f"standard output: {lost.strerror}")
            raise end


def _fail(message: str) -> NoReturn:
    say(f"error: {message}", err=True)
    flush_output()
    sys.exit(EXIT_INPUT)
