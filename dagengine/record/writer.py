"""A run folder as it is written: row by row, and readable at whatever moment the run ends."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any

from pydantic_core import PydanticSerializationError

from dagengine.data.result_files import RowWriter
from dagengine.data.written_lines import LinesInOrder, beside
from dagengine.errors import InputError
from dagengine.record.case_costs import times_of
from dagengine.record.hidden_fields import Hiding
from dagengine.record.parquet_columns import COLUMNS, ColumnsWriter, columns_in
from dagengine.record.run_fail_if import Costs, Figures
from dagengine.record.run_json import spending_of_judges
from dagengine.record.run_json_types import CountsRecord, DataRecord, Exit, Manifest, TotalsRecord
from dagengine.redaction import clip_text, public_text
from dagengine.results import CaseResult, Spent, Totals
from dagengine.results.metric_results import FORMAT
from dagengine.results.summary import Summing
from dagengine.system.file_locks import one_writer
from dagengine.system.safe_files import is_there, remove, write_whole

MANIFEST, ROWS, CASES, TIMES = "run.json", "results.jsonl", "cases.jsonl", "times.jsonl"
SUMMARY = "summary.json"
# Files that are made of all rows: those of an earlier run would say what is not so any more.
_MADE_OF_ROWS = (SUMMARY, "report.html")
_MakeLine = Callable[[], dict[str, Any]]


class RunWriter:
    """Writes the folder of one run; use it as a context manager.

    In an empty folder `run.json` stands from the beginning. What an earlier run left is kept
    until there is a first row; labels are always kept. On the way out `run.json` is replaced as
    a whole, with how the run ended. Inside the block it is the only writer of the folder.
    """

    def __init__(
        self,
        folder: str | Path,
        manifest: Manifest,
        spent: Callable[[], tuple[Totals, Sequence[Spent]]],
        results: Path | None = None,
        *,
        held: bool = False,
        emptied: bool = True,
    ) -> None:
        """Take a folder for a run, and write nothing yet.

        `spent` is asked in the end for what the run asked and used. `results` is another file for
        the rows. With `held` the caller is the only writer already (`sole_writer`). Without
        `emptied` the rows in the folder stay (`GrowingRun`). Raises InputError for a results file
        of an unknown kind, for a field to hide (the manifest's `redacted`) that no case has, and
        if files would be lost that no run has written.
        """
        self.folder = Path(folder)
        require_own(self.folder)
        # Seen from the folder, so that it can be moved; a file elsewhere by its full path.
        inside = ROWS if results is None else os.path.relpath(results, self.folder)
        if results is not None and inside.startswith(".."):
            inside = os.path.abspath(results)
        self.manifest = manifest.model_copy(update={"results": inside})
        self.rows = RowWriter(results or self.folder / ROWS, emptied=emptied)
        self._spent = spent
        self._hiding = Hiding(self.manifest.redacted)
        self._cases = LinesInOrder(self.folder / CASES, emptied=emptied)
        self._times = LinesInOrder(self.folder / TIMES, emptied=emptied)
        # A run that continues an earlier one, and rows that are not lines, have no columns.
        lines = emptied and self.rows.path.suffix == ".jsonl"
        self._columns = ColumnsWriter(self.folder, self.manifest, wanted=lines)
        self._last = -1  # the index of the last row in the file
        self._summing = Summing()
        self._costs = Costs(self.manifest)
        self._begun = False
        self._locks = ExitStack()
        self._held, self._elsewhere = held, results is not None

    def __enter__(self) -> RunWriter:
        with ExitStack() as locks:
            if not self._held:
                locks.enter_context(sole_writer(self.folder))
            # A file outside of the folder is not under the folder's lock, and needs its own.
            if self._elsewhere:
                self.rows.hold()
                locks.callback(self.rows.close)
            if not (self.folder / MANIFEST).exists() and not self.rows.path.exists():
                self._begin()
            self._locks = locks.pop_all()
        return self

    def add(self, row: CaseResult) -> CaseResult:
        """Write one row and its case; returns the row as it was written.

        Raises InputError naming the file that cannot be written.
        """
        # The row is last: a kill in between leaves a case without its row, which readers pass over.
        shown, case = self._put_case_and_times(row, LinesInOrder.write)
        start = self.rows.size
        self.rows.add(shown)
        with self.rows.explain_errors(self._columns.path):
            self._columns.add(shown, case if self.manifest.texts else {}, start)
        self._summing.add(shown)
        self._costs.add(row)
        self._last = row.index
        return shown

    def keep(self, row: CaseResult) -> None:
        """Let a finished row wait for earlier ones; raises InputError as `add` does."""
        if row.index <= self._last:
            return  # its line is in the file already
        shown, _ = self._put_case_and_times(row, LinesInOrder.keep)
        self.rows.keep(shown)

    def figures(self) -> Figures:
        """Figures of the run so far."""
        return Figures(self._summing.result(), self._spent()[0], self._costs)

    def _put_case_and_times(
        self, row: CaseResult, put: Callable[[LinesInOrder, int, _MakeLine], None]
    ) -> tuple[CaseResult, dict[str, Any]]:
        """Write or keep (`put`) a case and its times; returns row and case without hidden fields.

        A line is made only if `put` needs it: the line of a case that was kept is made already.
        """
        if not self._begun:
            self._begin()
        shown, case = self._hiding.hide(row)
        makers: list[tuple[LinesInOrder, _MakeLine]] = []
        if self.manifest.texts:
            makers.append((self._cases, lambda: case))
        makers.append((self._times, lambda: {"index": row.index, **times_of(shown)}))
        for lines, make_line in makers:
            with self.rows.explain_errors(lines.path):
                put(lines, row.index, make_line)
        return shown, case

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        with self._locks:
            if not self._begun:
                if kind is not None:
                    return  # no row came, and what an earlier run left is as it was
                self._begin()
            try:
                # Columns are after the lines: they are marked with their final sizes and hashes.
                # The record is last: if it says that the run has ended, all else is whole.
                self.rows.close()
                for lines in (self._cases, self._times):
                    with self.rows.explain_errors(lines.path):
                        lines.close()
                with self.rows.explain_errors(self._columns.path):
                    self._columns.close(files_of(self.folder, self.manifest))
                self._end(error)
            except InputError:
                if error is None:
                    raise  # otherwise the first error says more

    def _begin(self) -> None:
        """Make the folder this run's own: remove what an earlier run left, and write the record."""
        self._begun = True
        with self.rows.explain_errors(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            made = map(self.folder.joinpath, _MADE_OF_ROWS)
            files = (self.folder / CASES, self.folder / TIMES)
            # Also half of a file of columns, which a killed run leaves under its other name.
            for path in (*made, *files, *map(beside, files), *columns_in(self.folder)):
                remove(path)
        # From here on a kill leaves a record without an end: the run counts as unfinished.
        self._replace(self.manifest.model_copy(update={"ended": None}))

    def _end(self, error: BaseException | None) -> None:
        """Write the summary, then the record, which says how the run ended."""
        totals, spent = self._spent()
        judges, usage = spending_of_judges(spent, self.manifest.judges)
        summary = self._summing.result()
        counts = CountsRecord.model_validate(summary, from_attributes=True)
        exit_: Exit = "failed" if counts.failed else "no_score" if counts.no_score else "ok"
        message = None
        if isinstance(error, Exception):
            exit_, message = "error", clip_text(public_text(str(error)))
        elif error is not None:
            exit_ = "interrupted"
        ended = {
            "ended": self.manifest.ended or datetime.now(UTC),
            "exit": exit_,
            "error": message,
            "judges": judges,
            "totals": TotalsRecord.model_validate(asdict(totals) | asdict(totals.usage)),
            "counts": counts,
            "usage": usage,
        }
        self.manifest = self.manifest.model_copy(update=ended)
        path = self.folder / SUMMARY
        with self.rows.explain_errors(path):
            fields = {"identity", "model", "standing"}
            facts = [judge.model_dump(mode="json", include=fields) for judge in judges]
            figures = {"format": FORMAT, "exit": exit_, "judges": facts, **summary.as_dict()}
            write_whole(path, json.dumps(figures, ensure_ascii=False, indent=1) + "\n")
        self._replace(self.manifest)

    def _replace(self, manifest: Manifest) -> None:
        path = self.folder / MANIFEST
        with self.rows.explain_errors(path):
            try:
                text = manifest.model_dump_json(by_alias=True, indent=1)
            except PydanticSerializationError as error:
                hint = "remove half characters from the names and settings of the run"
                raise InputError(f"{path} cannot hold this run: {error}; {hint}") from None
            write_whole(path, text + "\n")


def files_of(folder: Path, manifest: Manifest) -> tuple[Path, ...]:
    """The files of lines that the columns of a run were made of."""
    return folder / manifest.results, folder / CASES, folder / TIMES


def require_own(folder: Path) -> None:
    """Raise InputError for a folder of no run if it has files that a run would remove."""
    names = [name for name in (CASES, TIMES, *_MADE_OF_ROWS) if is_there(folder / name)]
    if names and not is_there(folder / MANIFEST):
        raise InputError(
            f"{folder} is no folder of a run (it has no {MANIFEST}), and its {names[0]} would be "
            "lost: a run writes one there; choose another folder, or move the file away"
        )


@contextmanager
def sole_writer(folder: str | Path) -> Iterator[None]:
    """Be the only writer of a run folder; raises InputError if there is another."""
    with ExitStack() as lock:
        try:
            lock.enter_context(one_writer(Path(folder), folder=True))
        except OSError as error:
            raise InputError(f"cannot write {folder}: {error.strerror or error}") from error
        yield


def require_apart(data: DataRecord, folder: str | Path) -> None:
    """Raise InputError when the cases are read from a file that the run is about to write."""
    for name in (ROWS, CASES, TIMES, COLUMNS, MANIFEST):
        # Links are followed: through a link to the data, the data itself would be emptied.
        if data.file and os.path.realpath(data.file) == os.path.realpath(Path(folder) / name):
            raise InputError(
                f"{data.file} would be overwritten by the {name} of the run; choose another folder"
            )
