"""One engine for many callers: who judges case by case, and keeps judges and limits meanwhile.

::

    caller ──judge(case)──▶ calls that wait ──▶ one runner ──▶ gateway ──▶ judges
       ▲                                            │
       └────────── its row, when it is finished ◀───┘

An engine is one run without an end. Its callers share the limits, the budget, the connections and
the answers to equal questions.
"""

from __future__ import annotations

import contextvars
import math
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from typing import Any, NoReturn, Self, TypeVar, Unpack

import anyio
from anyio.from_thread import BlockingPortal, start_blocking_portal

from dagengine.data.cases import Cases
from dagengine.data.column_mapping import no_case
from dagengine.data.golden import GOLDEN_TYPES
from dagengine.errors import EngineClosedError, InputError
from dagengine.execution.cases_and_rows import Caller, CallSource, OnRow
from dagengine.execution.local_executor import (
    Figures,
    LocalExecutor,
    Settings,
    cases_of,
    check_settings,
)
from dagengine.execution.runner import failed_row
from dagengine.gateway.budget import Account
from dagengine.gateway.gateway import Asks
from dagengine.gateway.inner_metrics import Host, current_host
from dagengine.graph.current_node import node_at_work, working_for
from dagengine.graph.graph import Metric, as_metrics
from dagengine.results import CaseResult, Failure, OutcomeKind
from dagengine.system.threads import EventLoop, KeptOpen, in_daemon_thread
from dagengine.test_case import CASE_TYPES, InvalidCase

R = TypeVar("R")

_CLOSED, _NOT_OPEN = "the engine is closed", "the engine is not open: use `async with engine:`"
# Seconds after its deadline in which a case that has begun may still hand on the results it has.
_GRACE = 0.1


class _EngineFigures(Figures):
    """The figures of an engine, and the states of its judges."""

    _run: LocalExecutor

    @property
    def gateway(self) -> Asks:
        return self._run.gateway

    @property
    def judges(self) -> dict[str, str]:
        """The states of the judges that were asked: "in order", or why they do not answer."""
        return self.gateway.run.judges

    def __reduce__(self) -> NoReturn:
        raise TypeError("an engine cannot be pickled: make one in each process")


