"""A worker of a run on a cluster: its engine, its chunks of cases, and its part of the limits.

The worker knows nothing of files or of the command line. The engine comes from a function that the
coordinator sends. The coordinator has built its own engine with the same function.
"""

from __future__ import annotations

import asyncio
import json
import math
import pickle
import time
import uuid
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, TypeVar, cast

import anyio
from pydantic import BaseModel

from dagengine.data.app import App, as_app
from dagengine.data.column_mapping import Item
from dagengine.errors import DagengineError, InputError
from dagengine.execution.cases_and_rows import RunObserver
from dagengine.execution.cluster.processes import telling
from dagengine.execution.cluster.shared_limits import AMOUNT, CALLS, MONEY, PLACES, QUESTION, SHARE
from dagengine.execution.local_executor import LocalExecutor, Settings
from dagengine.gateway.budget import Account
from dagengine.gateway.rate_limiter import JudgeLimiter, Limiter, RateLimit
from dagengine.graph.graph import Metric
from dagengine.limits import Limits
from dagengine.question import Answer, DurableNames, Judge, Question
from dagengine.results import CaseResult, Spent, Totals, Waiting
from dagengine.store.claims import Ask, Wait
from dagengine.store.database import entry_of, key_of, revive
from dagengine.system.threads import Kept, KeptOpen

T = TypeVar("T", bound=BaseModel)
Build = Callable[[Limits, int], LocalExecutor]
"""Makes the engine of one process, from its share of the limits and of the calls to the app."""

Say = Callable[..., None]
"""Says something to whoever has the `Leases`: a kind, a name and values."""

# Seconds between two looks at what is not needed any more.
_LOOK = 0.25
# Seconds that a slice of a budget should last.
_SLICE = 0.5
# Seconds that a question waits for the worker that asks it: that one may have been stopped.
_PATIENCE = 60.0
# Seconds that a finished row may wait for others that are sent with it.
_MOMENT = 0.05


def pack_value(what: str, value: object) -> bytes:
    """A value as it is sent; raises InputError, naming `what`, when it cannot be."""
    try:
        data = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
        if b"__main__" not in data:
            return data
    except Exception:  # noqa: BLE001 - it runs the code of the caller's objects
        pass
    try:
        # As Dask has it: lambdas, functions and classes of the started script are sent whole.
        whole: bytes = import_module("cloudpickle").dumps(value)
    except Exception as error:  # noqa: BLE001 - it runs the code of the caller's objects
        raise InputError(
            f"{what} cannot be sent to the workers: {type(error).__name__}: {error}"
        ) from None
    return whole


@dataclass(frozen=True, slots=True)
class Objects:
    """Builds engines from objects that are sent to the workers.

    `settings` are sent, too; those that `make` returns are made in each process instead (an
    `App` of it has its limit in each process).
    """

    metrics: Sequence[Metric]
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    make: Callable[[], Mapping[str, Any]] | None = None

    def __call__(self, limits: Limits, app_in_flight: int) -> LocalExecutor:
        """The engine of one process; raises InputError and GraphError."""
        settings = {**self.settings, "limits": limits}
        app = as_app(self.settings.get("app"))
        settings["app"] = None if app is None else App(app.function, app_in_flight)
        made = {} if self.make is None else self.make()
        twice = [name for name in made if self.settings.get(name) is not None]
        if twice:
            raise InputError(f"`{twice[0]}` is given twice: to the run, and by Workers.make")
        return LocalExecutor(self.metrics, cast(Settings, {**settings, **made}))

    def pack(self) -> bytes:
        """The function as it is sent; raises InputError that names what cannot be."""
        parts = {f"metric {metric.spec().name!r}": metric for metric in self.metrics}
        named = {f"`{name}`": value for name, value in self.settings.items()}
        try:
            return pack_value("the run", self)
        except InputError:
            for part, value in {**parts, **named, "Workers.make": self.make}.items():
                try:
                    pack_value(part, value)
                except InputError as error:
                    raise InputError(
                        f"{error}; create it on the worker: "
                        'cluster=Workers(make=function), where the function returns {"model": …}'
                    ) from None
            raise


