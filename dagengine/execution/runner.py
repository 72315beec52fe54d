"""Runs a plan over cases: says what is done next, and takes the consequences.

Workers take ready units: earlier cases first, and within a case what asks nothing first. As many
of them ask at a time as calls may be in progress, and more while questions wait for something else;
and as many ask nothing. Workers admit the next case when nothing is ready. So what is in flight
bounds the memory, not the data set. Rows leave in data set order.
"""

from __future__ import annotations

import heapq
import time
from collections import deque
from collections.abc import AsyncIterable, Awaitable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import anyio

from dagengine.compiler.execution_plan import NONE, Plan, PlanMetric, Unit
from dagengine.data.app import App, complete_golden
from dagengine.data.golden import ConversationalGolden, Golden
from dagengine.execution.cases_and_rows import (
    Caller,
    CallSource,
    CaseSource,
    CaseTerms,
    FedSource,
    JudgedCase,
    PulledSource,
    RowsInOrder,
    RunObserver,
)
from dagengine.execution.node_run import Calls, GatewayAsk, questions_of, read_inputs, run_unit
from dagengine.execution.reasons import reason_question, wants_reason, write_reason
from dagengine.execution.run_once import RunOnce
from dagengine.execution.worker_tasks import Work, WorkerScope, WorkerTasks
from dagengine.gateway.call_priorities import FIRST, Resting
from dagengine.gateway.gateway import Asks
from dagengine.gateway.otel_spans import NO_SPANS, NoSpans
from dagengine.gateway.packs.packing import Ahead, Packing, Participant
from dagengine.graph.graph import nothing_to_judge
from dagengine.graph.node_values import NodeValue
from dagengine.question import Judge, display_name
from dagengine.redaction import public_text
from dagengine.results import CaseResult, Failure, MetricResult, OutcomeKind
from dagengine.semantics.case_scoring import Took
from dagengine.semantics.path_odds import with_odds
from dagengine.semantics.scheduler import CaseState
from dagengine.semantics.speculation import ahead, bringing, deciding_units
from dagengine.system.threads import in_context
from dagengine.test_case import InvalidCase, TestCase, case_label, read_field

Item = TestCase | Golden | ConversationalGolden | InvalidCase

# Rows that may wait for an earlier one; beyond it no new case is admitted.
_REORDER = 10_000


@dataclass(slots=True, eq=False, repr=False)
class _ActiveCase:
    """One case in progress; `packing` is where some of its questions may travel together."""

    index: int
    case: TestCase
    state: CaseState
    terms: CaseTerms
    span: Any
    packing: Packing | None = None
    scopes: dict[int, anyio.CancelScope] = field(default_factory=dict[int, anyio.CancelScope])
    began: float = field(default_factory=time.perf_counter)


class _Units:
    """Units of one kind: those that wait for a worker in a heap, and how many are at work."""

    __slots__ = ("_most", "_resting", "at_work", "ready")

    def __init__(self, most: int, resting: Resting) -> None:
        """At most so many are at work, and one more for each question that is `resting`."""
        self.ready: list[tuple[int, tuple[bool, int], int, _ActiveCase]] = []
        self.at_work = 0
        self._most, self._resting = most, resting

    @property
    def have_room(self) -> bool:
        return self.at_work - self._resting.count < self._most


