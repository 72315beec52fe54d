"""Panels for the nodes of a graph: who answers, and how often, where that can change a score."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import networkx as nx

from dagengine.errors import InputError
from dagengine.graph.decision import VerdictNode
from dagengine.graph.graph import Graph, MetricSpec, as_digraph
from dagengine.graph.node import BaseNode
from dagengine.graph.panel import Panel
from dagengine.graph.rewriting import G, Rewriting

Choose = Callable[[BaseNode], Panel | None]


class AssignPanels(Rewriting):
    """Gives nodes the panel that `choose` has for them (None: as it was).

    `names` are the only nodes concerned, by title or as objects (None: all). A node whose
    verdicts all lead to the same score is left alone, since no vote on it can matter.
    """

    def __init__(self, choose: Choose, names: Sequence[str | BaseNode] | None = None) -> None:
        super().__init__()
        self._choose = choose
        self._names = names
        self._seated: dict[BaseNode, None] = {}

    def spec(self, spec: MetricSpec) -> MetricSpec:
        """The specification with panels; raises InputError when no node can be voted on."""
        rewritten = super().spec(spec)
        self._check(spec.name)
        return rewritten

    def graph(self, graph: G) -> G:
        """A copy of a graph with panels; raises InputError when no node can be voted on."""
        copied = super().graph(graph)
        self._check(type(graph).__name__)
        return copied

    def change(self, graph: Graph, new: Sequence[BaseNode], strict: bool) -> None:
        """Seat panels; raises InputError for a node that has one."""
        nodes = graph.nodes()
        needless = _needless(nodes, strict)
        for node in nodes:
            concerned = self._names is None or any(_is(node, name) for name in self._names)
            panel = self._choose(node) if concerned else None
            if panel is None:
                continue
            if node.panel is not None:
                raise InputError(
                    f"node {node.title!r} already has votes or several judges: {node.panel.label}"
                )
            self._seated[node] = None
            if node not in needless:
                self.copies[node].panel = panel

    def _check(self, name: str) -> None:
        """Raise InputError when some name, or everything, was seated nowhere."""
        for wanted in self._names or ():
            if not any(_is(node, wanted) for node in self._seated):
                able = [repr(node.title) for node in self.copies if self._choose(node)]
                names = ", ".join(able) or "none at all"
                raise InputError(
                    f"{name!r} has no node {wanted!r} that asks a judge; it has {names}"
                )
        if not self._seated:
            raise InputError(f"{name!r} has no node that asks a judge")


def _is(node: BaseNode, name: str | BaseNode) -> bool:
    return name is node or name == node.title


def _needless(nodes: Iterable[BaseNode], strict: bool) -> set[BaseNode]:
    """Decisions that cannot change the score: whatever they say, the same follows."""
    graph = as_digraph(nodes)
    if not nx.is_directed_acyclic_graph(graph):
        return set()
    read = {source for node in graph for source in node.inputs}
    leads: dict[BaseNode, object] = {}
    needless: set[BaseNode] = set()
    for node in reversed(list(nx.topological_sort(graph))):
        follows = {_follows(branch.target, leads, strict) for branch in node.branches()}
        leads[node] = node
        if len(follows) == 1 and node not in read:
            (leads[node],) = follows
            needless.add(node)
    return needless


def _follows(target: Any, leads: Mapping[BaseNode, object], strict: bool) -> object:
    """What a verdict's target comes to: a score, or the node that decides."""
    if isinstance(target, BaseNode) and not isinstance(target, VerdictNode):
        return leads.get(target, target)
    if isinstance(target, int) and not isinstance(target, bool):
        return "score", target >= 10 if strict else target
    return id(target)