@dataclass(frozen=True, slots=True)
class Job:
    """What every worker has to know of a run, whose name is `run`.

    `build` is a pickled `Build`; `limits` are those of the run, and `app_in_flight` is the worker's
    own part. `constants` are what no case reaches (`LocalExecutor.constants`), pickled apart:
    their classes may be in a file that `build` loads. `one_store` says that a store of the run is
    one file, where its workers find each other. `saying` makes what tells of leases, by the name of
    the run.
    """

    run: str
    build: bytes
    limits: Limits
    app_in_flight: int
    constants: bytes = b""
    one_store: bool = False
    saying: Callable[[str], Say] | None = None

    def engine(self) -> tuple[LocalExecutor, Leased]:
        """The engine of one worker, and its part of all; raises InputError and GraphError."""
        build: Build = _unpack(self.build)
        engine = build(self.limits, self.app_in_flight)
        engine.preload(_unpack(self.constants) if self.constants else {})
        assert self.saying is not None
        alone = self.one_store and engine.store is not None
        leased = Leased(self.limits, self.saying(self.run), asks_alone=alone)
        engine.join(leased.account, leased)
        return engine, leased


def _unpack(data: bytes) -> Any:
    """Unpickle a value; raises InputError if this process lacks a module of it."""
    try:
        return pickle.loads(data)
    except DagengineError:
        raise
    except Exception as error:  # noqa: BLE001 - it imports the caller's modules
        raise InputError(
            f"the worker cannot load the run: {type(error).__name__}: {error}; every worker needs "
            f"the modules of metrics, judges and cases"
        ) from None


@dataclass(frozen=True, slots=True)
class Count:
    """What an engine, by its name, asked and used since it began, and what waits at the moment."""

    engine: str
    totals: Totals
    spent: tuple[Spent, ...]
    waiting: Sequence[Waiting] = ()


@dataclass(frozen=True, slots=True)
class ChunkResult:
    """The rows of one chunk that were not sent before, and what their engine had asked by then.

    The latest count of an engine holds: a chunk that is judged again adds what was really asked
    again.
    """

    rows: Sequence[CaseResult]
    count: Count


class _Finished(RunObserver):
    """The finished rows of a chunk that were not sent yet.

    A process of a `Pool` sends them a moment later, so that a run that is killed loses none but
    those of the last moment. A worker of Dask has them until the chunk is done.
    """

    def __init__(self) -> None:
        self._tell = telling.get(None)
        self._rows: list[CaseResult] = []

    def row_finished(self, row: CaseResult) -> None:
        """Take a row; the coordinator puts those of all workers in order."""
        self._rows.append(row)
        if self._tell is not None and len(self._rows) == 1:
            asyncio.get_running_loop().call_later(_MOMENT, self._send, self._tell)

    def _send(self, tell: Callable[[object], None]) -> None:
        if self._rows:
            with suppress(Exception):  # the chunk, which cannot be sent either, says why
                tell(self._rows)
                self._rows = []

    def rest(self) -> list[CaseResult]:
        """Rows that were not sent, and are not sent any more."""
        rows, self._rows = self._rows, []
        return rows


