"""What an improvement found out: the split, the node, every candidate, the gain. Plain data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from dagengine.estimate.estimates import Bounds
from dagengine.reliability.statistics.comparisons import Comparison
from dagengine.reliability.statistics.intervals import Interval, Unknown
from dagengine.results import Totals

FORMAT = 1
Rung = Literal[
    "threshold", "scores", "votes", "examples", "criterion", "together", "merge", "split", "rival",
    "escalation",
]  # fmt: skip
"""The rungs of the ladder, cheapest first, and the threshold of an escalation."""
By = Literal["labels of nodes", "counterfactuals", "your choice"]
"""What told which node is to blame."""


@dataclass(frozen=True, slots=True)
class Split:
    """The labelled cases, by number: the `sealed` ones, and folds of those that are tried on.

    `sha256` is that of the contents of the sealed cases and their labels.
    """

    sealed: tuple[int, ...]
    folds: tuple[tuple[int, ...], ...]
    sha256: str

    @property
    def tried(self) -> tuple[int, ...]:
        """The cases that candidates are tried on, in the order of the data."""
        return tuple(sorted(case for fold in self.folds for case in fold))

    def without(self, fold: int) -> tuple[int, ...]:
        """The tried cases outside of one fold, in the order of the data."""
        return tuple(case for case in self.tried if case not in self.folds[fold])


@dataclass(frozen=True, slots=True)
class NodeShare:
    """The share of the wrong final results that one node causes, with its interval."""

    node: str
    share: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class NodeBlame:
    """Which node causes the wrong results on the tried cases.

    `shares` have the largest first. `node` is the one to change; None if it is not known. Then
    about `needed` more labels would tell (None: 640 do not). `wrong` counts wrong cases, a case
    whose repetitions differ by its share. `by` says what told.
    """

    shares: tuple[NodeShare, ...]
    node: str | None
    wrong: float
    by: By
    needed: int | None = None


@dataclass(frozen=True, slots=True)
class Candidate:
    """One change that was tried, or could not be.

    `before` and `after` are the shares of right results on the held-out cases, of the metric that
    was there before and with the change. `gain` compares them case by case; `p` is that of it,
    corrected for all tries. `refused` says why it was not accepted ("" if it was), `skipped` that
    nothing was asked. `detail` has its words as data, `definition` the hash of the metric with it.
    """

    rung: Rung
    what: str
    where: str
    before: float | None = None
    after: float | None = None
    gain: Comparison | Unknown | None = None
    p: float | None = None
    cases: int = 0
    calls: int = 0
    refused: str = ""
    skipped: bool = False
    detail: dict[str, Any] = field(default_factory=dict)
    definition: str = ""

    @property
    def accepted(self) -> bool:
        """Whether it was shown to be better than what was accepted before."""
        return not self.refused


@dataclass(frozen=True, slots=True)
class Sealed:
    """The sealed part, opened once after the choice: before, after, and the gain on equal cases.

    `mended` and `broken` are cases that most repetitions judge right only after, or only before.
    """

    before: Interval | Unknown
    after: Interval | Unknown
    gain: Comparison | Unknown
    mended: tuple[str, ...]
    broken: tuple[str, ...]

    @property
    def proved(self) -> bool:
        """Whether the whole interval of the gain is above 0."""
        limits = self.gain.interval if isinstance(self.gain, Comparison) else self.gain
        return isinstance(limits, Interval) and limits.low > 0


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """One step of the search, and the calls that it takes at most, before anything is asked."""

    what: str
    least: int
    most: int | None


@dataclass(frozen=True, slots=True)
class SearchPlan:
    """The calls of the whole search, and what they cost at most (None: no price is known).

    `sealed` counts the cases, or groups of them, that the proof rests on.
    """

    steps: tuple[PlannedStep, ...]
    tries: int
    sealed: int
    cost: float | None = None

    @property
    def least(self) -> int:
        """The least number of calls, if every step is taken."""
        return sum(step.least for step in self.steps)

    @property
    def most(self) -> int | None:
        """The greatest number of calls; retries come on top."""
        return sum((Bounds(most=step.most) for step in self.steps), Bounds()).most


@dataclass(frozen=True, slots=True)
class Improvement:
    """What was tried, what was accepted, and what it gains.

    `metric` is the new one, as `evaluate` takes it, or the one that was given. `right` is the share
    of right results on the tried cases as the metric was. `contradictions` are cases on which
    people differ, of `several` with several labels; `ceiling` is how far any judge can agree with
    one of them. `looks` are the sealed part's earlier looks, `notes` what else is to be said.
    """

    name: str
    metric: Any
    split: Split
    times: int
    tries: int
    right: Interval | Unknown
    blame: NodeBlame | None
    candidates: tuple[Candidate, ...]
    sealed: Sealed | None
    needed: int | None
    several: int
    contradictions: tuple[str, ...]
    ceiling: Interval | Unknown | None
    totals: Totals
    looks: int = 0
    notes: tuple[str, ...] = ()

    @property
    def accepted(self) -> tuple[Candidate, ...]:
        """The changes in the new metric, in their order."""
        return tuple(candidate for candidate in self.candidates if candidate.accepted)

    @property
    def proved(self) -> bool:
        """Whether a change was accepted, and the sealed part shows its gain."""
        return self.sealed is not None and self.sealed.proved
