"""Questions collected into batches, whoever answers them: sent, looked at, fetched, taken up again.

question ── Batches ──┬── the batch being collected ──┐
                      ├── full ones beside it ────────┼── BatchApi (one per provider)
                      └── those of a killed run ──────┘

Batches in progress are written down, so that a run after a kill takes them up and pays nothing
twice. The journal is a file of JSON lines. One line is for a batch that is about to be sent, with
the names of its questions. One is for its id, once the provider has given it. One is for its end,
once a run has ended with the answers.
"""

from __future__ import annotations

import atexit
import hashlib
import json
import os
import time
import uuid
from collections import Counter, defaultdict, deque
from collections.abc import Collection, Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from itertools import filterfalse
from operator import attrgetter
from pathlib import Path
from typing import Any, Protocol

import anyio

from dagengine.errors import InputError, JudgeError, ProviderError
from dagengine.prompts.json_in_text import shallow_value
from dagengine.system.file_locks import one_writer
from dagengine.system.safe_files import ends_whole, is_there, open_to_write, read_whole, write_all

# A name of a question: this much of a digest of its request, then which of several equal ones.
_NAME = 32
# The journals of this process, by their paths: its judges may share one.
_locks: dict[str, ExitStack] = {}
# Seconds after which providers have thrown results away: 29 days.
_KEPT = 29 * 24 * 3600


