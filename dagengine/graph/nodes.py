"""The kinds of nodes that graphs are made of.

A node says what it reads (`evaluation_params`, `inputs`) and where things go next
(`children`, `then`). Both ways of writing mean the same graph: a parent lists its
children, or a child names its inputs. Nodes carry no state of a run; a new kind of node
is one class with a `run`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import starmap
from typing import Any, ClassVar, Literal, NoReturn, TypeVar, Unpack

from pydantic import BaseModel

from dagengine.errors import InputError, UnparseableError
from dagengine.graph.argument_checks import answer_kind, of_kind, text, verdict_target
from dagengine.graph.graph import Metric
from dagengine.graph.node import AskingNode, BaseNode, Branch
from dagengine.graph.node_settings import AskingSettings, JudgingSettings, NodeSettings, takes
from dagengine.graph.node_values import Ask, Given, Judgement, NodeValue
from dagengine.prompts.answer_types import judgement_type, output_of, output_type
from dagengine.prompts.instructions import judgement_instructions, task_instructions
from dagengine.prompts.probabilities.answer_tokens import value_span
from dagengine.prompts.probabilities.options import sure_of
from dagengine.prompts.probabilities.scales import GivenScale, scale_of
from dagengine.prompts.probabilities.weighted_scores import (
    expected_score,
    mean_rating,
    stated_probability,
)
from dagengine.prompts.prompt_echo import fence_check
from dagengine.prompts.quotes import Quote
from dagengine.question import (
    DEFAULT_OPTIONS,
    YES_NO,
    Answer,
    Check,
    Decision,
    LocatingParser,
    Message,
    Odds,
    Option,
    Options,
    Question,
)
from dagengine.results import Verdict
from dagengine.test_case import LLMTestCaseParams, field_name, is_known_field

T = TypeVar("T", bound=BaseModel)
_KINDS = {bool: "True or False", str: "a text"}
_option = lru_cache(maxsize=1_000)(Option)  # points of scales, the same ones for every rating

__all__ = [
    "BaseNode",
    "BinaryJudgementNode",
    "CodeNode",
    "FieldNode",
    "Judgement",
    "NonBinaryJudgementNode",
    "RatingNode",
    "TaskNode",
    "VerdictNode",
]


class TaskNode(AskingNode):
    """Prepares data for later nodes: the judge applies `instructions` to what the node reads.

    Other nodes refer to the result by `output_label`. `output_type` (default: text) is the type of
    the result, for instance `list[str]`.
    """

    kind = "task"

    @takes(AskingSettings)
    def __init__(
        self,
        instructions: str,
        output_label: str,
        children: Iterable[BaseNode] = (),
        evaluation_params: Iterable[str | LLMTestCaseParams] | None = None,
        *,
        output_type: Any = str,
        options: Options = DEFAULT_OPTIONS,
        wording: Callable[[Given], str] | None = None,
        **settings: Unpack[AskingSettings],
    ) -> None:
        self.instructions = text("instructions", instructions)
        self.output_type = answer_kind("output_type", output_type)

    @property
    def text(self) -> str:
        return self.instructions

    async def run(self, given: Given, ask: Ask) -> NodeValue:
        answer = await ask(self.task_question(given))
        return NodeValue(output_of(answer.value))

    def task_question(self, given: Given) -> Question[Any]:
        """The question for one case."""
        messages = self.messages(given, task_instructions(self.instructions), given.evidence())
        shape, check = output_type(self.output_type), self.check(given, messages)
        return self.put(messages, shape, parser=self.parser, check=check)

    def check(self, given: Given, messages: tuple[Message, ...]) -> Check:
        """Check of an answer beside its type: no copy of the marks around the material."""
        return fence_check(messages)


class VerdictNode(BaseNode):
    """Where one verdict of a decision leads: a score from 0 to 10, a node, or a metric.

    Raises InputError unless exactly one of `score` and `child` is given, and for a score that
    is not a number from 0 to 10.
    """

    kind = "verdict"

    @takes()
    def __init__(
        self,
        verdict: Verdict,
        score: int | None = None,
        child: BaseNode | Metric | None = None,
        *,
        name: str | None = None,
        label: str | None = None,
    ) -> None:
        super().__init__(name=name, label=label)
        self.verdict = of_kind("verdict", verdict, object, "a verdict")
        self.score = score
        self.child = verdict_target(child)
        if (score is None) == (child is None):
            count = "neither" if score is None else "both"
            raise InputError(f"verdict {verdict!r} needs either a score or a child; got {count}")
        if isinstance(score, int | float) and not 0 <= score <= 10:
            raise InputError(f"verdict {verdict!r} has score {score!r}; scores go from 0 to 10")

    @property
    def title(self) -> str:
        return self.name or f"verdict {self.verdict!r}"

    def branches(self) -> tuple[Branch, ...]:
        return () if self.child is None else (Branch(self.verdict, self.child),)

    def add_node(self, child: Any) -> NoReturn:
        """Refuse a child: raises InputError."""
        raise InputError(f"{self.title} takes one child, in its constructor: child={child!r:.60}")


class DecisionNode(BaseNode):
    """A node whose verdicts lead somewhere."""

    verdict_types: ClassVar[tuple[type[str | bool], ...]] = (bool, str)

    def add_verdict(
        self, verdict: Verdict, score: int | None = None, then: BaseNode | Metric | None = None
    ) -> VerdictNode:
        """Declare one more verdict and what it leads to; returns its node.

        `then` is the node or metric that follows; `score` (0 to 10) ends the path instead.
        Raises InputError unless exactly one of `score` and `then` is given. Whether all verdicts
        are there, each once and of the right kind, is asked when the graph is made.
        """
        return self.add_node(VerdictNode(verdict, score=score, child=then))

    def require_child(self, child: object) -> None:
        if not isinstance(child, VerdictNode):
            super().require_child(child)
            return
        title = self.name or type(self).__name__
        if not isinstance(child.verdict, self.verdict_types):
            wanted = " or ".join(_KINDS[kind] for kind in self.verdict_types)
            raise InputError(f"{title}: a verdict is {wanted}, not {child.verdict!r:.60}")
        for sibling in self.children:
            if sibling is not child and getattr(sibling, "verdict", None) == child.verdict:
                raise InputError(f"{title}: verdict {child.verdict!r} is declared twice")

    def branches(self) -> tuple[Branch, ...]:
        # Verdict nodes come first, then `then`, each as written. Prompts list the verdicts in this
        # order, so it is in the key of every stored answer.
        ways: list[Branch] = []
        for child in self.children:
            if isinstance(child, VerdictNode):
                target = child.score if child.child is None else child.child
                ways.append(Branch(child.verdict, target))
            else:
                ways.append(Branch(None, child, bare=True))
        return (*ways, *starmap(Branch, self.then.items()))

    def successors(self) -> tuple[BaseNode, ...]:
        # All children are behind verdicts. What is handed on to runs whatever the verdict is.
        return ()


class JudgingNode(AskingNode):
    """A node that asks for verdicts or a rating (`vote`); one without a vote asks for a text."""

    criteria: str

    @property
    def text(self) -> str:
        return self.criteria

    @property
    def writes(self) -> bool:
        return self.vote is None

    @property
    def quotes(self) -> bool:
        return self.vote is not None


class _JudgementNode(JudgingNode, DecisionNode):
    """A criterion and its verdicts; the judge gives its reason before its verdict."""

    @takes(JudgingSettings)
    def __init__(
        self,
        criteria: str,
        children: Iterable[BaseNode] = (),
        evaluation_params: Iterable[str | LLMTestCaseParams] | None = None,
        *,
        then: Mapping[Any, Any] | None = None,
        output_label: str | None = None,
        options: Options = DEFAULT_OPTIONS,
        **settings: Unpack[JudgingSettings],
    ) -> None:
        self.criteria = text("criteria", criteria)

    @property
    def vote(self) -> Literal["verdict"]:
        return "verdict"

    def answer_type(self) -> type[BaseModel]:
        """The answer's type: reason first, then one of the verdicts."""
        strings = tuple(verdict for verdict in self.verdicts() if isinstance(verdict, str))
        return judgement_type(strings or None)

    @property
    def exemplary(self) -> tuple[Verdict, ...]:
        return self.verdicts()

    def verdicts(self) -> tuple[Verdict, ...]:
        """The verdicts the judge may give, in declaration order."""
        return tuple(branch.verdict for branch in self.branches())

    async def run(self, given: Given, ask: Ask) -> NodeValue:
        verdicts = self.verdicts()
        instructions = judgement_instructions(self.criteria, verdicts)
        decision = verdict_of(given, self.criteria, verdicts)
        messages = self.messages(given, instructions, given.evidence())
        answer, quotes = await self.judged(ask, given, messages, self.answer_type(), decision)
        return judged_value(answer, verdicts, quotes=quotes)


