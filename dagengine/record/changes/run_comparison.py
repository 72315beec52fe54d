"""What changed between two runs, summed up case by case: flips by node and cause."""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from dagengine.record.changes.comparison import (
    CAUSES,
    FLIPS,
    CaseChange,
    CaseFields,
    Cause,
    Kind,
    compare_results,
)
from dagengine.record.changes.tree_changes import TreeChange, Trees
from dagengine.record.values import Manifest
from dagengine.results import CaseResult, MetricResult
from dagengine.results.passing import State

LISTED = 10_000
"""Changes that flip nothing are counted all, and kept up to this number per metric."""
_QUIET: tuple[Kind, Kind] = ("score", "path")
_MISSING = float("nan")


@dataclass
class MetricComparison:
    """One metric in two runs.

    `states` count the cases by how they ended before and now. `first` counts flips by the first
    node that differs (empty: the metric's own settings) and by cause. `changes` hold every flip,
    every score that was lost or gained, and the first 10,000 of all else, in the order of the new
    run.
    """

    trees: Trees
    states: Counter[tuple[State, State]] = field(default_factory=Counter)
    kinds: Counter[Kind] = field(default_factory=Counter)
    first: Counter[tuple[str, Cause]] = field(default_factory=Counter)
    changes: list[CaseChange] = field(default_factory=list)
    _scores: tuple[array[float], array[float]] = field(
        default_factory=lambda: (array("d"), array("d"))
    )
    _quiet: int = 0

    @property
    def name(self) -> str:
        return self.trees.new.name

    @property
    def cases(self) -> int:
        """Cases that both runs judged."""
        return self.states.total()

    @property
    def flips(self) -> int:
        """Cases that passed and fail now, or the other way round."""
        return sum(self.kinds[kind] for kind in FLIPS)

    @property
    def same(self) -> int:
        """Cases with the same result, those that came to it another way among them."""
        return self.cases - self.kinds.total() + self.kinds["path"]

    @property
    def agrees(self) -> bool:
        """Return whether every answer on every common case is the same."""
        return not self.kinds

    @property
    def scored(self) -> int:
        """Cases that have a score in both runs."""
        return sum(count for states, count in self.states.items() if "no_score" not in states)

    def passed(self) -> tuple[int, int]:
        """Of the cases that have a score in both runs those that passed before, and now."""
        lost, gained = self.states["passed", "no_score"], self.states["no_score", "passed"]
        old, new = self._in("passed")
        return old - lost, new - gained

    def without_score(self) -> tuple[int, int]:
        """Cases without a score before, and now."""
        return self._in("no_score")

    def _in(self, state: State) -> tuple[int, int]:
        return (
            sum(count for (old, _), count in self.states.items() if old == state),
            sum(count for (_, new), count in self.states.items() if new == state),
        )

    def means(self) -> tuple[float | None, float | None]:
        """The means before and now, from 0 to 1, of the cases that have a score in both runs."""
        pairs = [pair for pair in zip(*self._scores, strict=True) if not any(map(math.isnan, pair))]
        if not pairs:
            return None, None
        # Not `sum`, which rounds in another way before Python 3.12.
        old, new = map(math.fsum, zip(*pairs, strict=True))
        return old / len(pairs), new / len(pairs)

    def pairs(self) -> list[tuple[float | None, float | None]]:
        """The scores of every case before and now; None if there is none."""
        sides = ([None if math.isnan(x) else x for x in scores] for scores in self._scores)
        return list(zip(*sides, strict=True))

    def by_cause(self) -> dict[Cause, int]:
        """Flips by cause; all causes are there."""
        flips = dict.fromkeys(CAUSES, 0)
        for (_, cause), count in self.first.items():
            flips[cause] += count
        return flips

    def tree_changes(self) -> list[TreeChange]:
        """Differences of the definitions."""
        return list(self.trees.changes())

    def add_same(self, result: MetricResult, cases: int) -> None:
        """Count cases of both runs that went alike in both, and ended with this result."""
        self.states[result.state, result.state] += cases
        for scores in self._scores:
            scores.extend([_MISSING if result.score is None else result.score] * cases)

    def add_unlisted(self, old: MetricResult, new: MetricResult) -> bool:
        """Count a case that has no change, or none that is kept; else False, and nothing counted.

        The results may lack their texts: they tell the kind of a change, and not its cause.
        """
        change = compare_results(self.trees, old, new, case="", places=(0, 0), fields=CaseFields())
        if change is not None:
            if change.kind not in _QUIET or self._quiet < LISTED:
                return False
            self.kinds[change.kind] += 1
            self._quiet += 1
        self._count(old, new)
        return True

    def _count(self, old: MetricResult, new: MetricResult) -> None:
        self.states[old.state, new.state] += 1
        for scores, result in zip(self._scores, (old, new), strict=True):
            scores.append(_MISSING if result.score is None else result.score)

    def add(
        self, old: MetricResult, new: MetricResult, case: str, places: tuple[int, int],
        fields: CaseFields,
    ) -> None:  # fmt: skip
        """Count one case of both runs."""
        self._count(old, new)
        change = compare_results(self.trees, old, new, case=case, places=places, fields=fields)
        if change is None:
            return
        self.kinds[change.kind] += 1
        if change.kind in FLIPS:
            self.first[change.first.node, change.first.cause] += 1
        if change.kind in _QUIET:
            self._quiet += 1
            if self._quiet > LISTED:
                return
        self.changes.append(change)


