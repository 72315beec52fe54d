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
    return Interpreter(graph).run(oracle)


class Interpreter:
    """A graph of named nodes; what no verdict has a say in is found once for all runs."""

    def __init__(self, graph: Graph) -> None:
        self._roots = set(graph.root_nodes)
        self._nodes = graph.nodes()
        self._branches = {node: node.branches() for node in self._nodes}
        self._after = {
            node: [child for child in node.successors() if not isinstance(child, VerdictNode)]
            for node in self._nodes
        }
        """Nodes that a node hands on to."""
        self._targets = {
            node: [b.target for b in self._branches[node] if isinstance(b.target, BaseNode)]
            for node in self._nodes
        }
        self._gates = {
            node: [gate for gate in self._nodes if node in self._targets[gate]]
            for node in self._nodes
        }
        self._certain = self._found_certain()
        self._depths: dict[BaseNode, int] = {}
        self._by_depth = sorted(self._nodes, key=self._depth)

    def run(self, oracle: Oracle) -> Expected:
        """What comes of the verdicts that `oracle` gives."""
        live = self._live(oracle)
        reads: dict[str, dict[str, Any]] = {}
        outputs: dict[BaseNode, Any] = {}
        for node in self._by_depth:
            if node not in live:
                continue
            sources = [
                source for source in self._nodes
                if source in live and (source in node.inputs or node in self._after[source])
            ]  # fmt: skip
            reads[node.title] = {source.title: outputs[source] for source in sources}
            decides = bool(self._branches[node]) or isinstance(oracle(node.title), float)
            outputs[node] = output_of(node.title, reads[node.title], oracle, decides)
        verdicts = {node.title: oracle(node.title) for node in live if self._branches[node]}
        return Expected(reads, verdicts, self._scores(live, oracle))

    def _live(self, oracle: Oracle) -> set[BaseNode]:
        live = set(self._roots)
        while True:
            more = set(live)
            for node in live:
                more |= set(node.inputs)
                more |= {
                    branch.target
                    for branch in self._branches[node]
                    if branch.verdict == oracle(node.title) and isinstance(branch.target, BaseNode)
                }
                more |= {child for child in self._after[node] if self._hands_on(node, child)}
            if more == live:
                return live
            live = more

    def _hands_on(self, node: BaseNode, child: BaseNode) -> bool:
        """Whether a live node makes a child live, without a verdict."""
        gates = self._gates[child]
        return not gates or not (
            node in self._certain or any(self._reaches(node, gate) for gate in gates)
        )

    def _found_certain(self) -> set[BaseNode]:
        """Nodes that are live in every case, as no verdict has a say in it."""
        gated = {node for node in self._nodes if self._gates[node]}
        certain = set(self._roots)
        while True:
            handed = {child for node in certain for child in self._after[node]} - gated
            more = certain | handed | {source for node in certain for source in node.inputs}
            if more == certain:
                return certain
            certain = more

    def _reaches(self, start: BaseNode, goal: BaseNode) -> bool:
        """Whether a path leads from `start` to `goal`."""
        readers = [node for node in self._nodes if start in node.inputs]
        after = self._after[start] + self._targets[start] + readers
        return goal in after or any(self._reaches(node, goal) for node in after)

    def _depth(self, node: BaseNode) -> int:
        """Length of the longest path that ends at `node`."""
        if node not in self._depths:
            before = [
                source for source in self._nodes
                if node in self._after[source] + self._targets[source] or source in node.inputs
            ]  # fmt: skip
            self._depths[node] = max((self._depth(source) + 1 for source in before), default=0)
        return self._depths[node]

    def _scores(self, live: set[BaseNode], oracle: Oracle) -> list[float]:
        """Scores of all terminals reached, by depth; ties in order of declaration."""
        reached: list[tuple[int, float]] = []
        readers = {node: [r for r in self._nodes if node in r.inputs] for node in self._nodes}
        computed = [
            node for node in self._nodes
            if node in live and node.kind == "code"
            and not (self._branches[node] or self._after[node] or readers[node])
        ]  # fmt: skip
        material = set[BaseNode]().union(*map(self._material, computed))
        for node in self._nodes:
            for branch in self._branches[node]:
                taken = node in live and branch.verdict == oracle(node.title)
                if taken and node not in material and isinstance(branch.target, int):
                    reached.append((self._depth(node) + 1, branch.target / 10))
            if node in computed:
                reached.append((self._depth(node), oracle(node.title)))
        return [score for _, score in sorted(reached, key=lambda item: item[0])]

    def _material(self, code: BaseNode) -> set[BaseNode]:
        """What a score is computed from: all that its code reads, itself or through other code."""
        read = {s for s in self._nodes if s in code.inputs or code in self._after[s]}
        return read.union(*(self._material(s) for s in read if s.kind == "code"))


def output_of(name: str, reads: dict[str, Any], oracle: Oracle, decides: bool) -> Any:
    """What readers of a node see: its verdict, or a text that tells what it read."""
    if decides:
        return oracle(name)
    return f"{name}({', '.join(f'{label}={reads[label]}' for label in sorted(reads))})"
