"""The folder of a run that has no last case: the next process continues it, also after a kill.

It also has what was spent today, and old cases that are asked again to see if the judge changed.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from dagengine.data.result_files import read_rows, row_of
from dagengine.data.written_lines import index_of, lines_in, read_models, value_of
from dagengine.errors import InputError
from dagengine.gateway.budget import Account
from dagengine.prompts.json_in_text import shallow_value
from dagengine.record.case_costs import index_in
from dagengine.record.hidden_fields import fields_in
from dagengine.record.reader import load_run
from dagengine.record.run_json_types import Manifest
from dagengine.record.shard_merging import spent_together
from dagengine.record.writer import CASES, MANIFEST, ROWS, TIMES, RunWriter
from dagengine.results import CaseResult, Spent, Totals
from dagengine.system.safe_files import is_there, open_to_read, read_whole, write_whole
from dagengine.test_case import LLMTestCase
from dagengine.traces.formats import DAMAGES
from dagengine.watch.alarm_causes import ScoreChange
from dagengine.watch.trace_sampling import JudgedTrace

T = TypeVar("T")
SPENT = "spent.json"
_REMEDY = "restore it, or choose another folder for --out"


class GrowingRun(RunWriter):
    """Writes rows in the order in which they are finished, after those that are there.

    The caller is the sole writer of the folder. The record also counts what processes before have
    spent; what a killed process spent since its start is not known.
    """

    def __init__(
        self,
        folder: str | Path,
        manifest: Manifest,
        spent: Callable[[], tuple[Totals, Sequence[Spent]]],
    ) -> None:
        """`spent` tells what this process spent. Raises InputError for a folder of another run."""
        super().__init__(folder, manifest, spent, held=True, emptied=False)
        self._earlier: Manifest | None = None
        if is_there(self.folder / MANIFEST):
            earlier = load_run(self.folder).manifest
            # Rows of one folder are compared with each other, so they have to be alike.
            facts: dict[str, Callable[[Manifest], object]] = {
                "another kind of run": lambda run: "watch" in run.settings,
                "other metrics": lambda run: [metric.hash for metric in run.metrics],
                # When a run ends, it adds those that code of nodes asked: they are left out here.
                "another judge": lambda run: [
                    judge.identity for judge in run.judges[: len(manifest.judges)]
                ],
                "other settings of --texts or --redact": lambda run: (run.texts, run.redacted),
            }
            for what, fact in facts.items():
                if fact(earlier) != fact(manifest):
                    raise InputError(f"{self.folder} has {what}: choose another folder for --out")
            self._earlier = earlier
            self.manifest = self.manifest.model_copy(update={"started": earlier.started})

    def take_up(self, take: Callable[[CaseResult], None]) -> None:
        """Hand the rows of earlier processes to `take`, in order; call it before the first `add`.

        Parts of a row that a kill left are removed.
        """
        self._begun = True  # else the first row would empty the folder
        self.folder.mkdir(parents=True, exist_ok=True)
        count = mend_lines(self.folder / ROWS, lambda line, number: index_of(line) == number)
        for name in (CASES, TIMES):  # written before the row, so there may be one more
            mend_lines(self.folder / name, lambda line, number: index_in(line) == number, count)
        if count:
            for row in read_rows(self.folder / ROWS):
                self._summing.add(row)
                self._costs.add(row)
                self._last = row.index
                take(row)
        # Until this process ends, the record has only what earlier ones spent.
        spent = {} if self._earlier is None else spent_together([self._earlier])
        self._replace(self.manifest.model_copy(update={"ended": None, **spent}))

    @property
    def count(self) -> int:
        """Number of rows."""
        return self._last + 1

    def _end(self, error: BaseException | None) -> None:
        super()._end(error)
        # The record of this process now says what it spent; those before are added.
        if self._earlier is not None and self._earlier.totals is not None:
            spent = spent_together([self._earlier, self.manifest])
            self.manifest = self.manifest.model_copy(update=spent)
            self._replace(self.manifest)


def today_in_utc() -> str:
    """The date as YYYY-MM-DD."""
    return datetime.now(UTC).date().isoformat()


class DailyAccount(Account):
    """Calls and US dollars of the day (UTC); each day begins with none.

    They are saved in `spent.json` of the run folder after every row. So calls in progress at a kill
    are not counted.
    """

    def __init__(self, folder: Path, today: Callable[[], str] = today_in_utc) -> None:
        """Raises InputError for a file that is damaged."""
        super().__init__()
        self._path, self._today = folder / SPENT, today
        self._day = today()
        if is_there(self._path):
            try:
                spent = shallow_value(read_whole(self._path))
                if spent["day"] == self._day:
                    self.calls, self.spent = int(spent["calls"]), float(spent["dollars"])
                if self.calls < 0 or not 0 <= self.spent < math.inf:
                    raise ValueError(spent)
            except DAMAGES as error:
                raise InputError(f"{self._path} does not say what was spent: {error!r}") from None

    def __enter__(self) -> Account:
        # Sums are only read or changed within `with account:`, so the next day begins here.
        day = self._today()
        if day != self._day:
            self._day, self.calls, self.spent = day, 0, 0.0
        return self

    def save(self) -> None:
        """Write what was spent."""
        with self:
            spent = {"day": self._day, "calls": self.calls, "dollars": round(self.spent, 9)}
            write_whole(self._path, json.dumps(spent) + "\n")


class OldCases:
    """The cases of a record that were not asked again yet, read from the beginning of its files.

    If the answers to old questions changed, the judge did. Each case is asked again at most once,
    the oldest first. So changes are independent of each other, and their mean is 0 as long as the
    judge is as it was.
    """

    def __init__(self, folder: Path) -> None:
        self._paths = folder / ROWS, folder / CASES
        self._offsets = [0, 0]  # bytes of each file that were read
        self._next_row = 0

    def skip_to(self, row: int) -> None:
        """Leave out the rows before this one."""
        while self._next_row < row and self._read_lines() is not None:
            pass

    def take(self, most: int, before: float = math.inf) -> Iterator[tuple[CaseResult, LLMTestCase]]:
        """At most `most` next cases with a score, and their rows; only rows before `before`."""
        count = 0
        while count < most and self._next_row < before and (lines := self._read_lines()):
            source = f"{self._paths[0]} row {self._next_row - 1}"  # the row that was just read
            row = row_of(value_of(lines[0]), source)
            case = value_of(lines[1])
            judged = JudgedTrace.of(row)
            if case.get("type") == LLMTestCase.__name__ and judged is not None and judged.scores:
                count += 1
                yield row, LLMTestCase(**fields_in(case))

    def _read_lines(self) -> list[bytes] | None:
        """Read the lines of the next row and of its case; None if either is not yet complete."""
        lines: list[tuple[int, int, bytes]] = []
        for path, offset in zip(self._paths, self._offsets, strict=True):
            if not is_there(path):
                return None
            with open_to_read(path) as file:
                file.seek(offset)
                line = next(lines_in(file, whole=False, start=offset), None)
            if line is None:
                return None
            lines.append(line)
        self._offsets = [start + len(line) for _, start, line in lines]
        self._next_row += 1
        return [line for _, _, line in lines]


def score_changes(old: CaseResult, new: CaseResult, asked: int) -> list[ScoreChange]:
    """The change of each score that both rows have, weighed by the traces the case stands for."""
    judged = JudgedTrace.of(old)
    assert judged is not None  # `OldCases` takes only such rows
    scores = {result.metric: result.score for result in new.metrics}
    return [
        ScoreChange(old.index, asked, metric, round(score - before, 12), 1 / judged.probability)
        for metric, before in judged.scores.items()
        if (score := scores.get(metric)) is not None
    ]


def mend_lines(path: Path, fits: Callable[[bytes, int], bool], most: float = math.inf) -> int:
    """Cut a file to its first `most` whole lines; returns how many are left.

    Raises InputError for a whole line that does not fit its number (from 0). That is damage, since
    a kill only leaves a part of a line.
    """
    if not is_there(path):
        return 0
    count = end = 0
    with open_to_read(path) as file:
        for number, start, line in lines_in(file, whole=False):
            if count >= most:
                break
            if not fits(line, count):
                raise InputError(f"{path} line {number} is damaged; {_REMEDY}")
            count, end = count + 1, start + len(line)
    if end < path.stat().st_size:
        os.truncate(path, end)
    return count


def mend_and_read(path: Path, kind: type[T]) -> list[T]:
    """Remove the part of a line that a kill left, read the rest; raises InputError for damage."""
    mend_lines(path, lambda line, number: True)
    return list(read_models(path, kind, f"as it was written ({_REMEDY})", whole=True))
