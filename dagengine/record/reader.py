"""A run folder read back: in order (`load_run`), or row by row at any place (`RunFiles`)."""

from __future__ import annotations

import bisect
import math
import tempfile
from array import array
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from functools import cached_property
from io import BytesIO
from operator import itemgetter
from pathlib import Path
from typing import Any, BinaryIO

from pydantic import ValidationError

from dagengine.data.result_files import read_rows, row_of
from dagengine.data.written_lines import (
    all_lines,
    early_lines,
    line_of,
    lines_in,
    value_of,
    values_in,
)
from dagengine.errors import InputError, first_flaw, require_format
from dagengine.prompts.json_in_text import shallow_value
from dagengine.record.case_costs import index_in, pair_lines, row_with_times
from dagengine.record.hidden_fields import fields_in
from dagengine.record.parquet_columns import (
    Block,
    BlockBuilder,
    Columns,
    ColumnsWriter,
    read_columns,
)
from dagengine.record.run_json_types import Manifest
from dagengine.record.writer import CASES, MANIFEST, TIMES, files_of, sole_writer
from dagengine.results import CaseResult
from dagengine.results.metric_results import FORMAT
from dagengine.system.safe_files import is_there, open_to_read, read_whole
from dagengine.system.terminal_text import text_if

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
        unfinished = text_if(not self.finished, ", not finished")
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

        There are none if the run was to keep no texts. Raises InputError that names a damaged line.
        """
        for position, case in values_in(self.folder / CASES, "case", whole=self.finished):
            yield case_of(case, position)

    def timed_rows(self, rows: Iterable[CaseResult] | None = None) -> Iterator[CaseResult]:
        """The rows, all or these, each with how long it took if the run wrote that down."""
        lines = map(itemgetter(1), all_lines(self.folder / TIMES, whole=self.finished))
        for row, line in pair_lines(self.rows() if rows is None else rows, lines, index_in):
            times: Any = None
            with suppress(ValueError):  # a damaged line of times is no reason to lose its row
                times = None if line is None else value_of(line)
            yield row_with_times(row, times)

    def columns(self) -> Columns | None:
        """The rows in columns, without their texts; None if no file of columns is of these rows."""
        return read_columns(self.folder, files_of(self.folder, self.manifest), self.manifest)

    def with_cases(self) -> Iterator[tuple[CaseResult, dict[str, Any] | None]]:
        """The timed rows with their cases, which are in the same order; a case may be missing."""
        return pair_lines(self.timed_rows(), self.cases(), itemgetter("index"))

    def blocks(self) -> Iterator[Block]:
        """The rows in columns, some thousand at a time; without a file of them, from the lines."""
        if (columns := self.columns()) is not None:
            yield from columns.blocks()
            return
        builder = BlockBuilder(self.manifest)
        for row, case in self.with_cases():
            builder.add(builder.line(row, case or {}, -1))  # -1: without its start
            if builder.full:
                yield builder.take()
        if len(builder):
            yield builder.take()


def run_at(path: str | Path) -> Run | None:
    """The run of a folder, or of the file of its rows; None for anything else.

    Raises as `load_run` for a folder whose record cannot be read.
    """
    path = Path(path)
    if is_there(path / MANIFEST):
        return _read(path)
    if path.is_file() and is_there(path.parent / MANIFEST):
        with suppress(InputError):  # another tool may also have a file of this name
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
    # A loop, and before `_flaws`: functions that call themselves for nested metrics would end with
    # a RecursionError if a record is nested deep enough.
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
    """Names and numbers that lead to nothing in the record, each as the end of a sentence."""
    judges = set(range(len(manifest.judges)))
    for metric in manifest.metrics:
        nodes = list(metric.nodes_and_nested())
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


def case_of(case: Any, position: str) -> dict[str, Any]:
    """The value of a line of cases; raises InputError, with its `position`, if it is no case."""
    require_format(case, FORMAT, position)
    if not isinstance(case, dict) or not isinstance(case.get("index"), int):
        raise InputError(f"{position}: no case of a run (it has no whole number `index`)")
    tags = case.get("tags")
    if tags is not None and not (isinstance(tags, list) and all(isinstance(t, str) for t in tags)):
        raise InputError(f"{position}: no case of a run (its `tags` are no list of texts)")
    return case


class RunFiles:
    """The rows, the texts and the times of one run, each reached by its place from 0 on.

    Eight bytes are held for each line, and what waits beside the files of a run that was killed or
    still continues. Where lines begin is known from the `columns` of the run, if there are some.
    Results in a format without lines are copied to a temporary file. Use it as a context manager,
    or close it.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        with ExitStack() as self._open_files:  # closed here only if something raises
            self.columns = run.columns()
            if self.columns is not None:
                self._open_files.callback(self.columns.close)
            if run.results.suffix == ".jsonl":
                self._rows = self._lines(run.results, self.columns)
            else:
                # There is no line to seek. The rows are copied, one after the other, to lines of a
                # temporary file, so comparing and viewing holds none of them in memory.
                file = self._open_files.enter_context(tempfile.TemporaryFile())
                for row in run.rows():
                    file.write(line_of(row.as_dict()))
                file.seek(0)
                self._rows = Lines(run.results, file)
            self._open_files = self._open_files.pop_all()

    def __enter__(self) -> RunFiles:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the files."""
        self._open_files.close()

    def __len__(self) -> int:
        return len(self._rows)

    @cached_property
    def _texts(self) -> Lines:
        """The texts, which a comparison of equal cases does not want."""
        return self._lines(self._run.folder / CASES)

    @cached_property
    def _times(self) -> Lines:
        """The times, which only some readers want."""
        return self._lines(self._run.folder / TIMES)

    def _lines(self, path: Path, columns: Columns | None = None) -> Lines:
        """The lines of a file of the run, none without it, and those that wait beside it."""
        file: BinaryIO = BytesIO()
        if is_there(path):
            file = self._open_files.enter_context(open_to_read(path))
        starts = None if columns is None else columns.starts()
        return Lines(path, file, starts, whole=self._run.finished)

    def row(self, place: int) -> CaseResult:
        """The row at a place; raises InputError for a damaged line."""
        return row_of(self._rows.value(place), self._rows.line_name(place))

    def timed_row(self, place: int) -> CaseResult:
        """The same with how long it took, where that is known."""
        lines, times = self._times, None
        with suppress(InputError):  # a damaged line of times is no reason to lose its row
            times = self._beside(lines, place)
        return row_with_times(self.row(place), times)

    def fields(self, place: int) -> Mapping[str, Any] | None:
        """The fields of a case; None if no texts were kept."""
        case = self._beside(self._texts, place)
        return None if case is None else fields_in(case_of(case, self._texts.line_name(place)))

    def place_of(self, index: int) -> int | None:
        """The place of the row of the case with an `index` in the data set; None without one."""
        return self._rows.number_of(index)

    def _beside(self, lines: Lines, place: int) -> Any:
        """The value of the line in another file that belongs to a row; None without one."""
        # A run that was killed may have written the text of a case and not its row.
        number = lines.number_of(self._rows.index(place))
        return None if number is None else lines.value(number)


class Lines:
    """The lines of a file as `all_lines` has them, by number from 0 on."""

    def __init__(
        self, path: Path, file: BinaryIO, starts: array[int] | None = None, *, whole: bool = True
    ) -> None:
        """`path` is for messages, and says what waits beside it.

        `starts` are where lines begin, if that is known. Else they are looked for as far as lines
        are asked for: who wants the first ones reads no long file.
        """
        self._path, self._file, self._whole = path, file, whole
        self._starts = array("q") if starts is None else starts
        self._next = (1, 0) if starts is None else None  # line and offset to look for starts at
        self._blanks: list[int] = []  # for each blank line, the number of the line behind it
        self._early: list[bytes] = []
        # The last line that was read: its index and its value are asked for in turn.
        self._last: tuple[int | None, bytes] = (None, b"")

    def __len__(self) -> int:
        self._find_starts()
        return len(self._starts) + len(self._early)

    def has(self, number: int) -> bool:
        """Return whether there is a line with a number."""
        self._find_starts(number)
        return number < len(self._starts) + len(self._early)

    def line_name(self, number: int) -> str:
        """Name of a line in messages."""
        return f"{self._path} line {number + 1 + bisect.bisect_right(self._blanks, number)}"

    def index(self, number: int) -> int:
        """The index of the row in a line; raises as `value` does."""
        index = index_in(self._line(number))
        return index if index >= 0 else int(self.value(number)["index"])

    def value(self, number: int) -> Any:
        """The JSON of a line; raises InputError for a damaged one."""
        try:
            value = value_of(self._line(number))
        except ValueError as error:
            raise InputError(f"{self.line_name(number)}: not JSON: {error}") from None
        if not isinstance(value, dict) or not isinstance(value.get("index"), int):
            raise InputError(f"{self.line_name(number)}: it has no whole number `index`")
        return value

    def number_of(self, index: int) -> int | None:
        """The number of the line with an `index`; None without one. Raises as `value` does."""
        # Mostly the two are equal. In a run that broke off, rows before it may be missing.
        if self.has(index) and self.index(index) == index:
            return index
        number = bisect.bisect_left(range(len(self)), index, key=self.index)
        return number if self.has(number) and self.index(number) == index else None

    def _line(self, number: int) -> bytes:
        if number == self._last[0]:
            return self._last[1]
        self._find_starts(number)
        if number >= len(self._starts):
            return self._early[number - len(self._starts)]
        self._file.seek(self._starts[number])
        self._last = number, self._file.readline()
        return self._last[1]

    def _find_starts(self, number: int | None = None) -> None:
        """Find where lines begin, until the line with a number is known, or to the last line."""
        if self._next is None or (number is not None and number < len(self._starts)):
            return
        first, end = self._next
        self._file.seek(end)
        for line, start, text in lines_in(self._file, whole=self._whole, first=first, start=end):
            count = len(self._starts)
            self._blanks += [count] * (line - 1 - count - len(self._blanks))
            self._starts.append(start)
            if number == count:
                self._next = line + 1, start + len(text)
                return
        self._next = None
        last = self.index(len(self._starts) - 1) if self._starts else -1
        self._early = [line for _, line in early_lines(self._path, last)]


def make_columns(run: Run) -> bool:
    """Make the columns of a run from its lines; return false if it can have none.

    It has none if it is not finished, if its rows are in another format, or if columns cannot hold
    a text of them. Raises InputError for a damaged line, and where the folder cannot be written.
    """
    if not run.finished or run.results.suffix != ".jsonl":
        return False
    try:
        with sole_writer(run.folder):
            writer = ColumnsWriter(run.folder, run.manifest)
            with open_to_read(run.results) as file:
                starts = array("q", (start for _, start, _ in lines_in(file, whole=True)))
            try:
                for start, (row, case) in zip(starts, run.with_cases(), strict=False):
                    writer.add(row, case or {}, start)
                return writer.close(files_of(run.folder, run.manifest))
            finally:
                writer.give_up()  # of what is not whole
    except OSError as error:
        raise InputError(f"cannot write {run.folder}: {error.strerror or error}") from error
