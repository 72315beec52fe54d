"""`dagengine recommend`: which metrics suit an application."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer
from typer import Argument, Option

from dagengine.cli.common.files import Writes
from dagengine.cli.common.formats import report
from dagengine.cli.common.streams import say
from dagengine.regular_files import write_whole


def recommend(
    what: Annotated[
        Literal["metrics"], Argument(help="What to recommend; the only choice is metrics.")
    ] = "metrics",
    write: Annotated[
        Path | None,
        Option("--write", help="Write the metrics into this new Python file."),
        Writes(),
    ] = None,
) -> None:
    """Recommend metrics: ask you a few questions about your application."""
    from dagengine.metrics.recommend import QUESTIONS, Needs, program
    from dagengine.metrics.recommend import recommend as suggest

    if write is not None and write.exists():
        raise typer.BadParameter(f"{write} already exists; choose a new file")
    needs = Needs(**{n: typer.confirm(text, default=False, err=True) for n, text in QUESTIONS})
    report(metrics={suggestion.metric: suggestion.why for suggestion in suggest(needs)})
    say("\nfrom dagengine.metrics import …")
    for suggestion in suggest(needs):
        say(f"  {suggestion.metric:32} {suggestion.why}")
    if write is not None:
        write_whole(write, program(needs))
        say(f"{write} has them; try: dagengine check {write}")
