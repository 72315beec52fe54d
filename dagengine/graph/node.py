"""What every node has, and what a node meets when it runs."""

from __future__ import annotations

import copy
from collections.abc import Callable, Coroutine, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict

from dagengine.errors import InputError
from dagengine.graph.panel import Ballot
from dagengine.prompts.evidence import Evidence, PromptTemplate, as_text, evidence_of, messages_for
from dagengine.question import (
    DEFAULT_OPTIONS,
    NO_USAGE,
    Answer,
    Message,
    Options,
    Parser,
    Question,
    Usage,
)
from dagengine.results import Failure, Verdict
from dagengine.test_case import LLMTestCaseParams, field_name

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
    that decide themselves whether they passed; `usage` and `answers` (the judge's words) are
    noted by the runner. `confidence` is the probability that the judge's tokens gave the
    verdict, where it is known; `votes` and `voters` are what a panel said (see `Step`).
    """

    value: Any
    verdict: Verdict | None = None
    reason: str | None = None
    score: float | None = None
    mode: str | None = None
    success: bool | None = None
    usage: Usage = NO_USAGE
    confidence: float | None = None
    votes: tuple[Any, ...] = ()
    voters: tuple[int, ...] = ()
    answers: tuple[str, ...] = ()


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
        """Everything read, as the arguments of a code node: fields, then inputs.

        Copies: code that changes its arguments changes nothing for others.
        """
        return [_copied(value) for _, value in (*self.fields, *self.inputs)]


def _copied(value: Any) -> Any:
    if value is None or isinstance(value, str | int | float | Judgement):
        return value
    if isinstance(value, list):
        return [_copied(item) for item in value]
    return copy.deepcopy(value)


class Ask(Protocol):
    """How a running node puts questions to its judge."""

    async def __call__(self, question: Question[T], /) -> Answer[T]: ...

    async def each(self, questions: Sequence[Question[T]], /) -> list[Answer[T]]:
        """Ask all questions at once; answers in the order of the questions."""
        ...


Work = Callable[[Given, Ask], Coroutine[Any, Any, NodeValue]]
"""What a node does for one case: its `run`, perhaps with something around it."""


@dataclass(frozen=True, slots=True)
class Asked:
    """How many questions a node puts on one case: at least, likely, at most (None: no bound).

    `in_a_row` of them at most wait for one another; the rest are put at once.
    """

    least: int
    likely: float
    most: int | None
    in_a_row: int = 1

    @classmethod
    def exactly(cls, count: int) -> Asked:
        """A number that is known, all at once."""
        return cls(count, count, count, min(count, 1))


Poll = Generator[Sequence[Ballot], "Sequence[NodeValue | Failure]", "NodeValue | Failure"]
"""One node on one case: gives the ballots of a round, takes their outcomes, returns the result."""


class Panel(Protocol):
    """Who answers the questions of a node, and how often; plain data and no I/O."""

    @property
    def models(self) -> tuple[Any, ...]:
        """The judges as people name them; None is the metric's own."""
        ...

    @property
    def label(self) -> str:
        """What pictures say about it."""
        ...

    @property
    def shares(self) -> tuple[float, ...]:
        """The share of the likely questions that each judge gets."""
        ...

    def asked(self, asked: Asked) -> Asked:
        """How many questions become of those of one run of the node."""
        ...

    def poll(self) -> Poll: ...


class Measurable(Protocol):
    """A metric, as far as a graph needs to know it."""

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
    panel: Panel | None = None
    # What rewrites of a graph put around `run`, the innermost first.
    around: tuple[Callable[[Work], Work], ...] = ()

    @property
    def vote(self) -> Literal["verdict", "verdicts", "items", "rating", None]:
        """What a vote on the node is, if there can be any.

        A verdict, the verdicts of a list, those of items that have a question each, or a rating.
        """
        return None

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
        if isinstance(evaluation_params, str):
            raise InputError(f"evaluation_params takes a list: [{str(evaluation_params)!r}]")
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

    def shown(self, read: Iterable[str]) -> set[str]:
        """The names that the node's own prompt has for what it reads."""
        return set(read)

    def branches(self) -> tuple[Branch, ...]:
        """Verdicts and their targets in declaration order."""
        return ()

    def successors(self) -> tuple[BaseNode, ...]:
        """Children that are handed on to, without verdicts."""
        return tuple(child for child in self.children if not isinstance(child, VerdictNode))

    def questions(self, known: Mapping[str, Any], items: int) -> Asked:
        """How many questions the node puts once it runs, as far as that can be told before.

        `known` holds what it reads, by field path and by label; what only the run brings is
        not in it. A list that is not known is taken to have `items` items.
        """
        return Asked.exactly(int(self.asks))

    def asked(self, known: Mapping[str, Any], items: int) -> Asked:
        """As `questions`, with those that the panel adds."""
        asked = self.questions(known, items)
        return asked if self.panel is None else self.panel.asked(asked)

    async def run(self, given: Given, ask: Ask) -> NodeValue:
        """Do the node's work for one case; raises JudgeError, or whatever user code does."""
        raise TypeError(f"{type(self).__name__} nodes do not run")

    @property
    def work(self) -> Work:
        """`run` with everything that stands around it."""
        work: Work = self.run
        for wrap in self.around:
            work = wrap(work)
        return work

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


class Deciding(BaseNode):
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


class Asking(BaseNode):
    """A node that asks its judge; `prompt`, `parser` and `options` change how.

    `wording` is a function that makes the whole prompt of what the node reads; it takes the
    place of the built-in wording, as `prompt` does, but is trusted to guard the text itself.
    """

    asks = True

    def __init__(
        self,
        *,
        prompt: PromptTemplate | None = None,
        parser: Parser | None = None,
        options: Options = DEFAULT_OPTIONS,
        wording: Callable[[Given], str] | None = None,
        **common: Any,
    ) -> None:
        super().__init__(**common)
        self.wording = wording
        self.prompt = prompt
        self.parser = parser
        self.options = options

    @property
    def template(self) -> PromptTemplate | None:
        return self.prompt

    def question(self, given: Given, instructions: str, shape: type[T]) -> Question[T]:
        """The question for one case."""
        messages = self.messages(given, instructions, given.evidence())
        return Question(messages, shape, self.options, self.parser, name=self.title)

    def messages(
        self, given: Given, instructions: str, evidence: Sequence[Evidence]
    ) -> tuple[Message, ...]:
        """The prompt: one's own where there is one, else instructions and fenced evidence."""
        if self.wording is not None:
            return ({"role": "user", "content": self.wording(given)},)
        if self.prompt is not None:
            return self.prompt.fill(given.texts())
        return messages_for(instructions, evidence)
