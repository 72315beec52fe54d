"""A run folder read back: `load_run`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import suppress
from operator import itemgetter
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from dagengine.data.json_lines import beside, complete_lines, early_lines, index_of, value_of
from dagengine.data.result_rows import read_rows
from dagengine.errors import InputError, first_flaw, require_format
from dagengine.prompts.json_values import shallow_value
from dagengine.record.columns import Block, BlockBuilder, Columns, read_columns
from dagengine.record.times import pair_lines, with_times
from dagengine.record.values import Manifest
from dagengine.record.writer import CASES, MANIFEST, TIMES, files_of
from dagengine.results import CaseResult
from dagengine.results.rows import FORMAT
from dagengine.system.regular_files import is_there, read_whole

NODES, DEPTH = 10_000, 50
"""How many nodes the metrics of a run may have in all, and how deep metrics may be nested."""


class Run:
    """What a run left in its folder; rows and cases are read when they are asked for."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self.folder = folder
        self.manifest = manifest

    def __repr__(self) -> str:
        metrics = ", ".join(self.manifest.metric_names)
        counts = self.manifest.counts
        cases = "" if counts is None else f", {counts.cases} cases"
        unfinished = "" if self.finished else ", not finished"
        return f"<Run {str(self.folder)!r}: {metrics}{cases}{unfinished}>"

    @property
    def finished(self) -> bool:
        """Whether every case has its row; not so in a run that was killed, or still continues."""
        return self.manifest.finished

    @property
    def results(self) -> Path:
        """The file of the rows."""
        return self.folder / self.manifest.results

    def rows(self) -> Iterator[CaseResult]:
        """The rows in data set order, lazily; none if the run ended before the first.

        Raises InputError that names the line that is not a row. The last line of a run that was
        killed may be half of one, and is left out.
        """
        if is_there(self.results):
            yield from read_rows(self.results, whole=self.finished)

    def cases(self) -> Iterator[dict[str, Any]]:
        """The cases as dicts (`index`, `hash`, `type`, then the fields), in the order of the rows.

        None when the run was to keep no texts. Raises InputError that names a damaged line.
        """
        for position, line in self._lines(CASES):
            try:
                case = value_of(line)
            except ValueError as error:
                raise InputError(f"{position}: no case of a run (not JSON: {error})") from None
            yield case_of(case, position)

    def timed_rows(self, rows: Iterable[CaseResult] | None = None) -> Iterator[CaseResult]:
        """As `rows`, or some of these, each with how long it took, where the run wrote it down."""
        times = (line for _, line in self._lines(TIMES))
        return with_times(self.rows() if rows is None else rows, times)

    def columns(self) -> Columns | None:
        """The rows in columns, without their texts; None if no file of them tells of these rows."""
        return read_columns(self.folder, files_of(self.folder, self.manifest), self.manifest)

    def with_cases(self) -> Iterator[tuple[CaseResult, dict[str, Any] | None]]:
        """The timed rows with their cases, which are in the same order; a case may be missing."""
        return pair_lines(self.timed_rows(), self.cases(), itemgetter("index"))

    def blocks(self) -> Iterator[Block]:
        """The rows in columns, some thousand at a time; made of the lines if there are none."""
        if (columns := self.columns()) is not None:
            yield from columns.blocks()
            return
        builder = BlockBuilder(self.manifest)
        for row, case in self.with_cases():
            builder.add(builder.line(row, case or {}, -1))
            if builder.full:
                yield builder.take()
        if len(builder):
            yield builder.take()

    def _lines(self, name: str) -> Iterator[tuple[str, bytes]]:
        """The lines of a file beside the rows, each after its place, with those that wait."""
        path, line = self.folder / name, b""
        if not is_there(path) and not is_there(beside(path)):
            return
        for position, line in complete_lines(path, whole=self.finished) if is_there(path) else ():
            yield position, line
        # What waited may have been written since, and its file not yet be emptied: not twice.
        yield from early_lines(path, index_of(line))


def run_at(path: str | Path) -> Run | None:
    """The run of a folder, or of the file of its rows; None for anything else.

    Raises as `load_run` for a folder whose record cannot be read.
    """
    path = Path(path)
    if is_there(path / MANIFEST):
        return _read(path)
    if path.is_file() and is_there(path.parent / MANIFEST):
        with suppress(InputError):  # a file of another tool, beside one that has this name, too
            run = _read(path.parent)
            return run if run.results.name == path.name else None
    return None