class BatchApi(Protocol):
    """The batches of one provider. All methods raise JudgeError or one of `failures`."""

    failures: tuple[type[Exception], ...]

    def line(self, name: str, body: str) -> bytes:
        """A request, given as JSON, as it is in a batch."""
        ...

    async def start(self, lines: Sequence[bytes], token: str) -> str:
        """Send a batch, marked with a token where that is possible; returns its id."""
        ...

    async def find(self, entry: Entry, others: Collection[str]) -> str | None:
        """The id of a batch that was begun by a process that died; None if it is not there.

        It is none of the `others`, which belong to batches that are known.
        """
        ...

    async def results(self, name: str) -> Iterable[str] | None:
        """The lines of the results, in any order; None as long as the batch is in progress.

        Raises ProviderError when it ended without any answers.
        """
        ...


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """How batches are made: questions and bytes of one, seconds to collect and between looks."""

    size: int
    file_bytes: int
    quiet: float
    poll: float

    def __post_init__(self) -> None:
        for name in ("size", "file_bytes"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1, got {getattr(self, name)}")


class Batches:
    """All batches of one judge on one event loop."""

    def __init__(self, api: BatchApi, limits: BatchLimits, journal: BatchJournal) -> None:
        self.api, self.limits, self.journal = api, limits, journal
        self._collecting: _Batch | None = None
        self._all: list[_Batch] = []
        self._earlier: dict[str, deque[tuple[_Batch, str]]] = defaultdict(deque)
        for entry in journal.in_progress():
            batch = _Batch(self, entry)
            self._all.append(batch)
            for name in entry.questions:
                # By the digest alone: equal questions take their answers one after the other.
                self._earlier[name[:_NAME]].append((batch, name))

    async def answer_to(self, body: str) -> dict[str, Any]:
        """The line of the results for a request; raises JudgeError, or what the client raises.

        An equal request of a killed run gives its answer.
        """
        digest = hashlib.sha256(body.encode(errors="surrogatepass")).hexdigest()[:_NAME]
        earlier = self._earlier[digest]
        if earlier:
            batch, name = earlier.popleft()
            return await batch.answer_to(name)
        collecting = self._collecting
        if collecting is None or not collecting.has_room(body):
            collecting = self._collecting = _Batch(self)
            self._all.append(collecting)
        return await collecting.answer_to(collecting.add(digest, body))

    def forget(self) -> None:
        """Take no batch up again that is settled: the run has kept its answers."""
        settled = filter(attrgetter("settled"), self._all)
        self.journal.end(list(filter(None, map(attrgetter("entry"), settled))))
        self._all = list(filterfalse(attrgetter("settled"), self._all))


class _Batch:
    """Requests sent together. One of those who wait does the work for all.

    When the one who works is cancelled the next one continues where it stopped.
    """

    def __init__(self, batches: Batches, entry: Entry | None = None) -> None:
        """`entry` is a batch of an earlier run."""
        self._api, self._limits, self._journal = batches.api, batches.limits, batches.journal
        self._failures: tuple[type[Exception], ...] = (JudgeError, *batches.api.failures)
        self.entry = entry
        self._is_earlier = entry is not None
        self._lines: list[bytes] = []
        self._names: list[str] = []
        self._equal = Counter[str]()
        self._bytes = 0
        self._full = anyio.Event()
        self._working = anyio.Lock(fast_acquire=True)
        self._found: dict[str, str] | None = None
        self._error: Exception | None = None

    @property
    def settled(self) -> bool:
        """Return whether its results were fetched, or are lost."""
        return self._found is not None or self._error is not None

    def has_room(self, body: str) -> bool:
        """Return whether a request fits; one that does not closes the batch, so that it leaves."""
        around = len(self._api.line("0" * (_NAME + 8), "")) + 2
        # A character of JSON text that is all ASCII is one byte.
        if self._lines and self._bytes + len(body) + around > self._limits.file_bytes:
            self._full.set()
        return not self._full.is_set()

    def add(self, digest: str, body: str) -> str:
        """Put a request, as JSON, in; returns its name in the batch."""
        name = f"{digest}-{self._equal[digest]}"
        self._equal[digest] += 1
        self._names.append(name)
        self._lines.append(self._api.line(name, body))
        self._bytes += len(self._lines[-1])
        if len(self._lines) >= self._limits.size:
            self._full.set()
        return name

    async def answer_to(self, name: str) -> dict[str, Any]:
        """The line of a request; raises JudgeError, or what the client raises."""
        async with self._working:
            if not self.settled:
                await self._work()
        if self._error is not None:
            raise self._error
        assert self._found is not None
        line = self._found.pop(name, None)  # nobody else asks for it
        if line is None:
            late = "the batch ended without an answer to this question"
            raise ProviderError(late, transient=True)
        answer: dict[str, Any] = json.loads(line)
        return answer

    async def _work(self) -> None:
        try:
            if not self._is_earlier:
                # Wait until the batch is full, or nothing more comes
                while not self._full.is_set():
                    count = len(self._lines)
                    with anyio.move_on_after(self._limits.quiet):
                        await self._full.wait()
                    if len(self._lines) == count:
                        self._full.set()
            name = await self._send()
            while (results := await self._api.results(name)) is None:
                await anyio.sleep(self._limits.poll)
            lines: dict[str, str] = {}
            for line in results:
                with suppress(ValueError, LookupError, TypeError):  # damaged: it is asked again
                    lines[json.loads(line)["custom_id"]] = line
            self._lines.clear()
            self._found = lines
        except self._failures as error:
            # Every question of the batch gets it; those of an earlier batch are asked again.
            self._error = error
            if self._is_earlier:
                message = f"a batch of an earlier run is lost: {error}"
                self._error = ProviderError(message, transient=True)

    async def _send(self) -> str:
        """The id of the batch, which is sent unless that was done."""
        # From here on it is paid for: a cancellation waits until its id is known.
        with anyio.CancelScope(shield=True):
            if self.entry is None:
                self.entry = self._journal.begin(self._names)
                name = await self._api.start(self._lines, self.entry.token)
                self._journal.note_id(self.entry, name)
            elif self.entry.id is None:
                ids = set(filter(None, map(attrgetter("id"), self._journal.in_progress())))
                name = await self._api.find(self.entry, ids) or ""
                if not name:
                    raise ProviderError("it did not reach the provider", transient=True)
                self._journal.note_id(self.entry, name)
        assert self.entry is not None
        assert self.entry.id is not None
        return self.entry.id


@dataclass(slots=True)
class Entry:
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

    def in_progress(self) -> list[Entry]:
        """Batches that earlier runs of this judge began and did not finish.

        Raises InputError while another process uses the journal.
        """
        if self._path is not None and (path := os.path.abspath(self._path)) not in _locks:
            # Until the process ends, and not only this judge: others of it may share the file.
            lock = ExitStack()
            lock.enter_context(one_writer(self._path))
            _locks[path] = lock
            atexit.register(lock.close)
        batches: dict[str, Entry] = {}
        for line in self._lines():
            token = line.get("batch", "")
            if "questions" in line:
                if line.get("judge") == self._judge and line["at"] > time.time() - _KEPT:
                    batches[token] = Entry(token, line["at"], line["questions"])
            elif "id" in line:
                if token in batches:
                    batches[token].id = line["id"]
            else:
                batches.pop(token, None)
        return list(batches.values())

    def begin(self, questions: Sequence[str]) -> Entry:
        """Note a batch before it is sent."""
        batch = Entry(uuid.uuid4().hex, time.time(), questions)
        self._add({"batch": batch.token, "judge": self._judge, "at": batch.at,
                   "questions": questions})  # fmt: skip
        return batch

    def note_id(self, entry: Entry, name: str) -> None:
        """Note the id that the provider gave a batch."""
        entry.id = name
        self._add({"batch": entry.token, "id": name})

    def end(self, batches: Sequence[Entry]) -> None:
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
            write_all(file, data if ends_whole(file) else b"\n" + data)
            os.fsync(file.fileno())
