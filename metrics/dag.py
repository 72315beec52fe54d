"""Decision trees: the nodes, the graph, and the metric that runs it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from dagengine.compiler.checks import check, require_no_errors
from dagengine.compiler.structure_checks import hopeless
from dagengine.errors import GraphError, Problem
from dagengine.graph.examples_and_quotes import Example
from dagengine.graph.graph import Graph, MetricSpec
from dagengine.graph.list_nodes import MapNode, VerdictListNode
from dagengine.graph.node_settings import takes
from dagengine.graph.nodes import (
    BaseNode,
    BinaryJudgementNode,
    CodeNode,
    FieldNode,
    Judgement,
    NonBinaryJudgementNode,
    RatingNode,
    TaskNode,
    VerdictNode,
)
from dagengine.metrics.common.base import DrawnMetric
from dagengine.report.pictures.drawing import Picture, draw
from dagengine.results.pass_rules import Combine
from dagengine.trees.writing import Written
from dagengine.unknown import answer_absent

__all__ = [
    "DAG",
    "BaseNode",
    "BinaryJudgementNode",
    "CodeNode",
    "DAGMetric",
    "DeepAcyclicGraph",
    "Example",
    "FieldNode",
    "Judgement",
    "MapNode",
    "NonBinaryJudgementNode",
    "RatingNode",
    "TaskNode",
    "VerdictListNode",
    "VerdictNode",
]


class DAG(Written, Graph):
    """A decision tree (any directed acyclic graph of nodes), given by its root node or nodes.

    `root_node` may also be a list; the nodes of `root_nodes` are added to it.

    Raises GraphError, with every problem that children added later cannot fix: a cycle, an object
    that is not a node, or verdicts that are missing, doubled or of the wrong kind. `check`, and
    every run before its first call, finds all other problems (scores, names of fields).
    """

    @takes()
    def __init__(
        self,
        root_node: BaseNode | Sequence[BaseNode] | None = None,
        root_nodes: Iterable[BaseNode] | None = None,
    ) -> None:
        super().__init__(root_node, root_nodes)
        problems = hopeless(self)
        if problems:
            raise GraphError(problems)

    def check(self, name: str = "") -> list[Problem]:
        """Every problem of the graph, warnings included; asks nothing. Messages show `name`."""
        return check(MetricSpec(name, self))[0]

    def picture(self, name: str = "DAG", *, names: bool = False) -> Picture:
        """The tree as designed, or only its `names`; raises GraphError when it has errors."""
        require_no_errors(self.check())
        return draw(MetricSpec(name, self), names=names)

    def render(self, path: str, *, names: bool = False) -> str:
        """Write `picture` as .svg, .png, .pdf, .dot or .mmd, and return the path."""
        return self.picture(names=names).save(path)

    def mermaid(self) -> str:
        """The tree as Mermaid text, which code hosts draw in pull requests."""
        return self.picture().mermaid

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        return self.picture()._repr_mimebundle_(**kwargs)


DeepAcyclicGraph = DAG  # the name that deepeval has for it


class DAGMetric(DrawnMetric):
    """A metric that scores a test case with a decision tree.

    `threshold` is the lowest score from 0 to 1 that passes (None: no pass or fail). `strict_mode`
    turns every score below 1 into 0 and the threshold into 1. `model` is the tree's judge (a name,
    a judge, or a custom model; the run's judge or gpt-4o by default). `combine` says which score
    counts if a case reaches several. With `judged_reason` the judge writes the reason in one last
    call; otherwise it is composed from the reasons on the path. With `expected` the score is the
    expectation over all paths, if the judge gives odds and all possible paths are known. Otherwise
    it is the score of the most likely verdicts, and the result's `mode` says so.
    """

    def __init__(
        self,
        name: str,
        dag: Graph,
        threshold: float | None = 0.5,
        model: Any = None,
        include_reason: bool = True,
        strict_mode: bool = False,
        async_mode: bool = True,
        verbose_mode: bool = False,
        *,
        combine: Combine = "last",
        judged_reason: bool = False,
        expected: bool = False,
    ) -> None:
        self.name = name
        self.dag = dag
        self.threshold = 1.0 if strict_mode else threshold
        self.model = model
        self.include_reason = include_reason
        self.strict_mode = strict_mode
        self.async_mode = async_mode
        self.verbose_mode = verbose_mode
        self.combine: Combine = combine
        self.judged_reason = judged_reason
        self.expected = expected

    def spec(self) -> MetricSpec:
        return self.spec_of(self.name, self.dag, combine=self.combine)

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        return self.picture()._repr_mimebundle_(**kwargs)


answer_absent(__name__)