class _EngineTask:
    """An engine at work in its own task: what `open` enters, it must leave there."""

    def __init__(self, job: Job) -> None:
        self._engine, self.leased = job.engine()
        self._name = uuid.uuid4().hex
        self._parts: set[Kept] = set()  # in progress
        self._kept = KeptOpen(self._serving())

    @asynccontextmanager
    async def _serving(self) -> AsyncIterator[None]:
        async with self._engine.open(), anyio.create_task_group() as group:
            group.start_soon(self.leased.keep)
            try:
                yield
            finally:  # also when the store fails, which cancels everything in here
                group.cancel_scope.cancel()
                for part in tuple(self._parts):
                    await part.end()

    async def part(self, first: int, cases: Sequence[Item]) -> ChunkResult | None:
        """Judge a chunk; raises what ends the engine, for instance the failure of a store.

        None when the run was ended meanwhile: its rows are not wanted any more.
        """
        parts: list[ChunkResult] = []

        async def judge() -> None:
            finished = _Finished()
            await self._engine.run(cases, finished, first)
            parts.append(ChunkResult(finished.rest(), self.count()))

        if await self._kept.is_open():
            work = Kept(judge)
            self._parts.add(work)
            await work.over.wait()
            self._parts.discard(work)
            if work.error is not None:
                raise work.error
            if parts:
                return parts[0]
            await self._kept.over.wait()
        if self._kept.error is not None:
            raise self._kept.error
        return None

    async def end(self) -> Count:
        """Stop what is in progress; returns what was asked in all."""
        await self._kept.close()
        return self.count()

    def count(self) -> Count:
        """Questions so far."""
        engine = self._engine
        return Count(self._name, engine.totals, engine.spent, engine.waiting)


# The engines of this process, by the run they belong to, and the runs that are over.
_engine_tasks: dict[str, _EngineTask] = {}
_over: set[str] = set()


async def judge_chunk(job: Job, first: int, cases: bytes) -> ChunkResult | None:
    """The task that a worker gets: pickled cases; the first has the index `first`.

    None when the run is over. Raises InputError: exceptions have to travel, and not all of
    ours can be pickled.
    """
    if job.run in _over:  # it was interrupted, and this chunk was still on its way
        return None
    try:
        if job.run not in _engine_tasks:
            _engine_tasks[job.run] = _EngineTask(job)
        return await _engine_tasks[job.run].part(first, _unpack(cases))
    except DagengineError as error:
        raise InputError(f"on a worker: {error}") from None


async def tell_leased(run: str, kind: str, name: Any, value: Any) -> None:
    """Tell the engine of a run, if there is one, what is said of its leases."""
    if run in _engine_tasks:
        _engine_tasks[run].leased.hear(kind, name, value)


async def count_of(run: str) -> Count | None:
    """Questions of a run's engine so far; None if there is none."""
    engine_task = _engine_tasks.get(run)
    return None if engine_task is None else engine_task.count()


async def end_run(run: str) -> Count | None:
    """Close the engine of a run; None if there is none."""
    _over.add(run)
    engine_task = _engine_tasks.pop(run, None)
    return None if engine_task is None else await engine_task.end()


class _Amount:
    """What was lent of an amount; `used` says how much of it is spent, or may be."""

    def __init__(self, name: str, say: Say, used: Callable[[], float]) -> None:
        self._name, self._say, self._used = name, say, used
        self.lent = 0.0
        self._wish, self._since = 0.0, -math.inf
        self._answered: anyio.Event | None = None
        self._refused = False
        self._wanted = self._promised = 0.0  # in all, for a call that asks, or has its answer

    async def more(self, need: float) -> bool:
        """Return whether it is worth to look again for so much more than there was."""
        if self._answered is not None:
            await self._answered.wait()
            return True
        answered = self._answered = anyio.Event()
        quick = time.monotonic() - self._since < _SLICE
        self._wish = max(need, self._wish * (2 if quick else 0.5))
        self._wanted = self.lent + need
        self._say(AMOUNT, self._name, need, self._wish)
        try:
            await answered.wait()
            return not self._refused
        finally:  # whoever asked takes it now, or does not want it any more
            self._wanted = self._promised = 0.0

    def hear(self, value: float) -> None:
        """So much more was lent (0: there is no more); below zero: others need it."""
        if value < 0:
            # What was lent for a call stays until that call has had its turn. Otherwise two workers
            # may take the last of it from one another for ever, and neither makes a call.
            spare = max(0.0, self.lent - max(self._used(), self._promised))
            self.lent -= spare
            if spare and self._wanted:
                self._say(AMOUNT, self._name, self._wanted - self.lent, self._wish)
            self._say(AMOUNT, self._name, spare)
            return
        self.lent += value
        self._promised = self._wanted
        self._refused, self._since = not value, time.monotonic()
        if self._answered is not None:
            self._answered.set()
            self._answered = None


