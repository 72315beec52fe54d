"""Rows of a run in columns: a Parquet file beside the lines, made as the run goes (with pyarrow).

The lines stay the truth. The file says of which lines it was made, by their sizes, times and
hashes. Any other file, half a file and one of another format is passed over, and the lines are
read. A *course* is what a result is without its texts and tokens, as JSON. Results that went alike
share a course, so what needs no text is found out once for each course.
"""

from __future__ import annotations

import itertools
import json
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from operator import itemgetter
from pathlib import Path
from typing import Any

from dagengine.compiler.metric_hashes import digest
from dagengine.data.parquet import ParquetWriter
from dagengine.data.written_lines import adapter_of, beside
from dagengine.prompts.json_in_text import shallow_value
from dagengine.record.case_costs import StepCosts, usage_of
from dagengine.record.run_json_types import Manifest
from dagengine.results import CaseResult, MetricResult, Step
from dagengine.system.safe_files import file_sha256, is_there, require_regular

COLUMNS = "columns.parquet"
BLOCK = 10_000
"""The most cases of a block, which is a row group of the file."""
_ROOM = 32_000_000  # characters of its cases, which are in memory together
_FORMAT = 1
_MARK = b"dagengine"
_CASE = {
    "index": "int64", "case": "string", "hash": "string", "trace": "string", "start": "int64",
    "words": "string",
}  # fmt: skip
# Of every metric, with its number behind a dot.
_METRIC = {
    "course": "string", "score": "float64", "reason": "string", "input_tokens": "int64",
    "output_tokens": "int64", "questions": "int64", "cost": "float64", "seconds": "float64",
}  # fmt: skip
_UNSEARCHED = ("hash", "type", "name")  # fields of a case; its name is that of the row
_JSON = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=str)

Line = tuple[Any, ...]
"""One case in columns: its index is the first."""
START, _WORDS = list(_CASE).index("start"), list(_CASE).index("words")
Block = dict[str, list[Any]]
"""Columns of some cases, by name."""


class BlockBuilder:
    """Puts rows into blocks, of columns with `kinds` by name."""

    def __init__(self, manifest: Manifest) -> None:
        self._names = manifest.metric_names
        self._costs = StepCosts(manifest)
        numbered = itertools.product(range(len(self._names)), _METRIC.items())
        self.kinds = _CASE | {f"{name}.{number}": kind for number, (name, kind) in numbered}
        self._lines: list[Line] = []
        self._size = 0

    def __len__(self) -> int:
        return len(self._lines)

    @property
    def full(self) -> bool:
        """Whether the block is to be taken before more is added."""
        return len(self._lines) >= BLOCK or self._size >= _ROOM

    def holds(self, row: CaseResult) -> bool:
        """Whether columns tell all results of a row."""
        return [result.metric for result in row.metrics] == self._names

    def line(self, row: CaseResult, case: Mapping[str, Any] | None, start: int) -> Line:
        """A row with the line of its case (None: without words); its own begins at `start`."""
        trace = None if row.trace is None else _JSON.encode(row.trace)
        line: list[Any] = [row.index, row.case, row.hash, trace, start]
        line.append("" if case is None else "\n".join(dict.fromkeys(_words(row, case))))
        results = row.by_metric()
        for name in self._names:
            result = results.get(name)
            if result is None:
                line += [None] * len(_METRIC)
            else:
                reason = result.reason if result.failure is None else result.failure.message
                used = usage_of(result, self._costs)
                line += [course_of(result), result.score, reason, *used]
        return tuple(line)

    def add(self, line: Line) -> None:
        """Add a row."""
        self._lines.append(line)
        self._size += len(line[_WORDS])

    def take(self) -> Block:
        """The block of what was added since the last one."""
        lines, self._lines, self._size = self._lines, [], 0
        columns = zip(*lines, strict=True) if lines else itertools.repeat(())
        return dict(zip(self.kinds, map(list, columns), strict=False))


def course_of(result: MetricResult) -> str:
    """Outline of a result without texts and tokens, as JSON; see `outline_of`."""
    failure = result.failure
    return _JSON.encode(
        {
            "score": result.score,
            "success": result.success,
            "threshold": result.threshold,
            "raw_score": result.raw_score,
            "failure": failure and {"kind": str(failure.kind), "node": failure.node, "message": ""},
            "path": result.path,
            "ended": result.ended,
            "points": result.points and result.points.model_dump(),
            "steps": list(map(_outline, result.steps)),
        }
    )


