"""`dagengine merge`: the folders of all shards of a run made one."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from dagengine.cli.common.files import Given, Writes
from dagengine.cli.common.streams import say


def _files_in(out: Path, given: Given) -> Iterable[Path]:
    for name in ("run.json", "results.jsonl", "cases.jsonl", "times.jsonl"):
        yield out / name


def merge(
    folders: Annotated[list[Path], typer.Argument(help="The folder of every shard, in any order.")],
    out: Annotated[Path, typer.Option(help="Folder for the whole run."), Writes(_files_in)],
) -> None:
    """Make one folder of those that `run --shard 1/N` … `run --shard N/N` left.

    Rows come in the order of the data, byte for byte those of a run in one go when the judge gives
    the same answers; counts and costs are added up. A shard that is missing, not finished, or of
    another run is refused.
    """
    from dagengine.data.result_rows import read_rows
    from dagengine.errors import InputError
    from dagengine.record.merging import merge as merged
    from dagengine.record.run import load_run
    from dagengine.report.tables import print_table
    from dagengine.report.tally import Tally
    from dagengine.results import Totals

    if out.resolve() in {folder.resolve() for folder in folders}:
        raise InputError(f"{out} is the folder of a shard; give --out another one")
    manifest = merged([load_run(folder) for folder in folders], out)
    done = manifest.totals
    totals = Totals() if done is None else Totals(
        asked=done.asked, shared=done.shared, cached=done.cached, damaged=done.damaged,
        calls=done.calls, retried=done.retried, failed=done.failed, cost=done.cost,
        requests=done.calls if done.requests is None else done.requests,
        speculated=done.speculated or 0, unneeded=done.unneeded or 0,
    )  # fmt: skip
    print_table(Tally(read_rows(out / "results.jsonl")), totals)
    say(f"results: {out / 'results.jsonl'}")
