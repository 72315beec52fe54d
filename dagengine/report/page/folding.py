"""Which part of a large graph is drawn: what carries most failures and most cases."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from dagengine.report.page.graphs import PageGraph

LARGE = 24
"""A graph of more nodes than this is folded."""
_SHARE = 0.9  # of the failures, and of the cases


@dataclass(frozen=True, slots=True)
class Stub:
    """Nodes that are not drawn, and the answers that lead into them."""

    nodes: tuple[int, ...]
    by: tuple[int, ...]


def top_nodes(graph: PageGraph) -> list[int]:
    """The nodes of the metric itself; those of nested metrics stand behind one of these."""
    return [number for number, node in enumerate(graph.nodes) if node.inside is None]


def shown_nodes(graph: PageGraph, ways: Sequence[tuple[Any, int, int]]) -> set[int]:
    """The nodes to draw: on the ways of nine in ten failures and cases, at most `LARGE`.

    `ways` are (way, cases, failed) as `MetricColumns.counted` gives them.
    """
    top = set(top_nodes(graph))
    if len(top) <= LARGE:
        return top
    shown = set(_roots(graph, top))
    for column in (2, 1):  # failures first
        needed = _SHARE * sum(way[column] for way in ways)
        for way in sorted(ways, key=lambda way: -way[column]):
            more = shown | _on_way(graph, way[0], top)
            if needed <= 0 or not way[column] or len(more) > LARGE:
                break
            shown, needed = more, needed - way[column]
    return shown


def _roots(graph: PageGraph, top: set[int]) -> Iterator[int]:
    led = {target for answer in graph.answers for target in answer.targets}
    led |= {feed.target for feed in graph.feeds}
    found = [number for number in sorted(top) if number not in led]
    # Of many roots those that decide are the tree; the others only feed it.
    deciding = [number for number in found if any(a.node == number for a in graph.answers)]
    yield from (deciding or found)[:LARGE]


def _on_way(graph: PageGraph, way: Any, top: set[int]) -> set[int]:
    answers, nodes, _, _ = way
    chosen = {graph.answers[answer].node for answer in answers}
    chosen |= {target for answer in answers for target in graph.answers[answer].targets}
    return {node for node in chosen | set(nodes) if node in top}


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
