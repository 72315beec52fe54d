"""What an attack aims at: where a path lost its pass, and which verdict would have kept it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import networkx as nx

from dagengine.attacking.families import Aim
from dagengine.compiler.plan import NONE, compile_metrics
from dagengine.graph.graph import Metric, MetricSpec
from dagengine.graph.nodes import RatingNode
from dagengine.results import Verdict
from dagengine.results.passing import passes, strict_score

Favour = tuple[bool, float, float]
"""Whether a pass is still possible, then the best and the worst score to come."""
CLOSED: Favour = (False, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class AimedNode:
    """A node that may fall: where its verdicts lead (none: it does not decide), what is before."""

    ways: Mapping[Verdict, Favour]
    before: frozenset[str]


class Ways:
    """Where the verdicts of a metric lead: what scores are still to be had behind each."""

    def __init__(self, metric: Metric) -> None:
        self._plan = compile_metrics([metric])
        self.spec: MetricSpec = self._plan.metrics[0].spec
        slots = (slot for slot in self._plan.slots if slot.unit != NONE)
        self._nodes = [(slot, self._plan.units[slot.unit].node) for slot in slots]
        self._known: dict[int, tuple[float, float]] = {}

    @cached_property
    def nodes(self) -> Mapping[str, AimedNode]:
        """The nodes that ask or decide, by name, in topological order."""
        names = {slot.unit: slot.name for slot, _ in self._nodes}
        return {
            slot.name: AimedNode(
                {verdict: self._favour(to) for verdict, to in slot.branches.items()},
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
        """The node at which a failing path lost its pass, and the verdict that keeps it.

        Without such a decision, the last node that rates, or else the last that asks, and the best
        that it can say.
        """
        for name, verdict in path:
            ways = self.nodes[name].ways if name in self.nodes else {}
            best = max(ways, key=ways.__getitem__, default=verdict)
            if ways and ways[best][0] and not ways.get(verdict, CLOSED)[0]:
                node = next(node for slot, node in self._nodes if slot.name == name)
                return Aim(name, node.text, best)
        asking = [(slot.name, node) for slot, node in self._nodes if node.asks]
        rating = [(name, node) for name, node in asking if isinstance(node, RatingNode)]
        if not asking:
            return Aim(self.spec.name, self.spec.name, True)
        name, node = (rating or asking)[-1]
        if isinstance(node, RatingNode):
            return Aim(name, node.text, int(node.points.ends[1]))
        ways = self.nodes[name].ways
        return Aim(name, node.text, max(ways, key=ways.__getitem__, default=True))

    def _favour(self, targets: Iterable[int]) -> Favour:
        best, worst = self._scores(targets)
        if not passes(best, self.spec.threshold):
            return CLOSED
        return True, best, worst

    def _scores(self, targets: Iterable[int]) -> tuple[float, float]:
        ends = [*map(self._behind, targets)]
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
                self._known[number] = self._scores(chain(*slot.branches.values(), slot.activates))
        return self._known[number]
