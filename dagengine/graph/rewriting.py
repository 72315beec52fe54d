"""Metrics made of other metrics: the same graph with its nodes copied and changed.

A rewriting never touches the graph it starts from. Everything reachable is copied, metrics
under verdicts included, and changes may then set attributes of the copies or put something
around what they do. Copies of one `Rewriting` share what the originals shared.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar, cast

from dagengine.graph.graph import Graph, Metric, MetricSpec
from dagengine.graph.node import BaseNode

G = TypeVar("G", bound=Graph)
Change = Callable[[BaseNode], None]
"""Changes a node's copy in place."""

# Attributes of nodes that hold what verdicts lead to.
_TARGETS = ("then", "child")
# How many metrics under verdicts are rewritten before a run. Each may have further ones below it,
# without end if its `spec` makes new ones every time.
_NESTED = 100


@dataclass(frozen=True, slots=True, eq=False)
class SpecMetric:
    """A metric that consists of its specification only."""

    specification: MetricSpec

    def spec(self) -> MetricSpec:
        """The metric as the compiler takes it."""
        return self.specification


class Rewriting:
    """Rewrites metrics by `changes`, applied in order; what they share stays shared.

    `model` takes the place of every judge, also of those that metrics under verdicts name.
    """

    def __init__(self, changes: Iterable[Change] = (), model: Any = None) -> None:
        self._changes = tuple(changes)
        self._model = model
        self.copies: dict[BaseNode, BaseNode] = {}
        self._graphs: dict[Graph, Graph] = {}
        self._nested: dict[int, _Nested] = {}

    def spec(self, spec: MetricSpec) -> MetricSpec:
        """The specification with its graph rewritten."""
        rewritten = self.without_nested(spec)
        self._rewrite_nested()
        return rewritten

    def graph(self, graph: G) -> G:
        """A copy of a graph; of the same graph the same copy."""
        copied = self._copy(graph, False)
        self._rewrite_nested()
        return copied

    def without_nested(self, spec: MetricSpec) -> MetricSpec:
        """The specification rewritten; metrics under its verdicts are rewritten when looked at."""
        model = spec.model if self._model is None else self._model
        return replace(spec, graph=self._copy(spec.graph, spec.strict), model=model)

    def change(self, graph: Graph, new: Sequence[BaseNode], strict: bool) -> None:
        """Change the copies of `new` nodes; subclasses also use the graph and `strict`."""
        for node in new:
            for change in self._changes:
                change(self.copies[node])

    def _rewrite_nested(self) -> None:
        """Rewrite the metrics under verdicts now: their errors are then raised before the run."""
        for index in range(_NESTED):
            if index == len(self._nested):
                break
            list(self._nested.values())[index].spec()  # which may add others after it

    def _copy(self, graph: G, strict: bool) -> G:
        if not isinstance(graph, Graph):
            return graph  # the checks say what is wrong
        if graph not in self._graphs:
            # First all copies are made, then they are connected. So it makes no difference in which
            # order nodes refer to each other, and a cycle, which the checks report, ends here too.
            # Two metrics that share `n` share its copy, or it would be asked twice:
            #
            #     A ─▶ n ◀─ B    becomes    A' ─▶ n' ◀─ B'
            new = self._new_nodes(graph)
            self.copies.update({node: copy.copy(node) for node in new})
            copied = self._graphs[graph] = copy.copy(graph)
            copied.root_nodes, copied.original = self._copy_value(graph.root_nodes), graph
            for node in new:
                for name, value in vars(self.copies[node]).items():
                    setattr(self.copies[node], name, self._copy_value(value, name))
            self.change(graph, new, strict)
        return cast("G", self._graphs[graph])

    def _new_nodes(self, graph: Graph) -> list[BaseNode]:
        """Nodes that have no copy yet, found through whatever attributes hold them."""
        # Not by `neighbours`: a class of node may keep others in attributes of its own (`over` of a
        # map), and one that is not copied would be changed for the original graph, too.
        nodes: dict[BaseNode, None] = {}
        waiting: list[Any] = list(reversed(graph.root_nodes))
        while waiting:
            thing = waiting.pop()
            if isinstance(thing, BaseNode):
                if thing not in nodes and thing not in self.copies:
                    nodes[thing] = None
                    waiting += reversed(list(vars(thing).values()))
            elif isinstance(thing, list | tuple):
                waiting += reversed(thing)
            elif isinstance(thing, dict):
                waiting += reversed(list(thing.values()))
        return list(nodes)

    def _copy_value(self, value: Any, name: str = "") -> Any:
        if isinstance(value, BaseNode):
            return self.copies[value]
        # Exactly these types: a named tuple is not made from one list of its items.
        if type(value) in (list, tuple):
            return type(value)(self._copy_value(item, name) for item in value)
        if type(value) is dict:
            return {key: self._copy_value(item, name) for key, item in value.items()}
        if name in _TARGETS and isinstance(value, Metric):
            return self._nested.setdefault(id(value), _Nested(value, self))
        return value


class _Nested:
    """A metric under a verdict, rewritten when it is looked at: it may contain itself."""

    def __init__(self, metric: Any, rewriting: Rewriting) -> None:
        # The metric is kept: an id is free again when its owner is gone.
        self.original, self._rewriting = metric, rewriting

    def spec(self) -> MetricSpec:
        """The metric as the compiler takes it; of the same metric the same nodes."""
        return self._spec

    @cached_property
    def _spec(self) -> MetricSpec:
        return self._rewriting.without_nested(self.original.spec())
