"""One metric's graph as slots: what makes each of them live, and what each of them waits for.

A *slot* is one place in a metric where something can happen: a node, the terminal behind
a verdict, or a metric nested under one. Nested metrics are expanded in place, so a slot
knows its scope. Two relations connect slots:

* **causes** make a slot live: being a root, a verdict that leads to it, a live parent
  that hands on to it, a live reader that names it as an input;
* **sources** are waited for: what a slot reads.

A node that some verdict leads to is *gated*. A parent that hands on to a gated node only
feeds it, unless the parent is itself behind a verdict: see `_connect`.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain, count, filterfalse
from operator import attrgetter
from typing import Any, Literal, TypeVar

import networkx as nx

from dagengine.graph.graph import MetricSpec, as_digraph
from dagengine.graph.node import BaseNode, Branch
from dagengine.graph.nodes import CodeNode
from dagengine.system.terminal_text import text_if

SlotKind = Literal["node", "verdict", "metric"]
T = TypeVar("T")
Start = Literal["start"]
Gates = dict[BaseNode, dict[BaseNode, None]]
"""The gated nodes, each with the decisions that have a verdict leading to it, as mentioned."""
START: Start = "start"  # where liveness comes from; networkx has no use for None


@dataclass(slots=True, eq=False)
class Source:
    """Something a slot reads; `pulled` when the reader makes it live."""

    slot: Slot
    pulled: bool
    certain: bool = True

    @property
    def label(self) -> str:
        """The name by which readers refer to it."""
        assert self.slot.node is not None
        return self.slot.node.output_label or self.slot.node.title


@dataclass(slots=True, eq=False)
class Scope:
    """The slots of one metric; a nested one is what its `owner` slot stands for."""

    spec: MetricSpec
    owner: Slot | None = None
    slots: dict[Any, Slot] = field(default_factory=dict)
    terminals: list[Slot] = field(default_factory=list)
    number: int = -1  # in a plan

    def prefix(self) -> str:
        """Names of the enclosing nested metrics, for slot names."""
        return f"{self.owner.name} > " if self.owner else ""


@dataclass(slots=True, eq=False)
class Slot:
    """One place of a metric; `rank` is its place in the metric's topological order.

    `declared` is its place in the order of declaration: the node's in its graph, then the
    verdict's in its node.
    """

    scope: Scope
    kind: SlotKind
    name: str
    node: BaseNode | None = None
    score: float | None = None
    nested: Scope | None = None
    root: bool = False
    always_live: bool = False  # live whenever its metric is
    grades: bool = False
    material: list[Slot] = field(default_factory=list)  # scores that its own is computed from
    branches: list[tuple[Any, Slot]] = field(default_factory=list)
    activates: list[Slot] = field(default_factory=list)
    fields: tuple[str, ...] = ()  # of the case, that its node reads
    sources: list[Source] = field(default_factory=list)
    tangle: frozenset[Slot] = frozenset()  # slots that may make each other live, if any
    declared: tuple[int, int] = (0, 0)
    generation: int = 0
    rank: int = 0
    metric: int = -1  # numbers in a plan, as are those of its unit and its own
    unit: int = -1
    number: int = -1

    @property
    def always(self) -> bool:
        """Return whether it is live in every case."""
        return self.always_live and self.scope.owner is None

    def verdicts(self) -> list[Any]:
        """The verdicts of its node, in the order of declaration."""
        return [branch.verdict for branch in self.node.branches()] if self.node else []

    def targets(self) -> list[Slot]:
        """Slots that its verdicts lead to."""
        return [target for _, target in self.branches]

    def reads(self) -> list[Slot]:
        """Slots that it reads."""
        return [source.slot for source in self.sources]

    def labels(self) -> list[str]:
        """Names of what it reads of other slots."""
        return [source.label for source in self.sources]

    def pulls(self) -> Iterator[Slot]:
        """The inputs, which become live with this slot."""
        return (source.slot for source in self.sources if source.pulled)

    def computes(self) -> bool:
        """Return whether code gives its score."""
        return isinstance(self.node, CodeNode)

    def stated_scores(self) -> list[Slot]:
        """The scores that its verdicts lead to."""
        return [target for target in self.targets() if target.kind == "verdict"]

    def leads_to(self) -> Iterator[Slot]:
        """Slots whose liveness has this slot as a cause."""
        yield from self.targets()
        yield from self.activates
        yield from self.pulls()


def reach(starts: Iterable[T], onward: Callable[[T], Iterable[T]]) -> Iterator[T]:
    """Everything that is reached from `starts`, these included, as soon as it is."""
    waiting = list(starts)
    reached = set(waiting)
    yield from waiting
    while waiting:
        for following in onward(waiting.pop()):
            if following not in reached:
                reached.add(following)
                waiting.append(following)
                yield following


def find_material(slots: Iterable[Slot]) -> None:
    """Find the scores that computed ones are made of: of all that code reads, also through code."""
    for slot in slots:
        if slot.grades and slot.computes():
            sources = reach(slot.reads(), lambda each: each.reads() if each.computes() else ())
            stated = map(Slot.stated_scores, dict.fromkeys(sources))
            slot.material = list(chain.from_iterable(stated))


def order(slot: Slot) -> tuple[int, str]:
    """A place that depends on the graph alone: prompts do not change with the declaration."""
    return slot.generation, slot.name


def declared_order(slot: Slot) -> tuple[int, tuple[int, int]]:
    """A place by depth, and at one depth as declared."""
    return slot.generation, slot.declared


def cause_graph(slots: Iterable[Slot]) -> nx.DiGraph[Slot | Start]:
    """Edges along which liveness spreads, from the start."""
    graph: nx.DiGraph[Slot | Start] = nx.DiGraph()
    graph.add_node(START)
    for slot in slots:
        nx.add_star(graph, [slot, *slot.leads_to()])
        if slot.root:
            graph.add_edge(START, slot)
    return graph


def find_tangles(slots: Iterable[Slot]) -> None:
    """Find slots that may make each other live: a node, say, and a later one that reads it.

    Counting lost causes would never show that such slots are dead. A slot that is live
    whenever its metric is live is in no tangle: it dies with its metric.
    """
    # Of `b ⇄ c` each is a cause of the other. When the verdict that led to `b` is not chosen, `b`
    # still has the cause `c`, which still has the cause `b`: neither count comes to nothing.
    graph: nx.DiGraph[Slot] = nx.DiGraph()
    for slot in slots:
        graph.add_edges_from((slot, target) for target in slot.leads_to() if not target.always_live)
    for group in nx.strongly_connected_components(graph):
        if len(group) > 1:
            for slot in group:
                slot.tangle = frozenset(group)


def circular_waits(slots: Iterable[Slot]) -> list[Slot]:
    """Slots that would wait for ever, each to learn what only the others can decide.

    In the graph, (slot, False) stands for knowing whether a slot is live, (slot, True) for its
    value. Only readers of a slot that may be dead wait for the former. Every metric is checked by
    itself. Nothing outside waits for a part of a nested metric, and its parts wait for nothing
    outside once it is live.
    """
    graph: nx.DiGraph[tuple[Slot, bool]] = nx.DiGraph()
    for slot in slots:
        liveness, value = (slot, False), (slot, True)
        for source in slot.sources:
            graph.add_edge((source.slot, True), value)
            if not source.certain:
                graph.add_edge((source.slot, False), value)
        for target in slot.leads_to():
            if not target.always_live:
                graph.add_edge(liveness, (target, False))
        for target in slot.targets():
            if not target.always_live:
                graph.add_edge(value, (target, False))
    circular: set[Slot] = set()
    for part in nx.strongly_connected_components(graph):
        if len(part) > 1 and any(is_value for _, is_value in part):
            circular.update(slot for slot, _ in part)
    return sorted(circular, key=order)


def _live_with(slots: Iterable[Slot], causes: nx.DiGraph[Slot | Start]) -> set[Slot | Start]:
    """Slots that are never live without one of `slots` being live."""

    # From `n` backwards: its parent `p` hands on to it, and `r` reads it, so neither is ever live
    # without it. The gate may be live and choose `no`: verdicts have no part in it.
    #
    #     p ──hands on──▶ n ◀──reads── r        gate ──yes──▶ n
    def brought_along(slot: Any) -> Iterator[Slot]:
        for cause in causes.predecessors(slot):
            if cause != START and (slot in cause.activates or slot in cause.pulls()):
                yield cause

    return set(reach(slots, brought_along))


def mark_uncertain(slots: Iterable[Slot], causes: nx.DiGraph[Slot | Start]) -> None:
    """Mark the sources that may be dead although their reader is live."""
    dominated: dict[Any, list[Slot | Start]] = {}  # slots by what is live before each of them
    below: dict[Slot, tuple[set[Slot | Start], bool]] = {}
    for slot in slots:
        for source in slot.sources:
            # A reader that makes its source live has it for certain. What is live in every case is
            # certain for everybody.
            if source.pulled or source.slot.always_live:
                continue
            # The only way to the reader leads through the source.
            if set(causes.predecessors(slot)) == {source.slot}:
                continue
            if not dominated:
                for after, before in nx.immediate_dominators(causes, START).items():
                    dominated.setdefault(before, []).append(after)
            if source.slot not in below:
                together = _live_with([source.slot], causes)
                inner = chain.from_iterable(dominated.get(top, ()) for top in together)
                later: set[Any] = set(reach(inner, lambda top: dominated.get(top, ())))
                below[source.slot] = together | later, len(together - later) > 1
            after, several = below[source.slot]
            # Dominators see one slot at a time. Where several ways lead to the reader, each by
            # another slot that brings the source along, only a search tells.
            if slot not in after:
                source.certain = several and only_after(slot, [source.slot], causes)


def only_after(slot: Slot, others: Iterable[Slot], causes: nx.DiGraph[Slot | Start]) -> bool:
    """Return whether `slot` is never live without one of `others` being live.

    It may be if a way around them leads back from it to the start. That is near where they are: the
    way from the start to the slot would lead through all that has nothing to do with both.
    """
    avoided = _live_with(others, causes)
    start: list[Any] = [slot]
    way_back = reach(start, lambda later: set(causes.predecessors(later)).difference(avoided))
    return slot in avoided or START not in way_back


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


def wire(spec: MetricSpec) -> Wiring:
    """Expand and connect one metric whose own graph is acyclic."""
    scopes = [Scope(spec)]
    for scope in scopes:  # grows while we go: nested metrics open scopes of their own
        _make_slots(scope)
        scopes += filter(None, (slot.nested for slot in scope.slots.values()))
    slots = [slot for scope in scopes for slot in scope.slots.values()]
    for scope in scopes:
        _connect(scope)
        _count_depths(set(scope.slots.values()))
    for slot in slots:
        slot.sources.sort(key=lambda source: (-1, "") if source.pulled else order(source.slot))
    find_material(slots)
    causes = cause_graph(slots)
    reached = nx.descendants(causes, START)
    idle = [slot for slot in slots if slot not in reached]
    find_tangles(slots)
    mark_uncertain(set(slots).difference(idle), causes)
    _rank(slots)
    for scope in scopes:
        graded = filter(attrgetter("grades"), scope.slots.values())
        scope.terminals = sorted(graded, key=declared_order)
    return Wiring(
        scopes[0], sorted(slots, key=lambda s: s.rank), circular_waits(slots), idle, causes
    )


def _count_depths(own: set[Slot]) -> None:
    """Count depths within one metric: nested or not, its prompts and last score are the same."""
    for depth, generation in enumerate(nx.topological_generations(_flow(own).subgraph(own))):
        for slot in generation:
            slot.generation = depth


def _make_slots(scope: Scope) -> None:
    """Make the slots of one metric: nodes, terminals, and metrics nested under verdicts."""
    nodes = scope.spec.graph.nodes()
    titles: Counter[str] = Counter()
    inputs = set(chain.from_iterable(node.inputs for node in nodes))
    for index, node in enumerate(nodes):
        titles[node.title] += 1
        number = titles[node.title]
        name = scope.prefix() + node.title + text_if(number > 1, f" ({number})")
        leaf = not node.successors() and not node.branches() and node not in inputs
        scope.slots[node] = Slot(
            scope, "node", name, node, grades=leaf and node.grades, declared=(index, 0)
        )
    # A nested metric of one node needs no second name for it.
    if scope.owner is not None and len(nodes) == 1 and not nodes[0].branches():
        scope.slots[nodes[0]].name = scope.owner.name
    for node in nodes:
        slot = scope.slots[node]
        for index, branch in enumerate(node.branches(), 1):
            if branch.target is not None:
                slot.branches.append((branch.verdict, _target(slot, index, branch)))


def _target(slot: Slot, index: int, branch: Branch) -> Slot:
    """The slot that one verdict of a slot's node leads to."""
    scope, declared = slot.scope, (slot.declared[0], index)
    if isinstance(branch.target, BaseNode):
        return scope.slots[branch.target]
    if hasattr(branch.target, "spec"):
        target = scope.slots.get(id(branch.target))
        if target is None:  # several verdicts may lead to one metric, which runs once
            spec = branch.target.spec()
            name = f"{scope.prefix()}{spec.name}"
            target = Slot(scope, "metric", name, grades=True, declared=declared)
            target.nested = Scope(spec, owner=target)
            scope.slots[id(branch.target)] = target
        return target
    name = f"{slot.name} = {branch.verdict}"
    score = branch.target / 10 if isinstance(branch.target, int) else None
    target = Slot(scope, "verdict", name, score=score, grades=True, declared=declared)
    scope.slots[slot.node, branch.verdict] = target
    return target


