"""Many metrics compiled into one immutable plan.

A *unit* is something that runs at most once per case. Slots of different metrics share a
unit when they are the same node, ask the same judge and read the same things. The plan
is all tuples and integers: the scheduler walks it without looking at a node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import networkx as nx

from dagengine.compiler.liveness import SlotKind
from dagengine.errors import Problem
from dagengine.graph.graph import Metric, MetricSpec
from dagengine.graph.node import BaseNode

NONE = -1
"""In the place of a number: there is no such unit, scope or slot."""
ALWAYS = -1
"""In the place of a source's slot: the source is there whenever its reader runs."""


@dataclass(frozen=True, slots=True, eq=False)
class Unit:
    """One node as it runs: what it reads, and which judge it asks.

    `metric` is the first metric that it belongs to. `judges` are those that it asks: the metric's
    own, or its panel's. `sources` are (label, unit, slot) of what it reads. If a source may be
    dead, its slot says whether it is there (`ALWAYS`: it always is). `constant` units are equal for
    every case; `foreign` ones run code that is not this library's. Of a case's units that are ready
    the one with the least `urgency` starts first: those that ask nothing, then by place. `shares`
    are the fields that its prompts begin with, as those of other questions to the same judge do.
    """

    index: int
    name: str
    metric: str
    node: BaseNode
    judges: tuple[int, ...]
    reads: tuple[str, ...]
    sources: tuple[tuple[str, int, int], ...]
    slots: tuple[int, ...]
    constant: bool
    foreign: bool
    urgency: tuple[bool, int]
    shares: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class PlanSlot:
    """One place of one metric, with everything that follows from it as slot numbers.

    Numbers follow the topological order within a metric. `reads` are the slots waited for.
    Slots of a `tangle` (this one among them) may make each other live; `made_by` are all
    the causes of such a slot. `material` are scores that this one is computed from. `unit` is
    `NONE` for a slot that runs nothing, `nested` is the scope of a nested metric, else `NONE`.
    """

    index: int
    metric: int
    scope: int
    kind: SlotKind
    name: str
    unit: int
    score: float | None
    grades: bool
    nested: int
    root: bool
    branches: Mapping[Any, tuple[int, ...]]
    targets: tuple[int, ...]
    activates: tuple[int, ...]
    feeds: tuple[int, ...]
    causes: int
    reads: tuple[int, ...]
    tangle: tuple[int, ...]
    made_by: tuple[int, ...]
    material: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class PlanScope:
    """A metric or a nested metric: its settings, slots and terminals (in order).

    `owner` is the slot that a nested metric is in, `NONE` for a metric at the top.
    """

    index: int
    spec: MetricSpec
    owner: int
    slots: tuple[int, ...]
    terminals: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class PlanMetric:
    """A top-level metric: its scope, its slots in topological order, what it always reads.

    `source` is the metric that was compiled.
    """

    index: int
    spec: MetricSpec
    scope: int
    slots: range
    required: tuple[tuple[str, str], ...]
    source: Metric | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """What the scheduler runs on every case.

    `models` are the judges asked for by metrics, as given (None: the run's judge).
    `warnings` are findings that do not keep the plan from running.
    """

    metrics: tuple[PlanMetric, ...]
    scopes: tuple[PlanScope, ...]
    slots: tuple[PlanSlot, ...]
    units: tuple[Unit, ...]
    models: tuple[Any, ...]
    warnings: tuple[Problem, ...]

    @property
    def graph(self) -> nx.DiGraph[int]:
        """All metrics as one graph of unit numbers; an edge leads to what comes later."""
        graph: nx.DiGraph[int] = nx.DiGraph()
        for unit in self.units:
            graph.add_node(unit.index, name=unit.name, kind=unit.node.kind)
            graph.add_edges_from((source, unit.index) for _, source, _ in unit.sources)
        for slot in (slot for slot in self.slots if slot.unit != NONE):
            reads = {source for _, source, _ in self.units[slot.unit].sources}
            entered: list[PlanSlot] = []  # a nested metric is entered by its roots
            for target in (self.slots[number] for number in (*slot.targets, *slot.activates)):
                inner = (self.slots[number] for number in target.activates)
                entered += [target] if target.nested == NONE else inner
            for target in entered:
                # A pull runs from reader to source; its edge is there already.
                if target.unit != NONE and target.unit not in reads:
                    graph.add_edge(slot.unit, target.unit)
        return graph

    def judge_of(self, model: Any) -> int:
        """The place in `models` of a judge as a metric names it."""
        index = place_of(model, self.models)
        if index is None:
            raise LookupError(f"no metric of the plan asks {model!r:.80}")
        return index

    @property
    def asked(self) -> list[int]:
        """Indices in `models` of the judges that some node asks, sorted."""
        return sorted({judge for unit in self.units if unit.node.asks for judge in unit.judges})

    @property
    def fields(self) -> tuple[str, ...]:
        """Every case field that some node reads, sorted."""
        return tuple(sorted({path for unit in self.units for path in unit.reads}))


def place_of(model: Any, models: Sequence[Any]) -> int | None:
    """The place in `models` of an equal name or of the very same object; None without one."""
    for index, candidate in enumerate(models):
        if candidate is model or (isinstance(model, str) and candidate == model):
            return index
    return None


def unfounded_slots(
    plan: Plan,
    tangle: Iterable[int],
    is_open: Callable[[int], bool],
    is_live: Callable[[int], bool],
) -> list[int]:
    """Slots of a tangle that nothing can make live any more but each other.

    A node runs when what hands on to it runs, and also when something that runs reads it. So two
    nodes may make each other run:

        gate ── yes ──> words ── hands on to ──> last
                          ^──────── reads ────────┘

    Each of the two is a cause of the other, so neither ever loses its last cause. When the gate
    says no, counting causes would wait for ever. What counts is a cause from outside of the tangle
    that is still open. Whatever such a cause supports, directly or in turn, stays; the rest is
    dead.

    `is_open` says whether a slot is neither dead nor has a value, `is_live` whether it is
    live. (In logic programming: the unfounded set; Van Gelder et al. 1991,
    https://doi.org/10.1145/116825.116838.)
    """
    unknown = {number for number in tangle if is_open(number) and not is_live(number)}
    supported = [
        number
        for number in sorted(unknown)
        if any(cause not in unknown and is_open(cause) for cause in plan.slots[number].made_by)
    ]
    stay = set(supported)
    for support in supported:  # grows while we go
        for number in sorted(unknown - stay):
            if support in plan.slots[number].made_by:
                stay.add(number)
                supported.append(number)
    return sorted(unknown - stay)
