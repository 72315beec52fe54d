"""What a watch knows of a judged case, and what an alarm says. Plain data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, Self

from dagengine.results import CaseResult
from dagengine.results.rows import GROUPED, WATCHED
from dagengine.watch.strata import trace_share

Cause = Literal["app", "traffic", "judge", "not known"]


@dataclass(frozen=True, slots=True)
class JudgedTrace:
    """What the laws of alarms read of a row.

    `share` is the place of the trace in [0, 1): it was judged because that is below the
    `probability` of its `stratum`. `characters` is the length of its input. `scores` and `paths`
    are by metric; a metric without a score is in neither. Cases of one `group` count together.
    """

    row: int
    stratum: str
    probability: float
    share: float
    characters: int
    scores: dict[str, float]
    paths: dict[str, str]
    group: str | None = None

    @classmethod
    def of(cls, row: CaseResult) -> Self | None:
        """None for a row that no watch wrote."""
        ids = row.trace or {}
        if not ids.keys() >= {"trace_id", *WATCHED}:
            return None
        stratum, probability, characters = (ids[name] for name in WATCHED)
        scored = [result for result in row.metrics if result.score is not None]
        return cls(
            row.index,
            stratum,
            float(probability),
            trace_share(ids["trace_id"]),
            int(characters),
            {result.metric: float(result.score or 0.0) for result in scored},
            {
                result.metric: " → ".join(f"{node} = {verdict}" for node, verdict in result.path)
                for result in scored
            },
            ids.get(GROUPED),
        )


@dataclass(frozen=True, slots=True)
class SeriesDeparture:
    """A series that has left its baseline, with the cases on both sides.

    `group` is `all`, `stratum NAME` or `path NODES`; `before` and `now` are the means of the
    series. Without `first` cases the baseline was a rate that somebody stated.
    """

    metric: str
    group: str
    row: int
    before: float
    now: float
    first: Sequence[JudgedTrace] = field(repr=False)
    latest: Sequence[JudgedTrace] = field(repr=False)

    @property
    def key(self) -> tuple[int, str, str]:
        """Key of its alarm."""
        return self.row, self.metric, self.group


@dataclass(frozen=True, slots=True)
class ScoreChange:
    """An old question asked again: the change of a score, and the weight of its case.

    `row` is the case, `asked` how many rows there were when it was asked again.
    """

    row: int
    asked: int
    metric: str
    change: float
    weight: float


@dataclass(frozen=True, slots=True)
class Again:
    """An old case that was asked again: its row, and what changed; one line of `again.jsonl`."""

    row: int
    pairs: list[ScoreChange]


@dataclass(frozen=True, slots=True)
class Alert:
    """One alarm: what left its baseline at which row, and why; one line of `alerts.jsonl`.

    `judge` and `traffic` are the parts of the change that they explain, each with its standard
    error in points of the score; None if nothing is known. `again` is how many old questions the
    cause rests on.
    """

    row: int
    metric: str
    group: str
    before: float
    now: float
    cases: int
    cause: Cause
    judge: tuple[float, float] | None = None
    traffic: tuple[float, float] | None = None
    again: int = 0
    path: str | None = None

    @property
    def key(self) -> tuple[int, str, str]:
        """Key of an alarm in its stream."""
        return self.row, self.metric, self.group

    def __str__(self) -> str:
        words = [f"alarm at row {self.row}: {self.metric}, {self.group}"]
        if self.group == "judge":
            words.append(f"{self.again} old questions are answered {_points(self.now)} on average")
        else:
            words.append(f"{self.before:.3f} → {self.now:.3f} in {self.cases} cases")
        words.append(f"cause: {self.cause}{', if cases are independent' * (self.cause == 'app')}")
        for name in ("judge", "traffic"):
            part = getattr(self, name)
            if part is not None and self.group != "judge":
                words.append(f"{name} {_points(part[0])} (± {200 * part[1]:.1f})")
        if self.path:
            words.append(f"most moved: {self.path}")
        return "; ".join(words)


def _points(change: float) -> str:
    return f"{100 * change:+.1f} points"
