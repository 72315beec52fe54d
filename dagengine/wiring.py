"""Who makes whom live, and who waits for whom: one metric's graph as slots.

A *slot* is one place in a metric where something can happen: a node, the terminal behind
a verdict, or a metric nested under one. Nested metrics are expanded in place, so a slot
knows its scope. Two relations connect slots:

* **causes** make a slot live: being a root, a verdict that leads to it, a live parent
  that hands on to it, a live reader that names it as an input;
* **sources** are waited for: what a slot reads.

A parent that hands on to a gated node (one that some verdict leads to) only feeds it when
the parent comes before a decision that gates the node; otherwise it makes it live too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import networkx as nx

from dagengine.graph import MetricSpec, as_digraph
from dagengine.node import BaseNode

SlotKind = Literal["node", "verdict", "metric"]
Start = Literal["start"]
_START: Start = "start"  # where liveness comes from; networkx has no use for None


@dataclass(slots=True, eq=False)
class Source:
    """Something a slot reads; `pulled` when the reader makes it live."""

    slot: Slot
    label: str
    pulled: bool
    certain: bool = True


@dataclass(slots=True, eq=False)
class Scope:
    """The slots of one metric; a nested one is what its `owner` slot stands for."""

    spec: MetricSpec
    owner: Slot | None = None
    slots: dict[Any, Slot] = field(default_factory=dict)
    terminals: list[Slot] = field(default_factory=list)

    def prefix(self) -> str:
        """Names of the enclosing nested metrics, for slot names."""
        return f"{self.owner.name} > " if self.owner else ""


@dataclass(slots=True, eq=False)
class Slot:
    """One place of a metric; `rank` is its place in the metric's topological order."""

    scope: Scope
    kind: SlotKind
    name: str
    node: BaseNode | None = None
    score: float | None = None
    nested: Scope | None = None
    root: bool = False
    always: bool = False
    grades: bool = False
    branches: list[tuple[Any, Slot]] = field(default_factory=list)
    activates: list[Slot] = field(default_factory=list)
    sources: list[Source] = field(default_factory=list)
    tangle: frozenset[Slot] = frozenset()  # slots that may make each other live, if any
    generation: int = 0
    rank: int = 0

    def pulls(self) -> Iterator[Slot]:
        """Inputs: this slot's liveness makes them live."""
        return (source.slot for source in self.sources if source.pulled)

    def leads_to(self) -> Iterator[Slot]:
        """Slots whose liveness has this slot as a cause."""
        yield from (target for _, target in self.branches)
        yield from self.activates
        yield from self.pulls()


@dataclass(slots=True)
class Wiring:
    """A metric's slots in topological order, and what would keep it from ever ending.

    `circular` slots wait to learn whether something runs that itself depends on them;
    `idle` slots are those that nothing can ever make live.
    """

    scope: Scope
    slots: list[Slot]
    circular: list[Slot]
    idle: list[Slot]
    causes: nx.DiGraph[Slot | Start]

    def certain(self, slot: Slot, others: Iterable[Slot]) -> bool:
        """Whether `slot` is never live without one of `others` being live."""
        return _only_after(slot, others, self.causes)


def wire(spec: MetricSpec) -> Wiring:
    """Expand and connect one metric whose own graph is acyclic."""
    scopes = _expand(spec)
    slots = [slot for scope in scopes for slot in scope.slots.values()]
    for scope in scopes:
        _connect(scope)
    _generations(slots)
    for slot in slots:
        slot.sources.sort(key=lambda s: (not s.pulled, *((0, "") if s.pulled else _order(s.slot))))
    causes = _cause_graph(slots)
    reached = nx.descendants(causes, _START)
    idle = [slot for slot in slots if slot not in reached]
    _find_always(slots)
    _find_tangles(slots)
    _mark_uncertain(slots, causes)
    _rank(slots)
    for scope in scopes:
        scope.terminals.sort(key=lambda slot: slot.generation)
    return Wiring(scopes[0], sorted(slots, key=lambda s: s.rank), _circular(slots), idle, causes)


