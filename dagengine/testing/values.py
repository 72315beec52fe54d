"""What goes from test to test: a case handed over, and what came of it."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass, field
from types import TracebackType
from typing import Literal

from dagengine.execution.engine import Engine
from dagengine.question import Usage
from dagengine.results import CaseResult
from dagengine.test_case import TestCase

Mode = Literal["live", "record", "refresh", "replay"]
Said = Literal["failed", "passed", "unsure"]
"""What repeated votes say of a case that failed at first."""


@dataclass(frozen=True, slots=True)
class Ballots:
    """Votes on a case that failed at first: how many failed and passed, and what they say.

    `p` is the probability that the majority of further votes would say the same, by the
    stopping rule's own assumption on noise; None where it makes none.
    """

    failed: int
    passed: int
    said: Said
    p: float | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """The row of one case, what judged it, and the votes where it was judged again.

    `missed` are messages of failures that are no failures of the case: a recording has no
    answer to a question.
    """

    case: TestCase | None
    row: CaseResult
    engine: Engine
    ballots: Ballots | None = None
    replayed: bool = False
    missed: frozenset[str] = frozenset()

    @property
    def passed(self) -> bool:
        """Whether every metric passed, or the votes say so."""
        if self.ballots is not None:
            return self.ballots.said == "passed"
        return all(m.failure is None and m.success is not False for m in self.row.metrics)

    @property
    def is_missing(self) -> bool:
        """Whether an answer is missing in a recording."""
        return any(m.failure is not None and m.failure.message in self.missed
                   for m in self.row.metrics)  # fmt: skip


@dataclass(slots=True)
class Pending:
    """A case handed over by a test: its verdict to come, and where the test stood."""

    future: Future[Verdict]
    traceback: TracebackType | None = None


@dataclass(slots=True)
class Asked:
    """Sums of one session: questions, and where their answers came from.

    `seconds` is the longest call per node.
    """

    questions: int = 0
    replayed: int = 0
    shared: int = 0
    cached: int = 0
    calls: int = 0
    cost: float | None = 0.0
    usage: Usage = field(default_factory=Usage)
    seconds: dict[str, float] = field(default_factory=dict)
