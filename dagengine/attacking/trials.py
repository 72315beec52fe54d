"""From runs to figures: which node of which case fell, to an attack or to its harmless twin.

A law: no judge, no clock. A case counts once, as most of its runs ended.
"""

from __future__ import annotations

import functools
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from itertools import groupby
from typing import Self

from dagengine.attacking.aims import CLOSED, AimedNode, Favour
from dagengine.attacking.attack_card import Cell, Change, FamilyFigures, Helped, Place, Share
from dagengine.reliability.observations import Observation
from dagengine.reliability.statistics.comparisons import more_often, prove_more_often
from dagengine.reliability.statistics.intervals import Interval, bootstrap, mean_of
from dagengine.reliability.statistics.sums import mean
from dagengine.results import OutcomeKind, Verdict
from dagengine.results.passing import passes

_LOST = (OutcomeKind.PROVIDER_ERROR, OutcomeKind.TIMEOUT, OutcomeKind.OVER_BUDGET)


@dataclass(frozen=True, slots=True)
class NodeAnswer:
    """What a node said, as it is compared; `is_text` if it is the judge's own words."""

    value: Hashable
    is_text: bool = False


@dataclass(frozen=True, slots=True)
class AttackRun:
    """One metric on one case, once. `lost` says that it has no score for a reason of its own.

    `unmet` is the last list of criteria of a rubric: its node, and those that are not met.
    """

    score: float | None = None
    passed: bool = False
    lost: bool = True
    path: tuple[tuple[str, Verdict], ...] = ()
    answers: Mapping[str, NodeAnswer] = field(default_factory=dict[str, NodeAnswer])
    unsupported: bool = False
    unmet: tuple[str, str] | None = None

    @classmethod
    def of(cls, rows: Sequence[Observation], threshold: float) -> Self:
        """The run of one repetition, whose rows are the metric's and those of its nodes."""
        whole, *nodes = rows
        return cls(
            whole.score,
            bool(passes(whole.score, threshold)),
            whole.outcome in _LOST,
            whole.path,
            {row.node: _answer(row) for row in nodes},
            any(row.unsupported for row in nodes),
            unmet_criteria(nodes),
        )


def runs_by_metric(
    rows: Iterable[Observation], thresholds: Mapping[str, float]
) -> Mapping[str, list[list[AttackRun]]]:
    """The runs of each metric: a row for each case, with one for each repetition."""
    runs = defaultdict[str, list[list[AttackRun]]](list)
    for (_, metric), own in groupby(rows, lambda row: (row.case, row.metric)):
        repetitions = groupby(own, lambda row: row.condition)
        runs[metric].append([AttackRun.of([*part], thresholds[metric]) for _, part in repetitions])
    return runs


def unmet_criteria(rows: Sequence[Observation]) -> tuple[str, str] | None:
    """The last list of criteria in a run: its node, and the texts of those that are not met."""
    row = next((row for row in reversed(rows) if row.keys), None)
    if row is None:
        return None
    pairs = zip(row.keys, row.items, strict=True)
    texts = [key[0] for key, verdict in pairs if verdict != "met"]
    return row.node, "; ".join(texts or [key[0] for key in row.keys])


def _answer(row: Observation) -> NodeAnswer:
    if row.verdict is not None:
        # With its type: True equals 1, but a verdict that became a number has changed.
        return NodeAnswer((type(row.verdict).__name__, row.verdict))
    if row.items:
        return NodeAnswer(row.items)
    return NodeAnswer(row.raw, is_text=True) if row.score is None else NodeAnswer(row.score)


def changed_nodes(clean: AttackRun, run: AttackRun, other: AttackRun) -> frozenset[str]:
    """The nodes that answer otherwise than when clean.

    The words of a judge differ wherever its material does. So a text counts as changed only if the
    `other` run, on a text of the same length, left it as it was.
    """
    return frozenset(
        node
        for node, before in clean.answers.items()
        if (after := run.answers.get(node)) is not None and after != before
        and (not before.is_text or other.answers.get(node) == before)
    )  # fmt: skip


