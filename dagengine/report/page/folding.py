"""Which part of a large graph is drawn: the branches with most failures, the rest as groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

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


def unfolded(graph: MetricGraph, ways: Sequence[tuple[Any, int, int]]) -> list[set[int]]:
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
    led = {target for answer in graph.answers for target in answer.targets}
    inputs: dict[int, set[int]] = {node: set() for node in top}
    for feed in graph.feeds:
        if feed.target in inputs and feed.source in inputs:
            inputs[feed.target].add(feed.source)
    fed = {source for sources in inputs.values() for source in sources}
    roots = {node for node in top if node not in led | fed} or set(top[:1])
    parts = [_with_inputs(roots, inputs)]
    reached = {node for node in top if came[node][1]} or set(top)
    while ahead := heads(graph, parts[-1]) & reached:
        worst = max(ahead, key=lambda node: (came[node], -node))
        parts.append(_with_inputs(parts[-1] | {worst}, inputs))
    return parts if parts[-1] == set(top) else [*parts, set(top)]


def heads(graph: MetricGraph, shown: set[int]) -> set[int]:
    """The hidden nodes that shown ones lead to, or that run after one."""
    answers = (answer for answer in graph.answers if answer.node in shown)
    led = {target for answer in answers for target in answer.targets}
    return (
        led | {feed.target for feed in graph.feeds if feed.runs and feed.source in shown}
    ) - shown


def _with_inputs(shown: set[int], inputs: dict[int, set[int]]) -> set[int]:
    """Nodes with all that they read, directly or not."""
    nodes, new = set(shown), set(shown)
    while new:
        new = set().union(*(inputs.get(node, set()) for node in new)) - nodes
        nodes |= new
    return nodes


def stubs_of(graph: MetricGraph, shown: set[int]) -> list[Stub]:
    """The rest of the graph, as subtrees that hang together."""
    hidden = set(top_nodes(graph)) - shown
    groups = {node: {node} for node in hidden}
    links = [(answer.node, target) for answer in graph.answers for target in answer.targets]
    links += [(feed.source, feed.target) for feed in graph.feeds]
    for source, target in links:
        if source in hidden and target in hidden and groups[source] is not groups[target]:
            joined = groups[source] | groups[target]
            for node in joined:
                groups[node] = joined
    stubs = []
    for group in {min(group): group for group in groups.values()}.values():
        by = [
            number
            for number, answer in enumerate(graph.answers)
            if answer.node in shown and group & set(answer.targets)
        ]
        if by:
            stubs.append(Stub(tuple(sorted(group)), tuple(by)))
    return sorted(stubs, key=lambda stub: stub.by)
