"""What a report shows of a run, summed up row by row, so that no run has to fit in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from dagengine.results import CaseResult, MetricResult, OutcomeKind

# Rows a report prints one by one; a longer run is summed up.
HEAD = 60
# Different messages that are counted each for itself; the later ones count together.
_MESSAGES = 1000
_OTHER = "other problems"


class MetricTally:
    """One metric over a data set: scores, outcomes, and how often each edge was taken.

    `shown` is the result to draw, with the name of its case: that with most steps (the
    first of those) or that of the chosen case.
    """

    def __init__(self) -> None:
        self.cases = self.passed = self.failed = self.scored = 0
        self.ran: Counter[str] = Counter()
        self.broke: Counter[str] = Counter()
        self.chose: Counter[tuple[str, Any]] = Counter()
        self.kinds: Counter[OutcomeKind] = Counter()
        self.shown: tuple[str, MetricResult] | None = None
        self._sum = 0.0

    @property
    def unscored(self) -> int:
        """Cases without a score."""
        return sum(self.kinds.values())

    @property
    def mean(self) -> float | None:
        """The mean of the scores there are."""
        return self._sum / self.scored if self.scored else None

    def add(self, result: MetricResult) -> None:
        """Count one case."""
        self.cases += 1
        self.passed += result.success is True
        self.failed += result.success is False
        if result.failure is not None:
            self.kinds[result.failure.kind] += 1
        if result.score is not None:
            self.scored += 1
            self._sum += result.score
        for step in result.steps:
            (self.ran if step.outcome == OutcomeKind.OK else self.broke)[step.node] += 1
            if step.verdict is not None:
                self.chose[step.node, step.verdict] += 1


class Tally:
    """All metrics of a run, and its first rows."""

    def __init__(self, rows: Iterable[CaseResult] = (), case: int | None = None) -> None:
        """`case` is the index of the case to draw, instead of the longest path."""
        self.metrics: dict[str, MetricTally] = {}
        self.head: list[CaseResult] = []
        self.rows = 0
        self._met = True
        self.messages: Counter[str] = Counter()
        self.first: dict[str, str] = {}
        self._case = case
        for row in rows:
            self.add(row)

    @property
    def success(self) -> bool:
        """Whether there are rows and every one met every threshold."""
        return self._met and self.rows > 0

    @property
    def unscored(self) -> int:
        """Results without a score, over all metrics."""
        return sum(metric.unscored for metric in self.metrics.values())

    def add(self, row: CaseResult) -> None:
        """Count one row."""
        self.rows += 1
        self._met = self._met and row.success
        if len(self.head) < HEAD:
            self.head.append(row)
        for result in row.metrics:
            metric = self.metrics.get(result.metric)
            if metric is None:
                metric = self.metrics[result.metric] = MetricTally()
            metric.add(result)
            self._show(metric, row, result)
            if result.failure is not None:
                self._note(f"{result.failure}", row.case)

    def _show(self, metric: MetricTally, row: CaseResult, result: MetricResult) -> None:
        longest = metric.shown is None or len(result.steps) > len(metric.shown[1].steps)
        if row.index == self._case or (self._case is None and longest):
            metric.shown = (row.case, result)

    def _note(self, text: str, case: str) -> None:
        if text not in self.messages and len(self.messages) >= _MESSAGES:
            text = _OTHER
        self.messages[text] += 1
        self.first.setdefault(text, case)