def verdict_of(given: Given, criteria: str, verdicts: tuple[Verdict, ...], **more: Any) -> Decision:
    """One of some verdicts on what is read, as a decision; `more` as in `Given.decision`."""
    if verdicts == (True, False):
        return given.decision("predicate", criteria, YES_NO, **more)
    return given.decision("choice", criteria, map(Option, verdicts), **more)


def judged_value(
    answer: Answer[Any],
    verdicts: tuple[Verdict, ...],
    score: float | None = None,
    quotes: tuple[Quote, ...] = (),
) -> NodeValue:
    """The judgement in an answer, with the probability of its verdict where that is known."""
    judgement, odds = answer.value, answer.chances
    value = Judgement(verdict=judgement.verdict, reason=judgement.reason, odds=odds, quotes=quotes)
    # A judge that decides gives the odds of all verdicts. Of one that writes, the first token of
    # the verdict tells how likely this one is; of the others too few alternatives are known.
    if odds is not None:
        sure, mass = sure_of(judgement.verdict, odds), answer.mass
    else:
        sure, mass = stated_probability(answer, judgement.verdict, verdicts)
    return NodeValue(
        value, verdict=judgement.verdict, reason=judgement.reason, score=score, confidence=sure,
        odds=odds, mass=mass, quotes=quotes,
    )  # fmt: skip


