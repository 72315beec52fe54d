"""A run that has no last case: its folder is continued by the next process, also after a kill."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError

from dagengine.data.early_rows import index_of
from dagengine.data.json_lines import complete_lines
from dagengine.data.result_rows import read_rows
from dagengine.errors import InputError
from dagengine.record.merging import spent_together
from dagengine.record.run import load_run
from dagengine.record.times import index_in
from dagengine.record.values import Manifest
from dagengine.record.writer import CASES, MANIFEST, ROWS, TIMES, RunWriter
from dagengine.regular_files import is_there, open_to_read
from dagengine.results import CaseResult, Spent, Totals

T = TypeVar("T")
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
        count = cut(self.folder / ROWS, lambda line, place: index_of(line) == place)
        for name in (CASES, TIMES):
            cut(self.folder / name, lambda line, place: index_in(line) == place, count)
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


def cut(path: Path, fits: Callable[[bytes, int], bool], most: float = math.inf) -> int:
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


def lines_of(path: Path, kind: type[T]) -> list[T]:
    """Read the whole lines of a file; raises InputError for a damaged one."""
    cut(path, lambda line, place: True)
    read, items = TypeAdapter(kind).validate_json, list[T]()
    for source, line in complete_lines(path, whole=True) if is_there(path) else ():
        try:
            items.append(read(line))
        except ValidationError as error:
            why = error.errors(include_url=False)[0]["msg"]
            raise InputError(f"{source} is damaged ({why}); {_INSTEAD}") from None
    return items