def _expand(spec: MetricSpec) -> list[Scope]:
    scopes = [Scope(spec)]
    for scope in scopes:  # grows while we go: nested metrics open scopes of their own
        for slot in _make_slots(scope):
            if slot.kind == "metric" and slot.nested is not None:
                scopes.append(slot.nested)
    return scopes


def _make_slots(scope: Scope) -> list[Slot]:
    nodes = scope.spec.graph.nodes()
    names = _unique_names(nodes)
    read = {source for node in nodes for source in node.inputs}
    only = scope.owner is not None and len(nodes) == 1 and not nodes[0].branches()
    for node in nodes:
        leaf = not node.successors() and not node.branches() and node not in read
        # A nested metric of one node needs no second name for it.
        name = scope.owner.name if only and scope.owner else scope.prefix() + names[node]
        slot = Slot(scope, "node", name, node, grades=leaf and node.grades)
        scope.slots[node] = slot
    for node in nodes:
        _add_targets(scope, scope.slots[node], names[node])
    scope.terminals += [slot for slot in scope.slots.values() if slot.grades]
    return list(scope.slots.values())


def _unique_names(nodes: Iterable[BaseNode]) -> dict[BaseNode, str]:
    names: dict[BaseNode, str] = {}
    seen: dict[str, int] = {}
    for node in nodes:
        count = seen[node.title] = seen.get(node.title, 0) + 1
        names[node] = node.title if count == 1 else f"{node.title} ({count})"
    return names


def _add_targets(scope: Scope, slot: Slot, name: str) -> None:
    """Terminals and nested metrics behind the verdicts of one node."""
    assert slot.node is not None
    for branch in slot.node.branches():
        target: Slot | None
        if branch.target is None:
            continue
        if isinstance(branch.target, BaseNode):
            target = scope.slots[branch.target]
        elif hasattr(branch.target, "spec"):
            target = _metric_slot(scope, branch.target)
        else:
            label = f"{scope.prefix()}{name} = {branch.verdict}"
            score = branch.target / 10 if isinstance(branch.target, int) else None
            target = Slot(scope, "verdict", label, score=score, grades=True)
            scope.slots[slot.node, branch.verdict] = target
        slot.branches.append((branch.verdict, target))


def _metric_slot(scope: Scope, metric: Any) -> Slot:
    slot = scope.slots.get(id(metric))
    if slot is None:
        spec = metric.spec()
        slot = Slot(scope, "metric", f"{scope.prefix()}{spec.name}", grades=True)
        slot.nested = Scope(spec, owner=slot)
        scope.slots[id(metric)] = slot
    return slot


def _connect(scope: Scope) -> None:
    graph = as_digraph(scope.spec.graph.nodes())
    gates: dict[BaseNode, set[BaseNode]] = {}
    for node in graph:
        for branch in node.branches():
            if isinstance(branch.target, BaseNode):
                gates.setdefault(branch.target, set()).add(node)
    for node in graph:
        slot = scope.slots[node]
        for source in node.inputs:
            slot.sources.append(Source(scope.slots[source], label_of(source), pulled=True))
        for child in dict.fromkeys(node.successors()):
            target = scope.slots[child]
            if node not in child.inputs:
                target.sources.append(Source(slot, label_of(node), pulled=False))
            if not _comes_before(graph, node, gates.get(child, set())):
                slot.activates.append(target)
    for root in scope.spec.graph.root_nodes:
        scope.slots[root].root = scope.owner is None
        if scope.owner is not None:
            scope.owner.activates.append(scope.slots[root])
    scope.terminals = [slot for slot in scope.slots.values() if slot.grades]


def label_of(node: BaseNode) -> str:
    """Under which name readers of a node refer to its output."""
    return node.output_label or node.title


