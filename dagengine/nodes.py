"""The nodes that graphs are made of.

A node says what it reads (`evaluation_params`, `inputs`) and where things go next
(`children`, `then`). Both ways of writing mean the same graph: a parent lists its
children, or a child names its inputs. Nodes carry no state of a run; a new kind of node
is one class with a `run`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeVar, cast

from pydantic import BaseModel, ConfigDict

from dagengine.errors import InputError
from dagengine.prompts import (
    Evidence,
    PromptTemplate,
    as_text,
    evidence_of,
    judgement_instructions,
    judgement_type,
    messages_for,
    output_type,
    rating_instructions,
    rating_type,
    task_instructions,
)
from dagengine.question import DEFAULT_OPTIONS, Answer, Options, Parser, Question
from dagengine.results import Verdict
from dagengine.test_case import LLMTestCaseParams, field_name
from dagengine.weighting import expected_score

T = TypeVar("T", bound=BaseModel)


class Judgement(BaseModel):
    """What readers of a judgement node see."""

    model_config = ConfigDict(frozen=True)
    verdict: Verdict
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class NodeValue:
    """What a node produced: the value its readers see, and what decides or scores.

    `score` lies in [0, 1]; `mode` says how a rating was read; `success` is set by metrics
    that decide themselves whether they passed.
    """

    value: Any
    verdict: Verdict | None = None
    reason: str | None = None
    score: float | None = None
    mode: str | None = None
    success: bool | None = None


@dataclass(frozen=True, slots=True)
class Given:
    """What a node reads of one case: fields by path, outputs of other nodes by label."""

    fields: tuple[tuple[str, Any], ...]
    inputs: tuple[tuple[str, Any], ...]
    case: Any = None

    def evidence(self) -> list[Evidence]:
        """Everything read, as evidence blocks in a fixed order."""
        return [
            piece for label, value in (*self.inputs, *self.fields)
            for piece in evidence_of(label, value)
        ]  # fmt: skip

    def texts(self) -> dict[str, str]:
        """Everything read, by placeholder name; a judgement also as `label.reason`."""
        texts: dict[str, str] = {}
        for label, value in (*self.inputs, *self.fields):
            texts[label] = as_text(value)
            if isinstance(value, Judgement):
                texts[label] = str(value.verdict)
                texts[f"{label}.reason"] = value.reason or ""
        return texts

    def values(self) -> list[Any]:
        """Everything read, as the arguments of a code node: fields, then inputs."""
        return [value for _, value in (*self.fields, *self.inputs)]


class Ask(Protocol):
    """How a running node puts questions to its judge."""

    async def __call__(self, question: Question[T], /) -> Answer[T]: ...

    async def each(self, questions: Sequence[Question[T]], /) -> list[Answer[T]]:
        """Ask all questions at once; answers in the order of the questions."""
        ...


class Measurable(Protocol):
    """A metric, as far as a graph needs to know it."""

    name: str

    def spec(self) -> Any: ...


@dataclass(frozen=True, slots=True)
class Branch:
    """One verdict of a decision and what it leads to."""

    verdict: Any
    target: Any
    bare: bool = False


def shorten(text: str, width: int) -> str:
    """`text` on one line, cut to `width` characters with an ellipsis."""
    line = " ".join(text.split())
    return line if len(line) <= width else line[: width - 1].rstrip() + "…"


class BaseNode:
    """Base of all nodes.

    `evaluation_params` are the case fields read, `inputs` the nodes read (each becomes
    live when this node does), `children` the nodes that this one hands on to.
    """

    kind: ClassVar[str] = "node"
    asks: ClassVar[bool] = False  # puts questions to a judge
    grades: ClassVar[bool] = False  # gives a score when nothing follows it
    whole_case: ClassVar[bool] = False  # reads the case itself, not only named fields

    def __init__(
        self,
        *,
        name: str | None = None,
        output_label: str | None = None,
        children: Iterable[BaseNode] = (),
        evaluation_params: Iterable[str | LLMTestCaseParams] | None = None,
        inputs: Iterable[BaseNode] = (),
        then: Mapping[Any, Any] | None = None,
    ) -> None:
        self.name = name
        self.output_label = output_label
        self.children: list[BaseNode] = list(children)
        read = [field_name(param) for param in evaluation_params or ()]
        self.evaluation_params: tuple[str, ...] = tuple(dict.fromkeys(read))
        self.inputs: tuple[BaseNode, ...] = tuple(inputs)
        self.then: dict[Any, Any] = dict(then or {})

    @property
    def title(self) -> str:
        """What messages, steps and pictures call this node."""
        return self.name or self.output_label or shorten(self.text, 60) or self.kind

    @property
    def text(self) -> str:
        """The words of the node: instructions, criteria, or the name of its function."""
        return ""

    @property
    def template(self) -> PromptTemplate | None:
        """The node's own prompt, if it has one."""
        return None

    def branches(self) -> tuple[Branch, ...]:
        """Verdicts and their targets in declaration order."""
        return ()

    def successors(self) -> tuple[BaseNode, ...]:
        """Children that are handed on to, without verdicts."""
        return tuple(child for child in self.children if not isinstance(child, VerdictNode))

    async def run(self, given: Given, ask: Ask) -> NodeValue:
        """Do the node's work for one case; raises JudgeError, or whatever user code does."""
        raise TypeError(f"{type(self).__name__} nodes do not run")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.title!r}>"


