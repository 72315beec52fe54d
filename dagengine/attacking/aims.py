"""What an attack aims at: where a path lost its pass, and which verdict would have kept it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import networkx as nx

from dagengine.attacking.families import Aim
from dagengine.compiler.lowering import compile_metrics
from dagengine.compiler.plan import NONE, PlanSlot
from dagengine.graph.graph import Metric, MetricSpec
from dagengine.graph.node import BaseNode
from dagengine.graph.nodes import RatingNode
from dagengine.results import Verdict
from dagengine.results.passing import passes, strict_score

Favour = tuple[bool, float, float]
"""Whether a pass is still possible, then the best and the worst score to come."""
CLOSED: Favour = (False, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Node:
    """A node that may fall: where its verdicts lead (none: it does not decide), what is before."""

    ways: Mapping[Verdict, Favour]
    before: frozenset[str]


class Ways:
    """Where the verdicts of a metric lead: what scores are still to be had behind each."""

    def __init__(self, metric: Metric) -> None:
        self._plan = compile_metrics([metric])
        self.spec: MetricSpec = self._plan.metrics[0].spec
        self._known: dict[int, tuple[float, float]] = {}

    @cached_property
    def nodes(self) -> Mapping[str, Node]:
        """The nodes that ask or decide, by name, in topological order."""
        graph = self._plan.graph
        names = {slot.unit: slot.name for slot in self._plan.slots if slot.unit != NONE}
        return {
            slot.name: Node(
                {verdict: self._favour(to) for verdict, to in slot.branches.items()},
                frozenset(names[unit] for unit in nx.ancestors(graph, slot.unit)),
            )
            for slot in self._plan.slots
            if slot.unit != NONE and (slot.branches or self._node(slot).asks)
        }

    @property
    def reads(self) -> tuple[str, ...]:
        """The fields of the case that some node reads."""
        return self._plan.fields

    @cached_property
    def asking(self) -> frozenset[str]:
        """The nodes that ask a judge."""
        return frozenset(slot.name for slot in self._asking())

    def aim(self, path: Iterable[tuple[str, Verdict]] = ()) -> Aim:
        """The node at which a failing path lost its pass, and the verdict that keeps it.

        Without such a decision, the last node that rates, or else the last that asks, and the best
        that it can say.
        """
        for node, verdict in path:
            ways = self._ways(node)
            best = max(ways, key=lambda word: ways[word], default=verdict)
            if ways and ways[best][0] and not ways.get(verdict, CLOSED)[0]:
                slots = (s for s in self._plan.slots if s.name == node and s.unit != NONE)
                return Aim(node, next((self._node(slot).text for slot in slots), node), best)
        return self._last()

    def _last(self) -> Aim:
        asking = self._asking()
        if not asking:
            return Aim(self.spec.name, self.spec.name, True)
        rating = [slot for slot in asking if isinstance(self._node(slot), RatingNode)]
        leaf = (rating or asking)[-1]
        node = self._node(leaf)
        if isinstance(node, RatingNode):
            return Aim(leaf.name, node.text, int(node.points.ends[1]))
        ways = self._ways(leaf.name)
        best: Verdict = max(ways, key=lambda word: ways[word]) if ways else True
        return Aim(leaf.name, node.text, best)

    def _ways(self, node: str) -> Mapping[Verdict, Favour]:
        return self.nodes[node].ways if node in self.nodes else {}

    def _asking(self) -> list[PlanSlot]:
        return [slot for slot in self._plan.slots if slot.unit != NONE and self._node(slot).asks]

    def _node(self, slot: PlanSlot) -> BaseNode:
        return self._plan.units[slot.unit].node

    def _favour(self, targets: Iterable[int]) -> Favour:
        best, worst = self._scores(targets)
        if not passes(best, self.spec.threshold):
            return CLOSED
        return True, best, worst

    def _scores(self, targets: Iterable[int]) -> tuple[float, float]:
        ends = [self._behind(number) for number in targets]
        return max((best for best, _ in ends), default=1.0), min((w for _, w in ends), default=0.0)

    def _behind(self, number: int) -> tuple[float, float]:
        """The best and the worst score behind a slot; what grades may give any."""
        if number not in self._known:
            # Of a metric that contains itself; and a grade is known only when it was given.
            self._known[number] = 1.0, 0.0
            slot = self._plan.slots[number]
            if slot.score is not None:
                score = strict_score(slot.score) if self.spec.strict else slot.score
                self._known[number] = score, score
            else:
                further = [number for way in slot.branches.values() for number in way]
                further += slot.activates
                self._known[number] = self._scores(further)
        return self._known[number]
