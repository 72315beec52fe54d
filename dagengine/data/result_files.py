"""Rows of results in files: JSON lines, or Parquet with one flat row per case and metric."""

from __future__ import annotations

import errno
import itertools
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from dagengine.data.parquet import ParquetWriter, parquet_rows
from dagengine.data.strict_json import FlawError
from dagengine.data.written_lines import LinesInOrder, adapter_of, values_in
from dagengine.errors import InputError, first_flaw, require_format
from dagengine.prompts.json_in_text import shallow_value
from dagengine.results import CaseResult, implied_output
from dagengine.results.metric_results import FORMAT
from dagengine.system.file_locks import one_writer
from dagengine.system.safe_files import is_there, require_regular

_COLUMNS = (
    *("index", "case", "hash", "metric", "score", "success", "outcome", "reason", "threshold"),
    *("raw_score", "mode", "failure", "path", "ended", "judge", "points", "steps", "trace"),
)
# Types of columns that are no texts.
_TYPES = {"index": "int64", "success": "bool"} | dict.fromkeys(
    ("score", "threshold", "raw_score"), "float64"
)
_NESTED = ("failure", "path", "ended", "points", "steps", "trace")  # JSON text in their cells
# Records travel, and readers add up and draw what is in them. JSON has numbers such as 1e999, which
# are infinite here: one of them in a file would make all sums of a run so.
_HUGE = 1e15  # no index, score or count of tokens is as large
_FULL_DISK = (
    "; make room and start the run again: it begins at the first case, but what a store (store=, "
    "--store) has is not asked again"
)


class RowWriter:
    """Writes rows during a run; the suffix of the file selects the format.

    An existing file is kept until the first row. Use it as a context manager: on exit, also after
    an exception, the file is closed and readable. Inside it is the only writer of the file. JSON
    lines are complete after every row, even if the process is killed. Parquet is written 2048
    results at a time, and is readable only once it is closed.

    Rows are added in the order of the data. Pass a row that is finished before an earlier one to
    `keep`; with JSON lines it then survives a kill, too.
    """

    def __init__(self, path: str | Path, *, emptied: bool = True) -> None:
        """Raises InputError for a suffix other than .jsonl and .parquet, and for a file that holds
        something else than results, or is a link, a pipe or a device.

        With emptied=False a .jsonl file is continued; all its lines must be whole.
        """
        self.path = Path(path)
        self._file: LinesInOrder | _ParquetRows
        if self.path.suffix == ".jsonl":
            self._file = LinesInOrder(self.path, emptied=emptied)
        elif self.path.suffix == ".parquet":
            self._file = _ParquetRows(self.path)
        else:
            raise InputError(f"results go to a .jsonl or a .parquet file, not to {self.path.name}")
        require_regular(self.path)
        # The first write replaces the file: refuse one that has something else than results.
        try:
            if is_there(self.path) and self.path.stat().st_size:
                next(read_rows(self.path, whole=False), None)
        except InputError as error:
            raise InputError(
                f"{self.path} holds no results, and would be overwritten: move it away, or name "
                f"another file ({error})"
            ) from None
        self.count = 0
        self._lock = ExitStack()

    def __enter__(self) -> RowWriter:
        self.hold()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def hold(self) -> None:
        """Be the only writer of the file until `close`; raises InputError if there is another."""
        with self.explain_errors(self.path):
            self._lock.enter_context(one_writer(self.path))

    def close(self) -> None:
        """Close the file; raises InputError if its end cannot be written."""
        with self._lock, self.explain_errors(self.path):
            self._file.close()

    def add(self, row: CaseResult) -> None:
        """Write one row; raises InputError naming the file when it cannot be written."""
        with self.explain_errors(self.path):
            self._file.write(row.index, row.as_dict)
        self.count += 1

    @property
    def size(self) -> int:
        """The bytes of the lines so far, which is where the next one begins."""
        return self._file.size

    def keep(self, row: CaseResult) -> None:
        """Let a finished row wait for earlier ones, in a file beside the results.

        Nothing for one that was added. Raises InputError as `add` does.
        """
        with self.explain_errors(self.path):
            self._file.keep(row.index, row.as_dict)

    @contextmanager
    def explain_errors(self, path: Path) -> Iterator[None]:
        """Raise the system's errors as InputErrors that say which rows of the run are in the file.

        `path` is the file that is written, for errors that do not name it (a full disk).
        """
        try:
            yield
        except OSError as error:
            hint = _FULL_DISK if error.errno in (errno.ENOSPC, errno.EDQUOT) else ""
            left = f"rows of this run in {self.path}: {self.count + self._file.waiting}"
            if self.path.suffix != ".jsonl":
                left = f"{self.path} may be unreadable (a .jsonl file keeps every row)"
            raise InputError(
                f"cannot write {error.filename or path}: {error.strerror or error}; {left}{hint}"
            ) from error