class LeasedAccount(Account):
    """An account that spends what was lent to this worker, and asks for more before it is short."""

    where = " by this worker"

    def __init__(self, limits: Limits, say: Say) -> None:
        super().__init__()
        self.amounts: dict[str, _Amount] = {}
        if limits.max_calls is not None:
            self.amounts[CALLS] = _Amount(CALLS, say, lambda: self.calls)
        if limits.budget is not None:
            self.amounts[MONEY] = _Amount(MONEY, say, lambda: self.spent + self.reserved)

    def exceeded_limit(self, limits: Limits, amount: float) -> str | None:
        """The limit that this worker would exceed by another call of that cost."""
        for name, lease in self.amounts.items():
            if self._use_with(name, amount) > lease.lent + 1e-9:
                return name
        return None

    async def extend(self, limit: str, amount: float) -> bool:
        """Ask for more; False when all of it is spent, or reserved by other workers."""
        lease = self.amounts[limit]
        return await lease.more(self._use_with(limit, amount) - lease.lent)

    def _use_with(self, name: str, amount: float) -> float:
        """The use of a limit after one more call that costs `amount`."""
        return self.calls + 1 if name == CALLS else self.spent + self.reserved + amount


class _Share:
    """What this worker has of a share: `apply` uses so much of it, and gives how much is in use."""

    def __init__(
        self,
        name: str,
        say: Say,
        demand: Callable[[], tuple[float, float]],
        apply: Callable[[float], float],
    ) -> None:
        """`demand` gives the least that is of any use, and how much this worker could use."""
        self._name, self._say, self._demand, self._apply = name, say, demand, apply
        self._held = self._owed = self._last = 0.0
        self._asked = False

    def look(self, *, spare: bool = False) -> None:
        """Ask for what is missing; give back what was `spare` since the last look."""
        least, demand = self._demand()
        usable = self._held - self._owed
        if demand > usable and not self._asked:
            self._asked = True
            self._say(SHARE, self._name, least, demand - usable)
        elif spare:
            unused = usable - max(demand, self._last)
            self._last = demand
            if unused > 0.1 * usable:
                self._owed += unused
                self.settle()

    def settle(self) -> None:
        """Give back what is owed and not in use."""
        used = self._apply(self._held - self._owed)
        back = min(self._owed, self._held - used)
        if back > 0:
            self._held -= back
            self._owed -= back
            self._say(SHARE, self._name, back)

    def hear(self, value: float) -> None:
        """So much more was lent; below zero: so much is to be given back."""
        if value > 0:
            self._asked = False
            self._held += value
        else:
            # What was given back meanwhile may be what others ask for.
            self._owed = min(self._held, self._owed - value)
        self.settle()
        self.look()


@dataclass(slots=True, eq=False)
class _Turn:
    """A question that waits: for the `answer` of another worker, or (empty) for its turn to ask."""

    heard: anyio.Event = field(default_factory=anyio.Event)
    answer: bytes = b""