class BinaryJudgementNode(_JudgementNode):
    """A yes/no criterion; its verdicts are True and False.

    A bare node among the children belongs to the one verdict that no other child declares.
    """

    kind = "binary judgement"
    verdict_types = (bool,)

    def branches(self) -> tuple[Branch, ...]:
        branches = super().branches()
        bare = [index for index, branch in enumerate(branches) if branch.bare]
        left = {True, False}.difference(branch.verdict for branch in branches)
        # Two bare nodes, or one and both verdicts declared, may mean anything. They stay bare, and
        # the check `bare-child` asks which verdict is meant.
        if not (len(bare) == len(left) == 1):
            return branches
        (index,), (verdict,) = bare, left
        named = Branch(verdict, branches[index].target)
        return (*branches[:index], named, *branches[index + 1 :])

    def verdicts(self) -> tuple[Verdict, ...]:
        return (True, False)


class NonBinaryJudgementNode(_JudgementNode):
    """A criterion with two or more verdicts, each a string."""

    kind = "judgement"
    verdict_types = (str,)


class RatingNode(JudgingNode):
    """A rating on a scale; its score is (value - lowest) / (highest - lowest).

    `scale` is the worst and the best whole number, or a mapping of labels to their numbers, for
    instance {"poor": 1, "fair": 2, "good": 3}. Readers see the number. Raises InputError if all
    labels have the same number.

    If the judge gives token probabilities, the score is their expectation over the scale (Liu et
    al. 2023, G-Eval, https://arxiv.org/abs/2303.16634), otherwise the stated rating; the step's
    `mode` says which of the two, and why. This also works for answers in prose, with a `parser`
    that tells the position of the rating, as `FirstMatch` does. The word at that position need not
    be a label if one of its alternatives is. Choose labels of one token each: a rating of several
    tokens counts as stated.
    """

    kind = "rating"
    grades = True

    @takes(JudgingSettings)
    def __init__(
        self,
        criteria: str,
        evaluation_params: Iterable[str | LLMTestCaseParams] | None = None,
        *,
        scale: GivenScale = (0, 10),
        children: Iterable[BaseNode] = (),
        output_label: str | None = None,
        options: Options = Options(top_logprobs=20),  # noqa: B008 - a frozen value
        wording: Callable[[Given], str] | None = None,
        **settings: Unpack[JudgingSettings],
    ) -> None:
        self.criteria = text("criteria", criteria)
        self.scale = scale
        self.points = scale_of(scale)

    @property
    def vote(self) -> Literal["rating"]:
        return "rating"

    @property
    def exemplary(self) -> Sequence[Any]:
        if isinstance(self.scale, Mapping):
            return tuple(self.scale)
        low, high = self.scale
        return range(low, high + 1) if isinstance(low, int) and isinstance(high, int) else ()

    async def run(self, given: Given, ask: Ask) -> NodeValue:
        shape = self.points.answer_type(self.parser is not None)
        instructions = self.points.instructions(self.criteria)
        decision = None if self.writes else given.decision("score", self.criteria, self.levels())
        messages = self.messages(given, instructions, given.evidence())
        answer, quotes = await self.judged(ask, given, messages, shape, decision)
        return self.rating_in(answer, quotes)

    @property
    def writes(self) -> bool:
        """Return whether the scale has more points than anybody chooses from."""
        return not self.points.steps

    def levels(self) -> list[Option]:
        """The points of the scale, the worst first."""
        return list(map(_option, self.points.steps))

    def rating_in(self, answer: Answer[Any], quotes: tuple[Quote, ...] = ()) -> NodeValue:
        """The rating in an answer; raises UnparseableError when it is none of the scale."""
        rating, (low, high) = answer.value, self.points.ends
        stated = self.points.number(rating.score)
        # Three ways to a number; the mode of the step says which one it was.
        #
        #     odds of all ratings (a judge that decides)   their expectation: "weighted"
        #     alternatives of the rating's token           their expectation: "weighted"
        #     neither, or too little is known              what is stated: "raw (why)"
        if answer.chances is not None:
            return replace(self._rating_by_odds(answer, answer.chances, stated), quotes=quotes)
        # A parser of the caller's need not know where in an answer the rating is.
        span = None
        if self.parser is None:
            span = value_span(answer.raw, "score")
        elif isinstance(self.parser, LocatingParser):
            span = self.parser.span(answer.raw)
        reading = expected_score(answer, stated, self.points, span)
        if reading.rating is None:
            labels = ", ".join(map(repr, self.scale))
            raise UnparseableError(
                f"the rating is {rating.score!r}, not one of {labels}", answer.raw
            )
        score = (reading.rating - low) / (high - low)
        return NodeValue(
            reading.rating, reason=rating.reason, score=score, mode=reading.mode,
            mass=reading.mass, quotes=quotes,
        )  # fmt: skip

    def score_of(self, answer: Any) -> float:
        low, high = self.points.ends
        return (float(answer) - low) / (high - low)

    def _rating_by_odds(
        self, answer: Answer[Any], chances: Odds, stated: float | None
    ) -> NodeValue:
        """The expectation over the odds; the likeliest rating where none is asked for or known."""
        ratings = [(self.points.number(label), chance) for label, chance in chances]
        odds = tuple((number, chance) for number, chance in ratings if number is not None)
        rating, mode = mean_rating(odds, self.points.ends, answer.mass)
        # Who asks for no alternatives (`top_logprobs=0`) wants the rating that is stated, and no
        # expectation. What a judge that decides states is its likeliest one.
        if stated is not None and (rating is None or not self.options.top_logprobs):
            rating, mode = stated, mode if rating is None else "raw (the likeliest rating)"
        assert rating is not None
        return NodeValue(
            rating, reason=answer.value.reason, score=self.score_of(rating), mode=mode, odds=odds,
            mass=answer.mass,
        )  # fmt: skip


