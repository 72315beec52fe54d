"""Rows and texts of a run folder by their place, without holding them."""

from __future__ import annotations

import bisect
import tempfile
from array import array
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO

from dagengine.data.json_lines import early_lines, index_of, line_of, value_of
from dagengine.data.result_rows import row_of
from dagengine.errors import InputError
from dagengine.record.columns import Columns, ColumnsWriter
from dagengine.record.hiding import fields_in
from dagengine.record.run import Run, case_of
from dagengine.record.times import row_with_times
from dagengine.record.writer import CASES, TIMES, files_of, sole_writer
from dagengine.results import CaseResult
from dagengine.system.regular_files import is_there, open_to_read


class RunFiles:
    """The rows, the texts and the times of one run, each reached by its place from 0 on.

    Eight bytes are held for each line, and what waits beside the files of a run that was killed or
    still continues. Where lines begin is known from the `columns` of the run, if there are some.
    Results in a format without lines are copied to a file for passing use. Use it as a context
    manager, or close it.
    """

    def __init__(self, run: Run) -> None:
        # In a finished run the third line of each file is of the third row. A run that was killed
        # may have written the text of a case and not its row.
        self._aligned = run.finished
        self._run = run
        self.columns = run.columns()
        if run.results.suffix == ".jsonl":
            self._rows = _lines(run.results, run, self.columns)
        else:
            # No line to seek: the rows are copied, one after the other, to a file that goes when it
            # is closed. So comparing and viewing holds none of them in memory.
            file: BinaryIO = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the lines
            for row in run.rows():
                file.write(line_of(row.as_dict()))
            file.seek(0)
            self._rows = Lines(run.results, file)

    def __enter__(self) -> RunFiles:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the files."""
        for lines in ("_texts", "_times"):
            if lines in self.__dict__:
                getattr(self, lines).close()
        self._rows.close()
        if self.columns is not None:
            self.columns.close()

    def __len__(self) -> int:
        return len(self._rows)

    @cached_property
    def _texts(self) -> Lines:
        """The texts, which a comparison of equal cases does not want."""
        return _lines(self._run.folder / CASES, self._run)

    @cached_property
    def _times(self) -> Lines:
        """The times, which only some readers want."""
        return _lines(self._run.folder / TIMES, self._run)

    def start(self, place: int) -> int:
        """Offset of a row's line, in bytes; for results that are lines."""
        return self._rows.start(place)

    def row(self, place: int) -> CaseResult:
        """The row at a place; raises InputError for a damaged line."""
        return row_of(self._rows.value(place), self._rows.line_name(place))

    def timed_row(self, place: int) -> CaseResult:
        """The same with how long it took, where that is known."""
        return row_with_times(self.row(place), self._beside(self._times, place))

    def fields(self, place: int) -> Mapping[str, Any] | None:
        """The fields of a case; None if no texts were kept."""
        return self._fields_in(self._beside(self._texts, place), place)

    def fields_of(self, row: CaseResult) -> Mapping[str, Any] | None:
        """The fields of the case of a row; None if no texts were kept."""
        return self._fields_in(self._texts.of_index(row.index), row.index)

    def _fields_in(self, texts: Any, place: int) -> Mapping[str, Any] | None:
        if texts is None:
            return None
        return fields_in(case_of(texts, self._texts.line_name(place)))

    def _beside(self, lines: Lines, place: int) -> Any:
        """The line that belongs to the row at a place; None without one."""
        if not self._aligned and len(lines):
            # Where the run broke off a line may be there whose row does not.
            return lines.of_index(self._rows.value(place)["index"])
        return lines.value(place) if lines.has(place) else None


class Lines:
    """The complete lines of a file, by number from 0 on, then some that stand elsewhere."""

    def __init__(self, path: Path, file: BinaryIO | None, starts: array[int] | None = None) -> None:
        """Without a `file` there is none; `path` is for messages.

        `starts` are where lines begin, and where the last one ends, if that is known. Else they are
        looked for as far as lines are asked for: who wants the first ones reads no long file.
        """
        self._path = path
        self._starts = array("q", [0]) if starts is None else starts
        self._all = starts is not None or file is None
        self._file = file
        self._early: list[bytes] = []

    def _find(self, number: int | None = None) -> None:
        """Find where lines begin and end, up to that with a number, or all."""
        if self._all or self._file is None or (number is not None and number < self._count):
            return
        self._file.seek(self._starts[-1])
        for line in self._file:
            if line.endswith(b"\n"):
                self._starts.append(self._starts[-1] + len(line))
            if number is not None and number < self._count:
                return
        self._all = True

    @property
    def _count(self) -> int:
        return len(self._starts) - 1

    def take_early(self) -> None:
        """Take in what waits beside the file for an earlier line."""
        last = index_of(self._line(len(self) - 1)) if len(self) else -1
        self._early = [line for _, line in early_lines(self._path, last)]

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()

    def __len__(self) -> int:
        self._find()
        return self._count + len(self._early)

    def has(self, number: int) -> bool:
        """Return whether there is a line with a number."""
        self._find(number)
        return number < self._count + len(self._early)

    def start(self, number: int) -> int:
        """Offset of a line, in bytes."""
        self._find(number)
        return self._starts[number]

    def line_name(self, number: int) -> str:
        """Name of a line in messages."""
        return f"{self._path} line {number + 1}"

    def value(self, number: int) -> Any:
        """The JSON of a line; raises InputError for a damaged one."""
        try:
            value = value_of(self._line(number))
        except ValueError as error:
            raise InputError(f"{self.line_name(number)}: not JSON: {error}") from None
        if not isinstance(value, dict) or not isinstance(value.get("index"), int):
            raise InputError(f"{self.line_name(number)}: it has no whole number `index`")
        return value

    def of_index(self, index: int) -> Any:
        """The JSON of the line with an `index`; None without one. Raises as `value` does."""
        count = len(self)
        position = bisect.bisect_left(range(count), index, key=lambda at: self.value(at)["index"])
        value = self.value(position) if position < count else None
        return value if value is None or value["index"] == index else None

    def _line(self, number: int) -> bytes:
        self._find(number)
        if self._file is None or number >= self._count:
            return self._early[number - self._count]
        self._file.seek(self._starts[number])
        return self._file.read(self._starts[number + 1] - self._starts[number])


def make_columns(run: Run) -> bool:
    """Make the columns of a run from its lines; false if it can have none.

    A run has none that is not finished, has its rows in another format, or has a text that columns
    cannot hold. Raises InputError for a damaged line, and where the folder cannot be written.
    """
    if not run.finished or run.results.suffix != ".jsonl":
        return False
    try:
        with sole_writer(run.folder), RunFiles(run) as files:
            writer = ColumnsWriter(run.folder, run.manifest)
            try:
                for index, (row, case) in enumerate(run.with_cases()):
                    writer.add(row, case or {}, files.start(index))
                return writer.close(files_of(run.folder, run.manifest))
            except BaseException:
                writer.give_up()
                raise
    except OSError as error:
        raise InputError(f"cannot write {run.folder}: {error.strerror or error}") from error


def _lines(path: Path, run: Run, columns: Columns | None = None) -> Lines:
    """The lines of a file of a run, with those that wait beside it while it is not finished."""
    starts = None if columns is None else columns.starts()
    if starts is not None:
        # Columns know where lines begin, and the last one ends with the file.
        starts.append(path.stat().st_size)
    lines = Lines(path, open_to_read(path) if is_there(path) else None, starts)
    if not run.finished:
        try:
            lines.take_early()
        except BaseException:
            lines.close()
            raise
    return lines
