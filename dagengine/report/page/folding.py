"""Which part of a large graph is drawn: the branches with most failures, the rest as groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import networkx as nx

from dagengine.report.pictures.graphs import MetricGraph


@dataclass(frozen=True, slots=True)
class Stub:
    """Nodes that are not drawn, and the answers that lead into them."""

    nodes: tuple[int, ...]
    by: tuple[int, ...]


def top_nodes(graph: MetricGraph) -> list[int]:
    """The nodes of the metric itself that ask or decide.

    Those of nested metrics are behind one of these; what only hands on a field of the case is
    in no picture.
    """
    own = [number for number, node in enumerate(graph.nodes) if node.inside is None]
    return [number for number in own if graph.nodes[number].kind != "field"] or own


def growing_parts(graph: MetricGraph, ways: Sequence[tuple[Any, int, int]]) -> list[set[int]]:
    """Ever larger parts of a graph: from its roots on, always the branch with most failures next.

    `ways` are (way, cases, failed) as `MetricColumns.counted` gives them. Where nothing failed the
    branch with most cases is next; what no case reached comes last, all at once. What hands data on
    comes with the node that reads it.
    """
    top = top_nodes(graph)
    came: dict[int, tuple[int, int]] = dict.fromkeys(top, (0, 0))
    for way, cases, failed in ways:
        for node in set(way[1]) & came.keys():
            came[node] = (came[node][0] + failed, came[node][1] + cases)
    reads: nx.DiGraph[int] = nx.DiGraph()
    reads.add_nodes_from(top)
    links = ((feed.source, feed.target) for feed in graph.feeds)
    reads.add_edges_from(link for link in links if came.keys() >= set(link))
    roots = {node for node in top if node not in graph.targets() and not reads.out_degree(node)}

    def with_inputs(shown: set[int]) -> set[int]:
        """Nodes with all that they read, directly or not."""
        return shown.union(*(nx.ancestors(reads, node) for node in shown))

    parts = [with_inputs(roots or set(top[:1]))]
    reached = {node for node in top if came[node][1]} or set(top)
    while ahead := heads(graph, parts[-1]) & reached:
        worst = max(ahead, key=lambda node: (came[node], -node))
        parts.append(with_inputs(parts[-1] | {worst}))
    return parts if parts[-1] == set(top) else [*parts, set(top)]


def heads(graph: MetricGraph, shown: set[int]) -> set[int]:
    """The hidden nodes that shown ones lead to, or that run after one."""
    answers = (answer for answer in graph.answers if answer.node in shown)
    led = {target for answer in answers for target in answer.targets}
    return (
        led | {feed.target for feed in graph.feeds if feed.runs and feed.source in shown}
    ) - shown


def stubs_of(graph: MetricGraph, shown: set[int]) -> list[Stub]:
    """The rest of the graph, as subtrees that hang together."""
    hidden = set(top_nodes(graph)) - shown
    links = [(answer.node, target) for answer in graph.answers for target in answer.targets]
    links += [(feed.source, feed.target) for feed in graph.feeds]
    parts: nx.Graph[int] = nx.Graph()
    parts.add_nodes_from(hidden)
    parts.add_edges_from(filter(hidden.issuperset, links))
    stubs = []
    for group in nx.connected_components(parts):
        by = [
            number
            for number, answer in enumerate(graph.answers)
            if answer.node in shown and group & set(answer.targets)
        ]
        if by:
            stubs.append(Stub(tuple(sorted(group)), tuple(by)))
    return sorted(stubs, key=lambda stub: stub.by)
