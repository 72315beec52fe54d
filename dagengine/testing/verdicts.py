"""What goes from test to test: a case handed over, and its result."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal

from dagengine.compiler.plan import Plan
from dagengine.results import CaseResult

Decision = Literal["failed", "passed", "unsure"]
"""What votes say of a case that failed at first."""


@dataclass(frozen=True, slots=True)
class Votes:
    """Further evaluations of a case that failed, the first one included.

    `p` is the probability that the votes are right, by the assumption on noise of the rule that
    stopped them. It is None if the rule makes no such assumption.
    """

    failed: int
    passed: int
    decision: Decision
    p: float | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """The row of one case, the plan and the judges that made it, and votes if there were any.

    `missed` are the messages of failures that tell nothing about the case: a recording lacks an
    answer. `recorded` says whether answers came out of a recording.
    """

    row: CaseResult
    plan: Plan
    judges: tuple[str, ...] = ()
    votes: Votes | None = None
    recorded: bool = False
    missed: frozenset[str] = frozenset()

    @property
    def passed(self) -> bool:
        """Return whether every metric passed, or votes say so."""
        if self.votes is not None:
            return self.votes.decision == "passed"
        return all(m.failure is None and m.success is not False for m in self.row.metrics)

    @property
    def is_missing(self) -> bool:
        """Return whether a recording lacks an answer that the case needs."""
        failures = (metric.failure for metric in self.row.metrics)
        return any(failure is not None and failure.message in self.missed for failure in failures)

    @property
    def is_unjudged(self) -> bool:
        """Return whether nothing is wrong but that some metric has no score."""
        failed = [m for m in self.row.metrics if m.failure is not None or m.success is False]
        return bool(failed) and all(metric.failure is not None for metric in failed)


@dataclass(slots=True, eq=False)
class Pending:
    """A case handed over by a test: its future verdict, and where the test was then."""

    future: Future[Verdict]
    case: Any
    traceback: TracebackType | None = None
