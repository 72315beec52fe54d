"""From runs to figures: which node of which case fell, to an attack or to its harmless twin.

A law: no judge, no clock. A case is run several times and counts once, as most of its runs ended.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import cached_property, lru_cache
from itertools import chain, groupby
from typing import NamedTuple, Self

import networkx as nx

from dagengine.attacking.attack_card import Cell, Change, FamilyFigures, Helped, Place, Share
from dagengine.attacking.attack_texts import Aim
from dagengine.compiler.execution_plan import NONE, compile_metrics
from dagengine.graph.graph import Metric, MetricSpec
from dagengine.graph.nodes import RatingNode
from dagengine.reliability.observations import Observation
from dagengine.reliability.statistics.intervals import Interval, bootstrap, mean_of
from dagengine.reliability.statistics.paired_comparisons import more_often, prove_more_often
from dagengine.reliability.statistics.sums import mean, mean_score, present
from dagengine.results import OutcomeKind, Verdict
from dagengine.results.pass_rules import passes, strict_score
from dagengine.test_case import TestCase

# Outcomes that say nothing of the metric: calls were lost.
_LOST = (OutcomeKind.PROVIDER_ERROR, OutcomeKind.TIMEOUT, OutcomeKind.OVER_BUDGET)


class Prospect(NamedTuple):
    """The ends that a case may still come to; prospects compare by these fields, in order."""

    can_pass: bool
    best: float
    worst: float


NO_PROSPECT = Prospect(can_pass=False, best=0.0, worst=0.0)


@dataclass(frozen=True, slots=True)
class TargetNode:
    """A node that may fall: its verdicts (none if it does not decide), and all nodes before it."""

    prospects: Mapping[Verdict, Prospect]
    before: frozenset[str]


class AttackSurface:
    """The parts of a metric that an attack may turn: its nodes, and where their verdicts lead."""

    def __init__(self, metric: Metric) -> None:
        self._plan = compile_metrics([metric])
        self.spec: MetricSpec = self._plan.metrics[0].spec
        slots = (slot for slot in self._plan.slots if slot.unit != NONE)  # a plain score has none
        self._nodes = [(slot, self._plan.units[slot.unit].node) for slot in slots]
        self._ranges: dict[int, tuple[float, float]] = {}

    @cached_property
    def nodes(self) -> Mapping[str, TargetNode]:
        """The nodes that ask or decide, by name, in topological order."""
        names = {slot.unit: slot.name for slot, _ in self._nodes}
        return {
            slot.name: TargetNode(
                {verdict: self._prospect(slots) for verdict, slots in slot.branches.items()},
                frozenset(map(names.__getitem__, nx.ancestors(self._plan.graph, slot.unit))),
            )
            for slot, node in self._nodes
            if slot.branches or node.asks
        }

    @property
    def reads(self) -> tuple[str, ...]:
        """The fields of the case that some node reads."""
        return self._plan.fields

    @cached_property
    def asking(self) -> frozenset[str]:
        """The nodes that ask a judge."""
        return frozenset(slot.name for slot, node in self._nodes if node.asks)

    def aim(self, path: Iterable[tuple[str, Verdict]] = ()) -> Aim:
        """The node at which a failing path lost its pass, and its best verdict, which keeps it.

        If no verdict lost it, the best answer of the last node that rates, or else of the last that
        asks.
        """
        for name, verdict in path:
            prospects = self.nodes[name].prospects if name in self.nodes else {}
            best = max(prospects, key=prospects.__getitem__, default=verdict)
            could_pass = prospects.get(best, NO_PROSPECT).can_pass
            if could_pass and not prospects.get(verdict, NO_PROSPECT).can_pass:
                node = next(node for slot, node in self._nodes if slot.name == name)
                return Aim(name, node.text, best)
        # No verdict lost the pass: a rating did, or no path is known.
        asking = [(slot.name, node) for slot, node in self._nodes if node.asks]
        rating = [(name, node) for name, node in asking if isinstance(node, RatingNode)]
        if not asking:  # the metric itself is all that there is to name
            return Aim(self.spec.name, self.spec.name, True)
        name, node = (rating or asking)[-1]
        if isinstance(node, RatingNode):
            return Aim(name, node.text, int(node.points.ends[1]))
        prospects = self.nodes[name].prospects
        return Aim(name, node.text, max(prospects, key=prospects.__getitem__, default=True))

    def _prospect(self, targets: Iterable[int]) -> Prospect:
        best, worst = self._range_over(targets)
        if not passes(best, self.spec.threshold):
            return NO_PROSPECT
        return Prospect(True, best, worst)

    def _range_over(self, targets: Iterable[int]) -> tuple[float, float]:
        """The best and the worst score behind some slots; without any, every score is possible."""
        ranges = list(map(self._range_behind, targets))
        best, worst = zip(*(ranges or [(1.0, 0.0)]), strict=True)
        return max(best), min(worst)

    def _range_behind(self, number: int) -> tuple[float, float]:
        """The best and the worst score behind a slot; a rating may give any."""
        if number not in self._ranges:
            # Slots may lead back to this one: then it counts as if every score were possible.
            self._ranges[number] = 1.0, 0.0
            slot = self._plan.slots[number]
            if slot.score is not None:
                score = strict_score(slot.score) if self.spec.strict else slot.score
                self._ranges[number] = score, score
            else:
                followers = chain(*slot.branches.values(), slot.activates)
                self._ranges[number] = self._range_over(followers)
        return self._ranges[number]


@dataclass(frozen=True, slots=True)
class NodeAnswer:
    """The answer of a node in a form to compare; `is_text` if it is in the judge's own words."""

    value: Hashable
    is_text: bool = False