class Leased:
    """What one worker has of what is common to all, for one run.

    It is the account, the limits and the common answers of the worker's engine. The first worker
    that has a question asks it. Judges without a durable identity are asked in every worker.
    """

    def __init__(self, limits: Limits, say: Say, *, asks_alone: bool = False) -> None:
        """`say` tells whoever has the `Leases` of the run.

        A worker that `asks_alone` meets the questions of others elsewhere, in a store.
        """
        self._asks_alone = asks_alone
        self._say, self._limits = say, limits
        self.account = LeasedAccount(limits, say)
        self._limiter: Limiter
        self._shares: dict[str, _Share] = {}
        self._names = DurableNames()
        # Several of one key where judges that are apart here have one durable identity.
        self._turns: defaultdict[bytes, list[_Turn]] = defaultdict(list)

    def hear(self, kind: str, name: Any, value: Any) -> None:
        """Take a message from the owner of the `Leases`."""
        if kind == SHARE:
            self._shares[name].hear(value)
        elif kind == AMOUNT:
            self.account.amounts[name].hear(value)
        else:
            waiting = (turn for turn in self._turns.get(name, ()) if not turn.heard.is_set())
            if turn := next(waiting, None):
                turn.answer = value
                turn.heard.set()

    async def keep(self) -> None:
        """Give back what is not needed any more, until cancelled."""
        while True:
            await anyio.sleep(_LOOK)
            for share in self._shares.values():
                share.look(spare=True)

    # -- limits ----------------------------------------------------------------------------------

    def limit(self, limiter: Limiter) -> None:
        """Have a limiter allow only what this worker has; nothing at first."""
        self._limiter = limiter
        limiter.lease = self
        self._shares[PLACES] = _Share(PLACES, self._say, limiter.demand, limiter.resize)
        limiter.resize(0)

    def meet(self, judge: JudgeLimiter) -> None:
        """The same for the rates of a judge."""
        for name, rate in judge.rates.items():
            # Judges of one identity come in one order in all workers.
            count = sum(share.startswith(f"{name} {judge.name}") for share in self._shares)
            self._share_rate(f"{name} {judge.name}{'+' * count}", judge, rate)

    def _share_rate(self, name: str, judge: JudgeLimiter, rate: RateLimit) -> None:
        taken, since, used = rate.taken, time.monotonic(), 0.0

        def demand() -> tuple[float, float]:
            nonlocal taken, since, used
            if judge.waiting.things and rate.opens_at() > anyio.current_time():
                return 0.0, math.inf
            now = time.monotonic()
            if now - since >= _LOOK:
                used = 60 * (rate.taken - taken) / (now - since)
                taken, since = rate.taken, now
            return 0.0, min(used, rate.per_minute)  # more only if a call waited for it

        def apply(per_minute: float) -> float:
            rate.change(per_minute)
            self._limiter.admit()
            return 0.0

        self._shares[name] = _Share(name, self._say, demand, apply)
        rate.change(0.0)

    def look(self) -> None:
        """A call waits: for a place or a rate that others have, perhaps."""
        for share in self._shares.values():
            share.look()

    def give_back(self) -> None:
        """A place became free that is asked back."""
        self._shares[PLACES].settle()

    # -- answers ---------------------------------------------------------------------------------

    async def get(
        self, judge: Judge, question: Question[T], ask: Ask[T], waiting: Wait = None
    ) -> Answer[T]:
        """The answer that a worker of this run has, or the one that `ask` gets."""
        name = self._names.of(judge)
        if name is None or self._asks_alone:
            return await ask()
        key, turn, packed = key_of(name, question), _Turn(), b""
        self._turns[key].append(turn)
        self._say(QUESTION, key)
        try:
            with waiting or nullcontext(), anyio.move_on_after(_PATIENCE):
                await turn.heard.wait()
            if turn.answer:
                fields = json.loads(turn.answer.decode(errors="surrogatepass"))
                stored = revive(question, fields, "cached")
                if stored is not None:
                    return stored
            answer = await ask()
            entry = entry_of(key, name, question, answer)
            packed = b"" if entry is None else entry.answer.encode(errors="surrogatepass")
            return answer
        finally:
            self._turns[key].remove(turn)
            if not self._turns[key]:
                del self._turns[key]
            if not turn.answer:
                self._say(QUESTION, key, packed)  # a failure lets another worker ask
