"""What a run asked and used, added up by metric, node and judge."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dagengine.question import NO_USAGE, Question, Usage
from dagengine.results import Spent

_Key = tuple[str, str, str]


class _Entry:
    """The sums of one node at one judge."""

    __slots__ = ("asked", "calls", "cost", "failed", "seconds", "usage")

    def __init__(self) -> None:
        self.asked = self.calls = self.failed = 0
        self.usage = NO_USAGE
        self.cost: float | None = 0.0
        self.seconds = 0.0

    def spend(self, calls: int, failed: int, usage: Usage, cost: float | None, s: float) -> None:
        self.calls += calls
        self.failed += failed
        self.usage += usage
        self.cost = None if self.cost is None or cost is None else self.cost + cost
        self.seconds += s


class Ledger:
    """The sums of one run; questions of no known node are counted under their own name."""

    def __init__(self) -> None:
        self._entries: dict[_Key, _Entry] = {}

    def asked(self, question: Question[Any], judge: str) -> None:
        """Count a question, whoever answers it."""
        self._of(question, judge).asked += 1

    def called(
        self,
        question: Question[Any],
        judge: str,
        *,
        failed: bool,
        usage: Usage,
        cost: float | None,
        seconds: float,
    ) -> None:
        """Count one attempt to get an answer."""
        self._of(question, judge).spend(1, failed, usage, cost, seconds)

    @property
    def entries(self) -> tuple[Spent, ...]:
        """What was asked and used so far."""
        return tuple(
            Spent(
                *key, entry.asked, entry.calls, entry.failed, entry.usage, entry.cost, entry.seconds
            )
            for key, entry in self._entries.items()
        )

    def _of(self, question: Question[Any], judge: str) -> _Entry:
        metric, node = question.asker or ("", question.name)
        return self._entry((metric, node, judge))

    def _entry(self, key: _Key) -> _Entry:
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = _Entry()
        return entry

    def add(self, spent: Iterable[Spent]) -> None:
        """Take over what another process counted."""
        for part in spent:
            entry = self._entry((part.metric, part.node, part.judge))
            entry.asked += part.asked
            entry.spend(part.calls, part.failed, part.usage, part.cost, part.seconds)