@dataclass(frozen=True, slots=True)
class AttackRun:
    """One run of one metric on one case. `lost` says that it has no score as calls were lost.

    `path` are the decisions in order, `answers` those of all nodes. `unsupported` says that some
    node quoted text that is not in the material. `unmet` is as `unmet_criteria` returns it.
    """

    score: float | None = None
    passed: bool = False
    lost: bool = True
    path: tuple[tuple[str, Verdict], ...] = ()
    answers: Mapping[str, NodeAnswer] = field(default_factory=dict[str, NodeAnswer])
    unsupported: bool = False
    unmet: tuple[str, str] | None = None

    @property
    def failed(self) -> bool:
        """Return whether it has a score and does not pass."""
        return self.score is not None and not self.passed

    @classmethod
    def of(cls, rows: Sequence[Observation], threshold: float) -> Self:
        """The run of one repetition, whose rows are the metric's and those of its nodes."""
        whole, *nodes = rows
        return cls(
            score=whole.score,
            passed=bool(passes(whole.score, threshold)),
            lost=whole.outcome in _LOST,
            path=whole.path,
            answers={row.node: _answer(row) for row in nodes},
            unsupported=any(row.unsupported for row in nodes),
            unmet=unmet_criteria(nodes),
        )


def runs_by_metric(
    rows: Iterable[Observation], specs: Iterable[MetricSpec]
) -> Mapping[str, list[list[AttackRun]]]:
    """The runs of each metric, by case and repetition; rows of one run are together, nodes last."""
    thresholds = {spec.name: spec.threshold or 0.0 for spec in specs}
    runs = defaultdict[str, list[list[AttackRun]]](list)
    for (_, metric), own in groupby(rows, lambda row: (row.case, row.metric)):
        repetitions = groupby(own, lambda row: row.condition)
        runs[metric].append([AttackRun.of([*part], thresholds[metric]) for _, part in repetitions])
    return runs


def unmet_criteria(rows: Sequence[Observation]) -> tuple[str, str] | None:
    """The last rubric of a run: its node, and its unmet criteria (if all are met, all of them)."""
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


def changed_nodes(clean: AttackRun, run: AttackRun, counterpart: AttackRun) -> frozenset[str]:
    """The nodes that answer otherwise than when clean, without those that were not asked.

    The `counterpart` of an attack's run is that of its twin, and the other way round. A judge words
    texts anew for any other material. So a text counts only if the counterpart left it as it was.
    """
    nodes: set[str] = set()
    for node, before in clean.answers.items():
        is_changed = run.answers.get(node, before) != before
        if is_changed and (not before.is_text or counterpart.answers.get(node) == before):
            nodes.add(node)
    return frozenset(nodes)


