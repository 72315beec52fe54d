"""What a metric came to on labelled cases, repeated: right or wrong, case by case."""

from __future__ import annotations

import statistics
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from dagengine.errors import InputError
from dagengine.graph.graph import Metric
from dagengine.reliability.card.label_agreement import Reader, reading
from dagengine.reliability.counterfactual import Counterfactual
from dagengine.reliability.labels import Labels
from dagengine.reliability.repetition import Experiment
from dagengine.reliability.runs import Run, runs_of
from dagengine.reliability.statistics.comparisons import Comparison, compare_repeated
from dagengine.reliability.statistics.intervals import Interval, Unknown, bootstrap
from dagengine.reliability.statistics.sums import mean
from dagengine.results import CaseResult, MetricResult, OutcomeKind, Totals
from dagengine.test_case import TestCase

Shares = Mapping[int, float]
"""The share of right repetitions, by the number of the case."""


@dataclass(frozen=True)
class Judged:
    """A metric repeated on cases, by number; `first_results` are those of sample 0."""

    metric: Metric
    runs: Mapping[int, Sequence[Run]]
    first: Mapping[int, MetricResult]
    totals: Totals


def reader_of(metric: Metric, labels: Labels) -> Reader:
    """Reader of the part of a run that is compared with its label; raises InputError for none."""
    spec = metric.spec()
    reader = reading(labels.kind, 1.0 if spec.strict else spec.threshold)
    if reader is None:
        raise InputError(
            f"{spec.name!r} has no threshold, or its labels are numbers: an improvement needs "
            "labels that say pass or fail, or name verdicts"
        )
    return reader


@dataclass(kw_only=True)
class LabelledExperiment(Experiment):
    """Cases and their labels, and how a metric is asked about them."""

    cases: Sequence[TestCase]
    labels: Labels
    groups: Mapping[int, Hashable]

    async def judge(self, metric: Metric, chosen: Sequence[int]) -> Judged:
        """Ask a metric about some of the cases."""
        rows: list[CaseResult] = []
        cases = [self.cases[number] for number in chosen]
        observations = await self.ask(cases, [metric], rows.append)
        if any(row.outcome is OutcomeKind.OVER_BUDGET for row in observations):
            raise InputError(
                "the limit of calls or money is reached: allow more, and run it again with the "
                "same store; no answered question is asked again"
            )
        runs = runs_of(observations, Counterfactual(metric))
        by_case = {number: runs.of(index) for index, number in enumerate(chosen)}
        first_results = {chosen[row.index]: row.metrics[0] for row in rows}
        return Judged(metric, by_case, first_results, observations.totals)

    def right(self, judged: Judged, of: Reader | None = None) -> dict[int, float]:
        """The share of right repetitions; one without a score is wrong."""
        reader = of or reader_of(judged.metric, self.labels)
        return {
            number: statistics.fmean(
                run.score is not None and reader(run) == self.labels.by_case[number] for run in runs
            )
            for number, runs in judged.runs.items()
            if runs
        }

    def share(self, right: Shares) -> Interval | Unknown:
        """The mean share of right results, with its interval over cases or groups."""
        numbers = sorted(right)
        shares = [*map(right.__getitem__, numbers)]
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
