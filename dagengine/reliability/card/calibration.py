"""Calibration: do events happen as often as token probabilities state? If a judge gives them."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

from dagengine.reliability.card.figures import figure, shown
from dagengine.reliability.card.people import reading
from dagengine.reliability.card.values import Calibration, Figure
from dagengine.reliability.labels import Labels
from dagengine.reliability.runs import Runs
from dagengine.reliability.statistics.calibration import (
    brier_score,
    debiased_calibration_error,
    reliability,
)


@dataclass(frozen=True, slots=True)
class Stated:
    """Stated probabilities of one kind of event: (probability, happened), and their cases."""

    name: str
    event: str
    answers: Sequence[tuple[float, bool]]
    groups: Sequence[Hashable]

    def figures(self) -> Iterator[Figure]:
        """Brier score and calibration error, with their intervals."""
        brier = brier_score.sums
        yield figure(f"{self.name}-brier", self.answers, brier, "", self.groups)
        error = debiased_calibration_error(self.answers, cases=self.groups)
        yield shown(f"{self.name}-calibration-error", error)

    def calibration(self) -> Calibration:
        """The reliability table, bins without an answer left out."""
        bins = tuple(row for row in reliability(self.answers) if row.answers)
        return Calibration(self.event, bins)


def stated(runs: Runs, threshold: float | None, labels: Labels | None) -> Iterator[Stated]:
    """Everything that stated probabilities can be compared with."""
    # Whether the next run takes the same path as often as the tokens of this one state.
    answers: list[tuple[float, bool]] = []
    groups: list[Hashable] = []
    for case, settings in runs.cases.items():
        for row in settings.values():
            scored = [run for run in row if run.score is not None]
            pairs = zip(scored, (*scored[1:], *scored[:1]), strict=True)
            for run, following in pairs if len(scored) > 1 else ():
                if run.stated is not None:
                    answers.append((run.stated, run.path == following.path))
                    groups.append(runs.group(case))
    comparisons = [Stated("repeat", "the next run takes the same path", answers, groups)]
    comparisons += [] if labels is None else [_against_labels(runs, threshold, labels)]
    yield from (comparison for comparison in comparisons if comparison.answers)


def _against_labels(runs: Runs, threshold: float | None, labels: Labels) -> Stated:
    """Whether people agree as often as a path's probability, or a weighted score, states."""
    answers: list[tuple[float, bool]] = []
    groups: list[Hashable] = []
    read = reading(labels.kind, threshold)
    for case, run in runs.each():
        label = labels.by_case.get(case)
        if label is None or run.score is None:
            continue
        if run.weighted and labels.kind == "pass":
            answers.append((run.score, bool(label)))
        elif run.stated is not None and read is not None:
            answers.append((run.stated, read(run) == label))
        else:
            continue
        groups.append(runs.group(case))
    return Stated("label", "the human label agrees", answers, groups)
