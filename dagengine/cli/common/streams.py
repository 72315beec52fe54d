"""The standard streams of a command: closed ones (`2>&-`), and what is printed on them."""

from __future__ import annotations

import io
import os
import sys
from typing import Any

import typer

from dagengine.system.terminal import plain


def open_streams() -> None:
    """Put something in the place of closed streams.

    Otherwise the next file that is opened gets the number of a closed stream, and what is meant
    for the terminal ends in it. Messages go to whichever of output and errors is open.
    """
    missing = []
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            missing.append(number)
    for number in missing:  # the lowest free number is the one that is opened
        os.open(os.devnull, os.O_RDONLY if number == 0 else os.O_WRONLY)
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
