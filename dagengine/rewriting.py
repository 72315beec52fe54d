"""Graphs with other panels on some of their nodes: copies, the originals stay as they are."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar, cast

import networkx as nx

from dagengine.errors import InputError
from dagengine.graph import Graph, MetricSpec, as_digraph
from dagengine.node import BaseNode, Panel, VerdictNode

G = TypeVar("G", bound=Graph)
# Metrics under verdicts that are searched for nodes before a run.
_NESTED = 100
Choose = Callable[[BaseNode], Panel | None]


@dataclass(frozen=True)
class Rewrite:
    """Gives nodes the panel that `choose` has for them (None: as it was).

    `names` are the only nodes concerned, by title or as objects (None: all). A node whose
    verdicts all lead to the same score is left alone, since no vote on it can matter.
    """

    choose: Choose
    names: tuple[str | BaseNode, ...] | None = None

    def spec(self, spec: MetricSpec) -> MetricSpec:
        """The rewritten metric; raises InputError when there is no node to rewrite."""
        work = _Work(self)
        found = replace(spec, graph=work.graph(spec.graph, spec.strict))
        work.check(spec.name)
        return found

    def graph(self, graph: G) -> G:
        """The rewritten graph; raises InputError when there is no node to rewrite."""
        work = _Work(self)
        found = work.graph(graph, False)
        work.check(type(graph).__name__)
        return found

    def concerns(self, node: BaseNode) -> bool:
        return self.names is None or any(name is node or name == node.title for name in self.names)


@dataclass
class _Work:
    """One rewriting, nested metrics included."""

    rewrite: Rewrite
    graphs: dict[Graph, Graph] = field(default_factory=dict)
    nested: dict[int, _Nested] = field(default_factory=dict)
    met: list[BaseNode] = field(default_factory=list)

    def graph(self, graph: G, strict: bool) -> G:
        if not isinstance(graph, Graph):
            return graph  # the checks say what is wrong
        if graph not in self.graphs:
            nodes = graph.nodes()
            copies = {node: copy.copy(node) for node in nodes}
            # Known before its nodes are: a metric may stand under a verdict of its own.
            self.graphs[graph] = made = copy.copy(graph)
            made.root_nodes = tuple(copies.get(node, node) for node in graph.root_nodes)
            needless = _needless(nodes, strict)
            for node, new in copies.items():
                self._connect(new, copies)
                if self.rewrite.concerns(node):
                    self._seat(node, new, node in needless)
        return cast("G", self.graphs[graph])

    def _connect(self, node: BaseNode, copies: Mapping[BaseNode, BaseNode]) -> None:
        """Let a copy refer to copies."""

        def new(value: Any) -> Any:
            if isinstance(value, BaseNode):
                return copies.get(value, value)
            return type(value)(map(new, value)) if type(value) in (list, tuple) else value

        vars(node).update({name: new(value) for name, value in vars(node).items()})
        node.then = {verdict: self._target(new(value)) for verdict, value in node.then.items()}
        if isinstance(node, VerdictNode):
            node.child = self._target(node.child)

    def _target(self, target: Any) -> Any:
        """What a verdict leads to; a metric is rewritten, too."""
        if isinstance(target, BaseNode) or not hasattr(target, "spec"):
            return target
        return self.nested.setdefault(id(target), _Nested(target, self))

    def _seat(self, node: BaseNode, new: BaseNode, needless: bool) -> None:
        panel = self.rewrite.choose(node)
        if panel is None:
            return
        if node.panel is not None:
            raise InputError(f"node {node.title!r} has a panel already: {node.panel.label}")
        self.met.append(node)
        if not needless:
            new.panel = panel

    def check(self, name: str) -> None:
        """Raise InputError when some name, or everything, was rewritten nowhere."""
        for seen in range(_NESTED):  # looking at one may bring more
            if len(self.nested) <= seen:
                break
            list(self.nested.values())[seen].spec()
        for wanted in self.rewrite.names or ():
            if not any(wanted is node or wanted == node.title for node in self.met):
                known = ", ".join(repr(node.title) for node in _votable(self.graphs))
                known = known or "none at all"
                raise InputError(f"{name!r} has no node {wanted!r} to vote on; it has {known}")
        if not self.met:
            raise InputError(f"{name!r} has no node that can be voted on")


class _Nested:
    """A metric under a verdict, rewritten when it is looked at."""

    def __init__(self, metric: Any, work: _Work) -> None:
        self._metric, self._work = metric, work

    def spec(self) -> MetricSpec:
        spec: MetricSpec = self._metric.spec()
        return replace(spec, graph=self._work.graph(spec.graph, spec.strict))


def _votable(graphs: Iterable[Graph]) -> list[BaseNode]:
    return [node for graph in graphs for node in graph.nodes() if node.vote is not None]


def _needless(nodes: Iterable[BaseNode], strict: bool) -> set[BaseNode]:
    """Decisions that cannot change the score: whatever they say, the same follows."""
    graph = as_digraph(nodes)
    if not nx.is_directed_acyclic_graph(graph):
        return set()
    read = {source for node in graph for source in node.inputs}
    leads: dict[BaseNode, object] = {}
    found: set[BaseNode] = set()
    for node in reversed(list(nx.topological_sort(graph))):
        follows = {_follows(branch.target, leads, strict) for branch in node.branches()}
        leads[node] = node
        if len(follows) == 1 and node not in read:
            (leads[node],) = follows
            found.add(node)
    return found


def _follows(target: Any, leads: Mapping[BaseNode, object], strict: bool) -> object:
    """What a verdict's target comes to: a score, or the node that decides."""
    if isinstance(target, BaseNode) and not isinstance(target, VerdictNode):
        return leads.get(target, target)
    if isinstance(target, int) and not isinstance(target, bool):
        return "score", target >= 10 if strict else target
    return id(target)
