"""Old questions that are asked again: if the answers have changed, the judge has.

An old case is one that the record has. Each is asked again at most once, the oldest first: so the
changes are independent of each other, and their mean is 0 as long as the judge is as it was.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

from dagengine.data.json_lines import value_of
from dagengine.data.result_rows import row_of
from dagengine.record.writer import CASES, ROWS
from dagengine.regular_files import is_there, open_to_read
from dagengine.results import CaseResult
from dagengine.test_case import LLMTestCase
from dagengine.watch.values import Judged, Pair


class OldCases:
    """The cases of a record that were not asked again yet, from the beginning of its files."""

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
            judged = Judged.of(row)
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


def pairs_of(old: CaseResult, new: CaseResult, asked: int) -> list[Pair]:
    """The changes of the scores of one case, for every metric that gave one both times."""
    judged = Judged.of(old)
    assert judged is not None
    later = {result.metric: result.score for result in new.metrics}
    return [
        Pair(old.index, asked, metric, round(score - before, 12), 1 / judged.probability)
        for metric, before in judged.scores.items()
        if (score := later.get(metric)) is not None
    ]