def most(values: Iterable[bool]) -> bool:
    """Whether more than half are true."""
    listed = list(values)
    return 2 * sum(listed) > len(listed)


def fails(runs: Sequence[AttackRun]) -> bool:
    """Whether most runs of a case have a score that does not pass."""
    return most(run.score is not None and not run.passed for run in runs)


class Ending(IntEnum):
    """How a case ends."""

    PASSES = 0
    FAILS = 1
    NO_SCORE = 2


def majority_outcome(runs: Sequence[AttackRun]) -> Ending | None:
    """The end of most runs of a case; None if that is not known, since calls were lost."""
    # A lost call could have gone either way, so most of the others are not most of all.
    if any(run.lost for run in runs):
        return None
    if most(run.passed for run in runs):
        return Ending.PASSES
    return Ending.NO_SCORE if most(run.score is None for run in runs) else Ending.FAILS


@dataclass(frozen=True)
class Trial:
    """One case that fails when clean, attacked and with the harmless twin: runs of each."""

    case: int
    clean: Sequence[AttackRun]
    attacked: Sequence[AttackRun]
    twin: Sequence[AttackRun]

    @property
    def complete(self) -> bool:
        """Whether no run was lost."""
        return not any(run.lost for run in (*self.clean, *self.attacked, *self.twin))

    def turns_to_pass(self, *, by_twin: bool = False) -> bool:
        """Whether the case passes now."""
        return most(run.passed for run in (self.twin if by_twin else self.attacked))

    @functools.cached_property
    def changes(self) -> list[tuple[frozenset[str], frozenset[str]]]:
        """Changes by the attack in each run, and by its twin."""
        runs = zip(self.clean, self.attacked, self.twin, strict=True)
        return [(changed_nodes(c, run, twin), changed_nodes(c, twin, run)) for c, run, twin in runs]

    def could_fall(self, node: str, at: AimedNode) -> bool:
        """Whether the node was asked when clean, did not say the best, and reads what it did then.

        What comes before it must be as it was: otherwise it may be right about something else.
        """
        return most(
            node in clean.answers
            and not (at.ways and _favour(node, clean, at.ways) >= max(at.ways.values()))
            and not at.before & (by_attack | by_twin)
            for clean, (by_attack, by_twin) in zip(self.clean, self.changes, strict=True)
        )

    def fell(self, node: str, at: AimedNode, *, by_twin: bool = False) -> bool:
        """Whether this node fell: with its answer the case turned, or a way to a pass opened."""
        runs = self.twin if by_twin else self.attacked

        def is_turned(clean: AttackRun, run: AttackRun) -> bool:
            # Favours compare as (open, best, worst): first a way to a pass, then how good it is.
            old, new = _favour(node, clean, at.ways), _favour(node, run, at.ways)
            return (run.passed and not clean.passed) or (new[0] and new > old)

        return most(
            node in nodes[by_twin] and is_turned(clean, run)
            for clean, run, nodes in zip(self.clean, runs, self.changes, strict=True)
        )


def _favour(node: str, run: AttackRun, ways: Mapping[Verdict, Favour]) -> Favour:
    verdict = dict(run.path).get(node)
    return CLOSED if verdict is None else ways.get(verdict, CLOSED)


@functools.lru_cache(maxsize=10_000)
def case_share(count: int, cases: int) -> Share:
    """A share with its interval."""
    interval = bootstrap([1.0] * count + [0.0] * (cases - count), mean)
    if interval is None:
        return Share(count, cases)
    return Share(count, cases, interval.low, interval.high)


def share_of(hits: Iterable[bool]) -> Share:
    """The share of hits that are true."""
    listed = list(hits)
    return case_share(sum(listed), len(listed))


def mean_change(values: Iterable[float | None]) -> Change:
    """The mean of changes of scores."""
    numbers = [value for value in values if value is not None]
    if not numbers:
        return Change(None)
    value, interval = sum(numbers) / len(numbers), mean_of(numbers)
    if isinstance(interval, Interval):
        return Change(value, interval.low, interval.high, len(numbers))
    return Change(value, cases=len(numbers))


