"""Changes of chosen nodes: panels where they can change a score, quotes, examples, criteria."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import networkx as nx

from dagengine.errors import InputError
from dagengine.graph.arguments import text
from dagengine.graph.graph import Graph, MetricSpec, as_digraph
from dagengine.graph.judging import Example, Quotes, examples_given
from dagengine.graph.node import AskingNode, BaseNode
from dagengine.graph.nodes import VerdictNode
from dagengine.graph.rewriting import G, Rewriting
from dagengine.graph.values import Panel


class Assigning(Rewriting):
    """Changes nodes that `can` be changed; `names` are the only ones, by title or as objects.

    `able` says in messages what such a node does. `edit` takes a node and its copy.
    """

    def __init__(
        self,
        able: str,
        can: Callable[[BaseNode], bool],
        edit: Callable[[BaseNode, Any], None],
        names: Sequence[str | BaseNode] | None = None,
    ) -> None:
        super().__init__()
        self._able, self._can, self._edit, self._names = able, can, edit, names
        self._changed: set[BaseNode] = set()

    def spec(self, spec: MetricSpec) -> MetricSpec:
        """The specification, changed; raises InputError when no node can be."""
        rewritten = super().spec(spec)
        self._check(spec.name)
        return rewritten

    def graph(self, graph: G) -> G:
        """A copy of a graph, changed; raises InputError when no node can be."""
        copied = super().graph(graph)
        self._check(type(graph).__name__)
        return copied

    def change(self, graph: Graph, new: Sequence[BaseNode], strict: bool) -> None:
        """Change the nodes that are meant."""
        for node in graph.nodes():
            is_meant = self._names is None or any(_is(node, name) for name in self._names)
            if is_meant and self._can(node):
                self._changed.add(node)
                self._edit(node, self.copies[node])

    def _check(self, name: str) -> None:
        """Raise InputError when some name, or everything, was found nowhere."""
        for target in self._names or ():
            if not any(_is(node, target) for node in self._changed):
                titles = (repr(node.title) for node in filter(self._can, self.copies))
                names = ", ".join(titles) or "none at all"
                raise InputError(
                    f"{name!r} has no node {target!r} that {self._able}; it has {names}"
                )
        if not self._changed:
            raise InputError(f"{name!r} has no node that {self._able}")


def assign_quotes(quoting: Quotes, names: Sequence[str | BaseNode] | None = None) -> Assigning:
    """Let the verdicts of nodes quote the material; nodes that quote already stay as they are."""

    def quote(node: BaseNode, copied: Any) -> None:
        if isinstance(copied, AskingNode) and copied.quoting is None:
            copied.quote_with(quoting)

    return Assigning("judges the material", lambda node: node.quotes, quote, names)


def assign_examples(examples: Mapping[str, Sequence[Example]]) -> Assigning:
    """Give nodes solved examples, by their titles, in place of those that they have."""
    checked = {title: examples_given(solved) for title, solved in examples.items()}

    def can(node: BaseNode) -> bool:
        return isinstance(node, AskingNode) and bool(node.exemplary) and not node.prompted

    def show(node: BaseNode, copied: Any) -> None:
        copied.show_examples(checked[node.title])

    return Assigning("takes examples", can, show, tuple(examples))


def assign_criteria(criteria: Mapping[str, str]) -> Assigning:
    """Give nodes other criteria, by their titles."""
    checked = {title: text("criteria", words) for title, words in criteria.items()}

    def can(node: BaseNode) -> bool:
        own = hasattr(node, "criteria") and not getattr(node, "of_criteria", False)
        return isinstance(node, AskingNode) and own and not node.prompted

    def reword(node: BaseNode, copied: Any) -> None:
        copied.criteria = checked[node.title]

    return Assigning("has a criterion of its own", can, reword, tuple(criteria))


class AssignPanels(Assigning):
    """Gives nodes the panel that `choose` has for them (None: as it was).

    A node whose verdicts all lead to the same score is left alone, since no vote on it can matter.
    """

    def __init__(
        self,
        choose: Callable[[BaseNode], Panel | None],
        names: Sequence[str | BaseNode] | None = None,
        able: str = "asks a judge",
    ) -> None:
        super().__init__(able, lambda node: choose(node) is not None, self._seat, names)
        self._choose = choose
        self._needless = set[BaseNode]()

    def change(self, graph: Graph, new: Sequence[BaseNode], strict: bool) -> None:
        """Seat panels; raises InputError for a node that has one."""
        self._needless = _needless(graph.nodes(), strict)
        super().change(graph, new, strict)

    def _seat(self, node: BaseNode, copied: Any) -> None:
        if node.panel is not None:
            raise InputError(
                f"node {node.title!r} already has votes or several judges: {node.panel.label}"
            )
        if node not in self._needless:
            copied.panel = self._choose(node)


def _is(node: BaseNode, name: str | BaseNode) -> bool:
    return name is node or name == node.title


def _needless(nodes: Iterable[BaseNode], strict: bool) -> set[BaseNode]:
    """Decisions that cannot change the score: all their verdicts lead to the same."""
    graph = as_digraph(nodes)
    if not nx.is_directed_acyclic_graph(graph):
        return set()
    sources = {source for node in graph for source in node.inputs}
    leads: dict[BaseNode, object] = {}
    needless: set[BaseNode] = set()
    # From the leaves up, so that what a target comes to is known. A node that is read counts even
    # if its verdicts all lead to one place: what it says is in the prompts of others.
    for node in reversed(list(nx.topological_sort(graph))):
        follows = {_follows(branch.target, leads, strict) for branch in node.branches()}
        leads[node] = node
        if len(follows) == 1 and node not in sources:
            (leads[node],) = follows
            needless.add(node)
    return needless


def _follows(target: Any, leads: Mapping[BaseNode, object], strict: bool) -> object:
    """The consequence of a verdict's target: a score, or the node that decides."""
    if isinstance(target, BaseNode) and not isinstance(target, VerdictNode):
        return leads.get(target, target)
    if isinstance(target, int) and not isinstance(target, bool):
        # In strict mode only 10 of 10 passes: scores below it are the same score.
        return "score", target >= 10 if strict else target
    return id(target)
