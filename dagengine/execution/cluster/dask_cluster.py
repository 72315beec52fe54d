"""A run on the workers of a Dask scheduler, on other machines perhaps (needs the extra `cluster`).

The scheduler has the leases, and knows when a worker dies. What is said of them goes over the
streams that every worker and its scheduler have anyway. Messages arrive in order, many in one
package, and a stream ends with its worker. The operation stays known on both sides: Dask ends a
stream with an operation that nobody handles.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio
import dask.config
from distributed import Client, KilledWorker, Scheduler, SchedulerPlugin, get_worker
from distributed.comm.core import CommClosedError

from dagengine.errors import InputError
from dagengine.execution.cluster.processes import Heard, WorkersDiedError
from dagengine.execution.cluster.shared_limits import Leases
from dagengine.execution.cluster.worker import end_run, tell_leased

_OPERATION = "dagengine-leases"
_log = logging.getLogger(__name__)
_ending: set[asyncio.Task[Any]] = set()
# Seconds in which a scheduler has to answer, and the workers have to be there.
_PATIENCE = 15
_SETTINGS = {
    "distributed.comm.timeouts.connect": "5s",  # to workers; one may just have died
    "distributed.admin.large-graph-warning-threshold": "1GiB",  # cases may be long
}


class DaskWorkers:
    """A connection to the workers; it does what a `processes.Pool` does."""

    def __init__(self, client: Any) -> None:
        self._client = client

    @classmethod
    @asynccontextmanager
    async def at(cls, address: str, wanted: int) -> AsyncIterator[DaskWorkers]:
        """Connect, and wait for so many workers; raises InputError when they do not come."""
        with dask.config.set(_SETTINGS):
            client = await _connect(address)
            try:
                await _present(client, address, wanted)
                yield cls(client)
            finally:
                # Dask logs tracebacks when its closing is cut off.
                with anyio.CancelScope(shield=True):
                    await client.close()

    @staticmethod
    def saying(run: str) -> Callable[..., None]:
        """Called in a worker: what tells the scheduler about leases."""
        worker = get_worker()
        worker.stream_handlers[_OPERATION] = _heard

        def say(*news: Any) -> None:
            with suppress(CommClosedError):  # this worker ends
                worker.batched_stream.send({"op": _OPERATION, "run": run, "news": news})

        return say

    async def lend(self, run: str, leases: Leases, tell: object) -> None:
        """Have the scheduler share the leases of a run among the workers."""
        await self._client.run_on_scheduler(begin, self._client.id, run, leases)

    async def nthreads(self) -> dict[str, int]:
        """The workers, and the requests that each of them works on at the same time."""
        threads: dict[str, int] = await self._client.nthreads()
        return threads

    async def submit(
        self, function: Callable[..., Awaitable[Any]], *arguments: Any, heard: Heard
    ) -> Any:
        """Run a coroutine function on a worker, silent until its end; raises WorkersDiedError."""
        key = f"dagengine-{uuid.uuid4().hex}"
        try:
            return await self._client.submit(function, *arguments, key=key, pure=False)
        except KilledWorker:
            raise WorkersDiedError from None

    async def run(self, function: Callable[..., Awaitable[Any]], *arguments: Any) -> list[Any]:
        """Run on every worker; those that die are left out."""
        results: dict[str, Any] = await self._client.run(function, *arguments, on_error="ignore")
        return [*results.values()]


async def _connect(address: str) -> Any:
    client: Any = Client  # it has no types
    try:
        return await client(address, asynchronous=True, timeout=_PATIENCE)
    except (OSError, ValueError) as error:
        raise InputError(
            f"no Dask scheduler answers at {address}: {error}; start one with "
            f"`dask scheduler`, and workers with `dask worker {address}`"
        ) from None


async def _present(client: Any, address: str, wanted: int) -> None:
    """Wait for at least as many workers as are wanted."""
    try:
        await client.wait_for_workers(wanted, timeout=_PATIENCE)
    except TimeoutError:
        there = len(await client.nthreads())
        raise InputError(
            f"the scheduler at {address} has {there} of {wanted} workers after {_PATIENCE} s; "
            f"start more with `dask worker {address}`"
        ) from None


class LeasesPlugin(SchedulerPlugin):
    """The leases of all runs of a scheduler; those of a client end with it."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._runs: dict[str, Leases] = {}
        self._clients: dict[str, str] = {}
        self._workers: defaultdict[str, set[str]] = defaultdict(set)

    def begin(self, client: str, run: str, leases: Leases) -> None:
        """Take up the leases of a run, which is that of a client."""
        self._clients[run], self._runs[run] = client, leases

    def _send(self, run: str) -> Callable[..., None]:
        def send(worker: str, *news: Any) -> None:
            if worker in self._scheduler.stream_comms:
                self._scheduler.worker_send(worker, {"op": _OPERATION, "run": run, "news": news})

        return send

    def hear(self, worker: str, run: str, news: list[Any]) -> None:
        """Take a message of a worker, unless the run is over or the worker given up."""
        if run not in self._runs or worker not in self._scheduler.workers:
            return
        self._workers[run].add(worker)
        try:
            self._runs[run].hear(self._send(run), worker, *news)
        except Exception:  # noqa: BLE001 - an error in here would cut the worker off
            _log.exception("leases of the run %s", run)

    def remove_worker(self, scheduler: Scheduler, worker: str, **reason: Any) -> None:
        """Others get what a dead worker had."""
        for run, leases in self._runs.items():
            if worker in self._workers[run]:
                self._workers[run].discard(worker)
                leases.drop_worker(self._send(run), worker)

    def remove_client(self, scheduler: Scheduler, client: str) -> None:
        """The runs of a client that is gone are over; nobody wants their rows any more."""
        for run in [run for run, owner in self._clients.items() if owner == client]:
            del self._clients[run], self._runs[run]
            for worker in self._workers.pop(run, ()):
                self._send(run)(worker)


def begin(client: str, run: str, leases: Leases, dask_scheduler: Scheduler) -> None:
    """Called in the scheduler: have it lend what the workers of a run have in common."""
    plugin = dask_scheduler.plugins.get(_OPERATION)
    if not isinstance(plugin, LeasesPlugin):
        plugin = LeasesPlugin(dask_scheduler)
        dask_scheduler.add_plugin(plugin, name=_OPERATION)
        dask_scheduler.stream_handlers[_OPERATION] = plugin.hear
    plugin.begin(client, run, leases)


async def _heard(run: str, news: list[Any]) -> None:
    """Take a message of the scheduler: of a lease, or, with no news, that the run is over."""
    if news:
        await tell_leased(run, *news)
    else:
        task = asyncio.create_task(end_run(run))
        _ending.add(task)
        task.add_done_callback(_ending.discard)
