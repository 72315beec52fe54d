"""Cases that leave in chunks, and rows that come back in any order."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence

from dagengine.data.cases import Item
from dagengine.execution.sources import PulledSource
from dagengine.results import CaseResult


class Chunks:
    """The cases, so many at a time, pickled, each chunk with the index of its first case."""

    def __init__(self, source: PulledSource[Item], size: int) -> None:
        self._items: Iterator[Item] = iter(source.take, None)
        self._size = size
        self._first = 0
        self.begun = 0

    def __iter__(self) -> Chunks:
        return self

    def __next__(self) -> tuple[int, bytes]:
        items = list(itertools.islice(self._items, self._size))
        if not items:
            raise StopIteration
        first, self._first = self._first, self._first + len(items)
        self.begun += 1
        return first, pickle.dumps(items)


class RowsInOrder:
    """Hands on rows in order, each once; `chunks` counts those handed on."""

    def __init__(self, on_row: Callable[[CaseResult], None]) -> None:
        self._on_row = on_row
        self._waiting: dict[int, Sequence[CaseResult]] = {}
        self._next = 0
        self.chunks = 0

    def add(self, first: int, rows: Sequence[CaseResult]) -> None:
        """Take the rows of one chunk, the first of which has the index `first`."""
        self._waiting[first] = rows
        while self._next in self._waiting:
            ready = self._waiting.pop(self._next)
            self._hand_on(ready)
            self._next += len(ready)
            self.chunks += 1

    def rest(self) -> None:
        """After an interrupt: rows that wait for earlier ones are kept, too."""
        for first in sorted(self._waiting):
            self._hand_on(self._waiting.pop(first))

    def _hand_on(self, rows: Iterable[CaseResult]) -> None:
        for row in rows:
            self._on_row(row)