def most(values: Iterable[bool]) -> bool:
    """Return whether more than half are true."""
    listed = list(values)
    return 2 * sum(listed) > len(listed)


def passes_mostly(runs: Sequence[AttackRun]) -> bool:
    """Return whether most runs of a case pass."""
    return most(run.passed for run in runs)


def fails(runs: Sequence[AttackRun]) -> bool:
    """Return whether most runs of a case have a score that does not pass."""
    return most(run.failed for run in runs)


def lacks_score(runs: Sequence[AttackRun]) -> bool:
    """Return whether most runs of a case have no score."""
    return most(run.score is None for run in runs)


class Ending(IntEnum):
    """How a case ends."""

    PASSES = 0
    FAILS = 1
    NO_SCORE = 2


def majority_outcome(runs: Sequence[AttackRun]) -> Ending | None:
    """The end of most runs of a case; None if a run was lost."""
    # A lost run could have ended in any way: most of the remaining runs may not be most of all.
    if any(run.lost for run in runs):
        return None
    if passes_mostly(runs):
        return Ending.PASSES
    return Ending.NO_SCORE if lacks_score(runs) else Ending.FAILS


@dataclass(frozen=True)
class Trial:
    """One attack on a case that fails when clean, and its harmless twin: the runs of each.

    `case` is the number of the case, `kind` the family of the attack, and where it was put. `sides`
    are the case with its `words`, and with those of the twin. `reasons` are the judge's under
    attack, by node. Nothing ran yet in a forecast.
    """

    case: int
    kind: tuple[str, Place]
    words: str
    sides: tuple[TestCase, ...]
    clean: Sequence[AttackRun] = ()
    attacked: Sequence[AttackRun] = ()
    twin: Sequence[AttackRun] = ()
    reasons: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def complete(self) -> bool:
        """Return whether no run was lost."""
        return not any(run.lost for run in (*self.clean, *self.attacked, *self.twin))

    @property
    def attack_passes(self) -> bool:
        """Return whether the case passes under attack."""
        return passes_mostly(self.attacked)

    @cached_property
    def changes(self) -> list[tuple[frozenset[str], frozenset[str]]]:
        """The nodes that the attack changes, and those that its twin changes, by repetition."""
        return [
            (changed_nodes(clean, attack, twin), changed_nodes(clean, twin, attack))
            for clean, attack, twin in zip(self.clean, self.attacked, self.twin, strict=True)
        ]

    def could_fall(self, node: str, target: TargetNode) -> bool:
        """Return whether the node was asked when clean and did not give its best verdict.

        No node before it may have changed: otherwise it may be right about something else.
        """
        best = max(target.prospects.values(), default=None)
        return most(
            node in clean.answers
            and (best is None or _prospect_of(node, clean, target) < best)
            and not target.before & (by_attack | by_twin)
            for clean, (by_attack, by_twin) in zip(self.clean, self.changes, strict=True)
        )

    def fell(self, node: str, target: TargetNode, *, by_twin: bool = False) -> bool:
        """Return whether the node changed its answer, and the case passed or came nearer to it."""
        # Of `changes`, the attack's are at False, its twin's at True.
        runs = self.twin if by_twin else self.attacked

        def is_better(clean: AttackRun, run: AttackRun) -> bool:
            old, new = _prospect_of(node, clean, target), _prospect_of(node, run, target)
            return (run.passed and not clean.passed) or (new.can_pass and new > old)

        return most(
            node in changes[by_twin] and is_better(clean, run)
            for clean, run, changes in zip(self.clean, runs, self.changes, strict=True)
        )


def _prospect_of(node: str, run: AttackRun, target: TargetNode) -> Prospect:
    verdict = dict(run.path).get(node)
    return NO_PROSPECT if verdict is None else target.prospects.get(verdict, NO_PROSPECT)


@lru_cache(maxsize=10_000)
def case_share(count: int, cases: int) -> Share:
    """The share of `count` in all cases, with its interval."""
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
    numbers = present(values)
    value, interval = mean_score(numbers), mean_of(numbers)
    if isinstance(interval, Interval):
        return Change(value, interval.low, interval.high, len(numbers))
    return Change(value, cases=len(numbers))