class _ParquetRows:
    """A Parquet file with one flat row per case and metric, used like `LinesInOrder`."""

    size = waiting = 0  # a row has no offset, and none waits

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: ParquetWriter | None = None

    def _open(self) -> ParquetWriter:
        if self._file is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            columns = {name: _TYPES.get(name, "string") for name in _COLUMNS}
            self._file = ParquetWriter(self._path, columns.items())
        return self._file

    def write(self, _: int, make_row: Callable[[], dict[str, Any]]) -> None:
        file, row = self._open(), make_row()
        for metric in row["metrics"]:
            flat = {name: row.get(name) for name in ("index", "case", "hash", "trace")} | metric
            for name, value in flat.items():
                if name in _NESTED and value is not None:
                    flat[name] = json.dumps(value)
                elif isinstance(value, str) and not value.isascii():
                    # Arrow takes no lone surrogates.
                    flat[name] = value.encode("utf-8", "backslashreplace").decode("utf-8")
            file.write(flat)

    def keep(self, *_: object) -> None:
        # A run that is killed loses all of the file, so keeping rows beside it would save nothing.
        self._open()  # a file that cannot be written is an error at the first finished row

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def read_rows(path: str | Path, *, whole: bool = True) -> Iterator[CaseResult]:
    """Read the rows of a run lazily; raises InputError that names an invalid line or row.

    Unless the file is `whole`, an incomplete last line is ignored. Rows that waited for an earlier
    row when the run was killed come last.
    """
    target = Path(path)
    if not is_there(target):
        raise InputError(f"there is no file {target}")
    require_regular(target)
    is_parquet = target.suffix == ".parquet"
    lines = values_in(target, "result", whole=whole)
    for position, value in _parquet_values(target) if is_parquet else lines:
        yield row_of(value, position)


def row_of(value: Any, position: str) -> CaseResult:
    """The row in a value that was read; raises InputError that begins with its `position`.

    The value is changed on the way.
    """
    require_format(value, FORMAT, position)
    _complete(value)
    try:
        row: CaseResult = adapter_of(CaseResult).validate_python(value)
    except ValidationError as error:
        raise InputError(f"{position}: no result of a run ({first_flaw(error)})") from None
    # A NaN is in no range: every comparison with it is false.
    counts, numbers = [row.index], list[float | None]()
    for result in row.metrics:
        numbers += (result.score, result.raw_score, result.threshold)
        for step in result.steps:
            numbers += (step.score, step.confidence, step.mass)
            counts += (step.usage.input_tokens, step.usage.output_tokens)
    in_range = all(number is None or -_HUGE < number < _HUGE for number in numbers)
    if not in_range or min(counts) < 0 or max(counts) >= _HUGE:
        raise InputError(f"{position}: no result of a run (a number in it is out of range)")
    return row


def _complete(row: Any) -> None:
    """Add the outputs that a written row leaves out, as far as this value has the form of a row."""
    if isinstance(row, dict) and "hash" in row:
        # A row computes both from its case, which is not in the file.
        row["recorded_hash"] = row.pop("hash")
        row["recorded_trace"] = row.pop("trace", None)
    for metric in _dicts_in(row, "metrics"):
        for step in _dicts_in(metric, "steps"):
            if {"verdict", "kind"} <= step.keys():
                step.setdefault("output", implied_output(step))


def _dicts_in(value: Any, name: str) -> Iterator[dict[str, Any]]:
    parts = value.get(name) if isinstance(value, dict) else None
    for part in parts if isinstance(parts, list) else ():
        if isinstance(part, dict):
            yield part


def _parquet_values(path: Path) -> Iterator[tuple[str, Any]]:
    """Values like those of JSON lines: the flat rows of a case follow each other in the file."""

    def flat_rows() -> Iterator[dict[str, Any]]:
        for row in parquet_rows(path):
            if isinstance(row, FlawError):
                raise InputError(f"no result of a run: {row}")
            yield row

    for index, group in itertools.groupby(flat_rows(), lambda row: row.get("index")):
        metrics = list(group)
        for row in metrics:
            row.update((name, shallow_value(row[name])) for name in _NESTED if row.get(name))
        yield f"{path} case {index}", {**metrics[0], "metrics": metrics}
