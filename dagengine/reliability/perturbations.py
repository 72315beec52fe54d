"""Changes of nodes under a condition: orders and wordings that a judge ignores, samples, seeds."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from pydantic import BaseModel

from dagengine.errors import InputError
from dagengine.graph.current_node import asking_with
from dagengine.graph.list_nodes import MapNode, VerdictListNode
from dagengine.graph.node import BaseNode
from dagengine.graph.node_values import Ask, Given, NodeValue, Work
from dagengine.graph.nodes import (
    BinaryJudgementNode,
    DecisionNode,
    NonBinaryJudgementNode,
    RatingNode,
    TaskNode,
)
from dagengine.graph.rewriting import Change
from dagengine.prompts.instructions import PromptTemplate
from dagengine.prompts.probabilities.scales import scale_of
from dagengine.question import REPETITIONS, Answer, Options, Question
from dagengine.reliability.observations import Condition
from dagengine.results import Verdict
from dagengine.test_case import ArenaTestCase, TestCase, read_field

Wording = str | PromptTemplate
T = TypeVar("T", bound=BaseModel)

# Kinds of nodes whose question is made of their own words.
_WORDED = {
    TaskNode.run, BinaryJudgementNode.run, NonBinaryJudgementNode.run, RatingNode.run, MapNode.run,
    VerdictListNode.run,
}  # fmt: skip

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
        if wording is None:
            return
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


# Nodes that ask under a condition: their own samples, another temperature or seed.
#
# In repetition r of the metric as given, a node that asks for sample 0 gets sample r. So the first
# repetition asks what a plain evaluation asks. No sample is shared by two conditions.


@dataclass(frozen=True, slots=True)
class Resampling:
    """As a change: has a node ask under a condition, and note a digest of what it asks."""

    condition: Condition
    top_logprobs: int = 0

    def __call__(self, node: BaseNode) -> None:
        _ask_with(self.options, node)

    def options(self, options: Options) -> Options:
        """The options of a question under the condition."""
        at = self.condition
        # Conditions that differ in more than sample and judge never share an answer: each has
        # a range of samples of its own, the plain one the first.
        plain, space = replace(at, sample=0, judge=""), 0
        if plain != Condition():
            space = int.from_bytes(hashlib.sha256(repr(plain).encode()).digest()[:3]) + 1
        sample = at.sample + REPETITIONS * (options.sample + REPETITIONS * space)
        temperature = options.temperature if at.temperature is None else at.temperature
        seed = options.seed if at.seed is None else at.seed
        return replace(
            options,
            sample=sample,
            temperature=temperature,
            seed=seed,
            top_logprobs=max(options.top_logprobs, self.top_logprobs),
        )


def later(node: BaseNode, repetitions: int) -> BaseNode:
    """A copy of a resampled node that asks what it would ask so many repetitions later."""
    twin = copy.copy(node)
    _ask_with(lambda options: replace(options, sample=options.sample + repetitions), twin)
    return twin


def _ask_with(options: Callable[[Options], Options], node: BaseNode) -> None:
    """Have a node ask with other options; its value says by a digest what it asked."""

    def wrap(work: Work) -> Work:
        async def ask_again(given: Given, ask: Ask) -> NodeValue:
            asking = _Resampled(ask, options)
            with asking_with(asking.with_options):  # also where its own code measures other metrics
                value = await work(given, asking)
            return replace(value, question=asking.digest) if asking.digest else value

        return ask_again

    node.around = (*node.around, wrap)


@dataclass
class _Resampled:
    """Asks as `ask` does, but with other options, and remembers what was asked."""

    ask: Ask
    options: Callable[[Options], Options]
    asked: list[bytes] = field(default_factory=list)

    @property
    def decides(self) -> bool:
        return self.ask.decides

    async def __call__(self, question: Question[T]) -> Answer[T]:
        return await self.ask(self.with_options(question))

    async def each(self, questions: Iterable[Question[T]]) -> list[Answer[T]]:
        return await self.ask.each(map(self.with_options, questions))

    def with_options(self, question: Question[T]) -> Question[T]:
        """The question with other options."""
        changed = replace(question, options=self.options(question.options))
        self.asked.append(changed.canonical.rpartition(b"\n")[0])  # all but the options
        return changed

    @property
    def digest(self) -> str | None:
        """64 bits of SHA-256 of the questions asked, whatever their options; None without any."""
        if not self.asked:
            return None
        return hashlib.sha256(b"\0".join(self.asked)).hexdigest()[:16]
