"""Which part of a large graph is drawn: what most failures and most cases came by."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from dagengine.report.page.graphs import PageGraph

LARGE = 24
"""A graph of more nodes than this is folded."""
_SHOWN = 9
_SHARE = 0.1  # of the failures, or of the cases


@dataclass(frozen=True, slots=True)
class Stub:
    """Nodes that are not drawn, and the answers that lead into them."""

    nodes: tuple[int, ...]
    by: tuple[int, ...]


def top_nodes(graph: PageGraph) -> list[int]:
    """The nodes of the metric itself that ask or decide.

    Those of nested metrics are behind one of these; what only hands on a field of the case is
    in no picture.
    """
    own = [number for number, node in enumerate(graph.nodes) if node.inside is None]
    return [number for number in own if graph.nodes[number].kind != "field"] or own


def shown_nodes(graph: PageGraph, ways: Sequence[tuple[Any, int, int]]) -> set[int]:
    """The nodes to draw: those that a tenth of the failures or of the cases came by.

    At most `_SHOWN` of them, the busiest first. `ways` are (way, cases, failed) as
    `MetricColumns.counted` gives them. A small graph is drawn whole.
    """
    top = top_nodes(graph)
    if len(top) <= LARGE:
        return set(top)
    cases = sum(cases for _, cases, _ in ways) or 1
    failures = sum(failed for _, _, failed in ways) or 1
    busy = dict.fromkeys(top, 0.0)
    for column, whole in ((1, cases), (2, failures)):
        came = Counter[int]()
        for way in ways:
            came.update(dict.fromkeys(way[0][1], way[column]))
        for node in top:
            busy[node] = max(busy[node], came[node] / whole)
    ranked = sorted(top, key=lambda node: (-busy[node], node))
    return {node for node in ranked[:_SHOWN] if busy[node] >= _SHARE} or set(ranked[:1])


def stubs_of(graph: PageGraph, shown: set[int]) -> list[Stub]:
    """The rest of the graph, as subtrees that hang together."""
    hidden = set(top_nodes(graph)) - shown
    groups = {node: {node} for node in hidden}
    for source, target in _links(graph):
        if source in hidden and target in hidden and groups[source] is not groups[target]:
            joined = groups[source] | groups[target]
            for node in joined:
                groups[node] = joined
    found = []
    for group in {min(group): group for group in groups.values()}.values():
        by = [
            number
            for number, answer in enumerate(graph.answers)
            if answer.node in shown and group & set(answer.targets)
        ]
        if by:
            found.append(Stub(tuple(sorted(group)), tuple(by)))
    return sorted(found, key=lambda stub: stub.by)


def _links(graph: PageGraph) -> Iterable[tuple[int, int]]:
    for answer in graph.answers:
        yield from ((answer.node, target) for target in answer.targets)
    yield from ((feed.source, feed.target) for feed in graph.feeds)