def _comes_before(graph: nx.DiGraph[BaseNode], node: BaseNode, decisions: set[BaseNode]) -> bool:
    """Whether a path leads from `node` to one of `decisions`."""
    seen, waiting = {node}, [node] if decisions else []
    while waiting:
        for after in graph.successors(waiting.pop()):
            if after in decisions:
                return True
            if after not in seen:
                seen.add(after)
                waiting.append(after)
    return False


def _order(slot: Slot) -> tuple[int, str]:
    """A place that depends on the graph alone, not on the order of declaration."""
    return slot.generation, slot.name


def _flow(slots: Iterable[Slot]) -> nx.DiGraph[Slot]:
    """What comes before what: verdicts, hand-overs and everything that is read."""
    graph: nx.DiGraph[Slot] = nx.DiGraph()
    for slot in slots:
        graph.add_node(slot)
        graph.add_edges_from((slot, target) for _, target in slot.branches)
        graph.add_edges_from((slot, target) for target in slot.activates)
        graph.add_edges_from((source.slot, slot) for source in slot.sources)
    return graph


def _generations(slots: Iterable[Slot]) -> None:
    for depth, generation in enumerate(nx.topological_generations(_flow(slots))):
        for slot in generation:
            slot.generation = depth


def _rank(slots: list[Slot]) -> None:
    """Number the slots in topological order; a nested metric comes after all of its slots."""
    graph: nx.DiGraph[Any] = _flow(slots)
    for slot in slots:
        if slot.nested is not None:
            graph.add_edges_from((part, _Done(slot)) for part in _inside(slot.nested))
    order = nx.lexicographical_topological_sort(graph, key=lambda item: _order(_slot_of(item)))
    places = [item for item in order if isinstance(item, _Done) or item.nested is None]
    for rank, item in enumerate(places):
        _slot_of(item).rank = rank


@dataclass(frozen=True, slots=True)
class _Done:
    """The moment when a nested metric has its result."""

    slot: Slot


def _slot_of(item: Slot | _Done) -> Slot:
    return item.slot if isinstance(item, _Done) else item


def _inside(scope: Scope) -> Iterator[Any]:
    """What must be settled before a nested metric is."""
    for slot in scope.slots.values():
        yield _Done(slot) if slot.nested is not None else slot


def _cause_graph(slots: Iterable[Slot]) -> nx.DiGraph[Slot | Start]:
    """Edges along which liveness spreads, from the start."""
    graph: nx.DiGraph[Slot | Start] = nx.DiGraph()
    graph.add_node(_START)
    for slot in slots:
        graph.add_node(slot)
        if slot.root:
            graph.add_edge(_START, slot)
        graph.add_edges_from((slot, target) for target in slot.leads_to())
    return graph


def _find_always(slots: Iterable[Slot]) -> None:
    """Mark the slots that are live whatever the verdicts are."""
    waiting = [slot for slot in slots if slot.root]
    while waiting:
        slot = waiting.pop()
        if not slot.always:
            slot.always = True
            waiting += [*slot.activates, *slot.pulls()]


def _find_tangles(slots: Iterable[Slot]) -> None:
    """Find slots that may make each other live: a node, say, and a later one that reads it.

    Counting lost causes would never tell that such slots are dead.
    """
    graph: nx.DiGraph[Slot] = nx.DiGraph()
    for slot in slots:
        graph.add_edges_from((slot, target) for target in slot.leads_to() if not target.always)
    for group in nx.strongly_connected_components(graph):
        if len(group) > 1:
            for slot in group:
                slot.tangle = frozenset(group)