class VerdictNode(BaseNode):
    """Where one verdict of a decision leads: a score from 0 to 10, a node, or a metric."""

    kind = "verdict"

    def __init__(
        self,
        verdict: Verdict,
        score: int | None = None,
        child: BaseNode | Measurable | None = None,
        *,
        name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        self.verdict = verdict
        self.score = score
        self.child = child

    @property
    def title(self) -> str:
        return self.name or f"verdict {self.verdict!r}"


class _Deciding(BaseNode):
    """A node whose verdicts lead somewhere."""

    def add_verdict(
        self,
        verdict: Verdict,
        score: int | None = None,
        child: BaseNode | Measurable | None = None,
    ) -> VerdictNode:
        """Declare one more verdict and what it leads to; returns its node."""
        node = VerdictNode(verdict, score=score, child=child)
        self.children.append(node)
        return node

    def branches(self) -> tuple[Branch, ...]:
        found = [
            Branch(child.verdict, child.score if child.child is None else child.child)
            if isinstance(child, VerdictNode)
            else Branch(None, child, bare=True)
            for child in self.children
        ]
        found += [Branch(verdict, target) for verdict, target in self.then.items()]
        return self._name_bare(tuple(found))

    def _name_bare(self, branches: tuple[Branch, ...]) -> tuple[Branch, ...]:
        return branches

    def successors(self) -> tuple[BaseNode, ...]:
        return ()


class _Asking(BaseNode):
    """A node that asks its judge; `prompt`, `parser` and `options` change how."""

    asks = True

    def __init__(
        self,
        *,
        prompt: PromptTemplate | None = None,
        parser: Parser | None = None,
        options: Options = DEFAULT_OPTIONS,
        **common: Any,
    ) -> None:
        super().__init__(**common)
        self.prompt = prompt
        self.parser = parser
        self.options = options

    @property
    def template(self) -> PromptTemplate | None:
        return self.prompt

    def question(self, given: Given, instructions: str, shape: type[T]) -> Question[T]:
        """The question for one case."""
        messages = (
            self.prompt.fill(given.texts())
            if self.prompt
            else messages_for(instructions, given.evidence())
        )
        return Question(messages, shape, self.options, self.parser, name=self.title)


class TaskNode(_Asking):
    """Prepares something for later nodes: `instructions` applied to what the node reads.

    Readers know the result as `output_label`; `output_type` (text by default) is the type
    of the result, for instance `list[str]`.
    """

    kind = "task"

    def __init__(
        self,
        instructions: str,
        output_label: str,
        children: Iterable[BaseNode] = (),
        evaluation_params: Iterable[str | LLMTestCaseParams] | None = None,
        *,
        inputs: Iterable[BaseNode] = (),
        output_type: Any = str,
        name: str | None = None,
        prompt: PromptTemplate | None = None,
        parser: Parser | None = None,
        options: Options = DEFAULT_OPTIONS,
    ) -> None:
        super().__init__(
            name=name,
            output_label=output_label,
            children=children,
            evaluation_params=evaluation_params,
            inputs=inputs,
            prompt=prompt,
            parser=parser,
            options=options,
        )
        self.instructions = instructions
        self.output_type = output_type

    @property
    def text(self) -> str:
        return self.instructions

    async def run(self, given: Given, ask: Ask) -> NodeValue:
        shape = output_type(self.output_type)
        question = self.question(given, task_instructions(self.instructions), shape)
        answer = await ask(question)
        return NodeValue(cast(Any, answer.value).output)


class _JudgementNode(_Asking, _Deciding):
    """A criterion and its verdicts; the judge gives its reason before its verdict."""

    def __init__(
        self,
        criteria: str,
        children: Iterable[BaseNode] = (),
        evaluation_params: Iterable[str | LLMTestCaseParams] | None = None,
        *,
        inputs: Iterable[BaseNode] = (),
        then: Mapping[Any, Any] | None = None,
        name: str | None = None,
        output_label: str | None = None,
        prompt: PromptTemplate | None = None,
        parser: Parser | None = None,
        options: Options = DEFAULT_OPTIONS,
    ) -> None:
        super().__init__(
            name=name,
            output_label=output_label,
            children=children,
            evaluation_params=evaluation_params,
            inputs=inputs,
            then=then,
            prompt=prompt,
            parser=parser,
            options=options,
        )
        self.criteria = criteria

    @property
    def text(self) -> str:
        return self.criteria

    def answer_type(self) -> type[BaseModel]:
        """The answer's type: reason first, then one of the verdicts."""
        strings = tuple(verdict for verdict in self.verdicts() if isinstance(verdict, str))
        return judgement_type(strings or None)

    def verdicts(self) -> tuple[Verdict, ...]:
        """The verdicts the judge may give, in declaration order."""
        return tuple(branch.verdict for branch in self.branches())

    async def run(self, given: Given, ask: Ask) -> NodeValue:
        instructions = judgement_instructions(self.criteria, self.verdicts())
        answer = await ask(self.question(given, instructions, self.answer_type()))
        found = cast(Any, answer.value)
        value = Judgement(verdict=found.verdict, reason=found.reason)
        return NodeValue(value, verdict=found.verdict, reason=found.reason)


class BinaryJudgementNode(_JudgementNode):
    """A yes/no criterion; its verdicts are True and False.

    A bare node among the children is the branch of the one verdict nobody declared.
    """

    kind = "binary judgement"

    def _name_bare(self, branches: tuple[Branch, ...]) -> tuple[Branch, ...]:
        declared = {branch.verdict for branch in branches if not branch.bare}
        bare = [branch for branch in branches if branch.bare]
        open_verdicts = [verdict for verdict in (True, False) if verdict not in declared]
        if len(bare) != 1 or len(open_verdicts) != 1:
            return branches
        named = Branch(open_verdicts[0], bare[0].target)
        return tuple(named if branch.bare else branch for branch in branches)

    def verdicts(self) -> tuple[Verdict, ...]:
        return (True, False)


class NonBinaryJudgementNode(_JudgementNode):
    """A criterion with any number of verdicts, each a string."""

    kind = "judgement"


class RatingNode(_Asking):
    """A rating on a whole-number scale; its score is (value - low) / (high - low).

    Where the judge gives token probabilities the score is their expectation over the
    scale (Liu et al. 2023, G-Eval, https://arxiv.org/abs/2303.16634), else the rating as
    it stands; the step's `mode` says which, and why.
    """

    kind = "rating"
    grades = True

    def __init__(
        self,
        criteria: str,
        evaluation_params: Iterable[str | LLMTestCaseParams] | None = None,
        *,
        scale: tuple[int, int] = (0, 10),
        inputs: Iterable[BaseNode] = (),
        children: Iterable[BaseNode] = (),
        name: str | None = None,
        output_label: str | None = None,
        prompt: PromptTemplate | None = None,
        parser: Parser | None = None,
        options: Options = Options(top_logprobs=20),  # noqa: B008 - a frozen value
    ) -> None:
        super().__init__(
            name=name,
            output_label=output_label,
            children=children,
            evaluation_params=evaluation_params,
            inputs=inputs,
            prompt=prompt,
            parser=parser,
            options=options,
        )
        self.criteria = criteria
        self.scale = scale

    @property
    def text(self) -> str:
        return self.criteria

    async def run(self, given: Given, ask: Ask) -> NodeValue:
        low, high = self.scale
        instructions = rating_instructions(self.criteria, low, high)
        answer = await ask(self.question(given, instructions, rating_type(low, high)))
        found = cast(Any, answer.value)
        rating, mode = expected_score(answer, found.score, low, high)
        score = (rating - low) / (high - low)
        return NodeValue(rating, reason=found.reason, score=score, mode=mode)


class MapNode(_Asking):
    """One question per item of a list, all at once.

    The list is the output of `over` when that is a node, or the case field it names.
    `answer` is what each item gets: `bool` or a tuple of strings for a verdict with its
    reason (readers see a list of `Judgement`), any other type for an output of it.
    """

    kind = "map"

    def __init__(
        self,
        instructions: str,
        over: BaseNode | str | LLMTestCaseParams,
        output_label: str,
        *,
        answer: Any = str,
        item_label: str = "item",
        children: Iterable[BaseNode] = (),
        evaluation_params: Iterable[str | LLMTestCaseParams] | None = None,
        inputs: Iterable[BaseNode] = (),
        name: str | None = None,
        options: Options = DEFAULT_OPTIONS,
    ) -> None:
        fields, nodes = list(evaluation_params or ()), list(inputs)
        if isinstance(over, BaseNode):
            nodes.insert(0, over)
        else:
            fields.insert(0, over)
        super().__init__(
            name=name,
            output_label=output_label,
            children=children,
            evaluation_params=fields,
            inputs=nodes,
            options=options,
        )
        self.instructions = instructions
        self.over = over
        self.answer = answer
        self.item_label = item_label

    @property
    def text(self) -> str:
        return self.instructions

    def _split(self, given: Given) -> tuple[list[Any], Given]:
        """The items, and what is read besides them."""
        if isinstance(self.over, BaseNode):
            items, rest = given.inputs[0][1], Given(given.fields, given.inputs[1:])
        else:
            items, rest = given.fields[0][1], Given(given.fields[1:], given.inputs)
        if not isinstance(items, list | tuple):
            what = self.over.title if isinstance(self.over, BaseNode) else self.over
            raise InputError(f"a map node goes over a list, but {what!r} is {items!r:.80}")
        return list(items), rest

    async def run(self, given: Given, ask: Ask) -> NodeValue:
        items, rest = self._split(given)
        judged = self.answer is bool or isinstance(self.answer, tuple)
        if judged:
            options = None if self.answer is bool else cast("tuple[str, ...]", self.answer)
            shape = judgement_type(options)
            system = judgement_instructions(self.instructions, options or (True, False))
        else:
            shape, system = output_type(self.answer), task_instructions(self.instructions)
        around = rest.evidence()
        questions = [
            self._question(system, [Evidence(self.item_label, as_text(item)), *around], shape)
            for item in items
        ]
        answers = [cast(Any, answer.value) for answer in await ask.each(questions)]
        if judged:
            return NodeValue([Judgement(verdict=a.verdict, reason=a.reason) for a in answers])
        return NodeValue([answer.output for answer in answers])

    def _question(self, system: str, evidence: Sequence[Evidence], shape: type[T]) -> Question[T]:
        return Question(messages_for(system, evidence), shape, self.options, name=self.title)


class CodeNode(_Deciding):
    """Plain Python in a graph: prepares a value, decides, or scores.

    `function` is called with the case fields it reads, then its inputs, in the order
    given; it may be a coroutine function. With `then` (or verdict children) what it
    returns is its verdict; at the end of a path it is the score, from 0 to 1.
    """

    kind = "code"
    grades = True

    def __init__(
        self,
        function: Callable[..., Any],
        children: Iterable[BaseNode] = (),
        evaluation_params: Iterable[str | LLMTestCaseParams] | None = None,
        *,
        inputs: Iterable[BaseNode] = (),
        then: Mapping[Any, Any] | None = None,
        name: str | None = None,
        output_label: str | None = None,
    ) -> None:
        super().__init__(
            name=name,
            output_label=output_label,
            children=children,
            evaluation_params=evaluation_params,
            inputs=inputs,
            then=then,
        )
        self.function = function

    @property
    def text(self) -> str:
        return getattr(self.function, "__name__", type(self.function).__name__)

    def branches(self) -> tuple[Branch, ...]:
        return tuple(branch for branch in super().branches() if not branch.bare)

    def successors(self) -> tuple[BaseNode, ...]:
        return BaseNode.successors(self)

    async def run(self, given: Given, ask: Ask) -> NodeValue:
        value = self.function(*given.values())
        if inspect.isawaitable(value):
            value = await value
        return NodeValue(value, verdict=value if self.branches() else None)


class FieldNode(BaseNode):
    """A field of the case as a node, for instance `contestants.A.actual_output`."""

    kind = "field"

    def __init__(
        self,
        path: str | LLMTestCaseParams,
        children: Iterable[BaseNode] = (),
        *,
        output_label: str | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(
            name=name,
            output_label=output_label or field_name(path),
            children=children,
            evaluation_params=[path],
        )

    async def run(self, given: Given, ask: Ask) -> NodeValue:
        return NodeValue(given.fields[0][1])
