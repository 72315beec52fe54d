"""The places of one metric: what a wired graph consists of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from dagengine.graph.graph import MetricSpec
from dagengine.graph.node import BaseNode

SlotKind = Literal["node", "verdict", "metric"]
T = TypeVar("T")


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

    def pulls(self) -> Iterator[Slot]:
        """The inputs, which become live with this slot."""
        return (source.slot for source in self.sources if source.pulled)

    def leads_to(self) -> Iterator[Slot]:
        """Slots whose liveness has this slot as a cause."""
        yield from (target for _, target in self.branches)
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
