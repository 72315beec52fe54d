"""Changes that a reliable judge ignores: order of options, order of inputs, wording of nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from dagengine.errors import InputError
from dagengine.graph.list_nodes import MapNode, VerdictListNode
from dagengine.graph.node import BaseNode
from dagengine.graph.nodes import (
    BinaryJudgementNode,
    DecisionNode,
    NonBinaryJudgementNode,
    RatingNode,
    TaskNode,
)
from dagengine.graph.rewriting import Change
from dagengine.graph.values import Given, NodeValue, Work
from dagengine.prompts.instructions import PromptTemplate
from dagengine.prompts.probabilities.scales import scale_of
from dagengine.results import Verdict
from dagengine.test_case import ArenaTestCase, TestCase, read_field

Wording = str | PromptTemplate

# Orders of options.


def reverse_options(node: BaseNode) -> None:
    """Declare a node's verdicts, or the labels of its scale, in reverse order.

    The verdict nodes among the children are reversed, and so is `then`. A yes-or-no node stays
    as it is: the judge sees no order of its verdicts.
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
    """Two inputs that a metric can get in either order.

    `first` and `second` are paths of fields (`contestants.A` and `contestants.B`, `context.0` and
    `context.1`, `context` and `retrieval_context`). By default they are the two contestants of each
    case. When swapped, each takes the place and the name of the other. `verdicts` maps a verdict
    about the swapped pair to the verdict about the original pair: `{"first": "second", "second":
    "first"}`, by default the last parts of both paths. It holds for `nodes`, the titles of the
    decisions that compare the two; None for all. Only verdicts are translated back: a score that
    Python code makes of a comparison is that of the swapped case.
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
            "`swapped` needs two fields that may change places: give "
            "symmetry=Symmetry('contestants.A', 'contestants.B'), or judge two contestants"
        )

    def names(self, case: TestCase) -> tuple[Verdict, Verdict]:
        """The verdicts for what is shown first and for what is shown second."""
        if self.verdicts:
            return next(iter(self.verdicts.items()))
        first, second = (path.partition(".")[2] or path for path in self.pair(case))
        return first, second

    def swap(self, case: TestCase) -> TestCase:
        """The case with both exchanged."""
        first, second = self.pair(case)
        values = read_field(case, first), read_field(case, second)
        return _with(_with(case, first, values[1]), second, values[0])

    def meaning(self, case: TestCase, verdict: Verdict) -> Verdict:
        """Translate a verdict on the swapped case to the case as given."""
        if self.verdicts is not None:
            return self.verdicts.get(verdict, verdict)
        first, second = self.names(case)
        return {first: second, second: first}.get(str(verdict), verdict)

    def __call__(self, node: BaseNode) -> None:
        """As a change: let a node see the swapped case, and read its verdict accordingly.

        What readers of the node see stays as it is: they, too, see the swapped case.
        """
        decides = isinstance(node, DecisionNode) and (
            self.nodes is None or node.title in self.nodes
        )

        def wrap(work: Work) -> Work:
            async def ask_swapped(given: Given, ask: Any) -> NodeValue:
                case = self.swap(given.case)
                fields = tuple((path, read_field(case, path)) for path, _ in given.fields)
                value = await work(Given(fields, given.inputs, case), ask)
                if value.verdict is None or not decides:
                    return value
                return replace(value, verdict=self.meaning(given.case, value.verdict))

            return ask_swapped

        node.around = (*node.around, wrap)


def _with(case: TestCase, path: str, value: Any) -> TestCase:
    """A case with one field, or one part of a list or mapping, replaced."""
    name, _, key = path.partition(".")
    whole = getattr(case, name, None)
    if isinstance(whole, dict) and key in whole:
        value = {**whole, key: value}
    elif isinstance(whole, list) and key.isdecimal() and int(key) < len(whole):
        value = [value if index == int(key) else item for index, item in enumerate(whole)]
    elif key or name not in type(case).model_fields:
        raise InputError(f"the case has no `{path}` to swap")
    return case.model_copy(update={name: value})


# Paraphrases.


def paraphrase(wordings: Mapping[str, Wording]) -> Change:
    """A change of words by title of the node: its instructions or criteria, or a whole prompt."""

    def change(node: BaseNode) -> None:
        wording = wordings.get(node.title)
        if wording is not None:
            node.name = node.title  # a title may be the beginning of the words
            name = "instructions" if isinstance(node, TaskNode | MapNode) else "criteria"
            if isinstance(wording, PromptTemplate):
                name = "prompt"
            if not hasattr(node, name) or type(node).run not in _WORDED:
                raise InputError(
                    f"the wording of the node {node.title!r} cannot be changed from outside"
                )
            setattr(node, name, wording)

    return change


# Kinds of nodes whose question is made of their own words.
_WORDED = frozenset(
    kind.run
    for kind in (
        *(TaskNode, BinaryJudgementNode, NonBinaryJudgementNode),
        *(RatingNode, MapNode, VerdictListNode),
    )
)
