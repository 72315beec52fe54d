"""What a graph means, written as plainly as possible, to compare the engine with.

No scheduling, no counters: sets that grow until nothing changes. Verdicts come from an
oracle that knows only a node's name, so what is live can be found before any value is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dagengine.graph import BaseNode, Graph, VerdictNode

Oracle = Callable[[str], Any]


@dataclass
class Expected:
    """Live nodes by name, what each of them read by label, and the scores reached."""

    reads: dict[str, dict[str, Any]]
    verdicts: dict[str, Any]
    scores: list[float]


def interpret(graph: Graph, oracle: Oracle) -> Expected:
    """Run a graph of named nodes; `oracle` gives the verdict of a node by its name."""
    nodes = graph.nodes()
    live = _live(graph, nodes, oracle)
    reads: dict[str, dict[str, Any]] = {}
    outputs: dict[BaseNode, Any] = {}
    for node in sorted(nodes, key=lambda node: _depth(node, nodes)):
        if node not in live:
            continue
        sources = [s for s in nodes if s in live and (s in node.inputs or node in _after(s))]
        reads[node.title] = {source.title: outputs[source] for source in sources}
        outputs[node] = output_of(node.title, reads[node.title], oracle, bool(node.branches()))
    verdicts = {node.title: oracle(node.title) for node in live if node.branches()}
    return Expected(reads, verdicts, _scores(nodes, live, oracle))


def output_of(name: str, reads: dict[str, Any], oracle: Oracle, decides: bool) -> Any:
    """What readers of a node see: its verdict, or a text that tells what it read."""
    if decides:
        return oracle(name)
    return f"{name}({', '.join(f'{label}={reads[label]}' for label in sorted(reads))})"


def _live(graph: Graph, nodes: list[BaseNode], oracle: Oracle) -> set[BaseNode]:
    gates = {node: [d for d in nodes if node in _targets(d)] for node in nodes}
    certain = _certain(graph, nodes)
    live: set[BaseNode] = set(graph.root_nodes)
    while True:
        more = set(live)
        for node in live:
            more |= set(node.inputs)
            if node.branches():
                more |= {
                    branch.target
                    for branch in node.branches()
                    if branch.verdict == oracle(node.title) and isinstance(branch.target, BaseNode)
                }
            for child in _after(node):
                if not gates[child] or not (
                    node in certain or any(_reaches(node, gate, nodes) for gate in gates[child])
                ):
                    more.add(child)
        if more == live:
            return live
        live = more


def _certain(graph: Graph, nodes: list[BaseNode]) -> set[BaseNode]:
    """Nodes that are live in every case, as no verdict has a say in it."""
    gated = {target for node in nodes for target in _targets(node)}
    found: set[BaseNode] = set(graph.root_nodes)
    while True:
        handed = {child for node in found for child in _after(node)} - gated
        more = found | handed | {source for node in found for source in node.inputs}
        if more == found:
            return found
        found = more


def _after(node: BaseNode) -> list[BaseNode]:
    """Nodes that `node` hands on to."""
    return [child for child in node.successors() if not isinstance(child, VerdictNode)]


def _targets(node: BaseNode) -> list[BaseNode]:
    return [b.target for b in node.branches() if isinstance(b.target, BaseNode)]


def _reaches(start: BaseNode, goal: BaseNode, nodes: list[BaseNode]) -> bool:
    """Whether a path leads from `start` to `goal`."""
    after = _after(start) + _targets(start) + [n for n in nodes if start in n.inputs]
    return goal in after or any(_reaches(node, goal, nodes) for node in after)


def _depth(node: BaseNode, nodes: list[BaseNode]) -> int:
    """Length of the longest path that ends at `node`."""
    before = [n for n in nodes if node in _after(n) or node in _targets(n) or n in node.inputs]
    return max((_depth(n, nodes) + 1 for n in before), default=0)


def _scores(nodes: list[BaseNode], live: set[BaseNode], oracle: Oracle) -> list[float]:
    """Scores of all terminals reached, by depth; ties in order of declaration."""
    found: list[tuple[int, float]] = []
    for node in nodes:
        for branch in node.branches():
            taken = node in live and branch.verdict == oracle(node.title)
            if taken and isinstance(branch.target, int):
                found.append((_depth(node, nodes) + 1, branch.target / 10))
    return [score for _, score in sorted(found, key=lambda item: item[0])]
