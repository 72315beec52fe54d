"""Runs a plan over cases: the only module that starts tasks.

Workers take ready units from one heap (earlier cases first) and admit the next case when
nothing is ready, so memory is bounded by what is in flight and not by the data set. Rows
leave in data set order.
"""

from __future__ import annotations

import heapq
import itertools
import math
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar, cast

import anyio
import anyio.lowlevel
from pydantic import BaseModel

from dagengine.errors import DagengineError, JudgeError, NotApplicableError, UnparseableError
from dagengine.flights import Flights
from dagengine.gateway import Gateway, is_cancelled
from dagengine.node import Given, NodeValue
from dagengine.plan import Plan, Unit
from dagengine.prompts import Evidence, messages_for, output_type
from dagengine.question import NO_USAGE, Answer, Judge, Question
from dagengine.results import CaseResult, Failure, MetricResult, OutcomeKind
from dagengine.scheduler import CaseState
from dagengine.test_case import TestCase, case_label, read_field

T = TypeVar("T", bound=BaseModel)
Emit = Callable[[CaseResult], None]

# Rows that may wait for an earlier one; beyond it no new case is admitted.
_REORDER = 10_000
# Nodes of plain Python never wait; a worker lets others have a turn this often.
_TURNS = 64
_PASSING = frozenset({OutcomeKind.PROVIDER_ERROR, OutcomeKind.TIMEOUT})
_REASON = (
    "Explain in two or three sentences, to somebody who reads a report, why an evaluation "
    "ended with this score. Use only the recorded path."
)


class _Ask:
    """What one running node asks with: its unit's judge, through the gateway."""

    def __init__(self, gateway: Gateway, judge: Judge) -> None:
        self._gateway = gateway
        self._judge = judge
        self.usage = NO_USAGE
        self.answers: list[str] = []

    async def __call__(self, question: Question[T]) -> Answer[T]:
        return self._noted(await self._gateway.ask(self._judge, question))

    def _noted(self, answer: Answer[T]) -> Answer[T]:
        self.usage += answer.usage
        self.answers.append(answer.raw)
        return answer

    async def each(self, questions: Sequence[Question[T]]) -> list[Answer[T]]:
        """All at once. The failure reported is that of the first question that failed."""
        answers: list[Answer[T] | JudgeError | None] = [None] * len(questions)

        async def one(place: int, question: Question[T]) -> None:
            try:
                answers[place] = await self._gateway.ask(self._judge, question)
            except JudgeError as error:
                answers[place] = error

        async with anyio.create_task_group() as group:
            for place, question in enumerate(questions):
                group.start_soon(one, place, question)
        for answer in answers:
            if isinstance(answer, JudgeError):
                raise answer
        # Noted in the order of the questions, not in that of the answers.
        return [self._noted(answer) for answer in cast("list[Answer[T]]", answers)]


class _Run:
    """One case under way."""

    __slots__ = ("case", "deadline", "index", "scopes", "state")

    def __init__(self, index: int, case: TestCase, state: CaseState, deadline: float) -> None:
        self.index = index
        self.case = case
        self.state = state
        self.deadline = deadline
        self.scopes: dict[int, anyio.CancelScope] = {}


