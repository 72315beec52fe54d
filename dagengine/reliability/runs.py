"""Observations of repeated questions, put together as the runs that they come from.

The one place that knows what observations look like.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from dagengine.reliability.attribution import Repetition
from dagengine.reliability.counterfactual import Counterfactual, Reply
from dagengine.reliability.repetition import Condition, Observation
from dagengine.results import OutcomeKind, Verdict

T = TypeVar("T")
Path = tuple[tuple[str, Verdict], ...]


@dataclass(slots=True)
class Run:
    """One metric on one case under one condition.

    `sure` holds the probability of each verdict that a judge gave, None where it is not known;
    `weighted` says that the score is an expectation over such probabilities. `lists` holds the
    verdicts about the items of lists, by node.
    """

    condition: Condition
    score: float | None = None
    path: Path = ()
    replies: dict[str, Reply] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    raw: str | None = None
    sure: dict[str, float | None] = field(default_factory=dict)
    weighted: bool = False
    lists: dict[str, tuple[Verdict, ...]] = field(default_factory=dict)

    @property
    def stated(self) -> float | None:
        """The probability of the path by the judge's tokens: the product of its verdicts'."""
        found = [self.sure[node] for node, _ in self.path if node in self.sure]
        known = [sure for sure in found if sure is not None]
        return math.prod(known) if found and len(known) == len(found) else None

    def passed(self, threshold: float) -> bool | None:
        """Whether the score meets a threshold; None without a score."""
        return None if self.score is None else self.score >= threshold


@dataclass(frozen=True, slots=True)
class Runs:
    """All runs of one metric: by case, then by setting (a condition without its sample)."""

    metric: str
    cases: Mapping[int, Mapping[Condition, Sequence[Run]]]
    asked_alone: Mapping[int, Mapping[Condition, Sequence[tuple[str, Reply]]]] = field(
        default_factory=dict
    )

    def each(self) -> Iterator[tuple[int, Run]]:
        """Every run, after the number of its case."""
        for case, settings in self.cases.items():
            for runs in settings.values():
                yield from ((case, run) for run in runs)

    def every(self) -> Iterator[Run]:
        """Every run of every case."""
        return (run for _, run in self.each())

    @property
    def settings(self) -> tuple[Condition, ...]:
        """The settings, in the order in which they were met."""
        found = (setting for settings in self.cases.values() for setting in settings)
        return tuple(dict.fromkeys(found))

    @property
    def rows(self) -> list[int]:
        """The case of each row of a table."""
        return [case for case, settings in self.cases.items() for _ in settings]

    def table(self, of: Callable[[Run], T]) -> list[list[T]]:
        """What `of` reads off each run: one row per case and setting, a column per sample."""
        return [
            [of(run) for run in runs]
            for settings in self.cases.values()
            for runs in settings.values()
        ]

    def repetitions(self, setting: Condition) -> dict[int, list[Repetition]]:
        """The runs with a score under one setting, as attribution takes them."""
        return {
            case: [
                Repetition(run.replies, run.score)
                for run in settings.get(setting, ())
                if run.score is not None
            ]
            for case, settings in self.cases.items()
        }

    def alone(self, setting: Condition) -> dict[int, Sequence[tuple[str, Reply]]]:
        """What nodes said outside of runs under one setting, as attribution takes it."""
        return {case: found.get(setting, ()) for case, found in self.asked_alone.items()}


def runs_of(observations: Iterable[Observation], replay: Counterfactual) -> Runs:
    """The runs of one metric."""
    name = replay.spec.name
    speakers = {speaker.node for speaker in replay.speakers}
    found: dict[int, dict[Condition, dict[int, Run]]] = {}
    alone: dict[int, dict[Condition, list[tuple[str, Reply]]]] = {}
    for seen in observations:
        if seen.metric != name:
            continue
        setting = replace(seen.condition, sample=0)
        if seen.alone:
            node = replay.name_of(seen.node)
            if node in speakers and seen.outcome is OutcomeKind.OK:
                said = alone.setdefault(seen.case, {}).setdefault(setting, [])
                said.append((node, Reply(seen.verdict, seen.score)))
            continue
        samples = found.setdefault(seen.case, {}).setdefault(setting, {})
        run = samples.setdefault(seen.condition.sample, Run(seen.condition))
        if not seen.node:
            run.score, run.path, run.raw = seen.score, tuple(seen.path), seen.raw
            run.weighted = seen.weighted
            continue
        node = replay.name_of(seen.node)
        if node in replay.asking:
            run.asked.append(node)
            if seen.verdict is not None:
                run.sure[seen.node] = seen.confidence
            if seen.items:
                run.lists[node] = seen.items
        if node in speakers and seen.outcome is OutcomeKind.OK:
            run.replies[node] = Reply(seen.verdict, seen.score)
    return Runs(
        name,
        {
            case: {
                setting: [samples[sample] for sample in sorted(samples)]
                for setting, samples in settings.items()
            }
            for case, settings in sorted(found.items())
        },
        alone,
    )