def _connect(scope: Scope) -> None:
    """Connect the slots of one metric: what makes each of them live, and what each reads.

    Listing a child says two things at once: the child reads the parent, and it runs because
    the parent ran. For a gated child the second would undo its gate, so it holds only where
    nothing else can be meant. Of the three parents here each lists `n` as its child:

        steps ─────────────┐    always live: hands on its data, and the gate decides
        first ─────────────┤    comes before the gate: the same
          └─ gate ── yes ──┤
               └─ no ─ detour   behind a verdict, and before no gate of `n`: makes it live
                           └──> n

    A parent that is always live would make `n` run whatever the gate says. The detour runs
    only when a verdict chose it, and there `n` is what comes next.
    """
    graph = as_digraph(scope.spec.graph.nodes())
    positions = dict(zip(nx.topological_sort(graph), itertools.count()))
    gates = _gates_of(graph)

    def hands_on(node: BaseNode) -> list[BaseNode]:
        return [*node.inputs, *filterfalse(gates.__contains__, node.successors())]

    # Live whenever their metric is: no verdict has a part in it.
    always = set(reach(scope.spec.graph.root_nodes, hands_on))

    def only_feeds(parent: BaseNode, child: BaseNode) -> bool:
        later = (gate for gate in gates.get(child, ()) if positions[gate] > positions[parent])
        always_gated = child in gates and parent in always
        return always_gated or any(nx.has_path(graph, parent, gate) for gate in later)

    for node in graph:
        slot = scope.slots[node]
        slot.always_live = node in always
        slot.fields = node.evaluation_params
        for source in node.inputs:
            slot.sources.append(Source(scope.slots[source], pulled=True))
        for child in dict.fromkeys(node.successors()):
            target = scope.slots[child]
            if node not in child.inputs:
                target.sources.append(Source(slot, pulled=False))
            if not only_feeds(node, child):
                slot.activates.append(target)
    _read_as_before(scope, positions, gates)
    for root in scope.spec.graph.root_nodes:
        scope.slots[root].root = scope.owner is None
        if scope.owner is not None:
            scope.owner.activates.append(scope.slots[root])


