"""One vote among several: the judge that it asks, and how its questions are sampled."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

from pydantic import BaseModel

from dagengine.graph.values import NodeValue, QuestionCount
from dagengine.question import Question
from dagengine.results import Failure

T = TypeVar("T", bound=BaseModel)


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