class Runner:
    """Runs one plan over one source of cases; use an instance once."""

    def __init__(
        self,
        plan: Plan,
        judges: Sequence[Judge],
        gateway: Asks,
        observer: RunObserver,
        app: App | None,
        *,
        spans: NoSpans,
        constants: RunOnce,
        first: int,
        step: int,
        at_once: bool,
    ) -> None:
        """`judges` are in the order of `plan.models`; `constants` are those of the whole run.

        Cases have the index `first`, `first + step`, …, unless their terms have another one.
        Without `at_once` one node runs at a time.
        """
        self._observer = observer
        self._spans = spans
        self._work = self._outcome if spans is NO_SPANS else self._trace_outcome
        self._plan = plan
        self._app = app
        self._gateway = gateway
        self._judges = judges
        self._run_unit = partial(run_unit, gateway, judges)
        self._constants = constants
        self._source: CaseSource[Item | Caller] = PulledSource(())
        most = gateway.run.limits.max_in_flight
        self._plain, self._asking = _Units(most, Resting()), _Units(most, gateway.run.resting)
        self._goldens: deque[tuple[int, Golden | ConversationalGolden, CaseTerms]] = deque()
        self._completing = 0
        self._open = 0
        self._admitted, self._every = first, step
        # Enough for units that ask, for those that do not, and for those whose questions wait.
        self._workers = WorkerTasks(self, 4 * most + 32 if at_once else 1)
        self._rows = RowsInOrder(observer, first, step)
        # Units that may bring a question for a pack.
        packs = at_once and not gateway.replays
        self._bringing = bringing(plan, judges) if packs else frozenset[int]()
        self._deciding = deciding_units(plan, judges) if self._bringing else ()
        self._asks_first = app is None and asks_first(plan)
        self._judge_names = [only_judge(plan, metric, judges) for metric in plan.metrics]

    async def run(self, cases: Iterable[Item] | AsyncIterable[Item] | CallSource) -> None:
        """Give every case its row; raises InputError after that if the source broke off."""
        try:
            with self._gateway.run.resting.telling(self._workers.wake):
                async with anyio.create_task_group() as group:
                    if isinstance(cases, CallSource):
                        self._source = cases
                        cases.news = self._workers.news
                    elif isinstance(cases, AsyncIterable):
                        self._source = fed = FedSource(cases)
                        group.start_soon(fed.feed, self._workers.news)
                    else:
                        self._source = PulledSource(cases)
                    self._workers.start(group)
        except (anyio.get_cancelled_exc_class(), KeyboardInterrupt):
            self._rows.rest()
            raise
        # The one law of a run: a row for every case. It is checked here, so a mistake in what is
        # above costs an error and never a row that nobody misses.
        if self._rows.next != self._admitted:
            lost = (self._admitted - self._rows.next) // self._every
            raise RuntimeError(f"{lost} rows are missing; this is a bug of dagengine")
        if self._source.error is not None:
            raise self._source.error

    @property
    def over(self) -> bool:
        """Whether every case has its row, and none will come."""
        return self._source.ended and not self._source.ready and not self._open

    @property
    def busy(self) -> bool:
        """Whether there is a unit that may run, or may be a case to admit."""
        if self._plain.ready or self._asking.ready:
            return self._first() is not None
        # A case that begins by asking would wait for room; who makes room admits one.
        may_run = self._asking.have_room or not self._asks_first
        return self._source.ready and may_run and self._may_begin

    def _first(self) -> _Units | None:
        """The units of which the first one is the most urgent that may be run."""
        plain, asking = self._plain, self._asking
        may_run = plain.ready and plain.have_room
        if asking.ready and asking.have_room:
            return plain if may_run and plain.ready[0] < asking.ready[0] else asking
        return plain if may_run else None

    @property
    def _may_begin(self) -> bool:
        """Whether there is room for another case: its row, its output, or its first units."""
        if self._rows.waiting >= _REORDER:
            return False
        return self._app is None or self._completing < self._app.max_in_flight

    def next(self) -> Work | None:
        """The most urgent work, admitting cases as long as there is none."""
        # Three kinds of work, in this order:
        #
        #     source ──admit──▶ golden ──app──▶ case ──ready──▶ plain units  ─┐
        #        ▲                               ▲              asking units ─┴─▶ a worker
        #        └── only if nothing is ready    └── what they make ready ◀──────┘
        #
        # A case is admitted only if no other work is there. So the cases in progress are as few as
        # keep the workers busy, and memory does not grow with the data set. Units of earlier cases
        # go first, which ends cases instead of beginning them: their rows can leave.
        while not (self._plain.ready or self._asking.ready or self._goldens):
            if not self._may_begin or not self._admit():
                return None
        if self._goldens:
            golden = self._goldens.popleft()
            return partial(self._complete, *golden)
        units = self._first()
        if units is None:
            return None
        _, _, unit, active = heapq.heappop(units.ready)
        units.at_work += 1
        return partial(self._step, active, self._plan.units[unit])

    def _admit(self) -> bool:
        """Take one more case; False when there is none (now)."""
        item = self._source.take()
        if item is None:
            return False
        index, terms = self._admitted, CaseTerms()
        if isinstance(item, Caller):
            index, terms, item = item.index, item, item.item
        self._open += 1
        self._admitted += self._every
        if isinstance(item, InvalidCase):
            skipped = item.nothing_to_judge
            kind = OutcomeKind.SKIPPED if skipped else OutcomeKind.INVALID_CASE
            failure = Failure(kind, "data set", item.message if skipped else str(item))
            self._close(failed_row(self._plan, index, item.name, failure, item.test_case))
        elif isinstance(item, Golden | ConversationalGolden):
            self._goldens.append((index, item, self._limit(terms)))
            self._completing += 1
        else:
            self._start(index, item, self._limit(terms))
        return True

    def _limit(self, terms: CaseTerms) -> CaseTerms:
        """The terms of a case that begins, with the time limit of all cases."""
        limit = self._gateway.run.limits.case_timeout
        if limit is not None and (until := anyio.current_time() + limit) < terms.until:
            terms.until, terms.late = until, f"the case took longer than its {limit} s"
        return terms

    def _start(self, index: int, case: TestCase, terms: CaseTerms) -> None:
        state = CaseState(self._plan, self._missing(case), self._unfit(case))
        if terms.context is None:
            span = self._spans.case(index, case)
        else:
            span = terms.context.run(self._spans.case, index, case)
        active = _ActiveCase(index, case, state, terms, span)
        if self._bringing:
            active.packing = Packing(partial(self._riders, active), self._park)
        self._queue(active)
        if state.finished:
            self._finish(active, active.state.results())

    def _finish(self, active: _ActiveCase, results: tuple[MetricResult, ...]) -> None:
        self._spans.end(active.span, results)
        label, took = case_label(active.case, active.index), time.perf_counter() - active.began
        self._close(CaseResult(active.index, label, results, active.case, seconds=took))

    async def _complete(
        self, index: int, golden: Golden | ConversationalGolden, terms: CaseTerms, _: WorkerScope
    ) -> None:
        """Have the app complete a golden, then begin with the case."""
        outcome = None
        with anyio.CancelScope(deadline=terms.until):
            work = complete_golden(self._app, golden)
            outcome = await (work if terms.context is None else in_context(terms.context, work))
        self._completing -= 1
        if outcome is None:
            outcome = Failure(OutcomeKind.TIMEOUT, "app", terms.late)
        if isinstance(outcome, Failure):
            label = golden.name or f"case {index}"
            self._close(failed_row(self._plan, index, label, outcome, golden))
        else:
            self._start(index, outcome, terms)

    def _missing(self, case: TestCase) -> dict[int, Failure]:
        """Metrics that are certain to read a field that the case does not have."""
        failures: dict[int, Failure] = {}
        for metric in self._plan.metrics:
            absent = [(f, node) for f, node in metric.required if read_field(case, f) is None]
            if absent:
                fields = [field for field, _ in absent]
                failures[metric.index] = Failure.missing_field(fields, absent[0][1], case)
        return failures

    def _unfit(self, case: TestCase) -> dict[int, Failure]:
        """Metrics, nested ones too, that cannot judge what is in the case; by scope."""
        failures: dict[int, Failure] = {}
        for scope in self._plan.scopes:
            why = nothing_to_judge(scope.spec.judged, case)
            if why is not None:
                failures[scope.index] = Failure(OutcomeKind.SKIPPED, scope.spec.name, why)
            find = scope.spec.case_problems
            for problem in () if find is None else find(case):
                if problem.severity == "error":
                    failure = Failure(OutcomeKind.INVALID_CASE, problem.where, problem.message)
                    failures.setdefault(scope.index, failure)
        return failures

    def _queue(self, active: _ActiveCase) -> None:
        for unit in active.state.cancel:
            if unit in active.scopes:
                active.scopes[unit].cancel()
            else:  # queued, but not started
                ready = self._like(unit).ready
                ready[:] = [e for e in ready if e[3] is not active or e[2] != unit]
                heapq.heapify(ready)
                active.state.allow_restart(unit)
                if active.packing is not None and unit in self._bringing:
                    active.packing.finish()
        active.state.cancel.clear()
        # Last: a unit that is wanted again after all is ready once more.
        for unit in active.state.ready:
            urgency = self._plan.units[unit].urgency
            heapq.heappush(self._like(unit).ready, (active.index, urgency, unit, active))
            if active.packing is not None and unit in self._bringing:
                active.packing.ready()
        active.state.ready.clear()

    def _like(self, unit: int) -> _Units:
        """The units of its kind."""
        return self._asking if self._plan.units[unit].node.asks else self._plain

    def _park(self, change: int) -> None:
        """A node begins (1) or ends (-1) to wait for a pack: another one may ask, and be run."""
        self._asking.at_work -= change
        self._workers.park(change)

    async def _step(self, active: _ActiveCase, unit: Unit, worker: WorkerScope) -> None:
        """Run one unit and take the consequences."""
        state, terms, number = active.state, active.terms, unit.index
        participant = None
        if active.packing is not None and number in self._bringing:  # it keeps the packs waiting
            participant = Participant(active.packing)
        calls: Calls = []
        began = time.perf_counter()
        scope = active.scopes[number] = worker.scope(terms.until)
        outcome = None
        try:
            if not scope.cancel_called:  # its time was not over before it began
                work = self._work(active, unit, participant, calls)
                if terms.context is not None:
                    work = in_context(terms.context, work)
                outcome = await work
        except BaseException as error:
            if not worker.is_cancellation(error):
                raise
        else:
            worker.note_end()
        # From here on nothing waits until the consequences are drawn: no other worker sees a unit
        # that has ended and is still counted as at work, or a case whose next units are missing.
        del active.scopes[number]
        state.took[number] = Took(time.perf_counter() - began, tuple(calls))
        self._like(number).at_work -= 1
        # Another unit has ended the case meanwhile, and its row has left.
        if state.finished:
            _end(participant)
            return
        if outcome is None and anyio.current_time() >= terms.until:
            outcome = Failure(OutcomeKind.TIMEOUT, unit.name, terms.late)
        if outcome is None:
            state.allow_restart(number)
        elif isinstance(outcome, Failure):
            state.fail(number, outcome)
        else:
            state.complete(number, outcome)
        # First what has become ready is counted as possibly asking, then the unit is counted off:
        # the other way round a pack of the case would leave in between, without their questions.
        self._queue(active)
        _end(participant)
        if state.finished:
            work = self._explain(active)
            results = await (work if terms.context is None else in_context(terms.context, work))
            ask = partial(self._run_unit, active.index)
            self._observer.case_judged(JudgedCase(active.index, active.case, active.state, ask))
            self._finish(active, results)

    async def _trace_outcome(
        self, active: _ActiveCase, unit: Unit, participant: Participant | None, calls: Calls
    ) -> NodeValue | Failure:
        """The same as `_outcome`, in a span."""
        with self._spans.node(active.span, unit.name, unit.node.kind) as span:
            outcome = await self._outcome(active, unit, participant, calls)
            self._spans.record(span, outcome)
        return outcome

    def _riders(self, active: _ActiveCase, most: int) -> Iterator[Ahead]:
        """Later questions of a case's nodes; none if they would take from what is needed."""
        limits = self._gateway.run.limits
        if limits.max_calls is not None or limits.budget is not None:
            return
        for unit in ahead(active.state, self._deciding):
            judge = self._judges[unit.judges[0]]
            questions = questions_of(unit, judge, active.case, active.state, most)
            if 0 < len(questions) <= most:
                yield judge, questions

    def _outcome(
        self, active: _ActiveCase, unit: Unit, participant: Participant | None, calls: Calls
    ) -> Awaitable[NodeValue | Failure]:
        """Value or failure of a unit; the same for all cases where it is constant."""
        read = partial(read_inputs, unit, active.case, active.state)
        if unit.constant:  # all cases wait for it
            return self._constants.get(
                unit, partial(self._run_unit, FIRST, unit, read), self._gateway.run.resting
            )
        return self._run_unit(active.index, unit, read, participant, calls)

    async def _explain(self, active: _ActiveCase) -> tuple[MetricResult, ...]:
        """The results, with reasons written by the judge where a metric asks for that."""
        results = with_odds(self._plan, active.state.results(), active.state.values)
        for metric, judge_name in zip(self._plan.metrics, self._judge_names, strict=True):
            result = results[metric.index]
            # Nobody has seen it yet, and a copy of every result would take time.
            object.__setattr__(result, "judge", judge_name)
            if wants_reason(metric.spec, result):
                question = reason_question(metric.spec, result)
                judge = self._judges[self._plan.judge_of(metric.spec.model)]
                asker = metric.spec.name, f"{metric.spec.name} reason"
                ask = GatewayAsk(self._gateway, judge, asker, active.index)
                results[metric.index] = await write_reason(
                    result, question, ask, active.terms.until
                )
        return tuple(results)

    def _close(self, row: CaseResult) -> None:
        """Hand out the row, and those that waited for it."""
        self._open -= 1
        self._rows.add(row)


def asks_first(plan: Plan) -> bool:
    """Return whether every case begins with questions, and with nothing else."""
    roots = {slot.unit for slot in plan.slots if slot.root}
    return all(u.node.asks for u in plan.units if u.index in roots and not u.sources)


def only_judge(plan: Plan, metric: PlanMetric, judges: Sequence[Judge]) -> str | None:
    """Return the name of the judge that a metric asks; None if it asks none, or several."""
    slots = plan.slots_at(metric.slots)
    units = (plan.units[slot.unit] for slot in slots if slot.unit != NONE)
    names = {
        display_name(judges[index]) for unit in units if unit.node.asks for index in unit.judges
    }
    return public_text(names.pop()) if len(names) == 1 else None


def failed_row(plan: Plan, index: int, label: str, failure: Failure, case: Any) -> CaseResult:
    """The row of a case that no metric can run on."""
    state = CaseState(plan, {metric.index: failure for metric in plan.metrics})
    return CaseResult(index, label, state.results(), case)


def _end(participant: Participant | None) -> None:
    if participant is not None:
        participant.end()
