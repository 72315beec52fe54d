"""What commands print for machines: JSON and CSV, harmless where they are read by a person."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any

import typer

from dagengine.cli.common.streams import shown


class Format(StrEnum):
    """How results are printed."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


def print_json(values: Iterable[Any]) -> None:
    """One array with a value per line, printed as the values come."""
    before = "[\n"
    for value in values:
        typer.echo(f"{before}{json.dumps(value)}", nl=False)
        before = ",\n"
    typer.echo("[]" if before == "[\n" else "\n]")


def print_csv(columns: Sequence[str], lines: Iterable[Mapping[str, Any]]) -> None:
    """A table with a head; on a terminal without the characters that it would obey."""
    table = csv.DictWriter(sys.stdout, columns, lineterminator="\n")
    table.writeheader()
    fit = shown if sys.stdout.isatty() else _utf8
    for line in lines:
        table.writerow({name: fit(v) if isinstance(v, str) else v for name, v in line.items()})


def _utf8(text: str) -> str:
    """Text without lone surrogates, which no file takes."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
