"""The places of one metric, and what is known before a run about which of them will be live.

The walks are iterative. They are along the causes: verdicts, hand-overs and reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

import networkx as nx

from dagengine.graph.graph import MetricSpec
from dagengine.graph.node import BaseNode

SlotKind = Literal["node", "verdict", "metric"]
T = TypeVar("T")
Start = Literal["start"]
START: Start = "start"  # where liveness comes from; networkx has no use for None


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

    def leads_to(self) -> Iterator[Slot]:
        """Slots whose liveness has this slot as a cause."""
        yield from self.targets()
        yield from self.activates
        yield from self.pulls()


def material_of(
    code: T,
    reads: Callable[[T], Iterable[T]],
    computes: Callable[[T], bool],
    scores: Callable[[T], Iterable[T]],
) -> list[T]:
    """The scores that a computed score is made of: of all that code reads, also through code."""
    sources: dict[T, None] = {}
    waiting = [code]
    while waiting:
        for source in reads(waiting.pop()):
            if source not in sources and computes(source):
                waiting.append(source)
            sources[source] = None
    return [score for source in sources for score in scores(source)]


def label_of(node: BaseNode) -> str:
    """The name by which readers of a node refer to its output."""
    return node.output_label or node.title


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


def _live_with(slots: Iterable[Slot], causes: nx.DiGraph[Slot | Start]) -> set[Slot]:
    """Slots that are never live without one of `slots` being live.

    These are the slots themselves, their readers and the parents that hand on to them,
    and so on.
    """
    # From `n` backwards: its parent `p` hands on to it, and `r` reads it, so neither is ever live
    # without it. The gate may be live and choose `no`.
    #
    #     p ──hands on──▶ n ◀──reads── r        gate ──yes──▶ n
    waiting = list(slots)
    certain = set(waiting)
    while waiting:
        slot = waiting.pop()
        # Verdicts have no part in it: only hand-overs and reads make a slot live by being live.
        for cause in causes.predecessors(slot):
            if cause == START or cause in certain:
                continue
            if slot in cause.activates or slot in cause.pulls():
                certain.add(cause)
                waiting.append(cause)
    return certain


class _Dominators:
    """Which slots are live only after certain others."""

    def __init__(self, causes: nx.DiGraph[Slot | Start]) -> None:
        parents = nx.immediate_dominators(causes, START)
        self._children: dict[Slot | Start | None, list[Slot]] = {}
        for slot, parent in parents.items():
            if slot != START:
                self._children.setdefault(parent, []).append(slot)

    def below(self, tops: set[Slot]) -> set[Slot]:
        """Slots strictly dominated by one of `tops`."""
        dominated: set[Slot] = set()
        waiting: list[Slot] = list(tops)
        while waiting:
            for child in self._children.get(waiting.pop(), ()):
                if child not in dominated:
                    dominated.add(child)
                    waiting.append(child)
        return dominated


def mark_uncertain(slots: Iterable[Slot], causes: nx.DiGraph[Slot | Start]) -> None:
    """Mark the sources that may be dead although their reader is live."""
    dominators: _Dominators | None = None
    below: dict[Slot, tuple[set[Slot], bool]] = {}
    for slot in slots:
        for source in slot.sources:
            # A reader that makes its source live has it for certain. What is live in every case is
            # certain for everybody.
            if source.pulled or source.slot.always_live:
                continue
            # The only way to the reader leads through the source.
            if set(causes.predecessors(slot)) == {source.slot}:
                continue
            dominators = dominators or _Dominators(causes)
            if source.slot not in below:
                together = _live_with([source.slot], causes)
                dominated = dominators.below(together)
                below[source.slot] = together | dominated, len(together - dominated) > 1
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
    avoiding = _live_with(others, causes)
    reached, waiting = {slot}, [slot]
    while waiting and slot not in avoiding:
        for cause in causes.predecessors(waiting.pop()):
            if cause == START:
                return False
            if cause not in reached and cause not in avoiding:
                reached.add(cause)
                waiting.append(cause)
    return True
