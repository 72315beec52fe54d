"""Metrics made of other metrics: the same graph with its nodes copied and changed.

A rewrite never touches the graph it starts from. Everything reachable is copied, metrics
under verdicts included, and `change` may then set attributes of the copies or put something
around what they do. Copies of one `Rewriting` share what the originals shared.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from dagengine.errors import InputError
from dagengine.graph import Graph, MetricSpec
from dagengine.list_nodes import MapNode, VerdictListNode
from dagengine.node import BaseNode, Deciding, Given, NodeValue, Work
from dagengine.nodes import BinaryJudgementNode, NonBinaryJudgementNode, RatingNode, TaskNode
from dagengine.prompts import PromptTemplate
from dagengine.results import Verdict
from dagengine.scales import scale_of
from dagengine.test_case import ArenaTestCase, TestCase, read_field

Change = Callable[[BaseNode], None]
"""Changes a node's copy in place."""

Wording = str | PromptTemplate


@dataclass(frozen=True, slots=True, eq=False)
class Rewritten:
    """A metric that is nothing but its specification."""

    given: MetricSpec

    def spec(self) -> MetricSpec:
        """The metric as the compiler takes it."""
        return self.given


class Rewriting:
    """Rewrites metrics by `changes`, applied in order; what they share stays shared.

    `model` takes the place of every judge, also of those that metrics under verdicts name.
    """

    def __init__(self, changes: Iterable[Change] = (), model: Any = None) -> None:
        self._changes = tuple(changes)
        self._model = model
        self._graphs: dict[Graph, Graph] = {}
        self._nodes: dict[BaseNode, BaseNode] = {}
        self._metrics: dict[int, tuple[Any, Rewritten]] = {}

    def spec(self, spec: MetricSpec) -> MetricSpec:
        """The specification with its graph rewritten."""
        model = spec.model if self._model is None else self._model
        return replace(spec, graph=self.graph(spec.graph), model=model)

    def graph(self, graph: Graph) -> Graph:
        """A copy of a graph; of the same graph the same copy."""
        if graph not in self._graphs:
            for node in (found := self._new_nodes(graph)):
                self._nodes[node] = copy.copy(node)
            for node in found:
                self._connect(self._nodes[node])
            for node in found:
                for change in self._changes:
                    change(self._nodes[node])
            made = self._graphs[graph] = copy.copy(graph)
            made.root_nodes = tuple(self._nodes[root] for root in graph.root_nodes)
        return self._graphs[graph]

    def _new_nodes(self, graph: Graph) -> list[BaseNode]:
        """Nodes that have no copy yet, found through whatever attributes hold them."""
        found: dict[BaseNode, None] = {}
        waiting: list[Any] = list(reversed(graph.root_nodes))
        while waiting:
            thing = waiting.pop()
            if isinstance(thing, BaseNode):
                if thing not in found and thing not in self._nodes:
                    found[thing] = None
                    waiting += reversed(list(vars(thing).values()))
            elif isinstance(thing, list | tuple):
                waiting += reversed(thing)
            elif isinstance(thing, dict):
                waiting += reversed(list(thing.values()))
        return list(found)

    def _connect(self, node: BaseNode) -> None:
        """Let a copy refer to copies."""
        for name, value in vars(node).items():
            setattr(node, name, self._copied(value, name))

    def _copied(self, value: Any, name: str = "") -> Any:
        if isinstance(value, BaseNode):
            return self._nodes[value]
        if type(value) in (list, tuple):
            return type(value)(self._copied(item, name) for item in value)
        if type(value) is dict:
            return {key: self._copied(item, name) for key, item in value.items()}
        if name in ("then", "child") and hasattr(value, "spec"):
            return self._nested(value)
        return value

    def _nested(self, metric: Any) -> Rewritten:
        """A metric under a verdict; of the same metric the same copy."""
        if id(metric) not in self._metrics:
            # The metric is kept as well: an id is free again when its owner is gone.
            self._metrics[id(metric)] = (metric, Rewritten(self.spec(metric.spec())))
        return self._metrics[id(metric)][1]


# Orders of options.


def reverse_options(node: BaseNode) -> None:
    """Declare a node's verdicts, or the labels of its scale, in reverse order.

    Verdicts among the children and in `then` are reversed each by themselves. Yes and no
    have no order that a judge would see.
    """
    if isinstance(node, BinaryJudgementNode):
        return
    if isinstance(node, NonBinaryJudgementNode):
        node.children.reverse()
        node.then = dict(reversed(node.then.items()))
    elif isinstance(node, VerdictListNode):
        node.verdicts = node.verdicts[::-1]
    elif isinstance(node, MapNode) and isinstance(node.answer, tuple):
        node.answer = node.answer[::-1]
    elif isinstance(node, RatingNode) and isinstance(node.scale, Mapping):
        node.scale = dict(reversed(list(node.scale.items())))
        node.points = scale_of(node.scale)