def _outline(step: Step) -> dict[str, Any]:
    line: dict[str, Any] = {"node": step.node, "kind": step.kind, "outcome": str(step.outcome)}
    if step.verdict is not None:
        line["verdict"] = step.verdict
    elif (decided := _decisions(step.output)) is not None:
        line["output"] = decided
    if step.score is not None:
        line["score"] = step.score
    if step.votes:
        line["votes"] = step.votes
    return line


def _decisions(output: Any) -> Any:
    """Of the output of a step the verdicts on the items of a list, and the ballots of an arena."""
    if isinstance(output, list):
        decided = [_entries(item, "verdict") for item in output]
        return decided if any(decided) else None
    if isinstance(output, dict) and isinstance(output.get("ballots"), list):
        ballots = [_entries(ballot, "reason", "order", "winner") for ballot in output["ballots"]]
        for ballot in filter(None, ballots):
            ballot["reason"] = ""
        return {"winner": output.get("winner"), "ballots": ballots}
    return None


def _entries(item: Any, key: str, *more: str) -> dict[str, Any] | None:
    """Some entries of a mapping; None of what has not the first one."""
    if not isinstance(item, Mapping) or key not in item:
        return None
    return {name: item[name] for name in (key, *more) if name in item}


def outline_of(metric: str, course: str) -> MetricResult:
    """A result without texts and tokens, from its course."""
    values = {"metric": metric, "reason": None, **shallow_value(course)}
    outline: MetricResult = adapter_of(MetricResult).validate_python(values)
    return outline


def _words(row: CaseResult, case: Mapping[str, Any]) -> Iterator[str]:
    """Texts that are searched: the name, the texts of the case, and the reasons, each once."""
    yield row.case
    yield from texts_in([value for name, value in case.items() if name not in _UNSEARCHED])
    for result in row.metrics:
        yield result.reason or ""
        if result.failure is not None:
            yield result.failure.message
        # The reason of a path has a line for each step, which ends with the step's own reason.
        path = f"{result.reason}\n"
        for step in result.steps:
            for text in (step.reason or "", *texts_in(step.output)):
                if f": {text}\n" not in path:
                    yield text


def texts_in(value: Any) -> Iterator[str]:
    """Every text in plain data."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list | tuple):
        for part in value.values() if isinstance(value, Mapping) else value:
            yield from texts_in(part)


class ColumnsWriter:
    """Writes the columns of a run block by block; the file has its name when it is whole."""

    def __init__(self, folder: Path, manifest: Manifest, *, wanted: bool = True) -> None:
        self.path, self._new = columns_in(folder)
        self._manifest = manifest
        self._builder = BlockBuilder(manifest)
        self._file: ParquetWriter | None = None
        # Without pyarrow, and after a row that columns cannot tell, there is no file.
        self._wanted = wanted and has_arrow()

    def add(self, row: CaseResult, case: Mapping[str, Any], start: int) -> None:
        """Take a row as it was written; raises OSError."""
        if self._wanted and self._builder.holds(row):
            self.add_line(self._builder.line(row, case, start))
        elif self._wanted:
            self.give_up()

    def add_line(self, line: Line) -> None:
        """Take a row that is in columns already; raises OSError."""
        if self._wanted:
            self._builder.add(line)
            if self._builder.full:
                self._write()

    def _write(self) -> None:
        if self._file is None:
            # Under another name until it is whole: a kill leaves a file that nobody reads. A link
            # of that name, which another user could have put there, is not followed.
            kinds = self._builder.kinds.items()
            self._file = ParquetWriter(self._new, kinds, compression="zstd", compression_level=1)
        try:
            self._file.write_columns(self._builder.take())
        except (UnicodeEncodeError, OverflowError):  # a lone surrogate
            self.give_up()

    def give_up(self) -> None:
        """Leave no file; raises OSError."""
        self._wanted = False
        if self._file is not None:
            self._file.close()
            self._file = None
            self._new.unlink()

    def close(self, files: Sequence[Path]) -> bool:
        """Finish the file, which tells of these; false without one. Raises OSError."""
        if self._wanted and len(self._builder):
            self._write()
        if not self._wanted or self._file is None:
            self.give_up()
            return False
        # Sizes and times are compared first, since that is quick. Hashes are for a folder that was
        # copied: its bytes are the same, its times are not.
        mark = {**_mark(files, self._manifest), "sha256": list(map(file_sha256, files))}
        self._file.close(**{_MARK.decode(): json.dumps(mark)})
        self._new.replace(self.path)
        self._file = None
        return True


def columns_in(folder: Path) -> tuple[Path, Path]:
    """The file of columns in a folder, and what it is called while a run makes it."""
    return folder / COLUMNS, folder / f"{COLUMNS}.new"


def has_arrow() -> bool:
    """Whether columns can be written and read here."""
    try:
        import_module("pyarrow.parquet")
    except ModuleNotFoundError:
        return False
    return True


def _mark(files: Sequence[Path], manifest: Manifest) -> dict[str, Any]:
    """Sources of the columns: files by size and time, and the record's metrics and prices."""
    stats = (path.lstat() if is_there(path) else None for path in files)
    return {
        "format": _FORMAT,
        "record": digest([manifest.metric_names, StepCosts(manifest).prices()]),
        "files": [stat and [stat.st_size, stat.st_mtime_ns] for stat in stats],
    }


