"""A run that has no last case: its folder is continued by the next process, also after a kill.

Beside its record are what a day has spent, and lines of what was asked again.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError

from dagengine.data.json_lines import complete_lines, index_of, value_of
from dagengine.data.result_rows import read_rows, row_of
from dagengine.errors import InputError
from dagengine.gateway.budget import Account
from dagengine.prompts.json_values import shallow_value
from dagengine.record.costs import index_in
from dagengine.record.merging import spent_together
from dagengine.record.run import load_run
from dagengine.record.values import Manifest
from dagengine.record.writer import CASES, MANIFEST, ROWS, TIMES, RunWriter
from dagengine.results import CaseResult, Spent, Totals
from dagengine.system.regular_files import is_there, open_to_read, read_whole, write_whole
from dagengine.test_case import LLMTestCase
from dagengine.traces.records import DAMAGES
from dagengine.watch.causes import ScoreChange
from dagengine.watch.strata import JudgedTrace

T = TypeVar("T")
SPENT = "spent.json"
_INSTEAD = "restore it, or choose another folder for --out"


class GrowingRun(RunWriter):
    """Writes rows in the order in which they are finished, after those that are there.

    The caller is the sole writer of the folder. What the processes before have spent is added,
    as far as they ended by themselves.
    """

    def __init__(
        self,
        folder: str | Path,
        manifest: Manifest,
        spent: Callable[[], tuple[Totals, Sequence[Spent]]],
    ) -> None:
        """Raises InputError for a folder of another run."""
        super().__init__(folder, manifest, spent, held=True, emptied=False)
        self._earlier: Manifest | None = None
        if is_there(self.folder / MANIFEST):
            earlier = load_run(self.folder).manifest
            # Rows of one folder are compared with each other, so they have to be alike.
            facts: dict[str, Callable[[Manifest], object]] = {
                "another kind of run": lambda of: "watch" in of.settings,
                "other metrics": lambda of: [metric.hash for metric in of.metrics],
                # A run adds the judges that code of nodes has asked.
                "another judge": lambda of: [
                    judge.identity for judge in of.judges[: len(manifest.judges)]
                ],
                "other settings of --texts or --redact": lambda of: (of.texts, of.redacted),
            }
            for what, fact in facts.items():
                if fact(earlier) != fact(manifest):
                    raise InputError(f"{self.folder} has {what}: choose another folder for --out")
            self._earlier = earlier
            self.manifest = self.manifest.model_copy(update={"started": earlier.started})

    def take_up(self, take: Callable[[CaseResult], None]) -> None:
        """Hand over the rows that are there, in order; before the first `append`.

        What a kill left of a row that it did not finish is removed.
        """
        self._begun = True
        self.folder.mkdir(parents=True, exist_ok=True)
        count = shorten(self.folder / ROWS, lambda line, place: index_of(line) == place)
        for name in (CASES, TIMES):
            shorten(self.folder / name, lambda line, place: index_in(line) == place, count)
        if count:
            for row in read_rows(self.folder / ROWS):
                self._summing.add(row)
                self._costs.add(row)
                self._last = row.index
                take(row)
        spent = {} if self._earlier is None else spent_together([self._earlier])
        self._replace(self.manifest.model_copy(update={"ended": None, **spent}))

    @property
    def count(self) -> int:
        """Number of rows."""
        return self._last + 1

    def _end(self, error: BaseException | None) -> None:
        super()._end(error)
        if self._earlier is not None and self._earlier.totals is not None:
            spent = spent_together([self._earlier, self.manifest])
            self.manifest = self.manifest.model_copy(update=spent)
            self._replace(self.manifest)


def today_in_utc() -> str:
    """The date as YYYY-MM-DD."""
    return datetime.now(UTC).date().isoformat()


class DailyAccount(Account):
    """Calls and US dollars of the day, which begin anew with the next one (UTC).

    They are in `spent.json` of the run folder after every row. So calls in progress at a kill are
    not counted.
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
    """The cases of a record that were not asked again yet, from the beginning of its files.

    If the answers to old questions have changed, the judge has. Each is asked again at most once,
    the oldest first: so the changes are independent of each other, and their mean is 0 as long as
    the judge is as it was.
    """

    def __init__(self, folder: Path) -> None:
        self._rows, self._cases = folder / ROWS, folder / CASES
        self._places = [0, 0]
        self.next = 0

    def skip_to(self, row: int) -> None:
        """Leave out the rows before this one."""
        while self.next < row and self._lines() is not None:
            pass

    def take(self, most: int, before: float = math.inf) -> Iterator[tuple[CaseResult, LLMTestCase]]:
        """The next cases that have a score, with their rows, all of them before a row."""
        count = 0
        while count < most and self.next < before and (lines := self._lines()) is not None:
            line, source = lines[0], f"{self._rows} row {self.next - 1}"
            row = row_of(value_of(line), source)
            fields = value_of(lines[1])
            judged = JudgedTrace.of(row)
            if fields.get("type") == LLMTestCase.__name__ and judged is not None and judged.scores:
                count += 1
                own = {k: v for k, v in fields.items() if k not in ("index", "hash", "type")}
                yield row, LLMTestCase(**own)

    def _lines(self) -> tuple[bytes, bytes] | None:
        """The lines of the next row and of its case; None if there is none yet."""
        lines = [_line_at(self._rows, self._places[0]), _line_at(self._cases, self._places[1])]
        if not all(line.endswith(b"\n") for line in lines):
            return None
        for number, line in enumerate(lines):
            self._places[number] += len(line)
        self.next += 1
        return lines[0], lines[1]


def _line_at(path: Path, place: int) -> bytes:
    if not is_there(path):
        return b""
    with open_to_read(path) as file:
        file.seek(place)
        return file.readline()


def pairs_of(old: CaseResult, new: CaseResult, asked: int) -> list[ScoreChange]:
    """The changes of the scores of one case, for every metric that gave one both times."""
    judged = JudgedTrace.of(old)
    assert judged is not None
    later = {result.metric: result.score for result in new.metrics}
    return [
        ScoreChange(old.index, asked, metric, round(score - before, 12), 1 / judged.probability)
        for metric, before in judged.scores.items()
        if (score := later.get(metric)) is not None
    ]


def shorten(path: Path, fits: Callable[[bytes, int], bool], most: float = math.inf) -> int:
    """Shorten a file to its first `most` whole lines; how many there are.

    Raises InputError for a whole line that does not fit its place: only half a line is of a kill.
    """
    if not is_there(path):
        return 0
    count = end = 0
    with open_to_read(path) as file:
        for line in file:
            if not line.endswith(b"\n") or count >= most:
                break
            if not fits(line, count):
                raise InputError(f"{path} line {count + 1} is damaged; {_INSTEAD}")
            count, end = count + 1, end + len(line)
    if end < path.stat().st_size:
        os.truncate(path, end)
    return count


def read_lines(path: Path, kind: type[T]) -> list[T]:
    """Read the whole lines of a file; raises InputError for a damaged one."""
    shorten(path, lambda line, place: True)
    read, items = TypeAdapter(kind).validate_json, list[T]()
    for source, line in complete_lines(path, whole=True) if is_there(path) else ():
        try:
            items.append(read(line))
        except ValidationError as error:
            why = error.errors(include_url=False)[0]["msg"]
            raise InputError(f"{source} is damaged ({why}); {_INSTEAD}") from None
    return items
