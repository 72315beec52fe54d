"""Graphs as they are written: root nodes, everything reachable from them, and metrics."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import networkx as nx
from pydantic import BaseModel

from dagengine.errors import InputError, Problem
from dagengine.graph.argument_checks import as_nodes
from dagengine.graph.node import BaseNode
from dagengine.results.pass_rules import Combine
from dagengine.test_case import CASE_TYPES, LLMTestCase, TestCase, Turn, read_field
from dagengine.unknown import Answering


class Graph(Answering):
    """A directed acyclic graph of nodes, given by the nodes it starts from.

    `root_node` (or several, as `root_nodes` or as a list in its place) run on every case.
    Everything else is found by following `children`, verdicts and `inputs`. A copy with changes
    names its `original`.
    """

    original: Graph | None = None

    def __init__(
        self,
        root_node: BaseNode | Sequence[BaseNode] | None = None,
        root_nodes: Iterable[BaseNode] | None = None,
    ) -> None:
        first: Any = root_node if isinstance(root_node, list | tuple) else [root_node]
        roots = [root for root in first if root is not None]
        if isinstance(root_nodes, BaseNode):
            raise InputError("root_nodes= takes a list of nodes; for one node use root_node=")
        more = as_nodes("root_nodes", root_nodes or ())
        self.root_nodes: tuple[BaseNode, ...] = tuple(dict.fromkeys([*roots, *more]))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} from {', '.join(map(repr, self.root_nodes))}>"

    def nodes(self) -> list[BaseNode]:
        """Every node in order of first mention (a parent's children before its inputs)."""
        # A stack of our own: generated chains are longer than Python's stack is deep. It is filled
        # backwards, so that nodes come in the order in which a reader meets them.
        reached: dict[BaseNode, None] = {}
        waiting = list(reversed(self.root_nodes))
        while waiting:
            node = waiting.pop()
            if node in reached or not isinstance(node, BaseNode):
                continue
            reached[node] = None
            waiting += reversed(neighbours(node))
        return list(reached)


def neighbours(node: BaseNode) -> list[BaseNode]:
    """Nodes that `node` mentions: successors, verdict targets, inputs."""
    targets = (branch.target for branch in node.branches())
    mentioned = (*node.successors(), *targets, *node.inputs)
    return [neighbour for neighbour in mentioned if isinstance(neighbour, BaseNode)]


def as_digraph(nodes: Iterable[BaseNode]) -> nx.DiGraph[BaseNode]:
    """The nodes with an edge from everything that comes first to what comes after."""
    graph: nx.DiGraph[BaseNode] = nx.DiGraph()
    for node in nodes:
        graph.add_node(node)
        for source in node.inputs:
            graph.add_edge(source, node)
        for child in node.successors():
            graph.add_edge(node, child)
        for branch in node.branches():
            if isinstance(branch.target, BaseNode):
                graph.add_edge(node, branch.target)
    return graph


@dataclass(frozen=True)
class MetricSpec:
    """A metric as the compiler takes it.

    `combine` says which score counts when several terminals are reached. `model` is the
    metric's judge (None: the run's judge). With `judged_reason` the judge writes the reason in
    one last call; for a perfect score it does so only with `reason_if_perfect`.
    `reason_wording` makes the whole prompt of that call from the score (0 to 1) and the
    composed reason. With `expected` the score is the expectation over the odds of all paths. A
    case without any text in a group of `judged` fields is skipped before
    anything is asked. `case_problems` finds what is wrong with the parts of a case that are
    settings of the metric.
    """

    name: str
    graph: Graph
    threshold: float | None = 0.5
    strict: bool = False
    combine: Combine = "last"
    model: Any = None
    include_reason: bool = True
    judged_reason: bool = False
    reason_if_perfect: bool = True
    reason_wording: Callable[[float, str], str] | None = None
    judged: Judged = ()
    expected: bool = False
    case_problems: Callable[[Any], Iterable[Problem]] | None = None


@runtime_checkable
class Metric(Protocol):
    """Anything with a specification that the compiler takes."""

    def spec(self) -> MetricSpec: ...


def as_metrics(given: Any) -> list[Metric]:
    """The metrics of `metrics=` as a list; a single metric is a list of one.

    Raises InputError for an empty list and for something that is not a metric.
    """
    # Some of these can be iterated (a model gives its fields, a text its letters), and would pass
    # for lists of what is in them.
    single = isinstance(given, Metric | type | Graph | BaseNode | str | BaseModel)
    metrics: list[Any] = [given] if single else list(given) if isinstance(given, Iterable) else []
    if not metrics:
        raise InputError(f"metrics must be a list of at least one metric, got {given!r:.80}")
    for metric in metrics:
        if isinstance(metric, type) or not isinstance(metric, Metric):
            raise InputError(_no_metric(metric))
    return metrics


def _no_metric(value: object) -> str:
    if isinstance(value, type):
        return f"{value.__name__} is a class, not a metric: create an object, {value.__name__}(…)"
    shown = f"{value!r:.60}"
    if isinstance(value, CASE_TYPES):
        return f"{shown} is a test case, not a metric: test cases come first, then metrics"
    if isinstance(value, Graph):
        return f"{shown} is a graph, not a metric: put it into a metric, DAGMetric(name, dag)"
    if isinstance(value, BaseNode):
        return f"{shown} is a node, not a metric: DAGMetric(name, DAG(root_node=node))"
    return f"{shown} is not a metric, which is an object such as FaithfulnessMetric()"


Judged = tuple[tuple[str, ...], ...]
"""Paths of the fields that a metric judges; in each group, at least one field must not be empty."""

_NONE: tuple[Any, ...] = (None, [], {})


def nothing_to_judge(judged: Judged, case: TestCase) -> str | None:
    """Why there is nothing to judge in a case; None when every group of fields holds something.

    A text of white space only is nothing to judge. A field that is missing is another failure
    (`missing_field`). A list without items is not a failure: metrics have a formula for it.
    """
    for group in judged:
        values = [read_field(case, path) for path in group]
        if all(map(is_blank, values)) and any(value not in _NONE for value in values):
            names = " and ".join(f"`{path}`" for path in group)
            return f"nothing to judge: {names} {'is' if len(group) == 1 else 'are'} empty"
    return None


def is_blank(value: Any) -> bool:
    """Return whether there is no text: nothing to see in it and all its parts.

    For a turn the content counts, for a contestant the actual output. A number is never blank.
    """
    if value is None:
        return True
    if isinstance(value, str):
        # Control and format characters (a zero width space) are not seen, either.
        return all(
            letter.isspace() or unicodedata.category(letter) in ("Cc", "Cf")
            for letter in value.strip()
        )
    if isinstance(value, Turn):
        return is_blank(value.content)
    if isinstance(value, LLMTestCase):
        return is_blank(value.actual_output)
    if isinstance(value, Mapping):
        return all(map(is_blank, value.values()))
    return isinstance(value, Sequence) and all(map(is_blank, value))