class Columns:
    """The columns of a run that is over, read block by block."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def __len__(self) -> int:
        return int(self._file.metadata.num_rows)

    def close(self) -> None:
        """Close the file, and give back what reading it took."""
        self._file.close(force=True)
        # Arrow keeps memory that was freed for its next file.
        import_module("pyarrow").default_memory_pool().release_unused()

    def blocks(self, names: Sequence[str] | None = None) -> Iterator[Block]:
        """Some columns, or all, of all cases in the order of the data."""
        for number in range(self._file.num_row_groups):
            group = self._file.read_row_group(number, columns=names, use_threads=False)
            yield dict(zip(group.column_names, map(_cells, group.columns), strict=True))

    def lines(self) -> Iterator[Line]:
        """All cases."""
        for block in self.blocks():
            yield from zip(*block.values(), strict=True)

    def starts(self) -> array[int]:
        """Offsets of the lines of the results."""
        blocks = self.blocks(["start"])
        return array("q", itertools.chain.from_iterable(map(itemgetter("start"), blocks)))


def _cells(column: Any) -> list[Any]:
    """The cells of a column; equal texts of a dictionary are one object."""
    parts = list[Any]()
    for chunk in column.chunks:
        if hasattr(chunk, "dictionary"):
            words = dict(enumerate(chunk.dictionary.to_pylist()))
            parts += map(words.get, chunk.indices.to_pylist())
        else:
            parts += chunk.to_pylist()
    return parts


def read_columns(folder: Path, files: Sequence[Path], manifest: Manifest) -> Columns | None:
    """The columns that were made of these files; None if there are none, or without pyarrow."""
    path, metrics = folder / COLUMNS, range(len(manifest.metrics))
    # A run without an end may still write. Early rows wait beside its lines until their turn
    # comes, and columns do not have them.
    if not manifest.finished or not is_there(path) or is_there(beside(files[0])) or not has_arrow():
        return None
    # A stranger's file can be anything: then there are no columns, and the lines are read.
    failures = (import_module("pyarrow").ArrowException, OSError, ValueError, RecursionError)
    require_regular(path)
    with suppress(*failures):
        # Opened here: what looks like an address (`llama3.1:8b/…`) is a path.
        source = import_module("pyarrow").OSFile(str(path))
        file = import_module("pyarrow.parquet").ParquetFile(
            source, read_dictionary=["trace", *(f"course.{n}" for n in metrics)]
        )
        mark = json.loads((file.metadata.metadata or {}).get(_MARK, b"null"))
        if isinstance(mark, dict) and _fits(mark, files, manifest):
            return Columns(file)
        file.close(force=True)
    return None


def _fits(mark: dict[str, Any], files: Sequence[Path], manifest: Manifest) -> bool:
    """Whether columns with this mark are of these files: untouched, or copied byte for byte."""
    hashes, now = mark.pop("sha256", None), _mark(files, manifest)
    if mark == now:
        return True
    # Other times alone: compare the sizes, and only if they agree read the files for their hashes.
    for of in (mark, now):
        of["files"] = [stat and stat[0] for stat in of["files"]]
    return mark == now and hashes == list(map(file_sha256, files))