def _gates_of(nodes: Iterable[BaseNode]) -> Gates:
    gates: Gates = {}
    for node in nodes:
        for branch in node.branches():
            if isinstance(branch.target, BaseNode):
                gates.setdefault(branch.target, {})[node] = None
    return gates


def _read_as_before(scope: Scope, nodes: Iterable[BaseNode], gates: Gates) -> None:
    """A judgement behind a verdict that names nothing reads what the one before it read."""
    for node in nodes:
        slot = scope.slots[node]
        if not node.asks or not node.branches() or slot.fields or slot.sources:
            continue
        fields: dict[str, None] = {}
        sources: dict[Slot, None] = {}
        for judgement in map(scope.slots.__getitem__, gates.get(node, ())):
            fields |= dict.fromkeys(judgement.fields)
            sources |= dict.fromkeys(judgement.reads())
        slot.fields = tuple(fields)
        slot.sources = [Source(source, pulled=False) for source in sources]


def _flow(slots: Iterable[Slot]) -> nx.DiGraph[Slot]:
    """The order of slots: by verdicts, hand-overs and everything that is read."""
    graph: nx.DiGraph[Slot] = nx.DiGraph()
    for slot in slots:
        nx.add_star(graph, [slot, *slot.targets(), *slot.activates])
        graph.add_edges_from((source.slot, slot) for source in slot.sources)
    return graph


def _rank(slots: list[Slot]) -> None:
    """Number the slots in topological order; a nested metric comes after all its slots.

    What asks nothing comes before what asks wherever it may: its failure then needs no
    answer. Otherwise depth decides, and at one depth the order of declaration.
    """
    graph: nx.DiGraph[Any] = _flow(slots)
    for slot in slots:
        if slot.nested is not None:
            # A metric nested in it counts when it has its result, and not when it begins.
            for part in slot.nested.slots.values():
                graph.add_edge(part if part.nested is None else _Done(part), _Done(slot))

    def urgency(item: Slot | _Done) -> tuple[Any, ...]:
        slot = _slot_of(item)
        return slot.node is not None and slot.node.asks, *declared_order(slot)

    ranks = count()
    for item in nx.lexicographical_topological_sort(graph, key=urgency):
        if isinstance(item, _Done) or item.nested is None:
            _slot_of(item).rank = next(ranks)


@dataclass(frozen=True, slots=True)
class _Done:
    """The moment when a nested metric has its result."""

    slot: Slot


def _slot_of(item: Slot | _Done) -> Slot:
    return item.slot if isinstance(item, _Done) else item
