"""Batches in progress, written down: a run after a kill takes them up and pays nothing twice.

It is a file of JSON lines. One line is for a batch that is about to be sent, with the names of its
questions. One is for its id, once the provider has given it. One is for its end, once a run has
ended with the answers.
"""

from __future__ import annotations

import atexit
import json
import os
import time
import uuid
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dagengine.prompts.json_values import shallow_value
from dagengine.system.file_locks import one_writer
from dagengine.system.regular_files import is_there, open_to_write, read_whole

# The journals of this process, by their paths: its judges may share one.
_locks: dict[str, ExitStack] = {}
# Seconds after which providers have thrown results away: 29 days.
_KEPT = 29 * 24 * 3600


@dataclass(slots=True)
class Begun:
    """A batch that was begun: at what time, with which questions; its id where it is known."""

    token: str
    at: float
    questions: Sequence[str]
    id: str | None = None


class BatchJournal:
    """The batches of one judge in a file that others may use, too; in none if it is None.

    From the first look on the file belongs to this process until it ends: another one would take
    up the batches that this one waits for.
    """

    def __init__(self, path: str | os.PathLike[str] | None, judge: str) -> None:
        self._path = None if path is None else Path(path)
        self._judge = judge

    def under_way(self) -> list[Begun]:
        """Batches that earlier runs of this judge began and did not finish.

        Raises InputError while another process uses the journal.
        """
        if self._path is not None and (path := os.path.abspath(self._path)) not in _locks:
            # Until the process ends, and not only this judge: others of it may share the file.
            lock = ExitStack()
            lock.enter_context(one_writer(self._path))
            _locks[path] = lock
            atexit.register(lock.close)
        batches: dict[str, Begun] = {}
        for line in self._lines():
            token = line.get("batch", "")
            if "questions" in line:
                if line.get("judge") == self._judge and line["at"] > time.time() - _KEPT:
                    batches[token] = Begun(token, line["at"], line["questions"])
            elif "id" in line:
                if token in batches:
                    batches[token].id = line["id"]
            else:
                batches.pop(token, None)
        return list(batches.values())

    def begin(self, questions: Sequence[str]) -> Begun:
        """Note a batch before it is sent."""
        batch = Begun(uuid.uuid4().hex, time.time(), questions)
        self._add({"batch": batch.token, "judge": self._judge, "at": batch.at,
                   "questions": questions})  # fmt: skip
        return batch

    def note_id(self, begun: Begun, name: str) -> None:
        """Note the id that the provider gave a batch."""
        begun.id = name
        self._add({"batch": begun.token, "id": name})

    def end(self, batches: Sequence[Begun]) -> None:
        """Forget batches whose answers are kept; without any left the file goes."""
        if self._path is None or not batches:
            return
        self._add(*({"batch": batch.token} for batch in batches))
        lines = self._lines()
        finished = {line["batch"] for line in lines if "questions" not in line and "id" not in line}
        if all(line.get("batch") in finished for line in lines):
            with suppress(OSError):
                self._path.unlink()

    def _lines(self) -> list[dict[str, Any]]:
        """All lines that can be read: the last one may have been cut off by the kill."""
        lines: list[dict[str, Any]] = []
        if self._path is not None and is_there(self._path):
            for line in read_whole(self._path).splitlines():
                with suppress(ValueError):
                    row = shallow_value(line)
                    if isinstance(row, dict):
                        lines.append(row)
        return lines

    def _add(self, *lines: dict[str, Any]) -> None:
        """Return when the lines are on the disk; raises OSError."""
        if self._path is None:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        data = "".join(f"{json.dumps(line)}\n" for line in lines).encode()
        with open_to_write(self._path, emptied=False) as file:
            if file.seek(0, os.SEEK_END):
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":
                    data = b"\n" + data
            file.write(data)
            os.fsync(file.fileno())