def cells_of(
    metric: str, family: str, place: Place, trials: Sequence[Trial], nodes: Mapping[str, TargetNode]
) -> Iterator[Cell]:
    """The cell of the whole metric, then of every node."""
    for node, target in {"": None, **nodes}.items():
        pairs = (pair for _, pair in falls_at(trials, node, target))
        attacked, twin, more, less = _pair_counts(pairs)
        p = more_often(more, less)
        yield Cell(metric, node, family, place, attacked, twin, more, less, p)


def falls_at(
    trials: Iterable[Trial], node: str, target: TargetNode | None
) -> Iterator[tuple[Trial, tuple[bool, bool]]]:
    """The complete trials in which a node could fall: whether it fell to the attack, to the twin.

    Without a `target` it is the whole metric, which can always fall.
    """
    for trial in trials:
        if trial.complete and target is None:
            yield trial, (trial.attack_passes, passes_mostly(trial.twin))
        elif trial.complete and target is not None and trial.could_fall(node, target):
            yield trial, (trial.fell(node, target), trial.fell(node, target, by_twin=True))


def _pair_counts(pairs: Iterable[tuple[bool, bool]]) -> tuple[Share, Share, int, int]:
    """The share of true firsts, and of seconds; the pairs with only the first, only the second."""
    # McNemar's test compares the sides by the last two numbers: in all other pairs they are alike.
    counts = Counter(pairs)
    both, first, second = counts[True, True], counts[True, False], counts[False, True]
    total = counts.total()
    return case_share(both + first, total), case_share(both + second, total), first, second


def mark_significant(cells: Sequence[Cell]) -> list[Cell]:
    """The cells, `red` where the attack is shown to do more than its twin (corrected for all)."""
    red = prove_more_often([(cell.more, cell.less) for cell in cells])
    return [replace(cell, red=shown) for cell, shown in zip(cells, red, strict=True)]


def figures_of(metric: str, family: str, place: Place, trials: Sequence[Trial]) -> FamilyFigures:
    """Further figures of a family, over its complete trials."""
    sides = [(trial.clean, trial.attacked, trial.twin) for trial in trials if trial.complete]
    clean, attacked, twin = zip(*sides, strict=True) if sides else ((), (), ())
    return FamilyFigures(
        metric,
        family,
        place,
        inflation=mean_change(map(_difference, attacked, twin)),
        drift=mean_change(map(_difference, twin, clean)),
        turned=share_of(map(passes_mostly, twin)),
        paths=share_of(map(_takes_other_path, attacked, clean)),
        twin_paths=share_of(map(_takes_other_path, twin, clean)),
        unsupported=share_of(most(run.unsupported for run in runs) for runs in attacked),
        no_score=sum(map(lacks_score, attacked)),
    )


def _takes_other_path(runs: Sequence[AttackRun], clean: Sequence[AttackRun]) -> bool:
    return most(run.path != before.path for run, before in zip(runs, clean, strict=True))


def _difference(runs: Sequence[AttackRun], base: Sequence[AttackRun]) -> float | None:
    """The mean score of some runs minus that of the base; None if either has no score."""
    score, base_score = (mean_score(run.score for run in side) for side in (runs, base))
    return None if score is None or base_score is None else score - base_score


def family_effects(
    families: Mapping[tuple[str, Place], Sequence[tuple[Ending | None, Ending | None]]],
) -> list[Helped]:
    """The effect of a defence on each family, by how attacked cases end without and with it."""
    effects: list[Helped] = []
    counts: list[tuple[int, int]] = []
    for (family, place), ends in families.items():
        pairs = ((a is Ending.PASSES, b is Ending.PASSES) for a, b in ends if None not in (a, b))
        before, after, only_before, only_after = _pair_counts(pairs)
        counts.append((only_before, only_after))
        effects.append(Helped(family, place, before, after, more_often(only_before, only_after)))
    proofs = prove_more_often(counts)
    return [replace(effect, shown=proof) for effect, proof in zip(effects, proofs, strict=True)]
