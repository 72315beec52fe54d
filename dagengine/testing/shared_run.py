"""What all tests of one session ask through: one thread, one event loop, one gateway.

Test bodies run in the main thread, cases are judged here. Equal questions are asked once in the
whole session, and one set of limits holds for all of it::

    main thread    body 1  body 2  body 3 …                waits
                     | a case        ^                       ^
    this thread      +--- judged ----+--------- verdicts ----+
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, TypeVar

import anyio

from dagengine.execution.interrupts import JudgesOf
from dagengine.execution.local_executor import Asking, LocalExecutor, Settings
from dagengine.gateway.gateway import Asks, Gateway
from dagengine.gateway.pipeline import Sink
from dagengine.graph.graph import Metric, as_metrics
from dagengine.judges import open_judges
from dagengine.question import Judge
from dagengine.results import Attempt, Spent, Totals, Waiting
from dagengine.system.threads import LoopThread

R = TypeVar("R")

# Lists of metrics that stay compiled; a test that builds its own again compiles again.
_COMPILED = 64


@dataclass(slots=True)
class Desk:
    """A gateway of the session, the turns of cases, and which judges are open."""

    asking: Asking
    gateway: Gateway
    turns: anyio.Semaphore
    opened: set[Judge] = field(default_factory=set[Judge])


class SharedRun:
    """Judges cases one by one, many at a time; use an instance for one session.

    `asking` holds for every case that names no limits and no store of its own. Cases wait for
    one of `max_in_flight` turns, so that those that began end first; a case that somebody waits
    for goes ahead of them.
    """

    def __init__(self, asking: Asking) -> None:
        self._asking = asking
        self._desks: list[Desk] = []
        self._engines: OrderedDict[tuple[Any, ...], tuple[LocalExecutor, list[Any]]] = OrderedDict()
        self._judges, self._thread = JudgesOf(), LoopThread("dagengine evaluations")

    @property
    def totals(self) -> Totals:
        """Questions and usage by now."""
        return sum((desk.gateway.totals for desk in self._desks), Totals(cost=0.0))

    @property
    def spent(self) -> list[Spent]:
        """The same by metric, node and judge."""
        return [spent for desk in self._desks for spent in desk.gateway.spent]

    @property
    def waiting(self) -> list[Waiting]:
        """The questions that wait to be asked again."""
        return [wait for desk in self._desks for wait in desk.gateway.waiting]

    def desk(self, settings: Settings) -> Desk:
        """The gateway for these settings, opened when they are first seen; raises InputError."""
        own, whole = Asking.of(settings), self._asking
        asking = replace(
            own,
            limits=whole.limits if settings.get("limits") is None else own.limits,
            store=own.store or whole.store,
            sink=_Both(whole.sink, own.sink) if whole.sink and own.sink else whole.sink or own.sink,
        )
        desk = next((desk for desk in self._desks if desk.asking == asking), None)
        if desk is None:
            portal = self._thread.portal
            gateway = portal.call(self._thread.keep, asking.open())
            turns = portal.call(anyio.Semaphore, asking.limits.max_in_flight)
            desk = Desk(asking, gateway, turns)
            self._desks.append(desk)
        return desk

    def engine(
        self,
        desk: Desk,
        metrics: Sequence[Metric],
        settings: Settings,
        asks: Asks,
        *,
        at_once: bool = True,
    ) -> LocalExecutor:
        """The metrics compiled, their judges open; cases ask through `asks`, the desk's gateway.

        Keys are read and clients made now, in the caller's environment. Raises what `LocalExecutor`
        raises, and JudgeSetupError.
        """
        listed = as_metrics(metrics)
        own: Settings = {"model": settings.get("model"), "app": settings.get("app")}
        # An attribute that is replaced is a change, one that is changed in place is none.
        parts: list[Any] = [asks]
        for thing in (own["model"], own["app"], *listed):
            parts += [thing, *chain.from_iterable(getattr(thing, "__dict__", {}).items())]
        key = (at_once, *(part if isinstance(part, str) else id(part) for part in parts))
        if key in self._engines:
            self._engines.move_to_end(key)
            return self._engines[key][0]
        engine = LocalExecutor(listed, own, at_once=at_once, gateway=asks, judges=self._judges)
        for judge in engine.asked_judges:
            if judge not in desk.opened:
                self._thread.portal.call(self._thread.keep, open_judges([judge]))
                self._thread.portal.call(desk.gateway.meet, [judge])
                desk.opened.add(judge)
        self._engines[key] = engine, parts  # which stay alive: no other object gets their ids
        if len(self._engines) > _COMPILED:
            self._engines.popitem(last=False)
        return engine

    def start(
        self, desk: Desk, work: Callable[[], Awaitable[R]], *, ahead: bool = False
    ) -> Future[R]:
        """Begin work on a case, when it is its turn; `ahead` of those that wait for theirs."""

        async def in_turn() -> R:
            if ahead:
                return await work()
            async with desk.turns:
                return await work()

        return self._thread.portal.start_task_soon(in_turn)

    def close(self) -> bool:
        """End the thread and what is in progress in it; False when it does not end in time."""
        return self._thread.close()


@dataclass(frozen=True, slots=True)
class _Both:
    """A ledger that writes into two."""

    first: Sink
    second: Sink

    def __call__(self, attempt: Attempt) -> None:
        self.first(attempt)
        self.second(attempt)
