"""Yes/no nodes merged and split: two questions that become one, and one that becomes two.

Merged are a node and the node that one of its verdicts leads to, if the others of both end alike:

    P ─True─▶ C ─True─▶ 10                P and C ─True─▶ 10
    └─False─▶ 0 ◀─False─┘       ⇄         └─False─▶ 0

The way back is a split. Everything behind the two stays as it is.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any, TypeGuard

from dagengine.graph.graph import Graph, as_digraph
from dagengine.graph.node import AskingNode, BaseNode
from dagengine.graph.nodes import BinaryJudgementNode, VerdictNode
from dagengine.graph.rewriting import Rewriting
from dagengine.metrics.common.base import BaseMetric
from dagengine.voting.wrappers import RewrittenMetric

_BETWEEN = re.compile(r"\s+(AND|OR)\s+")
# What two nodes may differ in and still be asked as one.
_OWN = {"criteria", "name", "children", "then", "inputs", "evaluation_params"}


@dataclass(frozen=True, slots=True)
class Pair:
    """Two nodes that may be merged: `parent_verdict` leads from the parent to the child.

    `child_verdict` goes on; the child's other verdict leads where that of the parent does.
    """

    parent: BinaryJudgementNode
    child: BinaryJudgementNode
    parent_verdict: bool
    child_verdict: bool

    @property
    def criterion(self) -> str:
        """The two criteria as one."""
        words = {True: "yes", False: "no"}
        return (
            f"First: {self.parent.text} Second: {self.child.text} Answer true only if the first "
            f"answer is {words[self.parent_verdict]} and the second one is "
            f"{words[self.child_verdict]}."
        )


def pair_at(metric: BaseMetric, title: str) -> Pair | None:
    """The node of that title and a neighbour that it may be merged with: a child before a parent.

    A child is asked after one node only, and nothing reads what the two answer.
    """
    graph = metric.spec().graph
    edges: list[tuple[BaseNode, BaseNode]] = []
    for node in graph.nodes():
        edges += ((node, t) for t in targets(node).values() if isinstance(t, BaseNode))
    for end in (0, 1):
        for edge in edges:
            if edge[end].title == title and (pair := _pair(graph, *edge)):
                return pair
    return None


def _pair(graph: Graph, parent: BaseNode, child: BaseNode) -> Pair | None:
    if not (_is_free(parent, graph) and _is_free(child, graph)):
        return None
    predecessors = set(as_digraph(graph.nodes()).predecessors(child))
    decided = {node for node in predecessors if child in targets(node).values()}
    asked_alone = decided == {parent} and child not in graph.root_nodes
    if not asked_alone or _settings(parent) != _settings(child):
        return None
    above, below = targets(parent), targets(child)
    for upper, lower in product((True, False), repeat=2):
        end = above[not upper]
        if above[upper] is child and end is not child and below[not lower] == end:
            return Pair(parent, child, upper, lower)
    return None


def can_split(metric: BaseMetric, title: str) -> bool:
    """Return whether a node is a yes/no question that may become two."""
    graph = metric.spec().graph
    return any(node.title == title and _is_free(node, graph) for node in graph.nodes())


def _is_free(node: BaseNode, graph: Graph) -> TypeGuard[BinaryJudgementNode]:
    """Return whether it is a yes/no question whose words may change, and that nothing reads."""
    if not isinstance(node, BinaryJudgementNode) or node.prompted or node.examples:
        return False
    unread = not any(node in reader.inputs for reader in graph.nodes())
    return unread and set(targets(node)) == {True, False}


def _settings(node: AskingNode) -> dict[str, Any]:
    return {name: value for name, value in vars(node).items() if name not in _OWN}


def targets(node: BaseNode) -> dict[Any, Any]:
    """Targets of the verdicts of a node; a score is a score however it is written."""
    ends: dict[Any, Any] = {}
    for branch in node.branches():
        leaf = isinstance(branch.target, VerdictNode) and branch.target.child is None
        ends[branch.verdict] = branch.target.score if leaf else branch.target
    return ends


def halves(words: str) -> tuple[str, str, str] | None:
    """Two criteria, and the word that is between them: AND or OR; None for any other text."""
    parts = _BETWEEN.split(words.strip())
    return (parts[0], parts[1], parts[2]) if len(parts) == 3 and all(parts) else None


class _Reshaping(Rewriting):
    """Reshapes the graph that contains a node, once all of it is copied."""

    def __init__(self, node: BaseNode, reshape: Callable[[Rewriting], None]) -> None:
        super().__init__()
        self._node, self._reshape = node, reshape

    def change(self, graph: Graph, new: Sequence[BaseNode], strict: bool) -> None:
        """Reshape the copy."""
        if self._node in new:
            self._reshape(self)


def merge_nodes(metric: BaseMetric, title: str) -> BaseMetric:
    """A copy of the metric in which a node and its neighbour (`pair_at`) are one question."""
    pair = pair_at(metric, title)
    assert pair is not None, title

    def reshape(rewriting: Rewriting) -> None:
        parent, child = rewriting.copies[pair.parent], rewriting.copies[pair.child]
        assert isinstance(parent, BinaryJudgementNode)
        parent.criteria = pair.criterion
        parent.name = f"{pair.parent.title} and {pair.child.title}"
        for name in ("evaluation_params", "inputs"):
            combined = (*getattr(parent, name), *getattr(child, name))
            setattr(parent, name, tuple(dict.fromkeys(combined)))
        leads = {
            True: targets(child)[pair.child_verdict],
            False: targets(parent)[not pair.parent_verdict],
        }
        # In the order that the parent has: definitions are made of it.
        parent.then = {verdict: leads[verdict] for verdict in targets(parent)}
        parent.children = []
        for node in rewriting.copies.values():
            if child in node.successors():
                kids = dict.fromkeys(node.children)
                node.children = list(dict.fromkeys(parent if kid is child else kid for kid in kids))

    return RewrittenMetric(metric, partial(_Reshaping, pair.parent, reshape))


def split_node(metric: BaseMetric, title: str, words: str) -> BaseMetric:
    """A copy of the metric in which a node is two: `words` are both criteria, AND or OR between."""
    node = next(node for node in metric.spec().graph.nodes() if node.title == title)
    parts = halves(words)
    assert parts is not None, words

    def reshape(rewriting: Rewriting) -> None:
        copied = rewriting.copies[node]
        assert isinstance(copied, BinaryJudgementNode)
        second, goes_on = copy.copy(copied), parts[1] == "AND"
        copied.criteria, _, second.criteria = parts
        second.name, second.output_label = f"{title}, 2", None
        second.children, second.then = [], targets(copied)
        copied.children, copied.then = [], {**targets(copied), goes_on: second}
        for reader in list(rewriting.copies.values()):
            if copied in reader.successors():
                reader.children.append(second)

    return RewrittenMetric(metric, partial(_Reshaping, node, reshape))
