"""Questions that wait: who goes first (`Queue`), who holds no place (`Resting`), why (`Waits`)."""

from __future__ import annotations

import heapq
import itertools
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from dagengine.errors import JudgeError, JudgeTimeoutError, ProviderError
from dagengine.results import Waiting

T = TypeVar("T")

FIRST = -1
"""The rank of what all cases wait for: before every case, as these count from 0."""


@dataclass(slots=True, eq=False)
class Urgency:
    """How early one question is asked: by the rank of its case, then first come, first served.

    A question keeps its turn when it is asked again, so a retry goes before whatever came
    later. Who waits for the answer to another one's question lends it their own rank.

    The smallest `rank` is the most urgent; `turn` is given out when it first waits. `on_lend` is
    called when the rank changes.
    """

    rank: int = 0
    turn: int | None = None
    on_lend: Callable[[], None] | None = None

    def lend(self, rank: int) -> None:
        """Be at least as urgent as somebody else who waits for the same."""
        if rank < self.rank:
            self.rank = rank
            if self.on_lend is not None:
                self.on_lend()


class Queue(Generic[T]):
    """Things that wait, the most urgent one first.

    `things` are those that wait, with their urgency. Nobody is passed over for ever: only so many
    cases are in progress, and each of them asks a finite number of questions.
    """

    def __init__(self) -> None:
        # Rank, turn, a number that makes entries comparable, and the thing. What has left, or moved
        # up, leaves its old entry behind: `things` says what still waits.
        self._heap: list[tuple[int, int, int, T]] = []
        self.things: dict[T, Urgency] = {}
        self._entries = itertools.count()

    def add(self, thing: T, urgency: Urgency) -> None:
        """Let a thing wait; `urgency` has its turn."""
        self.things[thing] = urgency
        self._push(thing, urgency)
        urgency.on_lend = lambda: self._push(thing, urgency)

    def _push(self, thing: T, urgency: Urgency) -> None:
        assert urgency.turn is not None
        entry = (urgency.rank, urgency.turn, next(self._entries), thing)
        heapq.heappush(self._heap, entry)

    def first(self) -> tuple[tuple[int, int], T] | None:
        """The rank and turn of the most urgent thing, and itself; None when nothing waits."""
        while self._heap:
            rank, turn, _, thing = self._heap[0]
            if thing in self.things:
                return (rank, turn), thing
            heapq.heappop(self._heap)
        return None

    def take(self) -> T:
        """Let the most urgent thing go; raises IndexError when nothing waits."""
        head = self.first()
        if head is None:
            raise IndexError("nothing waits")
        self.remove(head[1])
        return head[1]

    def remove(self, thing: T) -> None:
        """Let a thing go that waits no longer."""
        self.things.pop(thing).on_lend = None


class Resting:
    """The questions that hold no place because they wait for something else: `count` of them.

    They wait for a retry, for the answer to an equal question, or for one judge of several. Others
    may be asked meanwhile: whoever has some can be told whenever one begins to wait (`telling`).
    """

    def __init__(self) -> None:
        self.count = 0
        self._listeners: list[Callable[[], None]] = []

    def __enter__(self) -> None:
        self.count += 1
        for tell in self._listeners:
            tell()

    def __exit__(self, *_: object) -> None:
        self.count -= 1

    @contextmanager
    def telling(self, tell: Callable[[], None]) -> Iterator[None]:
        """Call a function whenever a question begins to wait."""
        self._listeners.append(tell)
        try:
            yield
        finally:
            self._listeners.remove(tell)


class Waits:
    """The questions that wait for another attempt; may be read from any thread."""

    def __init__(self) -> None:
        self._waiting: list[tuple[str, float]] = []

    @contextmanager
    def during(self, error: JudgeError, seconds: float) -> Iterator[None]:
        """Count a question that waits for so many seconds because of an error."""
        entry = reason(error), time.monotonic() + seconds
        self._waiting.append(entry)
        try:
            yield
        finally:
            self._waiting.remove(entry)

    def now(self) -> list[Waiting]:
        """Numbers of waiting calls at this moment, by reason."""
        now, waiting = time.monotonic(), self._waiting.copy()
        return merge_waits(Waiting(why, 1, max(0.0, until - now)) for why, until in waiting)


def reason(error: Exception) -> str:
    """An error in one word: the HTTP status if there is one."""
    if isinstance(error, ProviderError) and error.status is not None:
        return str(error.status)
    return "timeout" if isinstance(error, JudgeTimeoutError) else "no answer"


def merge_waits(waits: Iterable[Waiting]) -> list[Waiting]:
    """One entry for each reason, the most frequent first."""
    by_reason: dict[str, Waiting] = {}
    for wait in waits:
        total = by_reason.get(wait.why, replace(wait, count=0))
        count, seconds = total.count + wait.count, min(total.seconds, wait.seconds)
        silent = min(filter(None, (total.silent, wait.silent)), default=None)
        by_reason[wait.why] = Waiting(wait.why, count, seconds, silent)
    return sorted(by_reason.values(), key=lambda wait: (-wait.count, wait.why))
