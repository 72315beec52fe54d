"""What a report shows of a run, summed up row by row, so that no run has to fit in memory."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any

from dagengine.prompts.probabilities.options import MassCount
from dagengine.report.pictures.metric_graph import Contest, item_verdicts
from dagengine.results.metric_results import CaseResult, MetricResult
from dagengine.results.outcomes import OutcomeKind
from dagengine.results.pass_rules import State
from dagengine.results.summary import EndCounts, Summing, Worst

Place = str | tuple[str, Any]
"""A node by its name, or an answer by its node and its verdict."""


class MetricTally:
    """One metric over a data set: outcomes, and how often each edge was taken.

    `unscored` cases have no score. `states` counts the cases by how they ended, `came` those that
    came by a node, or took an answer of it. `broke` counts the cases that a node gave nothing for,
    `items` what it said of the items of its lists, `wins` the cases that each contestant of an
    arena won, and ties. `shown` is the result to draw, with the name of its case. It is the one
    with most steps (the first of those) or that of the chosen case.
    """

    def __init__(self) -> None:
        self.unscored = 0
        self.states: Counter[State] = Counter()
        self.came: defaultdict[Place, Counter[State]] = defaultdict(Counter)
        self.broke: Counter[str] = Counter()
        self.items: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self.wins: Counter[str] = Counter()
        self.shown: tuple[str, MetricResult] | None = None

    @property
    def chose(self) -> Counter[tuple[str, Any]]:
        """Number of cases that took an answer: by the name of the node and the verdict."""
        came = self.came.items()
        return Counter({at: states.total() for at, states in came if isinstance(at, tuple)})

    def add(self, result: MetricResult) -> None:
        """Count one case."""
        self.unscored += result.failure is not None
        state = result.state
        self.states[state] += 1
        for step in result.steps:
            self.came[step.node][state] += 1
            self.broke[step.node] += step.outcome != OutcomeKind.OK
            if step.verdict is not None:
                self.came[step.node, step.verdict][state] += 1
            if isinstance(step.output, list):
                self.items[step.node].update(map(str, item_verdicts(step.output)))
            elif isinstance(step.output, dict) and (contest := Contest.of(step.output)):
                self.wins.update(dict.fromkeys(contest.votes[0][0], 0))
                self.wins[contest.winner] += 1


class Tally:
    """All metrics of a run: what pictures show, the figures, the worst cases, where they failed.

    `masses` counts how much of the probability fell on what nodes might answer, where it is known.
    """

    def __init__(self, rows: Iterable[CaseResult] = (), case: str | int | None = None) -> None:
        """`case` is the case to draw, instead of the longest path: its index.

        A text means the first case of this name or, if there is none, the case with this index.
        """
        self.metrics: dict[str, MetricTally] = {}
        self.summing = Summing()
        self.worst = Worst()
        self.places = EndCounts()
        self.masses = MassCount()
        self.rows = self.failed = 0
        self._case = case
        for row in rows:
            self.add(row)

    @property
    def unscored(self) -> int:
        """Results without a score, over all metrics."""
        return sum(metric.unscored for metric in self.metrics.values())

    def add(self, row: CaseResult) -> None:
        """Count one row."""
        self.rows += 1
        self.failed += row.state == "failed"
        self.summing.add(row)
        self.worst.add(row)
        self.places.add(row)
        for result in row.metrics:
            metric = self.metrics.get(result.metric)
            if metric is None:
                metric = self.metrics[result.metric] = MetricTally()
            metric.add(result)
            for step in result.steps:
                if step.mass is not None:
                    self.masses.add(step.mass)
            shown = metric.shown
            if self._case is None:
                fits = shown is None or len(result.steps) > len(shown[1].steps)
            elif self._case in (row.case, row.index):
                fits = shown is None or shown[0] != row.case
            else:
                fits = shown is None and str(row.index) == self._case
            if fits:
                metric.shown = (row.case, result)
