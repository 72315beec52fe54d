"""Which scores of a run are written where: a file in the folder of the run.

A line for every request, before (only where a second write would do harm) and after it. What is
not in the file as sent is sent the next time. So nothing is lost when a server or this process
dies.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from dagengine.data.json_lines import line_of, value_of
from dagengine.regular_files import is_there, open_to_read, open_to_write
from dagengine.traces.scores import Score

SENT = "sent.jsonl"
_BEGUN, _DONE, _FAILED, _PARTLY = "begun", "sent", "failed", "partly"


class Journal:
    """What was sent to one place, named `to`; use it as a context manager."""

    def __init__(self, folder: Path, to: str) -> None:
        self._path, self._to = folder / SENT, to
        self._sent: set[str] = set()
        self._begun: set[str] = set()
        self._partly: set[str] = set()
        self.rejected = 0  # of those that were taken in part
        self._broken = False
        if not is_there(self._path):
            return
        line = b"\n"
        with open_to_read(self._path) as file:
            for line in file:
                try:
                    entry = value_of(line)
                except ValueError:
                    continue  # half a line, where a process was killed
                if isinstance(entry, dict) and entry.get("to") == self._to:
                    self._take(entry)
        self._broken = not line.endswith(b"\n")

    def _take(self, entry: dict[str, Any]) -> None:
        keys = entry.get("keys") or ()
        if entry.get("state") == _BEGUN:
            self._begun.update(keys)
        else:
            self._begun.difference_update(keys)
        if entry.get("state") == _DONE:
            self._sent.update(keys)
        elif entry.get("state") == _PARTLY:
            self._partly.update(keys)
            self.rejected += int(entry.get("rejected") or 0)

    def __enter__(self) -> Self:
        self._file = open_to_write(self._path, emptied=False)
        if self._broken:
            self._file.write(b"\n")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self._file.close()

    def was_sent(self, score: Score) -> bool:
        """Whether it was written there, in this form."""
        return score.key in self._sent

    def was_partly_sent(self, score: Score) -> bool:
        """Return whether it was in a request of which a part was rejected; which is not known."""
        return score.key in self._partly

    def is_uncertain(self, score: Score) -> bool:
        """Whether a request with it began whose end nobody saw."""
        return score.key in self._begun

    def begin(self, scores: Iterable[Score]) -> None:
        """Note that a request begins that must not be made twice."""
        self._note(_BEGUN, scores, safely=True)

    def done(self, scores: Sequence[Score]) -> None:
        """Note what was written."""
        self._note(_DONE, scores)

    def note_failure(self, scores: Iterable[Score]) -> None:
        """Note that a request that began was refused: nothing of it is there."""
        self._note(_FAILED, scores)

    def partly(self, scores: Iterable[Score], rejected: int) -> None:
        """Note a request of which so many scores were rejected."""
        self._note(_PARTLY, scores, rejected=rejected)

    def _note(
        self, state: str, scores: Iterable[Score], *, safely: bool = False, **more: int
    ) -> None:
        keys = [score.key for score in scores]
        if keys:
            entry = {"to": self._to, "state": state, "keys": keys, **more}
            self._file.write(line_of(entry))
            self._file.flush()
            self._take(entry)
            if safely:
                # A request that must not be made twice begins when its note is on the disk.
                os.fsync(self._file.fileno())
