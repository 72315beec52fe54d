"""How cases come into a run, and how its rows leave it.

Cases are pulled from an iterable, or fed by an async one. No source ever ends a run by raising. The
failure is kept in `error`, the source counts as ended, and what came before is finished first.
"""

from __future__ import annotations

import contextvars
import math
from collections import OrderedDict, deque
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
)
from contextlib import AbstractContextManager, ExitStack, aclosing
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

import anyio

from dagengine.compiler.execution_plan import Unit
from dagengine.errors import InputError
from dagengine.graph.node_values import Given, NodeValue
from dagengine.results import CaseResult, Failure
from dagengine.semantics.scheduler import CaseState
from dagengine.system.threads import EventLoop, Kept
from dagengine.test_case import TestCase

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
Source = Iterable[Any] | AsyncIterable[Any]
"""What can be evaluated: whatever `read_cases` takes, and data sets."""
Take = Callable[[CaseResult], None]
Pace = Callable[[Source], AsyncIterator[Any]]
AskUnit = Callable[[Unit, Callable[[], Given]], Awaitable[NodeValue | Failure]]

# Cases of an async source that may wait to be admitted, and rows that may wait to be read.
_AHEAD = 64


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


class CaseTerms:
    """On what terms a case is judged: `until` when, on the loop's clock, and why it ends `late`.

    With a `context` its nodes see the context variables of whoever wants to know. `index` is that
    of the case.
    """

    index = 0
    until = math.inf
    late = ""
    context: contextvars.Context | None = None


class PulledSource(Generic[T_co]):
    """A source over a plain iterable, which must not wait for long: the whole run waits with it.

    It is `ready` if `take` may give something now. That gives None if there is none now, or (once
    `ended`) ever.
    """

    def __init__(self, items: Iterable[T_co]) -> None:
        self.ended = False
        self.error: InputError | None = None
        self._items = iter(items)
        self._taken = 0

    @property
    def ready(self) -> bool:
        return not self.ended

    def take(self) -> T_co | None:
        try:
            item = next(self._items)
        except StopIteration:
            self.ended = True
            return None
        except Exception as error:  # noqa: BLE001 - the caller's generator may raise anything
            self.error, self.ended = _broken(self._taken, error), True
            return None
        self._taken += 1
        return item


class FedSource(Generic[T_co]):
    """A source over an async iterable; `feed` runs as a task beside the readers."""

    def __init__(self, items: AsyncIterable[T_co]) -> None:
        self.ended = False
        self.error: InputError | None = None
        self._items = items
        self._buffer: deque[T_co] = deque()
        self._space = anyio.Event()
        self._taken = 0

    @property
    def ready(self) -> bool:
        return bool(self._buffer)

    def take(self) -> T_co | None:
        if not self._buffer:
            return None
        self._space.set()
        return self._buffer.popleft()

    async def feed(self, news: Callable[[], None]) -> None:
        """Read to the end, a little ahead; `news` is called for every case and at the end."""
        try:
            async with aclosing(_each(self._items)) as items:
                async for item in items:
                    self._taken += 1
                    self._buffer.append(item)
                    news()
                    while len(self._buffer) >= _AHEAD:
                        self._space = anyio.Event()
                        await self._space.wait()
        except Exception as error:  # noqa: BLE001 - the caller's generator may raise anything
            self.error = _broken(self._taken, error)
        self.ended = True
        news()


class Caller(CaseTerms):
    """One case that somebody waits for: `landed` once it has its `row`, or will have none."""

    row: CaseResult | None = None

    def __init__(self, item: Any, until: float, late: str, context: contextvars.Context) -> None:
        self.item, self.until, self.late, self.context = item, until, late, context
        self.landed = anyio.Event()

    def land(self, row: CaseResult | None) -> None:
        """Tell whoever waits."""
        self.row = row
        self.landed.set()