def _circular(slots: Iterable[Slot]) -> list[Slot]:
    """Slots that would wait for ever, each to learn what only the others can decide.

    In the graph, (slot, False) is knowing whether a slot is live, (slot, True) its value.
    Only readers of something that may be dead have to know the former.
    """
    graph: nx.DiGraph[tuple[Slot, bool]] = nx.DiGraph()
    for slot in slots:
        known, value = (slot, False), (slot, True)
        graph.add_edges_from(((source.slot, True), value) for source in slot.sources)
        unsure = (source.slot for source in slot.sources if not source.certain)
        graph.add_edges_from(((source, False), value) for source in unsure)
        if slot.nested is not None:
            graph.add_edges_from(((part, True), value) for part in slot.nested.slots.values())
        open_targets = [target for target in slot.leads_to() if not target.always]
        graph.add_edges_from((known, (target, False)) for target in open_targets)
        verdicts = (target for _, target in slot.branches if not target.always)
        graph.add_edges_from((value, (target, False)) for target in verdicts)
    parts = nx.strongly_connected_components(graph)
    circles = (part for part in parts if len(part) > 1 and any(value for _, value in part))
    return sorted({slot for part in circles for slot, _ in part}, key=_order)


def _live_with(slots: Iterable[Slot], causes: nx.DiGraph[Slot | Start]) -> set[Slot]:
    """Slots that are never live without one of `slots` being live.

    These are the slots themselves, their readers and the parents that hand on to them,
    and so on.
    """
    waiting = list(slots)
    certain = set(waiting)
    while waiting:
        for before in _bringers(waiting.pop(), causes):
            if before not in certain:
                certain.add(before)
                waiting.append(before)
    return certain


def _bringers(slot: Slot, causes: nx.DiGraph[Slot | Start]) -> list[Slot]:
    """Slots that make `slot` live by being live themselves: verdicts have no part in it."""
    return [
        before
        for before in causes.predecessors(slot)
        if before != _START and (slot in before.activates or slot in before.pulls())
    ]


def _reachable(causes: nx.DiGraph[Slot | Start], goal: Slot, avoiding: set[Slot]) -> bool:
    """Whether liveness can get from the start to `goal` without touching `avoiding`."""
    if goal in avoiding:
        return False
    seen: set[Slot | Start] = {_START}
    waiting: list[Slot | Start] = [_START]
    while waiting:
        for after in causes.successors(waiting.pop()):
            if after is goal:
                return True
            if after not in seen and after not in avoiding:
                seen.add(after)
                waiting.append(after)
    return False


class _Dominators:
    """Which slots are live only after certain others."""

    def __init__(self, causes: nx.DiGraph[Slot | Start]) -> None:
        parents = nx.immediate_dominators(causes, _START)
        self._children: dict[Slot | Start | None, list[Slot]] = {}
        for slot, parent in parents.items():
            if slot != _START:
                self._children.setdefault(parent, []).append(slot)

    def below(self, tops: set[Slot]) -> set[Slot]:
        """Slots strictly dominated by one of `tops`."""
        found: set[Slot] = set()
        waiting: list[Slot] = list(tops)
        while waiting:
            for child in self._children.get(waiting.pop(), ()):
                if child not in found:
                    found.add(child)
                    waiting.append(child)
        return found


def _mark_uncertain(slots: Iterable[Slot], causes: nx.DiGraph[Slot | Start]) -> None:
    """Mark the sources that may be dead although their reader is live."""
    dominators: _Dominators | None = None
    below: dict[Slot, set[Slot]] = {}
    for slot in slots:
        for source in slot.sources:
            if source.pulled or source.slot.always:
                continue
            if set(causes.predecessors(slot)) == {source.slot}:
                continue
            dominators = dominators or _Dominators(causes)
            if source.slot not in below:
                below[source.slot] = dominators.below(_live_with([source.slot], causes))
            if slot not in below[source.slot]:
                source.certain = _only_after(slot, [source.slot], causes)


def _only_after(slot: Slot, others: Iterable[Slot], causes: nx.DiGraph[Slot | Start]) -> bool:
    """Whether `slot` is never live without one of `others` being live."""
    return not _reachable(causes, slot, _live_with(others, causes))
