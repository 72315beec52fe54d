"""What judges cases, an engine or a cluster of them, and who follows it."""

from __future__ import annotations

from collections.abc import AsyncIterable, Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from dagengine.compiler.plan import Plan, Unit
from dagengine.data.cases import AsyncCases, Cases
from dagengine.execution.scheduler import CaseState
from dagengine.gateway.limits import Limits
from dagengine.graph.values import Given, NodeValue
from dagengine.question import Judge
from dagengine.results import CaseResult, Failure, Spent, Totals, Waiting
from dagengine.test_case import TestCase

# What can be evaluated: whatever `read_cases` takes, and data sets.
Source = Iterable[Any] | AsyncIterable[Any]
AskUnit = Callable[[Unit, Callable[[], Given]], Awaitable[NodeValue | Failure]]


@dataclass(frozen=True, slots=True)
class JudgedCase:
    """A case that has its results: what its nodes gave, and how to ask a unit once more."""

    index: int
    case: TestCase
    state: CaseState
    ask: AskUnit


class RunObserver:
    """Follows a run; a subclass overrides what it wants to hear of.

    `case_judged` comes first, then `row_finished`. `row` comes before the latter if all earlier
    rows have been handed out, and otherwise as soon as they have. Who is not `in_order` hears of no
    `row`. What a method raises ends the run.
    """

    in_order = True

    def case_judged(self, case: JudgedCase) -> None:
        """A case has its results; more may be asked about it. On a cluster nobody hears of it."""

    def row(self, row: CaseResult) -> None:
        """The next row, in the order of the cases."""

    def row_finished(self, row: CaseResult) -> None:
        """A row is finished, also one that has to wait for an earlier one."""

    async def all_judged(self) -> None:
        """Every case has its row, and more may be asked. On a cluster nobody hears of it."""


class OnRow(RunObserver):
    """Hands every row on: in the order of the cases, and to `on_finished` when it is finished."""

    def __init__(
        self,
        on_row: Callable[[CaseResult], object],
        on_finished: Callable[[CaseResult], object] | None = None,
    ) -> None:
        self._on_row, self._on_finished = on_row, on_finished

    def row(self, row: CaseResult) -> None:
        self._on_row(row)

    def row_finished(self, row: CaseResult) -> None:
        if self._on_finished is not None:
            self._on_finished(row)


class Executor(Protocol):
    """Metrics ready to judge cases; inside `open()` any number of sources may be run."""

    @property
    def plan(self) -> Plan:
        """The compiled metrics."""
        ...

    @property
    def judges(self) -> Sequence[Judge]:
        """The judges in the order of the plan's `models`."""
        ...

    @property
    def asked_judges(self) -> list[Judge]:
        """The judges that the run may call, which are none in a replay."""
        ...

    @property
    def limits(self) -> Limits:
        """The limits of the whole run."""
        ...

    @property
    def store(self) -> str | None:
        """The file of answers, if there is one."""
        ...

    @property
    def totals(self) -> Totals:
        """Questions and usage so far."""
        ...

    @property
    def spent(self) -> tuple[Spent, ...]:
        """The totals by metric, node and judge."""
        ...

    @property
    def waiting(self) -> Sequence[Waiting]:
        """The questions that wait to be asked again at this moment."""
        ...

    @property
    def waits_for_cases(self) -> bool:
        """Whether cases may come from an async source, which keeps nobody waiting."""
        ...

    def cases(self, source: Source) -> Cases | AsyncCases:
        """The cases of a source; raises InputError if they cannot be judged."""
        ...

    def open(self) -> AbstractAsyncContextManager[None]:
        """Take up the judges, the store or the workers."""
        ...

    def keeping(self, result: Callable[[], Any]) -> AbstractContextManager[None]:
        """Let an error of `on_attempt`, which comes after all rows, carry them as `result`."""
        ...

    async def run(self, cases: Any, observer: RunObserver, first: int = 0, step: int = 1) -> None:
        """Judge every case; rows are numbered from `first` on in steps of `step`."""
        ...

    async def judge(self, cases: Any, observer: RunObserver, first: int = 0, step: int = 1) -> None:
        """Open, judge every case, and close."""
        ...
