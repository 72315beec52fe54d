"""Which of the questions that wait is asked first: that of the earliest case. No clock, no I/O."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")

FIRST = -1
"""The rank of what all cases wait for."""


@dataclass(slots=True, eq=False)
class Urgency:
    """How early one question is asked: by the rank of its case, then first come, first served.

    A question keeps its turn when it is asked again, so a retry goes before whatever came
    later. Who waits for the answer to another one's question lends it their own rank.

    `rank` counts from 0, the most urgent; `turn` is given out when it first waits.
    """

    rank: int = 0
    turn: int | None = None
    _on_change: Callable[[], None] | None = None

    def lend(self, rank: int) -> None:
        """Be at least as urgent as somebody else who waits for the same."""
        if rank < self.rank:
            self.rank = rank
            if self._on_change is not None:
                self._on_change()

    def watch(self, on_change: Callable[[], None] | None) -> None:
        """Have a function called whenever it becomes more urgent."""
        self._on_change = on_change


class Queue(Generic[T]):
    """Things that wait, the most urgent one first.

    `things` are those that wait, with their urgency. Nobody is passed over for ever: only so many
    cases are in progress, and each of them asks a finite number of questions.
    """

    def __init__(self) -> None:
        # What has left, or moved up, leaves its old entry behind; `things` knows better.
        self._heap: list[tuple[int, int, int, T]] = []
        self.things: dict[T, Urgency] = {}
        self._entries = itertools.count()

    def add(self, thing: T, urgency: Urgency) -> None:
        """Let a thing wait; `urgency` has its turn."""
        self.things[thing] = urgency
        self._push(thing, urgency)
        urgency.watch(lambda: self._push(thing, urgency))

    def _push(self, thing: T, urgency: Urgency) -> None:
        assert urgency.turn is not None
        entry = (urgency.rank, urgency.turn, next(self._entries), thing)
        heapq.heappush(self._heap, entry)

    def first(self) -> tuple[tuple[int, int], T] | None:
        """The most urgent thing behind its rank and turn; None when nothing waits."""
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
        self.things.pop(thing).watch(None)