def rows_at(path: str | Path) -> Iterator[CaseResult]:
    """The rows of a run, or of a file of rows outside of one; raises as `read_rows`."""
    run = run_at(path)
    return read_rows(path) if run is None else run.rows()


def load_run(folder: str | Path) -> Run:
    """Load a run from its folder, finished or not; the file of its rows also names it.

    Raises InputError for a folder without a run, for one that a newer version wrote, and for a
    `run.json` that is a link or no file.
    """
    run = run_at(folder)
    if run is None:
        path = Path(folder)
        if not path.exists():
            raise InputError(f"{folder} does not exist; name the folder of a run")
        what = f"has no {MANIFEST}" if path.is_dir() else "is not a folder"
        hint = f"; write {path.parent}" if is_there(path.parent / MANIFEST) else ""
        raise InputError(f"{folder} is not the folder of a run: it {what}{hint}")
    return run


def _read(folder: Path) -> Run:
    path = folder / MANIFEST
    text = read_whole(path)
    try:
        # Python also reads NaN, Infinity and 1e999, with which sums and comparisons say nothing.
        record = shallow_value(text, parse_float=_finite, parse_constant=_finite)
    except ValueError as error:
        raise InputError(f"{path} is not the record of a run (not JSON: {error})") from None
    # Before the fields: a newer version may have others, and "install a newer one" says more than
    # the name of the first field that is not understood.
    require_format(record, FORMAT, str(path))
    try:
        manifest = Manifest.model_validate(record)
    except ValidationError as error:
        raise InputError(f"{path} is not the record of a run ({first_flaw(error)})") from None
    if flaw := _excess_of(manifest) or next(_flaws(manifest), ""):
        raise InputError(f"{path} is not the record of a run: {flaw}")
    return Run(folder, manifest)


def _excess_of(manifest: Manifest) -> str:
    """Return what the metrics have too much of, as the end of a sentence; empty if nothing."""
    # A loop, and before all else: what walks the metrics later calls itself for nested ones, and a
    # record that is nested deep enough would end it with a RecursionError.
    waiting, count = [(metric, 1) for metric in manifest.metrics], 0
    while waiting:
        metric, depth = waiting.pop()
        count += len(metric.nodes)
        if count > NODES:
            return f"its metrics have more than {NODES:,} nodes"
        if depth > DEPTH:
            return f"its metrics are nested more than {DEPTH} deep"
        waiting += [(node.metric, depth + 1) for node in metric.nodes if node.metric is not None]
    return ""


def _flaws(manifest: Manifest) -> Iterator[str]:
    """Contradictions of settings, as ends of a sentence."""
    judges = set(range(len(manifest.judges)))
    for metric in manifest.metrics:
        nodes = [node for inner in metric.every_metric() for node in inner.nodes]
        names = {node.name for node in nodes}
        for node in nodes:
            where = f"the node {node.name!r:.80} of {metric.name!r:.80}"
            for judge in sorted({*node.judges} - judges):
                yield f"{where} asks the judge {judge}, and there are {len(judges)}"
            for name in sorted({*node.inputs} - names):
                yield f"{where} reads the node {name!r:.80}, which is not there"
        for edge in metric.every_edge():
            for end in (edge.source, edge.target):
                if end not in {*names, None}:
                    yield f"an edge of {metric.name!r:.80} names {end!r:.80}, which is no node"
    for spent in manifest.usage:
        if spent.judge not in {*judges, None}:
            yield f"the judge {spent.judge} was used, and there are {len(judges)}"


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text:.40} is no number that a record holds")
    return number


def case_of(case: Any, place: str) -> dict[str, Any]:
    """A line of cases that was read; raises InputError, with its `position`, for what is none."""
    require_format(case, FORMAT, place)
    if not isinstance(case, dict) or not isinstance(case.get("index"), int):
        raise InputError(f"{place}: no case of a run (it has no whole number `index`)")
    tags = case.get("tags")
    if tags is not None and not (isinstance(tags, list) and all(isinstance(t, str) for t in tags)):
        raise InputError(f"{place}: no case of a run (its `tags` are no list of texts)")
    return case
