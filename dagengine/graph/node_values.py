"""What a node reads, asks and gives: its questions, and the votes that answer them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Container, Coroutine, Generator, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from dagengine.prompts.evidence import Evidence, as_text, canonical_place, evidence_of, names_in
from dagengine.prompts.quotes import Quote
from dagengine.question import NO_USAGE, Answer, Decision, Kind, Odds, Option, Question, Usage
from dagengine.results import Failure, Verdict
from dagengine.system.frozen import quick_init
from dagengine.test_case import Turn

T = TypeVar("T", bound=BaseModel)


class Judgement(BaseModel):
    """A verdict and its reason, as readers of a judgement node see them.

    `odds` are the probabilities of all verdicts, from judges that give them (empty: not known); no
    prompt and no output shows them, nor the `quotes` that the verdict stands on.
    """

    model_config = ConfigDict(frozen=True)
    verdict: Verdict
    reason: str | None = None
    odds: Odds | None = Field(default=None, exclude=True, repr=False)
    quotes: tuple[Quote, ...] = Field(default=(), exclude=True, repr=False)


@quick_init
@dataclass(frozen=True, slots=True)
class NodeValue:
    """What a node produced: the value its readers see, and what decides or scores.

    `score` is in [0, 1]. `mode` says how a rating was read. `success` is set by metrics that decide
    themselves whether they passed. The runner notes `usage`, `answers` (the judge's words) and
    `asked`. `confidence` is the probability that the judge gave the verdict, if it is known. `odds`
    are those of all verdicts, of all ratings by their number, or of all scores (0 to 1) of code;
    empty if the judge gives odds and these are not known. `mass` is the share of all probability
    (0 to 1) that they are made of, where they or `confidence` come from those of tokens.
    `votes` and `voters` are what a panel said. See `Step`. `question` is a digest of what was
    asked, where somebody notes it. `spans` are the ids of the spans that the items of a list are,
    or of those that decided. `quotes` are the words that the verdict or the rating stands on.
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
    asked: tuple[str, ...] = ()
    question: str | None = None
    odds: Odds | None = None
    mass: float | None = None
    spans: tuple[str, ...] = ()
    quotes: tuple[Quote, ...] = ()

    def with_questions(
        self, usage: Usage, answers: tuple[str, ...], asked: tuple[str, ...]
    ) -> NodeValue:
        """The same, and what was asked for it; `replace` takes three times as long."""
        return NodeValue(
            self.value, self.verdict, self.reason, self.score, self.mode, self.success, usage,
            self.confidence, self.votes, self.voters, answers, asked, self.question, self.odds,
            self.mass, self.spans, self.quotes,
        )  # fmt: skip

    def with_score(self, score: float | None) -> NodeValue:
        """The same with another score."""
        return NodeValue(
            self.value, self.verdict, self.reason, score, self.mode, self.success, self.usage,
            self.confidence, self.votes, self.voters, self.answers, self.asked, self.question,
            self.odds, self.mass, self.spans, self.quotes,
        )  # fmt: skip


@quick_init
@dataclass(frozen=True, slots=True)
class Given:
    """What a node reads of one case: fields by path, outputs of other nodes by label."""

    fields: tuple[tuple[str, Any], ...]
    inputs: tuple[tuple[str, Any], ...]
    case: Any = None

    def decision(
        self, kind: Kind, instructions: str, options: Iterable[Option], **more: Any
    ) -> Decision:
        """A decision about everything read; `more` are other fields of `Decision`."""
        decision = Decision(kind, instructions, tuple(options), self.case, self.fields, self.inputs)
        return replace(decision, **more) if more else decision

    def evidence(self) -> list[Evidence]:
        """Everything read, as evidence blocks: first what is of the case, then what nodes made.

        The fields of the case have the same order and names whoever reads them, so that questions
        about one case begin alike.
        """
        fields = self.fields
        if len(fields) > 1:
            fields = tuple(sorted(fields, key=lambda field: canonical_place(field[0])))
        evidence: list[Evidence] = []
        for path, value in fields:
            names = None
            if isinstance(value, list) and value and isinstance(value[0], Turn):
                # Turns are called as in the whole conversation.
                names = names_in(getattr(self.case, "turns", ()), value)
            evidence += evidence_of(path, value, names)
        for label, value in self.inputs:
            evidence += evidence_of(label, value)
        return evidence

    def quotable(self, fields: Container[str] = ()) -> list[Evidence]:
        """Pieces that a verdict may quote: the given `fields`, else all that is of the case.

        What nodes made is quoted only where nothing of the case is read.
        """
        kept = tuple(field for field in self.fields if not fields or field[0] in fields)
        return replace(self, fields=kept, inputs=()).evidence() if kept else self.evidence()

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
        return [_frozen_copy(value) for _, value in (*self.fields, *self.inputs)]


_UNCHANGING = (str, int, float, type(None), Judgement)


def _frozen_copy(value: Any) -> Any:
    if isinstance(value, _UNCHANGING):
        return value
    if isinstance(value, list):
        return [item if isinstance(item, _UNCHANGING) else _frozen_copy(item) for item in value]
    if (
        isinstance(value, BaseModel)
        and type(value).__copy__ is BaseModel.__copy__  # a RootModel has other parts
        and not (value.__pydantic_extra__ or type(value).__private_attributes__)
    ):
        # `copy` makes copies of its four parts, too, of which two are empty here.
        twin, write = object.__new__(type(value)), object.__setattr__
        write(twin, "__dict__", {name: _frozen_copy(part) for name, part in vars(value).items()})
        write(twin, "__pydantic_fields_set__", set(value.__pydantic_fields_set__))
        write(twin, "__pydantic_extra__", None if value.__pydantic_extra__ is None else {})
        write(twin, "__pydantic_private__", None)
        return twin
    return copy.deepcopy(value)


class Ask(Protocol):
    """How a running node puts questions to its judge.

    `decides` says that this judge takes one decision at a time, and gives no text.
    """

    @property
    def decides(self) -> bool: ...

    async def __call__(self, question: Question[T], /) -> Answer[T]: ...

    async def each(self, questions: Iterable[Question[T]], /) -> list[Answer[T]]:
        """Ask all questions at once; returns the answers in the order of the questions.

        Each question is taken as soon as a call may be in progress for it. Give a generator, so
        that those of a long list are never all in memory.

        Raises the JudgeError of the first question that has no valid answer.
        """
        ...


Work = Callable[[Given, Ask], Coroutine[Any, Any, NodeValue]]
"""What a node does for one case: its `run`, or a wrapper of it."""


@dataclass(frozen=True, slots=True)
class QuestionCount:
    """How many questions a node puts on one case: at least, likely, at most (None: no bound).

    `in_a_row` of them at most wait for one another; the rest are put at once.
    """

    least: int
    likely: float
    most: int | None
    in_a_row: int = 1

    @classmethod
    def exactly(cls, count: int) -> QuestionCount:
        """A number that is known, all at once."""
        return cls(count, count, count, min(count, 1))


@dataclass(frozen=True, slots=True)
class Ballot:
    """One run of a node among several.

    `judge` counts the judges of the node's panel. `sample` is one of `samples`, so that votes
    of different repetitions never meet. Of a node with one question per item only the items
    `open` are asked again (None: all). `temperature` replaces the node's own; at least
    `top_logprobs` alternatives are asked for.
    """

    judge: int = 0
    sample: int = 0
    samples: int = 1
    open: frozenset[int] | None = None
    temperature: float | None = None
    top_logprobs: int = 0

    def question(self, question: Question[T], place: int | None = None) -> Question[T]:
        """The question of this vote; `place` is that of its item."""
        own, sample = question.options, self.sample
        # Answers are found by their sample, so no two votes may share one. A repetition of the
        # whole run (its sample is in `own`) takes a block of `samples` of them:
        #
        #     three votes     run 0: 0 1 2    run 1: 3 4 5    run 2: 6 7 8
        if place is not None and self.open is not None and place not in self.open:
            sample = 0  # answered already, and remembered
        options = replace(
            own,
            sample=own.sample * self.samples + sample,
            seed=None if own.seed is None else own.seed + sample,
            temperature=own.temperature if self.temperature is None else self.temperature,
            top_logprobs=max(own.top_logprobs, self.top_logprobs),
        )
        return question if options == own else replace(question, options=options)


Poll = Generator[Sequence[Ballot], "Sequence[NodeValue | Failure]", "NodeValue | Failure"]
"""One node on one case: gives the ballots of a round, takes their outcomes, returns the result."""


class Panel(Protocol):
    """The judges that answer a node's questions, and how often each does; no I/O."""

    @property
    def models(self) -> tuple[Any, ...]:
        """The judges as the caller names them; None is the metric's judge."""
        ...

    @property
    def label(self) -> str:
        """The panel's name in pictures."""
        ...

    @property
    def shares(self) -> tuple[float, ...]:
        """The share of the likely questions that each judge gets, from 0 to 1."""
        ...

    def total_questions(self, single: QuestionCount) -> QuestionCount:
        """Number of questions of all votes, given those of one run of the node."""
        ...

    def poll(self) -> Poll: ...