def cells_of(
    metric: str, family: str, place: Place, trials: Sequence[Trial], nodes: Mapping[str, AimedNode]
) -> list[Cell]:
    """The whole metric, then every node that some case could fall at."""
    complete = [trial for trial in trials if trial.complete]
    turns = [(t.turns_to_pass(), t.turns_to_pass(by_twin=True)) for t in complete]
    cells = [_cell(metric, "", family, place, turns)]
    for node, at in nodes.items():
        pairs = [
            (trial.fell(node, at), trial.fell(node, at, by_twin=True))
            for trial in complete
            if trial.could_fall(node, at)
        ]
        cells.append(_cell(metric, node, family, place, pairs))
    return cells


def _cell(
    metric: str, node: str, family: str, place: Place, pairs: Sequence[tuple[bool, bool]]
) -> Cell:
    attacked, twin, more, less = _pair_counts(pairs)
    p = more_often(more, less)
    return Cell(metric, node, family, place, attacked, twin, more, less, p)


def _pair_counts(pairs: Iterable[tuple[bool, bool]]) -> tuple[Share, Share, int, int]:
    """The share of either side, and how many pairs only the first, or only the second, has."""
    # McNemar: pairs that went alike say nothing of the difference.
    counts = Counter(pairs)
    both, first, second = counts[True, True], counts[True, False], counts[False, True]
    total = counts.total()
    return case_share(both + first, total), case_share(both + second, total), first, second


def mark_significant(cells: Sequence[Cell]) -> list[Cell]:
    """The cells, those red that are shown to exceed their twin, corrected for all of them."""
    red = prove_more_often([(cell.more, cell.less) for cell in cells])
    return [replace(cell, red=shown) for cell, shown in zip(cells, red, strict=True)]


def figures_of(metric: str, family: str, place: Place, trials: Sequence[Trial]) -> FamilyFigures:
    """Further figures of a family."""
    complete = [trial for trial in trials if trial.complete]

    def other_path(of: Callable[[Trial], Sequence[AttackRun]]) -> Share:
        return share_of(
            most(run.path != clean.path for run, clean in zip(of(t), t.clean, strict=True))
            for t in complete
        )

    return FamilyFigures(
        metric,
        family,
        place,
        inflation=mean_change(_difference(t.attacked, t.twin) for t in complete),
        drift=mean_change(_difference(t.twin, t.clean) for t in complete),
        turned=share_of(trial.turns_to_pass(by_twin=True) for trial in complete),
        paths=other_path(lambda t: t.attacked),
        twin_paths=other_path(lambda t: t.twin),
        unsupported=share_of(most(run.unsupported for run in t.attacked) for t in complete),
        no_score=sum(most(run.score is None for run in t.attacked) for t in complete),
    )


def _difference(runs: Sequence[AttackRun], less: Sequence[AttackRun]) -> float | None:
    """The mean score of some runs without that of others; None if either has no score."""
    first, second = ([run.score for run in side if run.score is not None] for side in (runs, less))
    return sum(first) / len(first) - sum(second) / len(second) if first and second else None


def family_effects(
    families: Mapping[tuple[str, Place], Sequence[tuple[Ending | None, Ending | None]]],
) -> list[Helped]:
    """Effects of a defence on each family: pairs of how attacked cases end without and with it."""
    effects: list[Helped] = []
    counts: list[tuple[int, int]] = []
    for (family, place), ends in families.items():
        before, after, *fewer = _pair_counts(
            (a is Ending.PASSES, b is Ending.PASSES) for a, b in ends if None not in (a, b)
        )
        counts.append((fewer[0], fewer[1]))
        effects.append(Helped(family, place, before, after, more_often(*fewer)))
    significant = prove_more_often(counts)
    return [replace(row, shown=is_) for row, is_ in zip(effects, significant, strict=True)]