@dataclass
class RunComparison:
    """Two runs: metrics that both have, and which cases are whose.

    `same_cases` are equal in content, `renamed` except for the name, `changed` are known by name
    or input and have another content. `added` and `removed` are the names of metrics. `new` and
    `missing` are the first 10,000 names of cases that only one run has; `counts` contains their
    numbers.
    """

    old: Manifest
    new: Manifest
    metrics: list[MetricComparison]
    added: list[str]
    removed: list[str]
    same_cases: int = 0
    renamed: int = 0
    changed: int = 0
    new_cases: list[str] = field(default_factory=list)
    missing_cases: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    @property
    def cases(self) -> int:
        """Cases that both runs judged."""
        return self.same_cases + self.renamed + self.changed

    @property
    def agrees(self) -> bool:
        """Return whether both runs say the same of the same cases, by the same trees."""
        return (
            all(metric.agrees and not metric.tree_changes() for metric in self.metrics)
            and not (self.added or self.removed)
            and not self.counts.total()
        )

    def add(
        self,
        old: CaseResult,
        new: CaseResult,
        fields: CaseFields,
        metrics: Sequence[MetricComparison] | None = None,
    ) -> None:
        """Count one case of both runs, under all metrics or some."""
        before, after = old.by_metric(), new.by_metric()
        for metric in self.metrics if metrics is None else metrics:
            if metric.name in before and metric.name in after:
                indices = (old.index, new.index)
                name = metric.name
                metric.add(before[name], after[name], new.case, indices, fields)

    def add_unpaired(self, name: str, *, new: bool) -> None:
        """Count a case that only one run has."""
        self.counts["new" if new else "missing"] += 1
        names = self.new_cases if new else self.missing_cases
        if len(names) < LISTED:
            names.append(name)


def start_comparison(old: Manifest, new: Manifest, only: str | None = None) -> RunComparison:
    """A comparison without a case yet; `only` is the metric to look at."""
    before = {metric.name: metric for metric in old.metrics if only in (None, metric.name)}
    after = {metric.name: metric for metric in new.metrics if only in (None, metric.name)}
    judges = [[judge.identity for judge in run.judges] for run in (old, new)]
    return RunComparison(
        old,
        new,
        [
            MetricComparison(Trees(before[name], tree, *judges))
            for name, tree in after.items()
            if name in before
        ],
        added=[name for name in after if name not in before],
        removed=[name for name in before if name not in after],
    )
