"""A run on several processes of this machine, or on the workers of a Dask cluster.

The coordinator reads the cases, hands them out in chunks and puts the rows in order. Each worker
process judges its chunks with one engine (`cluster.worker`). One function builds the
engines of all processes, the coordinator's included. A chunk whose worker dies is judged by another
one, so it may be asked for twice and counts once.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
    suppress,
)
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import anyio
import sniffio

from dagengine.data.app import as_app
from dagengine.data.cases import AsyncCases, Cases
from dagengine.data.column_mapping import Item
from dagengine.errors import InputError, load_extra
from dagengine.execution.cases_and_rows import PulledSource, RowsInOrder, RunObserver, Source
from dagengine.execution.cluster.processes import Pool, WorkersDiedError
from dagengine.execution.cluster.shared_limits import CALLS, MONEY, PLACES, Leases
from dagengine.execution.cluster.worker import (
    Build,
    ChunkResult,
    Count,
    Job,
    Objects,
    count_of,
    end_run,
    judge_chunk,
    pack_value,
    tell_leased,
)
from dagengine.execution.local_executor import LocalExecutor, Settings
from dagengine.gateway.budget import Ledger
from dagengine.gateway.call_priorities import merge_waits
from dagengine.gateway.inner_metrics import current_host
from dagengine.graph.graph import Metric
from dagengine.limits import DEFAULT_LIMITS, Limits
from dagengine.results import Failure, Spent, Totals, Waiting
from dagengine.store.answer_journal import as_store
from dagengine.system.file_locks import available

if TYPE_CHECKING:
    from dagengine.execution.cluster.dask_cluster import DaskWorkers

LOCAL = "local"

# The most cases of a chunk, and the least where there are enough of them.
_CHUNK, _LEAST = 64, 4
# Chunks per place into which the cases that are left would go.
_CHUNKS = 4
# Chunks that a worker process of our own judges at the same time.
_PLACES = 4
# Chunks in progress, and chunks begun whose rows may wait for an earlier one, per place.
_UNDER_WAY, _AHEAD = 2, 16
# Seconds between two looks at what the workers ask.
_LOOK = 0.5
# Seconds that the workers get to end what is in progress; the code of a metric may be stuck.
_FAREWELL = 5
# What holds for one process, and why a cluster cannot keep it.
_ELSEWHERE = "the workers call the judges, and the coordinator does not see these calls"
_IN_CHUNKS = "a batch needs the questions of all cases, but workers get the cases in chunks"
_ONE_PROCESS = {
    "batch": _IN_CHUNKS,
    "batch_files": _IN_CHUNKS,
    "trace": _ELSEWHERE,
    "tracer": _ELSEWHERE,
    "on_attempt": _ELSEWHERE,
}


@dataclass(frozen=True, slots=True)
class Workers:
    """Where a run works: `local` or a scheduler's address, and how many workers.

    Locally `count` processes are started (one per processor by default); elsewhere so many
    are waited for (1 by default). `make` is for a judge or an app that cannot be sent to another
    process, for instance a loaded model. It is a function without arguments that returns these
    settings (`{"model": judge}`). Every process calls it once.
    """

    address: str = LOCAL
    count: int | None = None
    make: Callable[[], Mapping[str, Any]] | None = None

    def __post_init__(self) -> None:
        if self.count is not None and self.count < 1:
            raise InputError(f"the number of workers must be at least 1, got {self.count}")

    @property
    def wanted(self) -> int:
        """Number of workers before the run begins."""
        return self.count or (1 if self.address != LOCAL else os.cpu_count() or 1)


def require_shareable(settings: Mapping[str, object]) -> None:
    """Raise InputError for settings, or options of the command line, that workers cannot keep."""
    for name, value in settings.items():
        reason = _ONE_PROCESS.get(name.rpartition(".")[2].strip("-").replace("-", "_"))
        if reason is not None and value is not None and value is not False:
            raise InputError(
                f"{name} works in one process only: on a cluster, {reason}; leave it out, or run "
                f"without a cluster"
            )


def cluster_of(metrics: Sequence[Metric], settings: Settings, cluster: Workers | str) -> Cluster:
    """A cluster that judges by objects of this process, which are sent to the workers.

    Raises InputError for what cannot be sent, and for settings that hold for one process.
    """
    if current_host() is not None:
        raise InputError(
            "code inside a node is part of the run of its node: leave out cluster= here"
        )
    workers = cluster if isinstance(cluster, Workers) else Workers(cluster)
    kept = {name: value for name, value in settings.items() if name != "limits"}
    limits, store = settings.get("limits") or DEFAULT_LIMITS, settings.get("store")
    require_shareable(kept)
    kept["store"] = None if store is None else as_store(store).absolute()
    app = as_app(settings.get("app"))
    app_in_flight = 1 if app is None else app.max_in_flight
    return Cluster(Objects(metrics, kept, workers.make), limits, app_in_flight, workers)


class Cluster:
    """Metrics whose workers judge the cases. They get chunks, so nobody can wait for one case.

    Raises MissingExtraError without Dask, and InputError for a judge that asks in batches.
    """

    waits_for_cases = False

    def __init__(self, build: Build, limits: Limits, app_in_flight: int, workers: Workers) -> None:
        if workers.address != LOCAL:
            load_extra("distributed", "a cluster of several machines needs", "cluster")
        self._engine = build(limits, app_in_flight)
        batched = any(judge.capabilities.batched for judge in self._engine.asked_judges)
        require_shareable({"batch": batched})
        sent = build.pack() if isinstance(build, Objects) else pack_value("the run", build)
        self._job = Job(uuid.uuid4().hex, sent, limits, app_in_flight)
        self.limits, self.plan, self.store = limits, self._engine.plan, self._engine.store
        self.judges, self.asked_judges = self._engine.judges, self._engine.asked_judges
        self._workers = workers
        self._client: Pool | DaskWorkers  # while it is open
        self._asked: dict[str, Count] = {}

    def cases(self, source: Source) -> Cases:
        """The cases of a source; raises InputError if they cannot be judged."""
        return _pullable(self._engine.cases(source))

    @property
    def totals(self) -> Totals:
        """Questions and usage so far; what a worker has not said yet dies with it."""
        total = sum((count.totals for count in self._asked.values()), self._engine.totals)
        if self.store is not None:
            return total
        # What came from another process was asked once in this run.
        return replace(total, shared=total.shared + total.cached, cached=0)

    @property
    def spent(self) -> tuple[Spent, ...]:
        """Spending by metric, node and judge."""
        ledger = Ledger()
        for spent in (self._engine.spent, *(count.spent for count in self._asked.values())):
            ledger.add(spent)
        return ledger.spent

    @property
    def waiting(self) -> Sequence[Waiting]:
        """The questions that wait on the workers, as far as they have said."""
        return merge_waits(wait for count in self._asked.values() for wait in count.waiting)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Connect to the workers, and ask here what no case reaches.

        So all workers go by the same steps. Raises InputError if there is no scheduler at the
        address, no worker, or no answer to a question that is the same for all cases.
        """
        if sniffio.current_async_library() != "asyncio":
            raise InputError("a cluster works only with asyncio; run it from an asyncio program")
        async with self._connect() as self._client:
            count = len(await self._client.nthreads())
            app_in_flight = max(1, self._job.app_in_flight // count)
            # Asked once, here, before any worker begins: two workers would get two answers to the
            # same question, and judge their cases by different steps.
            async with self._engine.open():
                outcomes = await self._engine.constants()
            for outcome in outcomes.values():
                if isinstance(outcome, Failure) and outcome.may_pass:
                    raise InputError(f"{outcome} (asked once for all cases); try again later")
            constants = pack_value("what nodes say that no case reaches", outcomes)
            await self._client.lend(self._job.run, self._leases(count), tell_leased)
            self._job = replace(
                self._job, app_in_flight=app_in_flight, constants=constants,
                one_store=self._workers.address == LOCAL and available,
                saying=self._client.saying,
            )  # fmt: skip
            try:
                yield
            finally:
                with anyio.move_on_after(_FAREWELL, shield=True):
                    await self._ask_counts(end_run)  # and have them stop what they do
                    for name, asked in self._asked.items():
                        totals = replace(asked.totals, in_flight=0)
                        self._asked[name] = replace(asked, totals=totals, waiting=())

    def _leases(self, workers: int) -> Leases:
        """The limits of the run for so many workers, without what was asked here."""
        totals = self._engine.totals
        left = self.limits.after(totals.calls, totals.cost or 0.0)

        def stated(*names: str) -> dict[str, float]:
            return {name: amount for name in names if (amount := getattr(left, name)) is not None}

        shares = stated(PLACES, "requests_per_minute", "tokens_per_minute")
        return Leases(shares, stated(CALLS, MONEY), left.remembered, workers)

    async def _watch(self) -> None:
        """Keep up with what the workers ask: a chunk may take long."""
        while True:
            await anyio.sleep(_LOOK)
            await self._ask_counts(count_of)

    async def _ask_counts(self, function: Callable[[str], Awaitable[Count | None]]) -> None:
        with suppress(OSError):  # the scheduler is gone
            counts = await self._client.run(function, self._job.run)
            self._asked |= {count.engine: count for count in counts if count is not None}

    def _connect(self) -> AbstractAsyncContextManager[Pool | DaskWorkers]:
        address, wanted = self._workers.address, self._workers.wanted
        if address == LOCAL:
            # Each of them makes at least one call at a time.
            return Pool.of(min(wanted, self.limits.max_in_flight), _PLACES)
        from dagengine.execution.cluster.dask_cluster import DaskWorkers

        return DaskWorkers.at(address, wanted)

    def keeping(self, result: Callable[[], Any]) -> AbstractContextManager[None]:
        """As of an engine; no worker has an `on_attempt`."""
        return self._engine.keeping(result)

    async def judge(self, cases: Any, observer: RunObserver, first: int = 0, step: int = 1) -> None:
        """Open, have every case judged, and close; raises what `open` and `run` raise."""
        async with self.open():
            await self.run(cases, observer, first, step)

    async def run(self, cases: Any, observer: RunObserver, first: int = 0, step: int = 1) -> None:
        """Have every case judged; rows come in the order of the cases.

        `row_finished` is called as soon as a row is here: from a process of this machine a moment
        later, from Dask's workers with the rest of its chunk.
        Raises InputError if a source breaks off (what came before is handed out first). Raises it
        too if a worker cannot load the files, if workers keep dying over the same cases, and for a
        part of the cases (`first`, `step`): chunks are counted from the first case on.
        """
        if (first, step) != (0, 1):
            raise InputError("a cluster judges all cases of a source: leave out the part of them")
        cases, slots = _pullable(cases), await self._places()
        source: PulledSource[Item] = PulledSource(cases)
        chunks = Chunks(source, cases.count(), slots)
        rows = RowsInOrder(observer)
        waiting: set[asyncio.Task[ChunkResult]] = set()
        watching = asyncio.create_task(self._watch())
        # The cases go out in chunks, and rows come back by two ways:
        #
        #     source ─▶ chunks ─▶ submit ─▶ worker ──rows so far (own processes)──▶ rows in order
        #        ▲                             └──the rest, and what was asked──────▲  │
        #        └────────── room: two chunks per place in progress ◀──────────────────┘
        #
        # Rows that came before a worker died are there; its chunks are judged again by others, and
        # rows that come twice count once. So no row that is here is lost, and only what was in
        # progress on that worker is asked again. How far the chunks run ahead of the first missing
        # row is bounded: a case that takes an hour must not let a million rows wait for it.
        try:
            while waiting := waiting | self._hand_out(chunks, rows, slots, len(waiting)):
                done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for part in await asyncio.gather(*done):
                    rows.take(part.rows)
                slots = await self._places()
        finally:
            with anyio.CancelScope(shield=True):
                tasks = {watching, *waiting}
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
            rows.rest()
        if source.error is not None:
            raise source.error

    def _hand_out(
        self, chunks: Chunks, rows: RowsInOrder, places: int, waiting: int
    ) -> set[asyncio.Task[ChunkResult]]:
        """Hand out as many chunks more as there is room for."""
        behind = (chunks.taken - rows.next) // _CHUNK
        room = min(places * _UNDER_WAY - waiting, places * _AHEAD - behind)
        return {
            asyncio.create_task(
                self._judge_part(first, pack_value(f"the chunk of case {first}", items), rows)
            )
            for first, items in itertools.islice(chunks, max(0, room))
        }

    async def _judge_part(self, first: int, data: bytes, rows: RowsInOrder) -> ChunkResult:
        """One chunk; raises InputError when it cannot be judged."""
        try:
            with _connection_explained():
                part: ChunkResult = await self._client.submit(
                    judge_chunk, self._job, first, data, heard=rows.take
                )
        except WorkersDiedError:
            raise InputError(
                f"workers died again and again while the cases from {first} on were in progress, "
                "among others; look into the workers' logs (memory, or a crash in the code of a "
                "metric or a judge)"
            ) from None
        self._asked[part.count.engine] = part.count
        return part

    async def _places(self) -> int:
        """Chunks that the workers of this moment judge at the same time, at least one."""
        with _connection_explained():
            threads: dict[str, int] = await self._client.nthreads()
        return max(1, sum(threads.values()))


class Chunks:
    """The items of a source in chunks, each with the index of its first item.

    Chunks get shorter towards the end. A worker that got the last long one would be at work while
    the others have nothing left to do.
    """

    def __init__(self, source: PulledSource[Any], count: int | None, places: int) -> None:
        """`count` items (None: not known) go to so many places; so many are `taken`."""
        self._items: Iterator[Any] = iter(source.take, None)
        self._count, self._places = count, places
        self.taken = 0

    def __iter__(self) -> Chunks:
        return self

    def __next__(self) -> tuple[int, list[Any]]:
        size, slots = _CHUNK, _CHUNKS * self._places
        if self._count is not None:
            # A few cases are handed out one by one, so that every place gets some.
            least = _LEAST if self._count > _LEAST * slots else 1
            size = max(least, min(_CHUNK, (self._count - self.taken) // slots))
        items = list(itertools.islice(self._items, size))
        if not items:
            raise StopIteration
        first, self.taken = self.taken, self.taken + len(items)
        return first, items


def _pullable(cases: Cases | AsyncCases) -> Cases:
    if isinstance(cases, AsyncCases):
        raise InputError(
            "a cluster cannot read cases from an async iterator; collect them in a list first, or "
            "run without a cluster"
        )
    return cases


@contextmanager
def _connection_explained() -> Iterator[None]:
    try:
        yield
    except (CancelledError, OSError) as error:
        raise InputError(
            f"the connection to the scheduler of the cluster was lost: {error}"
        ) from None


Executor = LocalExecutor | Cluster
"""What judges cases: this process, or the workers of a cluster."""
