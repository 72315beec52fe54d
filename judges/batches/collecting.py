"""Questions collected into batches, whoever answers them: sent, looked at, fetched, taken up again.

question ── Batches ──┬── the batch being collected ──┐
                      ├── full ones beside it ────────┼── BatchApi (one per provider)
                      └── those of a killed run ──────┘
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict, deque
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import filterfalse
from operator import attrgetter
from typing import Any, Protocol

import anyio

from dagengine.errors import InputError, JudgeError, ProviderError
from dagengine.judges.batches.batch_journal import BatchJournal, Begun

# A name of a question: this much of a digest of its request, then which of several equal ones.
_NAME = 32


class BatchApi(Protocol):
    """The batches of one provider. All methods raise JudgeError or one of `failures`."""

    failures: tuple[type[Exception], ...]

    def line(self, name: str, body: str) -> bytes:
        """A request, given as JSON, as it is in a batch."""
        ...

    async def start(self, lines: Sequence[bytes], token: str) -> str:
        """Send a batch, marked with a token where that is possible; returns its id."""
        ...

    async def find(self, begun: Begun, others: Collection[str]) -> str | None:
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
        for entry in journal.under_way():
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
        self.journal.end([batch.begun for batch in self._all if batch.begun and batch.settled])
        self._all = list(filterfalse(attrgetter("settled"), self._all))


class _Batch:
    """Requests sent together. One of those who wait does the work for all.

    When the one who works is cancelled the next one continues where it stopped.
    """

    def __init__(self, batches: Batches, begun: Begun | None = None) -> None:
        """`begun` is a batch of an earlier run."""
        self._api, self._limits, self._journal = batches.api, batches.limits, batches.journal
        self._failures: tuple[type[Exception], ...] = (JudgeError, *batches.api.failures)
        self.begun = begun
        self._is_earlier = begun is not None
        self._lines: list[bytes] = []
        self._names: list[str] = []
        self._equal = Counter[str]()
        self._bytes = 0
        self._full = anyio.Event()
        self._changed = anyio.Event()
        self._busy = False
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
        while self._found is None and self._error is None:
            if self._busy:
                await self._changed.wait()
            else:
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
        self._busy = True
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
        finally:
            self._busy = False
            self._changed.set()
            self._changed = anyio.Event()

    async def _send(self) -> str:
        """The id of the batch, which is sent unless that was done."""
        # From here on it is paid for: a cancellation waits until its id is known.
        with anyio.CancelScope(shield=True):
            if self.begun is None:
                self.begun = self._journal.begin(self._names)
                name = await self._api.start(self._lines, self.begun.token)
                self._journal.note_id(self.begun, name)
            elif self.begun.id is None:
                ids = set(filter(None, map(attrgetter("id"), self._journal.under_way())))
                name = await self._api.find(self.begun, ids) or ""
                if not name:
                    raise ProviderError("it did not reach the provider", transient=True)
                self._journal.note_id(self.begun, name)
        assert self.begun is not None
        assert self.begun.id is not None
        return self.begun.id
