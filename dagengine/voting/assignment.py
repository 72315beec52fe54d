"""Changes of chosen nodes: panels where they can change a score, quotes, examples, criteria."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import networkx as nx

from dagengine.errors import InputError
from dagengine.graph.arguments import text
from dagengine.graph.few_shot import Example, examples_given
from dagengine.graph.graph import Graph, MetricSpec, as_digraph
from dagengine.graph.node import AskingNode, BaseNode
from dagengine.graph.nodes import VerdictNode
from dagengine.graph.panel import Panel
from dagengine.graph.quoting import Quotes
from dagengine.graph.rewriting import G, Rewriting

Choose = Callable[[BaseNode], Panel | None]


class Assigning(Rewriting):
    """Changes nodes that can be changed; `names` are the only ones, by title or as objects."""

    able = "asks a judge"

    def __init__(self, names: Sequence[str | BaseNode] | None = None) -> None:
        super().__init__()
        self._names = names
        self._changed: dict[BaseNode, None] = {}

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

    def can(self, node: BaseNode) -> bool:
        """Return whether a node can be changed."""
        raise NotImplementedError

    def select(self, nodes: Iterable[BaseNode]) -> Iterator[BaseNode]:
        """The nodes to change."""
        for node in nodes:
            concerned = self._names is None or any(_is(node, name) for name in self._names)
            if concerned and self.can(node):
                self._changed[node] = None
                yield node

    def _check(self, name: str) -> None:
        """Raise InputError when some name, or everything, was found nowhere."""
        for target in self._names or ():
            if not any(_is(node, target) for node in self._changed):
                able = [repr(node.title) for node in self.copies if self.can(node)]
                names = ", ".join(able) or "none at all"
                raise InputError(
                    f"{name!r} has no node {target!r} that {self.able}; it has {names}"
                )
        if not self._changed:
            raise InputError(f"{name!r} has no node that {self.able}")


class AssignQuotes(Assigning):
    """Lets the verdicts of nodes quote the material; nodes that quote already stay as they are."""

    able = "judges the material"

    def __init__(self, quoting: Quotes, names: Sequence[str | BaseNode] | None = None) -> None:
        super().__init__(names)
        self._quoting = quoting

    def can(self, node: BaseNode) -> bool:
        return node.quotes

    def change(self, graph: Graph, new: Sequence[BaseNode], strict: bool) -> None:
        """Let them quote."""
        for node in self.select(graph.nodes()):
            copied = self.copies[node]
            if isinstance(copied, AskingNode) and copied.quoting is None:
                copied.quote_with(self._quoting)


class AssignExamples(Assigning):
    """Gives nodes solved examples, by their titles, in place of those that they have."""

    able = "takes examples"

    def __init__(self, examples: Mapping[str, Sequence[Example]]) -> None:
        super().__init__(tuple(examples))
        self._examples = {title: examples_given(solved) for title, solved in examples.items()}

    def can(self, node: BaseNode) -> bool:
        return isinstance(node, AskingNode) and bool(node.exemplary) and not node.prompted

    def change(self, graph: Graph, new: Sequence[BaseNode], strict: bool) -> None:
        """Let their prompts show the examples."""
        for node in self.select(graph.nodes()):
            copied = self.copies[node]
            assert isinstance(copied, AskingNode)
            copied.show_examples(self._examples[node.title])


class AssignCriteria(Assigning):
    """Gives nodes other criteria, by their titles."""

    able = "has a criterion of its own"

    def __init__(self, criteria: Mapping[str, str]) -> None:
        super().__init__(tuple(criteria))
        self._criteria = {title: text("criteria", words) for title, words in criteria.items()}

    def can(self, node: BaseNode) -> bool:
        own = hasattr(node, "criteria") and not getattr(node, "of_criteria", False)
        return isinstance(node, AskingNode) and own and not node.prompted

    def change(self, graph: Graph, new: Sequence[BaseNode], strict: bool) -> None:
        """Let them ask by these words."""
        for node in self.select(graph.nodes()):
            copied: Any = self.copies[node]
            copied.criteria = self._criteria[node.title]


class AssignPanels(Assigning):
    """Gives nodes the panel that `choose` has for them (None: as it was).

    A node whose verdicts all lead to the same score is left alone, since no vote on it can matter.
    """

    def __init__(self, choose: Choose, names: Sequence[str | BaseNode] | None = None) -> None:
        super().__init__(names)
        self._choose = choose

    def can(self, node: BaseNode) -> bool:
        return self._choose(node) is not None

    def change(self, graph: Graph, new: Sequence[BaseNode], strict: bool) -> None:
        """Seat panels; raises InputError for a node that has one."""
        nodes = graph.nodes()
        needless = _needless(nodes, strict)
        for node in self.select(nodes):
            if node.panel is not None:
                raise InputError(
                    f"node {node.title!r} already has votes or several judges: {node.panel.label}"
                )
            if node not in needless:
                self.copies[node].panel = self._choose(node)


class AssignEscalation(AssignPanels):
    """Gives single judgements a judge for when they are unsure; verdicts of lists have none."""

    able = "gives a single verdict (not a list of them)"


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
