"""The workers of a Dask scheduler, on other machines perhaps (needs the extra `cluster`)."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Any

import anyio

from dagengine.errors import InputError, load_extra
from dagengine.execution.cluster.leases import Leases
from dagengine.execution.cluster.processes import Heard, WorkersDiedError

_LEASES = "dagengine.execution.cluster.dask_leases"
# Seconds in which a scheduler has to answer, and the workers have to be there.
_PATIENCE = 15
_SETTINGS = {
    "distributed.comm.timeouts.connect": "5s",  # to workers; one may just have died
    "distributed.admin.large-graph-warning-threshold": "1GiB",  # cases may be long
}


def require_dask() -> Any:
    """The library; raises MissingExtraError without it."""
    return load_extra("distributed", "a cluster of several machines needs", "cluster")


class DaskWorkers:
    """A connection to the workers; it does what a `processes.Pool` does."""

    def __init__(self, client: Any, died: type[Exception]) -> None:
        self._client = client
        self._died = died

    @classmethod
    @asynccontextmanager
    async def at(cls, address: str, wanted: int) -> AsyncIterator[DaskWorkers]:
        """Connect, and wait for so many workers; raises InputError when they do not come."""
        library = require_dask()
        with import_module("dask").config.set(_SETTINGS):
            client = await _connect(library, address)
            try:
                await _present(client, address, wanted)
                yield cls(client, library.KilledWorker)
            finally:
                # Dask logs tracebacks when its closing is cut off.
                with anyio.CancelScope(shield=True):
                    await client.close()

    @property
    def saying(self) -> Callable[[str], Callable[..., None]]:
        """Gives a worker what it tells `Leases` with."""
        saying: Callable[[str], Callable[..., None]] = import_module(_LEASES).saying
        return saying

    async def lend(self, run: str, leases: Leases, tell: object) -> None:
        """Have the scheduler share the leases of a run among the workers."""
        begin = import_module(_LEASES).begin
        await self._client.run_on_scheduler(begin, self._client.id, run, leases)

    async def nthreads(self) -> dict[str, int]:
        """The workers, and the requests that each of them works on at the same time."""
        threads: dict[str, int] = await self._client.nthreads()
        return threads

    async def submit(
        self, function: Callable[..., Awaitable[Any]], *arguments: Any, heard: Heard
    ) -> Any:
        """Run a coroutine function on some worker; raises WorkersDiedError.

        Workers of Dask say nothing before the result.
        """
        key = f"dagengine-{uuid.uuid4().hex}"
        try:
            return await self._client.submit(function, *arguments, key=key, pure=False)
        except self._died:
            raise WorkersDiedError from None

    async def run(self, function: Callable[..., Awaitable[Any]], *arguments: Any) -> dict[str, Any]:
        """Run on every worker; those that die are left out."""
        results: dict[str, Any] = await self._client.run(function, *arguments, on_error="ignore")
        return results


async def _connect(library: Any, address: str) -> Any:
    try:
        return await library.Client(address, asynchronous=True, timeout=_PATIENCE)
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
