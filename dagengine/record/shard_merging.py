"""The folders of several shards made one, as a single run would have left it."""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from itertools import chain, compress
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from dagengine.data.cases import Shard
from dagengine.data.written_lines import JsonLines, complete_lines, index_of
from dagengine.errors import InputError
from dagengine.record.parquet_columns import START, ColumnsWriter, columns_in
from dagengine.record.reader import Run
from dagengine.record.run_json_types import CountsRecord, Exit, Manifest, SpentRecord, TotalsRecord
from dagengine.record.writer import CASES, MANIFEST, ROWS, TIMES, files_of, require_own, sole_writer
from dagengine.system.safe_files import is_there, remove, write_whole

_WHO = ("judge", "base_url", "app")
_EXITS: tuple[Exit, ...] = ("ok", "no_score", "failed")  # from the best to the worst


def merge(runs: Sequence[Run], out: Path) -> Manifest:
    """Write the folder of the whole run; returns what its `run.json` holds.

    Raises InputError, before anything is written, if the runs are not all the shards of one run, or
    if the folder is another program's or is being written. Raises it later if a row is missing or
    there twice.
    """
    ordered = _shards(runs)
    manifest = _whole_manifest([run.manifest for run in ordered])
    require_own(out)
    with sole_writer(out):
        # A merge that is killed leaves a run that is not finished, never an old record beside new
        # rows, and the same command merges into the folder again.
        _write_record(out, manifest.model_copy(update={"ended": None, "exit": None}))
        # Columns of an earlier merge tell of rows that are about to go.
        for path in columns_in(out):
            remove(path)
        starts = _write(out / ROWS, [run.results for run in ordered])
        timed = all(is_there(run.folder / TIMES) for run in ordered if is_there(run.results))
        for name in compress((CASES, TIMES), (manifest.texts, timed)):
            _write(out / name, [run.folder / name for run in ordered])
        counted = 0 if manifest.counts is None else manifest.counts.cases
        if len(starts) != counted:
            raise InputError(f"the shards hold {len(starts)} rows, but they had {counted} cases")
        _write_columns(out, manifest, ordered, starts)
        _write_record(out, manifest)
    return manifest


def _write_columns(out: Path, manifest: Manifest, runs: Sequence[Run], starts: array[int]) -> None:
    """Put columns in the order of the lines, if all shards have some.

    A shard that ran without pyarrow has none, and the lines alone are the truth.
    """
    parts = [columns for run in runs if (columns := run.columns()) is not None]
    if sum(map(len, parts)) == len(starts):
        writer = ColumnsWriter(out, manifest)
        merged = heapq.merge(*(part.lines() for part in parts), key=itemgetter(0))
        for start, line in zip(starts, merged, strict=True):
            writer.add_line((*line[:START], start, *line[START + 1 :]))
        writer.close(files_of(out, manifest))


def _write_record(out: Path, manifest: Manifest) -> None:
    write_whole(out / MANIFEST, manifest.model_dump_json(by_alias=True, indent=1) + "\n")


def _shards(runs: Sequence[Run]) -> list[Run]:
    """The runs in the order of their shards."""
    shards: dict[int, Run] = {}
    for run in runs:
        shard = _shard_of(run)
        _require_alike(runs[0], run)
        earlier = shards.setdefault(shard.number, run)
        if earlier is not run:
            raise InputError(f"{earlier.folder} and {run.folder} are both the shard {shard}")
    count = _shard_of(runs[0]).count
    if missing := sorted(set(range(1, count + 1)) - shards.keys()):
        names = ", ".join(f"{number}/{count}" for number in missing)
        raise InputError(f"the shards {names} are missing")
    return [run for _, run in sorted(shards.items())]


def _shard_of(run: Run) -> Shard:
    shard = run.manifest.settings.get("shard")
    if not isinstance(shard, str):
        raise InputError(
            f"{run.folder} is not the folder of a shard: its run had no --shard; "
            "run the whole data with --shard 1/2 and with --shard 2/2, then merge both"
        )
    if not run.finished:
        raise InputError(
            f"the shard {shard} in {run.folder} is not finished: run its command again"
        )
    if run.results.suffix != ".jsonl":
        raise InputError(f"the rows of {run.folder} are not JSON lines; merge needs JSON lines")
    return Shard.parse(shard)


def _require_alike(one: Run, other: Run) -> None:
    """Raise InputError, with what differs, for shards of different runs."""
    facts: dict[str, Any] = {
        "other metrics": lambda of: [metric.hash for metric in of.metrics],
        "another judge": lambda of: [judge.model for judge in of.judges],
        "another judge or app": lambda of: list(map(of.settings.get, _WHO)),
        "other data": lambda of: (of.data.sha256, of.data.map, of.data.cases),
        "another number of shards": lambda of: str(of.settings.get("shard")).partition("/")[2],
        "a record without texts": lambda of: of.texts,
    }
    for what, of in facts.items():
        if of(one.manifest) != of(other.manifest):
            raise InputError(
                f"{one.folder} and {other.folder} are not shards of the same run: one has {what}"
            )


def _write(out: Path, parts: Sequence[Path]) -> array[int]:
    """Put lines in the order of their index; returns where each of them begins."""
    starts = array("q")
    with closing(JsonLines(out)) as lines:
        for index, offset, line in heapq.merge(*map(_with_index, parts)):
            if index != len(starts):
                raise InputError(f"{offset}: row {index} is in the place of row {len(starts)}")
            starts.append(lines.size)
            lines.write_line(line)
    return starts


def _with_index(path: Path) -> Iterator[tuple[int, str, bytes]]:
    for offset, line in complete_lines(path, whole=True):
        index = index_of(line)
        if index < 0:
            raise InputError(f"{offset}: no row of a run")
        yield index, offset, line


def _whole_manifest(parts: Sequence[Manifest]) -> Manifest:
    first = parts[0]
    exits = [part.exit for part in parts if part.exit in _EXITS]
    changed: dict[str, Any] = {
        "started": min(map(attrgetter("started"), parts)),
        "ended": max(filter(None, map(attrgetter("ended"), parts))),
        "exit": max(exits, key=_EXITS.index, default="ok"),
        "command": None,
        "settings": {name: of for name, of in first.settings.items() if name != "shard"},
        "results": ROWS,
        "counts": _sum(CountsRecord, map(attrgetter("counts"), parts)),
        **spent_together(parts),
    }
    return first.model_copy(update=changed)


def spent_together(parts: Sequence[Manifest]) -> dict[str, Any]:
    """The `totals` and the `usage` of runs with the same judges, as the fields of a manifest."""
    spent: dict[tuple[str, str, int | None], list[SpentRecord]] = {}
    for record in chain.from_iterable(part.usage for part in parts):
        spent.setdefault((record.metric, record.node, record.judge), []).append(record)
    return {
        "totals": _sum(TotalsRecord, map(attrgetter("totals"), parts)),
        "usage": tuple(
            _sum(SpentRecord, records, metric=metric, node=node, judge=judge)
            for (metric, node, judge), records in spent.items()
        ),
    }


def _sum(kind: type[Any], records: Iterable[BaseModel | None], **whose: Any) -> Any:
    """The sums of all numbers, of `whose` they are; None if one of them is not known."""
    present = list(filter(None, records))
    sums: dict[str, Any] = {}
    for name in kind.model_fields.keys() - whose.keys():
        values = list(map(attrgetter(name), present))
        sums[name] = None if None in values else sum(values)
    return kind(**sums, **whose)
