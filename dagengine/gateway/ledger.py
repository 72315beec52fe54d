"""What a run asked and used, added up by metric, node and judge."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from dagengine.question import NO_USAGE, Question, Usage
from dagengine.results import Spent

Key = tuple[str, str, str]
"""A metric, its node and a judge."""


class Entry:
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
    """The sums of one run: in all, and by metric, node and judge (`entries`).

    `asked` counts questions, `cached` those that the store answered, `calls` all calls, `retried`
    those after the first of a question, `failed` those without an answer that fits. `saved` are US
    dollars that prompt tokens from caches cost less than others.
    """

    def __init__(self) -> None:
        self.asked = self.cached = self.calls = self.retried = self.failed = 0
        self.usage = NO_USAGE
        self.saved = 0.0
        self.entries: defaultdict[Key, Entry] = defaultdict(Entry)

    def count_call(
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
        metric, node = question.asker or ("", question.name)
        self.entries[metric, node, judge].spend(1, failed, usage, cost, seconds)

    @property
    def spent(self) -> tuple[Spent, ...]:
        """Questions and tokens so far, by metric, node and judge."""
        rows = []
        for key, entry in list(self.entries.items()):  # it may be read from any thread
            calls, usage = (entry.asked, entry.calls, entry.failed), entry.usage
            rows.append(Spent(*key, *calls, usage, entry.cost, entry.seconds))
        return tuple(rows)

    def add(self, spent: Iterable[Spent]) -> None:
        """Take over what another process counted."""
        for part in spent:
            entry = self.entries[part.metric, part.node, part.judge]
            entry.asked += part.asked
            entry.spend(part.calls, part.failed, part.usage, part.cost, part.seconds)
