"""What a metric came to on labelled cases, repeated: right or wrong, case by case."""

from __future__ import annotations

import statistics
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dagengine.errors import InputError
from dagengine.graph.graph import Metric
from dagengine.reliability.card.label_agreement import Reader, reading
from dagengine.reliability.counterfactual import Counterfactual
from dagengine.reliability.labels import Labels
from dagengine.reliability.repetition import a_repeat
from dagengine.reliability.runs import Run, runs_of
from dagengine.reliability.statistics.comparisons import Comparison, compare_repeated
from dagengine.reliability.statistics.intervals import Interval, Unknown, bootstrap
from dagengine.reliability.statistics.sums import mean
from dagengine.results import CaseResult, MetricResult, OutcomeKind, Totals
from dagengine.test_case import TestCase

Shares = Mapping[int, float]
"""The share of right repetitions, by the number of the case."""


class OutOfBudgetError(InputError):
    """Raised when the limits of calls or money end a search; the answers so far are stored."""


@dataclass(frozen=True)
class Judged:
    """A metric repeated on cases, by number; `first_results` are those of sample 0."""

    metric: Metric
    runs: Mapping[int, Sequence[Run]]
    first: Mapping[int, MetricResult]
    totals: Totals


@dataclass
class Asking:
    """Cases, their labels, and how a metric is asked about them; adds up what that takes.

    `spent` is the known part of the cost in US dollars, which the budget has to cover.
    """

    cases: Sequence[TestCase]
    labels: Labels
    groups: Mapping[int, Hashable]
    times: int
    settings: Mapping[str, Any]
    totals: Totals = field(default_factory=lambda: Totals(cost=0.0))
    spent: float = 0.0

    async def judge(self, metric: Metric, chosen: Sequence[int]) -> Judged:
        """Ask a metric about some of the cases, every question `times` times."""
        rows: list[CaseResult] = []
        observations = await a_repeat(
            [self.cases[number] for number in chosen],
            [metric],
            times=self.times,
            second_answers=False,
            on_row=rows.append,
            **self.rest(),
        )
        self.add(observations.totals)
        if any(row.outcome is OutcomeKind.OVER_BUDGET for row in observations):
            raise OutOfBudgetError(
                "the limit of calls or money is reached: allow more, and run it again with the "
                "same store; no answered question is asked again"
            )
        runs = runs_of(observations, Counterfactual(metric)).cases
        by_case = {
            number: [run for row in runs.get(index, {}).values() for run in row]
            for index, number in enumerate(chosen)
        }
        first_results = {chosen[row.index]: row.metrics[0] for row in rows}
        return Judged(metric, by_case, first_results, observations.totals)

    def add(self, totals: Totals) -> None:
        """Count what was asked."""
        self.totals = self.totals + totals
        self.spent += totals.cost or 0.0

    def rest(self) -> dict[str, Any]:
        """The settings, with the limits of what is still allowed."""
        limits = self.settings.get("limits")
        if limits is None:
            return dict(self.settings)
        # Every question is an evaluation of its own: it may take what the earlier ones left.
        return {**self.settings, "limits": limits.after(self.totals.calls, self.spent)}

    def right(self, judged: Judged, of: Reader | None = None) -> dict[int, float]:
        """The share of right repetitions; one without a score is wrong."""
        reader = of or self.read(judged.metric)
        return {
            number: statistics.fmean(
                run.score is not None and reader(run) == self.labels.by_case[number] for run in runs
            )
            for number, runs in judged.runs.items()
            if runs
        }

    def read(self, metric: Metric) -> Reader:
        """Reader of the part of a run that is compared with its label."""
        spec = metric.spec()
        reader = reading(self.labels.kind, 1.0 if spec.strict else spec.threshold)
        if reader is None:
            raise InputError(
                f"{spec.name!r} has no threshold, or its labels are numbers: an improvement needs "
                "labels that say pass or fail, or name verdicts"
            )
        return reader

    def share(self, right: Shares) -> Interval | Unknown:
        """The mean share of right results, with its interval over cases or groups."""
        numbers = sorted(right)
        shares = [right[number] for number in numbers]
        interval = bootstrap(shares, mean, groups=self._groups(numbers))
        return interval or Unknown("too few items", len(shares))

    def gain(self, before: Shares, after: Shares) -> Comparison | Unknown:
        """The gain on the cases that both have, case by case.

        A case counts by the share of its repetitions that are right. So the differences have the
        noise of the judge in them, as well as that of the choice of cases.
        """
        numbers = sorted(before.keys() & after.keys())
        pairs = [(before[number], after[number]) for number in numbers]
        return compare_repeated(pairs, groups=self._groups(numbers))

    def _groups(self, numbers: Iterable[int]) -> list[Hashable] | None:
        names = [self.groups.get(number, number) for number in numbers]
        return names if len(set(names)) < len(names) else None