class CodeNode(DecisionNode):
    """Plain Python in a graph: prepares a value, decides, or scores.

    `function` takes the case fields that the node reads, then its inputs, in the order given;
    it may be a coroutine function. With `then` (or verdict children) its result is the
    verdict; at the end of a path the result is the score, from 0 to 1. A `NodeValue` as the
    result gives a reason with the score, and may give the `odds` of every score.
    """

    kind = "code"
    grades = True

    @takes(NodeSettings)
    def __init__(
        self,
        function: Callable[..., Any],
        children: Iterable[BaseNode] = (),
        evaluation_params: Iterable[str | LLMTestCaseParams] | None = None,
        *,
        then: Mapping[Any, Any] | None = None,
        output_label: str | None = None,
        **settings: Unpack[NodeSettings],
    ) -> None:
        self.function = function

    @property
    def text(self) -> str:
        return getattr(self.function, "__name__", type(self.function).__name__)

    # Code may do both: decide, and hand its value on to children that no verdict leads to. So a
    # bare child is no mistake here, as it is under a judgement, but a successor.
    def branches(self) -> tuple[Branch, ...]:
        return tuple(branch for branch in super().branches() if not branch.bare)

    def successors(self) -> tuple[BaseNode, ...]:
        return BaseNode.successors(self)

    def score_of(self, answer: Any) -> float | None:
        return float(answer)

    async def run(self, given: Given, ask: Ask) -> NodeValue:
        try:
            value = self.function(*given.values())
        except AttributeError as error:
            of_field = any(error.obj is value for value in given.values())
            if of_field and is_known_field(error.name or ""):
                # It was written for the whole case; the place stays that in the function.
                raise AttributeError(
                    f"{error}; the function of a CodeNode takes the values of evaluation_params, "
                    "in this order, and not the case"
                ).with_traceback(error.__traceback__) from None
            raise
        if inspect.isawaitable(value):
            value = await value
        if isinstance(value, NodeValue):
            return value
        decides = (self.children or self.then) and self.branches()  # most code does not
        return NodeValue(value, verdict=value if decides else None)


class FieldNode(BaseNode):
    """A field of the case as a node, for instance `contestants.A.actual_output`."""

    kind = "field"

    @takes()
    def __init__(
        self,
        path: str | LLMTestCaseParams,
        children: Iterable[BaseNode] = (),
        *,
        output_label: str | None = None,
        name: str | None = None,
        label: str | None = None,
    ) -> None:
        of_kind("path", path, str, "a field of the case")
        super().__init__(
            name=name,
            label=label,
            output_label=output_label or field_name(path),
            children=children,
            evaluation_params=[path],
        )

    async def run(self, given: Given, ask: Ask) -> NodeValue:
        return NodeValue(given.fields[0][1])