class CallSource(RunObserver):
    """The calls of an engine: a source of their cases, and who takes the rows back to them.

    `at_work` is entered while there is a call.
    """

    in_order = False
    error: InputError | None = None

    def __init__(
        self,
        indices: Iterator[int],
        withdrawn: set[int],
        at_work: Callable[[], AbstractContextManager[None]],
    ) -> None:
        """`indices` are those of the cases, never twice in one gateway, which asks nothing more for
        those `withdrawn`.
        """
        self.ended = False
        self._indices, self._withdrawn, self._at_work = indices, withdrawn, at_work
        self.waiting: OrderedDict[Caller, None] = OrderedDict()  # for their turn
        self._begun: dict[int, Caller] = {}
        self._work = ExitStack()
        self.news: Callable[[], None] = lambda: None  # is called when there is something new

    @property
    def ready(self) -> bool:
        return bool(self.waiting)

    def put(self, call: Caller) -> None:
        """Let a call wait for its turn."""
        if not (self.waiting or self._begun):
            self._work.enter_context(self._at_work())
        self.waiting[call] = None
        self.news()

    def take(self) -> Caller | None:
        if not self.waiting:
            return None
        call, _ = self.waiting.popitem(last=False)
        call.index = next(self._indices)
        self._begun[call.index] = call
        return call

    def row_finished(self, row: CaseResult) -> None:
        self._begun.pop(row.index).land(row)
        self._withdrawn.discard(row.index)
        self._rest()

    def leave(self, call: Caller) -> None:
        """Let a call go that nobody waits for: its case ends with the questions in progress."""
        if call.landed.is_set():
            return
        call.until = -math.inf
        if call in self.waiting:
            del self.waiting[call]
            self._rest()
        else:
            self._withdrawn.add(call.index)

    def end(self) -> None:
        """Take no more calls: those that wait go on."""
        self.ended = True
        self.news()

    def drop(self) -> None:
        """Tell all who wait that there will be no row."""
        self.ended = True
        for call in (*self.waiting, *self._begun.values()):
            call.land(None)
        self._withdrawn.difference_update(self._begun)
        self.waiting.clear()
        self._begun.clear()
        self._rest()

    def _rest(self) -> None:
        if not (self.waiting or self._begun):
            self._work.close()


CaseSource = PulledSource[T] | FedSource[T] | CallSource
"""Cases one by one, without waiting."""


def _broken(row: int, error: Exception) -> InputError:
    why = str(error) if isinstance(error, InputError) else f"{type(error).__name__}: {error}"
    broken = InputError(f"the source of the cases failed at row {row}: {why}")
    broken.__cause__ = error
    return broken


class RowsInOrder:
    """Hands the rows of a run to its observer: each once, in order (`RunObserver.row`).

    `next` is the index of the first row that is not handed on yet. An observer that is not
    `in_order` hears of each when it is finished, and nothing is kept.
    """

    def __init__(self, observer: RunObserver, first: int = 0, step: int = 1) -> None:
        """Indices count from `first` on in steps of `step`."""
        self._step = step
        self._observer = observer
        self._waiting: dict[int, CaseResult] = {}
        self.next = first

    @property
    def waiting(self) -> int:
        """The number of rows that wait for an earlier one."""
        return len(self._waiting)

    def add(self, row: CaseResult) -> None:
        """Take a row; one that is there already counts once."""
        if not self._observer.in_order:
            self.next += self._step
            self._observer.row_finished(row)
            return
        if row.index < self.next or row.index in self._waiting:
            return
        self._waiting[row.index] = row
        while self.next in self._waiting:
            ready = self._waiting.pop(self.next)
            self.next += self._step
            self._observer.row(ready)
        self._observer.row_finished(row)

    def take(self, rows: Iterable[CaseResult]) -> None:
        """Take several rows."""
        for row in rows:
            self.add(row)

    def rest(self) -> None:
        """After an interrupt: rows that wait for earlier ones are kept, too."""
        for index in sorted(self._waiting):
            self._observer.row(self._waiting.pop(index))


async def rows_as_read(
    run: Callable[[Take, Pace], Awaitable[object]],
) -> AsyncGenerator[CaseResult, None]:
    """The rows of a run that works beside their reader, and waits for a slow one.

    `run` hands its rows to the first function, and takes its cases through the second. A reader
    who leaves early cancels it. What it raises is raised here, after the rows that came before.
    """
    loop, room = EventLoop.here(), anyio.Event()
    send, receive = anyio.create_memory_object_stream[CaseResult](math.inf)

    def take(row: CaseResult) -> None:
        if loop.is_here:
            send.send_nowait(row)
        else:  # inside a node the run works on the loop of the outer run
            loop.soon(partial(send.send_nowait, row))

    async def pace_cases(cases: Source) -> AsyncIterator[Any]:
        nonlocal room
        async with aclosing(_each(cases)) as items:
            async for case in items:
                yield case
                while loop.is_here and receive.statistics().current_buffer_used >= _AHEAD:
                    room = anyio.Event()
                    await room.wait()

    with receive:
        # No task group: a generator may be closed by another task than the one that reads it.
        kept = Kept(lambda: run(take, pace_cases), send.close)
        try:
            async for row in receive:
                room.set()
                yield row
        finally:
            await kept.end()
    if kept.error is not None:
        raise kept.error


async def _each(items: Iterable[T] | AsyncIterable[T]) -> AsyncGenerator[T, None]:
    """The items; an async generator cleans up in the end, on the loop that it ran on."""
    if not isinstance(items, AsyncIterable):
        for item in items:
            yield item
        return
    iterator = aiter(items)
    try:
        async for item in iterator:
            yield item
    finally:
        close: Callable[[], Awaitable[Any]] | None = getattr(iterator, "aclose", None)
        if close is not None:
            with anyio.CancelScope(shield=True):
                await close()
