"""Which part of a large graph is drawn, so that it can be read at its full size.

A picture is made to fit by folding, never by shrinking. What is not drawn stands as groups: the
nodes behind one answer. Groups are unfolded as long as the picture fits, first those that most
failures came by, then most cases; without a run, first the largest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable
from copy import copy
from typing import Any

import networkx as nx

from dagengine.report.pictures.metric_graph import MetricGraph

LARGE = 24
"""A graph of at most so many nodes is drawn whole, if it is not too wide."""
WIDE, HIGH = 1212, 620
"""Pixels that a folded picture takes, as far as they can be told before it is laid out."""

_GAP, _LEVEL = 14, 92  # pixels between neighbours, and from one level to the next
_END, _GROUP = 84, 130  # widths
_LOOSE = 1.07  # by how much a contour is wider than what Graphviz makes of it, at least
_FRAME = (32, 44)  # what the frame of a metric adds to the width and height of its nodes

Size = Callable[[int], tuple[float, float]]
"""Width and height of a node in pixels."""
Weight = Callable[[int], tuple[int, ...]]
"""What makes a node worth drawing, the greater the more."""
Contour = list[tuple[float, float]]
"""Where a drawing ends to the left and to the right of its middle, in pixels, level by level."""


class Folds:
    """What is drawn of a graph: `drawn` nodes, metrics that are `opened`, and `groups`.

    A group has the nodes that are not drawn behind its first one, by which it is called. Groups
    that share nodes each have them. Nodes inside a metric are drawn where it is opened.
    """

    def __init__(self, graph: MetricGraph, size: Size) -> None:
        """Fold nothing of a graph, whose nodes have a `size`."""
        self.graph, self._size = graph, size
        self._targets = graph.targets()
        self._successors, self._links = _relations(graph)
        self._top = graph.inner(None)
        self._roots = [number for number in self._top if not self._links.pred[number]]
        self.drawn, self.opened = set(self._top), graph.owners()
        self.groups: dict[int, set[int]] = {}

    def to_fit(self, weight: Weight) -> Folds:
        """As much of the graph as fits, unfolded from its roots on."""
        height = math.inf if nodes_of(self.graph) <= LARGE else HIGH
        if self._fits(height):
            return self
        folds = self._with(self._roots, ())
        refused: set[tuple[str, int]] = set()
        while (larger := folds._larger(weight, height, refused)) is not None:
            folds = larger
        folds._group()
        return folds

    def to_show(self, reached: Collection[int]) -> Folds:
        """Parts that a case came by; all of a small graph, if it is not too wide."""
        if nodes_of(self.graph) <= LARGE and self._fits(math.inf):
            return self
        top = (number for number in self._top if number in reached)
        folds = self._with([*self._roots, *top], self.graph.owners().intersection(reached))
        folds._group()
        return folds

    def shows(self, number: int) -> bool:
        """Return whether a node is drawn: itself, or in the frame of its metric."""
        owner = self.graph.nodes[number].inside
        if owner is None:
            return number in self.drawn
        return owner in self.opened and self.shows(owner)

    def size_of(self, group: Iterable[int]) -> int:
        """The number of nodes in a group, with those inside its metrics."""
        return sum(nodes_of(self.graph, number) for number in group)

    def behind(self, number: int) -> set[int]:
        """The nodes that come after one, directly or not."""
        return set(nx.descendants(self._successors, number))

    def _with(self, drawn: Iterable[int], opened: Iterable[int]) -> Folds:
        """The same graph with these metrics opened, and these nodes drawn.

        What they read is drawn, too, but not nodes that an answer leads to.
        """
        folds, waiting = copy(self), list(drawn)
        folds.drawn, folds.opened = set(), set(opened)
        while waiting:
            number = waiting.pop()
            if number not in folds.drawn:
                folds.drawn.add(number)
                for source, edge in self._links.pred[number].items():
                    if not edge["answer"] and source not in self._targets:
                        waiting.append(source)
        return folds

    def _larger(self, weight: Weight, height: float, refused: set[tuple[str, int]]) -> Folds | None:
        """The same with the weightiest group or metric more that fits; None if none does."""
        shut = filter(self.shows, self.graph.owners() - self.opened)
        steps = {("group", head) for head in self._heads()} | {("metric", at) for at in shut}
        for step in sorted(sorted(steps - refused), key=lambda at: weight(at[1]), reverse=True):
            kind, number = step
            if kind == "group":
                larger = self._with(self.drawn | {number}, self.opened)
            else:
                larger = self._with(self.drawn, self.opened | {number})
            if larger._fits(height):
                return larger
            refused.add(step)  # it fits no better later
        return None

    def _heads(self) -> list[int]:
        """The first nodes of groups: not drawn, and next after one that is."""
        after = (head for number in sorted(self.drawn) for head in self._successors[number])
        return [head for head in dict.fromkeys(after) if head not in self.drawn]

    def _group(self) -> None:
        """Put every node that is not drawn into the groups that it belongs to."""
        hidden = self._links.subgraph(number for number in self._top if number not in self.drawn)
        self.groups = {head: {head, *nx.descendants(hidden, head)} for head in self._heads()}
        # Readers before what they read: a node behind no head goes to the groups of its readers.
        for number in reversed(list(nx.topological_sort(hidden))):
            homes = [group for group in self.groups.values() if number in group]
            if not homes:
                homes = [group for group in self.groups.values() if group & {*hidden[number]}]
                for group in homes:
                    group.add(number)
            if not homes:
                self.drawn.add(number)

    def _fits(self, height: float) -> bool:
        """Return whether the drawing is probably no wider than a screen and no higher than that."""
        contour = self._contour(None)
        return _width_of(contour) <= WIDE * _LOOSE and len(contour) * _LEVEL <= height

    def _contour(self, scope: int | None) -> Contour:
        """The contour, about, of the graph or of the metric of a node.

        Graphviz lays out the final picture; to ask it for each one that is tried would take
        seconds. Each node stands in the middle over what comes next after it, and subtrees are as
        close as their widest levels allow. A node with several parents is placed under the first.
        """
        nodes = filter(self.shows, self.graph.inner(scope))
        roots = [number for number in nodes if not self._links.pred[number]]
        seen, children = set(roots), dict[int, list[int]]()
        waiting = list(seen)
        while waiting:
            number = waiting.pop()
            children[number] = [child for child in self._successors[number] if child not in seen]
            seen.update(children[number])
            waiting += filter(self.shows, children[number])
        contours: dict[int, Contour] = {}
        for number in reversed(children):  # parents were met before their children
            # A child that is not drawn is the first node of a group.
            parts = [contours.get(child, [(-_GROUP / 2, _GROUP / 2)]) for child in children[number]]
            parts += [[(-_END / 2, _END / 2)]] * self.graph.scores(number)
            contours[number] = self._levels_of(number) + _side_by_side(parts)
        return _side_by_side([contours[number] for number in roots])

    def _levels_of(self, number: int) -> Contour:
        """The contour of one node alone, of an opened metric with the nodes inside it."""
        if number not in self.opened:
            wide, high = self._size(number)
            return [(-wide / 2, wide / 2)] * max(1, round(high / _LEVEL))
        inner = self._contour(number)
        wide = _width_of(inner) + _FRAME[0]
        return [(-wide / 2, wide / 2)] * math.ceil(len(inner) + _FRAME[1] / _LEVEL)


def nodes_of(graph: MetricGraph, number: int | None = None) -> int:
    """The number of nodes of a graph, or of one node: those of a metric are the ones inside."""
    if number is None:
        return len(graph.nodes) - len(graph.owners())
    return sum(nodes_of(graph, inner) for inner in graph.inner(number)) or 1


def _relations(graph: MetricGraph) -> tuple[nx.DiGraph[Any], nx.DiGraph[Any]]:
    """Graph of what comes next after each node, and graph of that and of all that is read.

    A node that answers lead to comes next after these, not after all that it reads. No edge leads
    from one metric to another.
    """
    targets = graph.targets()
    successors: nx.DiGraph[Any] = nx.DiGraph()
    successors.add_nodes_from(range(len(graph.nodes)))
    links = successors.copy()
    for answer in graph.answers:
        for target in answer.targets:
            successors.add_edge(answer.node, target)
            links.add_edge(answer.node, target, answer=True)
    for feed in graph.feeds:
        if feed.runs or feed.target not in targets:
            successors.add_edge(feed.source, feed.target)
        if not links.has_edge(feed.source, feed.target):
            links.add_edge(feed.source, feed.target, answer=False)
    return successors, links


def _width_of(contour: Contour) -> float:
    lefts, rights = zip(*contour or [(0.0, 0.0)], strict=True)
    return float(max(rights) - min(lefts))


def _side_by_side(parts: list[Contour]) -> Contour:
    """Contours as close to each other as they may stand, around the middle of their first level."""
    joined: Contour = []
    for part in parts:
        near = [right - left for (_, right), (left, _) in zip(joined, part, strict=False)]
        shift = max(near) + _GAP if near else 0.0
        moved = [(left + shift, right + shift) for left, right in part]
        both = [(left, right) for (left, _), (_, right) in zip(joined, moved, strict=False)]
        joined = both + joined[len(both) :] + moved[len(both) :]
    if not joined:
        return []
    middle = (joined[0][0] + joined[0][1]) / 2
    return [(left - middle, right - middle) for left, right in joined]
