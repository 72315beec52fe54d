"""`dagengine sql`: one SELECT over the rows of runs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

from typer import Argument

from dagengine.cli.common.files import Reads
from dagengine.cli.common.output import Format, print_csv, print_json, say
from dagengine.errors import InputError, load_extra

_LARGE = 30_000  # cases of a run whose columns are made before they are asked
_LISTED = 50  # lines of a table
_WIDTH = 200  # characters of a cell


@dataclass(frozen=True, kw_only=True)
class SqlOptions:
    """The options of `dagengine sql`."""

    query: Annotated[str, Argument(metavar="SELECT")]
    """One SELECT of DuckDB's SQL."""
    folders: Annotated[list[Path], Argument(metavar="DIR..."), Reads()]
    """Folders of runs."""
    format: Format = "table"
    """Output format."""


def sql(options: SqlOptions) -> None:
    """Ask the rows of runs in SQL. Makes no judge calls.

    `runs` has a line per case and metric, `steps` a line per case, metric and node that ran,
    `cases` the texts; `run` is the folder. `DESCRIBE runs` lists the columns. Needs the extra
    `sql` (DuckDB).

    Exit codes: 0; 2 invalid input, for instance a query that is not one SELECT.
    """
    from dagengine.record.parquet_columns import has_arrow
    from dagengine.record.reader import load_run, make_columns
    from dagengine.report.sql_queries import query_runs

    load_extra("duckdb", "SQL needs", "sql")  # else columns would be made for nothing
    runs = list(map(load_run, options.folders))
    for run in runs:
        stored, counts = run.columns(), run.manifest.counts
        if stored is not None:
            stored.close()
        elif counts is not None and counts.cases > _LARGE and has_arrow():
            with suppress(InputError):  # later queries are quicker by them; this one needs none
                make_columns(run)
    with query_runs(options.query, runs) as (columns, answer):
        if options.format == "table":
            _print_table(columns, answer)
        elif options.format == "json":
            print_json(dict(zip(columns, _data(line), strict=True)) for line in answer)
        else:
            print_csv(columns, answer)


def _print_table(columns: Sequence[str], answer: Iterator[Sequence[Any]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from dagengine.system.terminal_text import one_line

    def cell(value: Any) -> Text:
        text = "-" if value is None else str(value)
        return Text(one_line(f"{value:.4g}" if isinstance(value, float) else text, _WIDTH))

    table = Table()
    lines = list(islice(answer, _LISTED))
    for index, name in enumerate(columns):
        numbers = any(isinstance(line[index], int | float) for line in lines)
        table.add_column(Text(one_line(name, _WIDTH)), justify="right" if numbers else "left")
    for line in lines:
        table.add_row(*map(cell, line))
    Console().print(table)
    more = sum(1 for _ in answer)
    if more:
        say(f"{more:,} more lines: --format csv prints all")
    elif not lines:
        say("no line matches")


def _data(value: Any) -> Any:
    """A value as JSON has it: a date or an interval is a text, a decimal a number."""
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, list | tuple):
        return list(map(_data, value))
    if isinstance(value, dict):
        return {str(name): _data(part) for name, part in value.items()}
    return value if value is None or isinstance(value, str | int | float) else str(value)
