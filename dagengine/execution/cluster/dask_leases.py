"""How leases travel in a Dask cluster: the scheduler has them, and knows when a worker dies.

Messages go over the streams that every worker and its scheduler have anyway. They arrive in order,
many in one package, and a stream ends with its worker. The operation stays known on both sides:
Dask ends a stream with an operation that nobody handles.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from distributed import Scheduler, SchedulerPlugin, get_worker
from distributed.comm.core import CommClosedError

from dagengine.execution.cluster.leases import Leases
from dagengine.execution.cluster.worker import end_run, tell_leased

NAME = "dagengine-leases"
_log = logging.getLogger(__name__)


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
                self._scheduler.worker_send(worker, {"op": NAME, "run": run, "news": news})

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
    plugin = dask_scheduler.plugins.get(NAME)
    if not isinstance(plugin, LeasesPlugin):
        plugin = LeasesPlugin(dask_scheduler)
        dask_scheduler.add_plugin(plugin, name=NAME)
        dask_scheduler.stream_handlers[NAME] = plugin.hear
    plugin.begin(client, run, leases)


def saying(run: str) -> Callable[..., None]:
    """Called in a worker: what tells the scheduler about leases."""
    worker = get_worker()
    worker.stream_handlers[NAME] = _heard

    def say(*news: Any) -> None:
        with suppress(CommClosedError):  # this worker ends
            worker.batched_stream.send({"op": NAME, "run": run, "news": news})

    return say


async def _heard(run: str, news: list[Any]) -> None:
    """Take a message of the scheduler: of a lease, or, with no news, that the run is over."""
    if news:
        await tell_leased(run, *news)
    else:
        task = asyncio.create_task(end_run(run))
        _ending.add(task)
        task.add_done_callback(_ending.discard)


_ending: set[asyncio.Task[Any]] = set()