class Engine(_EngineFigures):
    """Judges cases one by one, or many at a time, for as many callers as there are.

    ``async with Engine([metric], model="gpt-4o") as engine: row = await engine.judge(case)``. For
    callers without an event loop: ``with Engine([metric]) as engine: row = engine.judge(case)``,
    from any number of threads (`BlockingEngine`). A store, the judges' connections and one
    `Limits` hold as long as it is open. Equal questions are asked once.

    A judge that is given up is tried again: first after 5 seconds, then after up to 60, when a case
    comes. Until then cases get `provider_error` at once.
    """

    def __init__(
        self,
        metrics: Sequence[Metric] | Metric,
        *,
        account: Account | None = None,
        **settings: Unpack[Settings],
    ) -> None:
        """`settings` are those of `evaluate`: `model`, `limits`, `store`, `app`, `on_attempt`,
        `tracer`.

        `account` counts calls and US dollars beyond this engine, for instance those of one day.
        Raises GraphError or InputError for what cannot work.
        """
        check_settings(Engine, settings)
        if account is not None and not isinstance(account, Account):
            raise InputError(f"account must be an Account, got {account!r:.80}")
        self._begin(LocalExecutor(as_metrics(metrics), settings, returns=True), None)
        if account is not None:
            self._run.join(account)

    def _begin(self, run: LocalExecutor, root: Engine | None) -> None:
        self._run = run
        self._root = root or self  # the engine that people open; `also` makes others of it
        self._siblings: list[Engine] = []  # those that `also` made
        self._kept: KeptOpen[CallSource] | None = None  # None until it is opened
        self._closed = False

    async def __aenter__(self) -> Self:
        """Open the store and the judges; raises JudgeSetupError, and InputError a second time."""
        if self._kept is not None or self._root is not self:
            raise InputError("this engine was opened before: make another one")
        await self._open().wait_open()
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Close; leaving by an error cancels what is in progress."""
        try:
            await self.close(cancel=error is not None)
        except Exception:
            # Else the error of the block goes on; an EngineClosedError says less than its cause.
            if error is None or isinstance(error, EngineClosedError):
                raise

    def __enter__(self) -> BlockingEngine:
        """Open it in a thread of its own; raises what opening raises."""
        with ExitStack() as stack:
            portal = stack.enter_context(start_blocking_portal())
            stack.enter_context(portal.wrap_async_context_manager(self))
            self._stack = stack.pop_all()  # which stays open until `__exit__`
        return BlockingEngine(self, portal)

    def __exit__(self, *error: Any) -> None:
        if os.getpid() == self._process:  # a fork has no thread that could close it
            self._stack.__exit__(*error)

    def _open(self) -> KeptOpen[CallSource]:
        self._loop, self._process = EventLoop.here(), os.getpid()
        with working_for(None):  # whoever opens it is no part of it
            self._kept = KeptOpen(self._serving())
        return self._kept

    @asynccontextmanager
    async def _serving(self) -> AsyncIterator[CallSource]:
        """Run the calls until it is closed; no task group is open in the task that opens it."""
        async with self._run.open():
            gateway = self._run.gateway
            source = CallSource(gateway.run.indices, gateway.run.withdrawn, self._run.at_work)
            try:
                async with anyio.create_task_group() as group:
                    # The source gives the cases, and as the observer takes the rows back.
                    group.start_soon(self._run.serve, source, source, gateway)
                    yield source
                    source.end()
            finally:
                source.drop()
                for sibling in tuple(self._siblings):
                    if sibling._kept is not None:
                        await sibling._kept.end()

    async def judge(self, case: Any, *, deadline: float | None = None) -> CaseResult:
        """The row of one case; `deadline` is in seconds from now on, waiting included.

        It never raises for a case: what keeps it from a score is in the row (`timeout` after the
        deadline, `over_budget`, `provider_error`, …). Raises EngineClosedError, and InputError for
        what is no case, for another event loop, and before it is opened.

        A caller who is cancelled loses only the wait: calls of the case that are in progress end
        and are remembered, and nothing new is asked.
        """
        (row,) = await self.judge_all([case], deadline=deadline)
        return row

    async def judge_all(
        self, cases: Iterable[Any], *, deadline: float | None = None
    ) -> list[CaseResult]:
        """The rows of several cases, in their order; otherwise as `judge`.

        `cases` is a source for `read_cases`, which is read at once.
        """
        if deadline is not None and not (type(deadline) in (int, float) and deadline > 0):
            raise InputError(f"deadline must be a positive number of seconds, got {deadline!r}")
        items, source = _items_of(cases), await self._open_source()
        until = math.inf if deadline is None else anyio.current_time() + deadline
        late = f"no result within {deadline} s: deadline of the case"
        context, host = contextvars.copy_context(), current_host()
        if host is not None:  # these cases are no part of the node that calls
            context.run(node_at_work.set, None)
        callers = [Caller(item, until, late, context) for item in items]
        if host is not None and host.run is self.gateway.run:
            with anyio.CancelScope(deadline=until):
                await self._judge_for_node(host, callers)
        else:
            await self._take_turns(source, callers, until)
            if any(caller.landed.is_set() and caller.row is None for caller in callers):  # dropped
                assert self._kept is not None
                await self._kept.over.wait()  # then what ended it is known
                raise self._closed_error()
        return [caller.row or self._row(caller, OutcomeKind.TIMEOUT, late) for caller in callers]

    async def _open_source(self) -> CallSource:
        """The source that takes cases; raises what `judge` raises of an engine, not of a case."""
        self._require_here()
        if not self._closed and self._kept is None:  # made by `also`, and used for the first time
            self._open()
        holder = self._kept
        if self._closed or holder is None or not await holder.is_open() or holder.value.ended:
            raise self._closed_error()
        return holder.value

    def _require_here(self) -> None:
        """Raise InputError for an engine that is not open, or open elsewhere."""
        root = self._root
        if root._kept is None:
            raise InputError(_NOT_OPEN)
        self._require_process()
        if EventLoop.here().native is not root._loop.native:
            raise InputError(
                "this engine was opened on another event loop: open one for each loop, or use "
                "`with Engine(…) as engine`, which any thread may call"
            )

    def _require_process(self) -> None:
        if os.getpid() != self._root._process:
            raise InputError("this engine belongs to the process before a fork: make another one")

    async def _judge_for_node(self, host: Host, callers: Sequence[Caller]) -> None:
        """Judge cases for a node of this run: they skip the queue, where they and it would wait."""

        def take(row: CaseResult) -> None:
            callers[row.index].row = row

        async def judge() -> None:
            await self._run.serve([caller.item for caller in callers], OnRow(take), host)

        if host.loop.is_here:
            await judge()
        else:
            await in_daemon_thread(partial(host.call, judge))

    async def _take_turns(
        self, source: CallSource, callers: Sequence[Caller], until: float
    ) -> None:
        """Have cases judged in their turn; those that are not by `until` get no row here."""
        most = self._run.limits.max_waiting
        try:
            for caller in callers:
                if most is None or len(source.waiting) < most:
                    source.put(caller)
                else:
                    why = f"not asked: {most} cases wait for their turn; see Limits.max_waiting"
                    caller.land(self._row(caller, OutcomeKind.OVER_BUDGET, why))
            with anyio.CancelScope(deadline=until):
                for caller in callers:
                    await caller.landed.wait()
            # What has begun ends at its deadline, too, with the results that it has.
            with anyio.move_on_after(_GRACE):
                for caller in callers:
                    if not caller.landed.is_set() and caller not in source.waiting:
                        await caller.landed.wait()
        finally:
            for caller in callers:
                source.leave(caller)

    def _row(self, caller: Caller, kind: OutcomeKind, why: str) -> CaseResult:
        """The row of a case that was not judged to its end."""
        label = getattr(caller.item, "name", None) or f"case {caller.index}"
        failure = Failure(kind, "engine", why)
        return failed_row(self._run.plan, caller.index, label, failure, caller.item)

    def _closed_error(self) -> EngineClosedError:
        """The error of whoever gets no row, with what ended the run as its cause."""
        cause: BaseException | None = None
        for holder in (self._root._kept, self._kept):
            if holder is not None and holder.over.is_set() and holder.error is not None:
                cause = holder.error
        closed = EngineClosedError(f"the engine has ended: {cause}" if cause else _CLOSED)
        closed.__cause__ = cause
        return closed

    def also(self, metrics: Sequence[Metric] | Metric) -> Engine:
        """An engine of other metrics with the same judges, limits, budget and store.

        It needs no opening, and is closed with this one. Raises GraphError or InputError.
        """
        if self._root._kept is None:
            raise InputError(_NOT_OPEN)
        if self._root._closed or self._root._kept.over.is_set():
            raise self._closed_error()
        sibling = object.__new__(Engine)
        sibling._begin(self._run.also(as_metrics(metrics)), self._root)
        self._root._siblings.append(sibling)
        return sibling

    async def close(self, *, cancel: bool = False) -> None:
        """Take no more cases, and return when those in progress have their rows.

        With `cancel` they are given up instead, and their callers get EngineClosedError. Any task
        may close it. Raises, once, what ended the run, and what `on_attempt` raised.
        """
        if self._root._kept is not None:
            self._require_here()
        host = current_host()
        if host is not None and host.run is self.gateway.run:
            raise InputError("this code is part of a case that the engine would wait for")
        was_closed = self._closed
        self._closed = True
        for sibling in tuple(self._siblings):
            await sibling.close(cancel=cancel)
        if self in self._root._siblings:
            self._root._siblings.remove(self)
        if self._kept is not None:
            await (self._kept.end() if cancel else self._kept.close())
            if self._kept.error is not None and not was_closed:
                raise self._kept.error


def _items_of(cases: Any) -> list[Any]:
    """The cases of a source; raises InputError for something that is none."""
    if isinstance(cases, list | tuple):
        for case in cases:
            if not isinstance(case, (*CASE_TYPES, *GOLDEN_TYPES, Mapping, InvalidCase)):
                raise InputError(no_case(case))
        if all(isinstance(case, CASE_TYPES) for case in cases):
            return list(cases)
    source = cases_of(cases, with_goldens=True)
    if not isinstance(source, Cases):
        raise InputError("an engine takes cases that are there: for an async source use stream")
    return list(source)


class BlockingEngine(_EngineFigures):
    """An open `Engine` for callers without an event loop, from any number of threads."""

    def __init__(self, engine: Engine, portal: BlockingPortal) -> None:
        self._engine, self._portal, self._run = engine, portal, engine._run

    def judge(self, case: Any, *, deadline: float | None = None) -> CaseResult:
        """As `Engine.judge`; an interrupt ends only this wait."""
        return self._result(self.start(case, deadline=deadline))

    def judge_all(self, cases: Iterable[Any], *, deadline: float | None = None) -> list[CaseResult]:
        """As `Engine.judge_all`."""
        return self._result(self._start(self._engine.judge_all, cases, deadline))

    def start(self, case: Any, *, deadline: float | None = None) -> Future[CaseResult]:
        """Begin to judge a case; to cancel the future is to leave."""
        return self._start(self._engine.judge, case, deadline)

    def also(self, metrics: Sequence[Metric] | Metric) -> BlockingEngine:
        """As `Engine.also`."""
        return BlockingEngine(self._engine.also(metrics), self._portal)

    def _start(
        self, judge: Callable[..., Awaitable[R]], cases: Any, deadline: float | None
    ) -> Future[R]:
        self._engine._require_process()
        try:
            return self._portal.start_task_soon(partial(judge, cases, deadline=deadline))
        except RuntimeError as error:
            raise self._engine._closed_error() from error

    def _result(self, future: Future[R]) -> R:
        if self._engine._root._loop.is_here:
            future.cancel()
            raise InputError("this would block the engine that it waits for: await `Engine.judge`")
        try:
            return future.result()
        except CancelledError as error:
            raise self._engine._closed_error() from error
        finally:
            future.cancel()
