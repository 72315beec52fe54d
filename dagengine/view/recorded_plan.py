"""The plan of a metric from its record: what leads to what, without the nodes' own code.

What the engine would run can then be told where the program that made a run is not at hand.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import networkx as nx

from dagengine.compiler.plan import NONE, Plan, PlanMetric, PlanScope, PlanSlot, Unit
from dagengine.compiler.wiring import SlotKind, material_of
from dagengine.graph.graph import Graph, MetricSpec
from dagengine.graph.nodes import CodeNode
from dagengine.record.values import EdgeRecord, MetricRecord, NodeRecord


def plan_of(metric: MetricRecord) -> Plan:
    """The plan that a metric was recorded from, but for its nodes: each of them does nothing."""
    record = _Record()
    record.add(metric, NONE)
    return record.plan()


@dataclass(slots=True, eq=False)
class _Slot:
    """A slot in the making."""

    scope: int
    kind: SlotKind
    name: str
    node: NodeRecord | None = None
    score: float | None = None
    nested: int = NONE
    root: bool = False
    branches: dict[Any, list[int]] = field(default_factory=lambda: defaultdict(list))
    activates: list[int] = field(default_factory=list)
    feeds: list[int] = field(default_factory=list)
    reads: list[int] = field(default_factory=list)

    @property
    def targets(self) -> tuple[int, ...]:
        return tuple(target for targets in self.branches.values() for target in targets)

    @property
    def grades(self) -> bool:
        return self.kind != "node" or (self.node is not None and self.node.grades)


class _Record:
    """The slots and scopes of one metric, numbered as its record has them."""

    def __init__(self) -> None:
        self.slots: list[_Slot] = []
        self.metrics: list[MetricRecord] = []
        self.owners: list[int] = []

    def add(self, metric: MetricRecord, owner: int) -> int:
        """Add a metric, with the parts of nested ones before what stands for them."""
        scope = len(self.metrics)
        self.metrics.append(metric)
        self.owners.append(owner)
        numbers: dict[str, int] = {}
        for node in metric.nodes:
            nested = NONE if node.metric is None else self.add(node.metric, NONE)
            kind: SlotKind = "node" if node.metric is None else "metric"
            number = numbers[node.name] = self._add_slot(
                _Slot(scope, kind, node.name, node, nested=nested)
            )
            if nested != NONE:
                self.owners[nested] = number
                self.slots[number].activates += [
                    at for at, slot in enumerate(self.slots) if slot.scope == nested and slot.root
                ]
            for edge in metric.edges:
                if edge.source == node.name and edge.score is not None:
                    label = f"{node.name} = {edge.verdict}"
                    score = _Slot(scope, "verdict", label, score=edge.score)
                    self.slots[number].branches[edge.verdict].append(self._add_slot(score))
        for edge in metric.edges:
            self.connect(edge, numbers)
        for name, number in numbers.items():
            self.slots[number].root = _is_root(self.slots[number].node, metric.edges, name)
        return scope

    def _add_slot(self, slot: _Slot) -> int:
        self.slots.append(slot)
        return len(self.slots) - 1

    def connect(self, edge: EdgeRecord, numbers: dict[str, int]) -> None:
        number = numbers[edge.source]
        source = self.slots[number]
        if edge.verdict is not None:
            branch = source.branches[edge.verdict]
            if edge.target is not None:
                branch.append(numbers[edge.target])
        elif edge.target is not None:
            target = self.slots[numbers[edge.target]]
            source.feeds.append(numbers[edge.target])
            target.reads.append(number)
            if edge.starts:
                source.activates.append(numbers[edge.target])
            if _pulls(edge):
                target.activates.append(number)

    def plan(self) -> Plan:
        specs = [
            MetricSpec(
                metric.name, Graph(), metric.threshold, metric.strict, metric.combine,
                include_reason=False,
            )
            for metric in self.metrics
        ]  # fmt: skip
        units = [
            Unit(
                index, slot.name, specs[0].name, CodeNode(lambda: None), (), slot.node.reads, (),
                (number,), False, False, (bool(slot.node.judges), number),
            )
            for index, (number, slot) in enumerate(self._nodes())
            if slot.node is not None
        ]  # fmt: skip
        scopes = []
        for index, spec in enumerate(specs):
            slots = [number for number, slot in enumerate(self.slots) if slot.scope == index]
            grading = {self.slots[n].name: n for n in slots if self.slots[n].grades}
            names = self.metrics[index].terminals or grading
            terminals = tuple(grading[name] for name in names)
            scopes.append(PlanScope(index, spec, self.owners[index], tuple(slots), terminals))
        return Plan(
            metrics=(PlanMetric(0, specs[0], 0, range(len(self.slots)), ()),),
            scopes=tuple(scopes),
            slots=tuple(self._slots({unit.slots[0]: unit.index for unit in units})),
            units=tuple(units),
            models=(None,),
            warnings=(),
        )

    def _nodes(self) -> Iterator[tuple[int, _Slot]]:
        return ((n, slot) for n, slot in enumerate(self.slots) if slot.kind == "node")

    def _slots(self, unit_of: dict[int, int]) -> Iterator[PlanSlot]:
        causes: list[list[int]] = [[] for _ in self.slots]
        for number, slot in enumerate(self.slots):
            for target in (*slot.targets, *slot.activates):
                causes[target].append(number)
        tangles = self.tangles()
        for number, slot in enumerate(self.slots):
            tangle = tangles.get(number, ())
            yield PlanSlot(
                index=number,
                metric=0,
                scope=slot.scope,
                kind=slot.kind,
                name=slot.name,
                unit=unit_of.get(number, NONE),
                score=slot.score,
                grades=slot.grades,
                nested=slot.nested,
                root=slot.root and slot.scope == 0,
                branches={verdict: tuple(to) for verdict, to in slot.branches.items()},
                targets=slot.targets,
                activates=tuple(slot.activates),
                feeds=tuple(slot.feeds),
                causes=len(causes[number]),
                reads=tuple(slot.reads),
                tangle=tangle,
                made_by=tuple(causes[number]) if tangle else (),
                material=self.material(number),
            )

    def material(self, number: int) -> tuple[int, ...]:
        def computes(at: int) -> bool:
            node = self.slots[at].node
            return node is not None and node.kind == "code"

        def stated_scores(at: int) -> list[int]:
            return [to for to in self.slots[at].targets if self.slots[to].kind == "verdict"]

        if not (self.slots[number].grades and computes(number)):
            return ()
        return tuple(material_of(number, lambda at: self.slots[at].reads, computes, stated_scores))

    def tangles(self) -> dict[int, tuple[int, ...]]:
        """Slots that may make each other live, as `compiler.wiring.find_tangles` says."""
        handed: nx.DiGraph[int] = nx.DiGraph()
        handed.add_nodes_from(range(len(self.slots)))
        handed.add_edges_from((n, t) for n, slot in self._nodes() for t in slot.activates)
        always: set[int] = set()
        for number, slot in enumerate(self.slots):
            if slot.root and number not in always:
                always |= {number, *nx.descendants(handed, number)}
        graph: nx.DiGraph[int] = nx.DiGraph()
        for number, slot in enumerate(self.slots):
            leads = (*slot.targets, *slot.activates)
            graph.add_edges_from((number, target) for target in leads if target not in always)
        groups = (group for group in nx.strongly_connected_components(graph) if len(group) > 1)
        return {number: tuple(sorted(group)) for group in groups for number in group}


def _pulls(edge: EdgeRecord) -> bool:
    """Whether a reader makes its source run; in an older record, of what does not start it."""
    return not edge.starts if edge.pulls is None else edge.pulls


def _is_root(node: NodeRecord | None, edges: tuple[EdgeRecord, ...], name: str) -> bool:
    """Whether a node runs whenever its metric does; in an older record, if nothing leads to it."""
    if node is not None and node.root is not None:
        return node.root
    led_to = (edge.target == name and (edge.verdict is not None or edge.starts) for edge in edges)
    read = (edge.source == name and edge.verdict is None and _pulls(edge) for edge in edges)
    return not any(led_to) and not any(read)