# Orders of inputs.


@dataclass(frozen=True)
class Symmetry:
    """Two things that a metric could be shown in either order.

    `first` and `second` are paths of fields (`contestants.A` and `contestants.B`, `context.0`
    and `context.1`, `context` and `retrieval_context`); without them they are the two
    contestants of each case. Swapped, each stands where the other stood, under its name, and
    `verdicts` says what a verdict about the swapped pair means for the pair as given:
    `{"first": "second", "second": "first"}`, by default the last parts of both paths. It
    holds for `nodes`, the titles of the decisions that compare the two; None for all.
    Only verdicts are told apart in this way: scores that Python code makes of a comparison
    are those of the swapped case.
    """

    first: str = ""
    second: str = ""
    verdicts: Mapping[Verdict, Verdict] | None = None
    nodes: tuple[str, ...] | None = None

    def pair(self, case: TestCase) -> tuple[str, str]:
        """The paths of both; raises InputError for a case that does not have two."""
        if self.first and self.second:
            return self.first, self.second
        if isinstance(case, ArenaTestCase) and len(case.contestants) == 2:
            first, second = case.contestants
            return f"contestants.{first}", f"contestants.{second}"
        raise InputError(
            "nothing is known to be symmetric here: say so with "
            "symmetry=Symmetry('contestants.A', 'contestants.B'), or judge two contestants"
        )

    def names(self, case: TestCase) -> tuple[Verdict, Verdict]:
        """The verdicts for what is shown first and for what is shown second."""
        if self.verdicts:
            return next(iter(self.verdicts.items()))
        first, second = (path.partition(".")[2] or path for path in self.pair(case))
        return first, second

    def swapped(self, case: TestCase) -> TestCase:
        """The case with both exchanged."""
        first, second = self.pair(case)
        values = read_field(case, first), read_field(case, second)
        return _with(_with(case, first, values[1]), second, values[0])

    def meaning(self, case: TestCase, verdict: Verdict) -> Verdict:
        """What a verdict on the swapped case says about the case as given."""
        if self.verdicts is not None:
            return self.verdicts.get(verdict, verdict)
        first, second = self.names(case)
        return {first: second, second: first}.get(str(verdict), verdict)

    def __call__(self, node: BaseNode) -> None:
        """As a change: let a node see the swapped case, and read its verdict accordingly.

        What readers of the node see stays as it is: they, too, see the swapped case.
        """
        decides = isinstance(node, Deciding) and (self.nodes is None or node.title in self.nodes)

        def wrap(work: Work) -> Work:
            async def swapped(given: Given, ask: Any) -> NodeValue:
                case = self.swapped(given.case)
                fields = tuple((path, read_field(case, path)) for path, _ in given.fields)
                value = await work(Given(fields, given.inputs, case), ask)
                if value.verdict is None or not decides:
                    return value
                return replace(value, verdict=self.meaning(given.case, value.verdict))

            return swapped

        node.around = (*node.around, wrap)


def _with(case: TestCase, path: str, value: Any) -> TestCase:
    """A case with one field, or one part of a list or mapping, replaced."""
    name, _, key = path.partition(".")
    whole = getattr(case, name, None)
    if isinstance(whole, dict) and key in whole:
        value = {**whole, key: value}
    elif isinstance(whole, list) and key.isdecimal() and int(key) < len(whole):
        value = [value if place == int(key) else item for place, item in enumerate(whole)]
    elif key or name not in type(case).model_fields:
        raise InputError(f"the case has no `{path}` that could be swapped")
    return case.model_copy(update={name: value})


# Paraphrases.


def paraphrase(wordings: Mapping[str, Wording]) -> Change:
    """Other words for nodes, by title: instructions or criteria, or a prompt of one's own."""

    def change(node: BaseNode) -> None:
        wording = wordings.get(node.title)
        if wording is not None:
            _reword(node, wording)

    return change


def _reword(node: BaseNode, wording: Wording) -> None:
    node.name = node.title  # a title may be the beginning of the words
    if isinstance(wording, PromptTemplate):
        name = "prompt"
    else:
        name = "instructions" if isinstance(node, TaskNode | MapNode) else "criteria"
    if not hasattr(node, name) or type(node).run not in _WORDED:
        raise InputError(f"the wording of the node {node.title!r} cannot be changed from outside")
    setattr(node, name, wording)


# Kinds of nodes whose question is made of their own words.
_WORDED = frozenset(
    kind.run
    for kind in (
        *(TaskNode, BinaryJudgementNode, NonBinaryJudgementNode),
        *(RatingNode, MapNode, VerdictListNode),
    )
)
