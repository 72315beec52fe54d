"""`dagengine merge`: combine the folders of all shards of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from dagengine.cli.common.files import within
from dagengine.cli.common.output import report, say


def merge(
    folders: Annotated[
        list[Path], Argument(metavar="DIR...", help="The folders of all shards, in any order.")
    ],
    out: Annotated[
        Path,
        Option(help="Folder for the whole run."),
        within("run.json", "results.jsonl", "cases.jsonl", "times.jsonl", "columns.parquet"),
    ],
) -> None:
    """Combine the folders of all shards (`run --shard I/N`) into one run.

    Rows are in the order of the data. With the same answers, they are byte for byte equal to the
    rows of a run without shards. Counts and costs are summed. It is an error if a shard is missing,
    is not finished, or belongs to another run.
    """
    from dagengine.data.result_files import read_rows
    from dagengine.errors import InputError
    from dagengine.record.judge_standing import standing_lines
    from dagengine.record.reader import load_run
    from dagengine.record.shard_merging import merge as merge_shards
    from dagengine.report.tables_and_junit import print_table
    from dagengine.report.tally import Tally
    from dagengine.results import Totals

    shards = list(map(load_run, folders))
    if out.resolve() in {shard.folder.resolve() for shard in shards}:
        raise InputError(f"{out} is the folder of a shard; choose another folder for --out")
    manifest = merge_shards(shards, out)
    totals = Totals() if manifest.totals is None else manifest.totals.totals()
    tally = Tally(read_rows(out / "results.jsonl"))
    report(out=out, summary=tally.summing.result(), totals=totals)
    print_table(tally, totals, standings=standing_lines(manifest.judges))
    say(f"results: {out / 'results.jsonl'}")
