"""`dagengine index`: make by what large runs are read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument

from dagengine.cli.common.files import Reads
from dagengine.cli.common.formats import report
from dagengine.cli.common.streams import say
from dagengine.errors import MissingExtraError
from dagengine.terminal import counted


def index(
    folders: Annotated[list[Path], Argument(metavar="DIR...", help="Folders of runs."), Reads()],
) -> None:
    """Rebuild the index of large runs. Makes no judge calls.

    The columns in the folder (columns.parquet, with the extra `parquet`), where there are none of
    its lines, and the index of `view` for a run of more than 30,000 cases. All commands say the
    same without them, and take longer.
    """
    from dagengine.record.columns import has_arrow
    from dagengine.record.run import load_run
    from dagengine.record.run_files import make_columns
    from dagengine.report.page.run_page import ROWS
    from dagengine.view.large import open_index

    if not has_arrow():
        raise MissingExtraError('columns need pyarrow: pip install "dagengine[parquet]"')
    states = dict[str, str]()
    report(folders=states)
    for run in map(load_run, folders):
        columns, state = run.columns(), "columns made"
        if columns is not None:
            columns.close()
            state = "its columns are there"
        elif not make_columns(run):
            why = "it is not finished" if not run.finished else "see `columns.parquet` in the docs"
            state = f"no columns, {why}"
        states[str(run.folder)] = state
        say(f"{run.folder}: {state}")
        counts = run.manifest.counts
        if counts is not None and counts.cases > ROWS:
            open_index(run).close()
            say(f"{run.folder}: {counted(counts.cases, 'case')} in the index of view")
