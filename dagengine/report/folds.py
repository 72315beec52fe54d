"""What a picture of a large graph leaves out: branches that no case reached."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import networkx as nx

from dagengine.compiler.slots import Slot
from dagengine.report.views import Design

LARGE = 24
"""A graph of at most so many nodes is drawn whole."""


def reached_slots(slots: Iterable[Slot], view: Design) -> dict[Slot, bool | None]:
    """What the view says about every slot: scores and metrics are reached by their edges."""
    reached: dict[Slot, bool | None] = {}
    for slot in slots:
        if slot.kind == "node":
            reached[slot] = view.reached(slot)
        for verdict, target in slot.branches:
            weight = view.weight(slot, verdict, target)
            if target.kind != "node" and weight is not None:
                reached[target] = bool(reached.get(target)) or weight > 0
    return reached


class Folds:
    """The slots that are not drawn, in groups that hang together; each group is one stub.

    A score that was not reached stays where it is drawn beside a node: it takes no more room
    than a stub.
    """

    def __init__(self, slots: Sequence[Slot], reached: Mapping[Slot, bool | None]) -> None:
        self.counts: list[int] = []
        self._group: dict[Slot, int] = {}
        if sum(slot.kind == "node" for slot in slots) <= LARGE:
            return
        rest: nx.Graph[Slot] = nx.Graph()
        hidden = {slot for slot in slots if reached.get(slot) is False}
        rest.add_nodes_from(slot for slot in slots if slot in hidden)
        rest.add_edges_from(
            (slot, other) for slot in rest for other in _around(slot) if other in hidden
        )
        for group in nx.connected_components(rest):
            nodes = sum(slot.kind == "node" for slot in group)
            if nodes:
                self._group |= dict.fromkeys(group, len(self.counts))
                self.counts.append(nodes)

    def __contains__(self, slot: Slot) -> bool:
        return slot in self._group

    def name(self, slot: Slot) -> str:
        """The identifier of the stub that stands for a slot."""
        return f"fold{self._group[slot]}"

    def stubs(self) -> dict[str, str]:
        """Identifiers of all stubs with their words."""
        return {
            f"fold{number}": f"+{count} node{'' if count == 1 else 's'}"
            for number, count in enumerate(self.counts)
        }


def _around(slot: Slot) -> Iterable[Slot]:
    yield from slot.leads_to()
    yield from (source.slot for source in slot.sources)
    if slot.scope.owner is not None:
        yield slot.scope.owner
