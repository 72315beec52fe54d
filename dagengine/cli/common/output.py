"""What commands print: messages, JSON and CSV, on streams that may be closed or left.

What is for machines is harmless where a person reads it.
"""

from __future__ import annotations

import csv
import io
import json
import os
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from contextvars import ContextVar
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer import Option

from dagengine.system.terminal_text import plain

EXIT_FAILED, EXIT_INPUT, EXIT_NO_SCORE, EXIT_INTERRUPTED = 1, 2, 3, 130


Format = Literal["table", "json", "csv"]
_HELP = "Output format; JSON is one document."
TableOrJson = Annotated[Literal["table", "json"], Option("--format", help=_HELP)]
FORMATS: dict[str, tuple[Any, Any]] = {
    "form": (TableOrJson, "table"),
    "as_json": (Annotated[bool, Option("--json", hidden=True)], False),
}
"""The options of every command without formats of its own, with their defaults."""
_FACTS: ContextVar[dict[str, Any] | None] = ContextVar("facts", default=None)


def wants_json() -> bool:
    """Return whether the command that runs prints one JSON document."""
    return _FACTS.get() is not None


def report(**facts: Any) -> None:
    """Add facts to the JSON document of the command that runs, if it prints one."""
    if (document := _FACTS.get()) is not None:
        document.update(facts)


def fail_if_any(lines: Sequence[str]) -> None:
    """Say which conditions hold, and end the command with 1 if there is one."""
    report(failing=lines)
    for line in lines:
        say(f"fails: {line}", err=True)
    if lines:
        raise typer.Exit(EXIT_FAILED)


@contextmanager
def reporting(command: str, written: Collection[Path], wanted: Collection[Any]) -> Iterator[None]:
    """Print what a command reports as one JSON document at its end, if `wanted` has "json" or True.

    Its text on standard output is left out. A command that ends with an error has no document.
    """
    if not {"json", True} & set(wanted):
        yield
        return
    facts: dict[str, Any] = {"command": command, "exit": 0, "written": []}
    before, ended = _FACTS.set(facts), None
    try:
        with open(os.devnull, "w", encoding="utf-8") as unseen, redirect_stdout(unseen):
            yield
    except typer.Exit as end:
        ended = end
        facts["exit"] = end.exit_code
    finally:
        _FACTS.reset(before)
    facts["written"] += sorted(str(path) for path in written if path.exists())
    print_document(facts)
    if ended is not None:
        raise ended


def print_document(document: Mapping[str, Any]) -> None:
    """Print one JSON object, in ASCII: nothing hides in it."""
    from pydantic_core import to_jsonable_python

    def words(value: object) -> str:
        return plain(str(value))

    values = to_jsonable_python(document, inf_nan_mode="null", fallback=words)
    typer.echo(json.dumps(values, indent=2))


def print_json(values: Iterable[Any]) -> None:
    """One array with a value per line, printed as the values come."""
    before = "[\n"
    for value in values:
        typer.echo(f"{before}{json.dumps(value)}", nl=False)
        before = ",\n"
    typer.echo("[]" if before == "[\n" else "\n]")


def print_csv(columns: Sequence[str], lines: Iterable[Iterable[Any]]) -> None:
    """A table with a head; on a terminal without the characters that it would obey."""
    table = csv.writer(sys.stdout, lineterminator="\n")
    table.writerow(columns)
    fit = plain if sys.stdout.isatty() else _utf8
    for line in lines:
        table.writerow([fit(cell) if isinstance(cell, str) else cell for cell in line])


def _utf8(text: str) -> str:
    """Text without lone surrogates, which no file takes."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def open_streams() -> None:
    """Put something in the place of closed streams.

    Otherwise the next file that is opened gets the number of a closed stream, and what is meant
    for the terminal ends in it. Messages go to whichever of output and errors is open.
    """
    missing = []
    for number, mode in enumerate((os.O_RDONLY, os.O_WRONLY, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            missing.append(number)
            os.open(os.devnull, mode)  # gets the lowest free number, which is this one
    if 1 in missing:
        sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    if 2 in missing:
        sys.stderr = sys.stdout
    elif 1 in missing:
        print("standard output is closed: the output is lost", file=sys.stderr)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # what an encoding lacks (cp1252) is an escape
            stream.reconfigure(errors="backslashreplace")


class _Unheard(io.FileIO):
    """A descriptor whose reader may leave: what is written then goes nowhere."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data) or 0
        except BrokenPipeError:
            return memoryview(data).nbytes


def outlive_reader() -> None:
    """Go on when whoever reads the output leaves (`| head`): there is more to be done."""
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout is sys.__stdout__:
        output = sys.stdout
        output.flush()
        sys.stdout = io.TextIOWrapper(
            io.BufferedWriter(_Unheard(output.fileno(), "w", closefd=False)),
            encoding=output.encoding,
            errors=output.errors,
            line_buffering=output.line_buffering,
        )


def flush_output() -> OSError | None:
    """Write what waits to be printed; returns why that is not possible.

    What is lost then waits no longer: the interpreter would try again at its end, and end with an
    exit code of its own.
    """
    try:
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return error
    return None


def say(text: str, *, err: bool = False) -> None:
    """Print a message; hidden characters of names, paths and data are shown as escapes."""
    typer.echo(plain(text), err=err)


def warn(*lines: object) -> None:
    """Print warnings beside the output."""
    for line in lines:
        say(f"warning: {line}", err=True)