class Runner:
    """Runs one plan over one iterable of cases; use an instance once."""

    def __init__(self, plan: Plan, judges: Sequence[Judge], gateway: Gateway, emit: Emit) -> None:
        """`judges` stand in the order of `plan.models`; `emit` gets rows in order."""
        self._plan = plan
        self._gateway = gateway
        self._emit = emit
        self._judges = judges
        self._constants: Flights[NodeValue | Failure] = Flights(len(plan.units) + 1)
        self._first_slot = [min(unit.slots) for unit in plan.units]
        self._cases: Iterator[tuple[int, TestCase]] = iter(())
        self._exhausted = False
        self._heap: list[tuple[int, int, int, _Run]] = []
        self._open = 0
        self._admitted = 0
        self._idle: list[anyio.Event] = []
        self._workers = 0
        # Workers also wait between retries and for shared answers, which hold no call slot.
        self._max_workers = 4 * gateway.limits.max_in_flight + 32
        self._waiting: dict[int, CaseResult] = {}
        self._next_row = 0

    async def run(self, cases: Iterable[TestCase]) -> None:
        """Run everything; returns when every case has its row."""
        self._cases = iter(enumerate(cases))
        try:
            async with anyio.create_task_group() as self._group:
                self._spawn()
        except (anyio.get_cancelled_exc_class(), KeyboardInterrupt):
            # Interrupted: finished rows that wait for an earlier one are kept, too.
            for index in sorted(self._waiting):
                self._emit(self._waiting[index])
            raise
        if self._next_row != self._admitted:
            lost = self._admitted - self._next_row
            raise RuntimeError(f"{lost} rows are missing; this is a bug of dagengine")

    def _spawn(self) -> None:
        self._workers += 1
        self._group.start_soon(self._work)

    async def _work(self) -> None:
        for turn in itertools.count(1):
            item = self._next()
            if item is None:
                if self._exhausted and not self._open:
                    self._wake_all()
                    return
                await self._rest()
                continue
            await self._step(*item)
            if not turn % _TURNS:
                await anyio.lowlevel.checkpoint()

    async def _rest(self) -> None:
        event = anyio.Event()
        self._idle.append(event)
        await event.wait()

    def _wake_all(self) -> None:
        for event in self._idle:
            event.set()
        self._idle.clear()

    def _next(self) -> tuple[_Run, Unit] | None:
        """The most urgent ready unit, admitting cases as long as none is ready."""
        while not self._heap:
            if self._exhausted or len(self._waiting) >= _REORDER:
                return None
            if not self._admit():
                return None
        _, _, unit, run = heapq.heappop(self._heap)
        self._call_help()
        return run, self._plan.units[unit]

    def _call_help(self) -> None:
        """Have one more worker look for work while there may be some."""
        if self._heap or not self._exhausted:
            if self._idle:
                self._idle.pop().set()
            elif self._workers < self._max_workers:
                self._spawn()

    def _admit(self) -> bool:
        index, case = next(self._cases, (None, None))
        if index is None or case is None:
            self._exhausted = True
            if not self._open:
                self._wake_all()
            return False
        limit = self._gateway.limits.case_timeout
        deadline = math.inf if limit is None else anyio.current_time() + limit
        state = CaseState(self._plan, self._missing(case))
        self._open += 1
        self._admitted += 1
        run = _Run(index, case, state, deadline)
        self._queue(run)
        if state.finished:
            self._close(run, state.results())
        return True

    def _missing(self, case: TestCase) -> dict[int, Failure]:
        """Metrics that are certain to read a field that the case does not have."""
        failures: dict[int, Failure] = {}
        for metric in self._plan.metrics:
            absent = [(f, node) for f, node in metric.required if read_field(case, f) is None]
            if absent:
                failures[metric.index] = _missing_field([f for f, _ in absent], absent[0][1])
        return failures

    def _queue(self, run: _Run) -> None:
        for unit in run.state.cancel:
            if unit in run.scopes:
                run.scopes[unit].cancel()
            else:  # queued, but not started
                self._heap = [e for e in self._heap if e[3] is not run or e[2] != unit]
                heapq.heapify(self._heap)
                run.state.cancelled(unit)
        run.state.cancel.clear()
        # Last: a unit that is wanted again after all is ready once more.
        for unit in run.state.ready:
            heapq.heappush(self._heap, (run.index, self._first_slot[unit], unit, run))
        run.state.ready.clear()

    async def _step(self, run: _Run, unit: Unit) -> None:
        """Run one unit and take the consequences."""
        if run.state.finished:
            return
        outcome: NodeValue | Failure | None = None
        with anyio.CancelScope(deadline=run.deadline) as scope:
            run.scopes[unit.index] = scope
            outcome = await self._outcome(run, unit)
        del run.scopes[unit.index]
        if run.state.finished:
            return
        if outcome is not None:
            self._tell(run, unit, outcome)
        elif anyio.current_time() >= run.deadline:
            limit = self._gateway.limits.case_timeout
            message = f"the case took longer than its {limit} s"
            run.state.fail(unit.index, Failure(OutcomeKind.TIMEOUT, unit.name, message))
        else:
            run.state.cancelled(unit.index)
        self._queue(run)
        if run.state.finished:
            self._close(run, await self._explained(run))

    def _tell(self, run: _Run, unit: Unit, outcome: NodeValue | Failure) -> None:
        if isinstance(outcome, Failure):
            run.state.fail(unit.index, outcome)
        else:
            run.state.complete(unit.index, outcome)

    async def _outcome(self, run: _Run, unit: Unit) -> NodeValue | Failure:
        """What a unit gave, or how it failed; the same for all cases where it is constant."""
        if not unit.constant:
            return await self._isolated(run, unit)
        try:
            return await self._constants.get(unit.index, lambda: self._steady(run, unit))
        except _PassingError as error:
            return error.failure

    async def _steady(self, run: _Run, unit: Unit) -> NodeValue | Failure:
        """The outcome of a constant unit; a failure that may pass is not kept."""
        outcome = await self._isolated(run, unit)
        if isinstance(outcome, Failure) and outcome.kind in _PASSING:
            raise _PassingError(outcome)
        return outcome

    async def _isolated(self, run: _Run, unit: Unit) -> NodeValue | Failure:
        """What a unit gave, or how it failed. The one place that isolates a node."""
        try:
            return await self._value(run, unit)
        except JudgeError as error:
            raw = error.raw if isinstance(error, UnparseableError) else None
            return Failure(OutcomeKind(error.kind), unit.name, str(error), raw)
        except _MissingFieldError as error:
            return error.failure
        except NotApplicableError as error:
            return Failure(OutcomeKind.SKIPPED, unit.name, str(error))
        except anyio.get_cancelled_exc_class():
            if is_cancelled():
                raise
            message = "its own code was cancelled from within"
            return Failure(OutcomeKind.CODE_ERROR, unit.name, message)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - user code may raise anything
            return Failure(OutcomeKind.CODE_ERROR, unit.name, _described(error))

    async def _value(self, run: _Run, unit: Unit) -> NodeValue:
        fields = tuple((path, read_field(run.case, path)) for path in unit.reads)
        absent = [path for path, value in fields if value is None]
        if absent:
            raise _MissingFieldError(_missing_field(absent, unit.name))
        state = run.state
        inputs = tuple(
            (label, state.output(source).value)
            for label, source, slot in unit.sources
            if slot < 0 or state.is_live(slot)
        )
        ask = _Ask(self._gateway, self._judges[unit.judge])
        value = await unit.node.work(Given(fields, inputs, run.case), ask)
        if not ask.answers:
            return value
        return replace(value, usage=ask.usage, answers=tuple(ask.answers))

    async def _explained(self, run: _Run) -> tuple[MetricResult, ...]:
        """The results, with reasons written by the judge where a metric asks for that."""
        results = list(run.state.results())
        for metric in self._plan.metrics:
            result = results[metric.index]
            wanted = metric.spec.judged_reason and metric.spec.include_reason
            if wanted and result.score is not None:
                judge = self._ask_for(metric.scope)
                results[metric.index] = await self._write_reason(result, judge, run.deadline)
        return tuple(results)

    def _ask_for(self, scope: int) -> _Ask:
        model = self._plan.scopes[scope].spec.model
        place = next(
            i for i, known in enumerate(self._plan.models) if known is model or known == model
        )
        return _Ask(self._gateway, self._judges[place])

    async def _write_reason(self, result: MetricResult, ask: _Ask, deadline: float) -> MetricResult:
        """One last call; when it fails the composed reason stays, and says so."""
        evidence = [
            Evidence("path", result.reason or ""),
            Evidence("score", f"{result.score:.4g} of 1"),
        ]
        shape = output_type(str)
        question = Question(messages_for(_REASON, evidence), shape, name=f"{result.metric} reason")
        why = "the case's time was over"
        with anyio.CancelScope(deadline=deadline):
            try:
                answer: Any = await ask(question)
                return replace(result, reason=answer.value.output)
            except JudgeError as error:
                why = str(error)
        note = f"(no reason written by the judge: {why})"
        return replace(result, reason=f"{result.reason or ''}\n{note}".strip())

    def _close(self, run: _Run, results: tuple[MetricResult, ...]) -> None:
        """Hand out the row, and those that waited for it."""
        row = CaseResult(run.index, case_label(run.case, run.index), results)
        self._open -= 1
        self._waiting[run.index] = row
        while self._next_row in self._waiting:
            self._emit(self._waiting.pop(self._next_row))
            self._next_row += 1
        if self._exhausted and not self._open:
            self._wake_all()
        else:
            self._call_help()


def _described(error: BaseException) -> str:
    """An exception of somebody's code: what, and where."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({Path(frames[-1].filename).name} line {frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error}{place}"


class _PassingError(DagengineError):
    """Carries a failure that another attempt may not meet."""

    def __init__(self, failure: Failure) -> None:
        self.failure = failure
        super().__init__(failure.message)


class _MissingFieldError(Exception):
    """Carries the outcome of a node that reads a field the case does not have."""

    def __init__(self, failure: Failure) -> None:
        self.failure = failure
        super().__init__(failure.message)


def _missing_field(paths: Sequence[str], node: str) -> Failure:
    names = ", ".join(f"`{path}`" for path in dict.fromkeys(paths))
    message = f"the case has no {names}, which this metric reads; add it to the test case"
    return Failure(OutcomeKind.MISSING_FIELD, node, message)
