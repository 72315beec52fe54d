"""A worker's part of a run on a cluster: one engine, and the chunks of cases it judges."""

from __future__ import annotations

import asyncio
import os
import pickle
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import anyio

from dagengine.data.cases import Item
from dagengine.errors import DagengineError, InputError
from dagengine.execution.engine import Engine
from dagengine.gateway.limits import Limits
from dagengine.loading import load_app, load_judge, load_metrics, names_a_file
from dagengine.results import CaseResult, Totals
from dagengine.store.answers import Store


@dataclass(frozen=True, slots=True)
class Job:
    """What every worker has to know of a run.

    `metrics`, `app` and `judge` are what the command line takes, with absolute paths; those
    files, and the folder of `store`, have to exist where the worker runs. `limits` are the
    worker's own. `constants` are what no case reaches (see `Engine.constants`), pickled,
    because their classes may be of the metrics' file, which has to be loaded first.
    """

    run: str
    metrics: str
    app: str | None
    app_in_flight: int
    judge: str | None
    base_url: str | None
    store: Store | None
    limits: Limits
    constants: bytes = b""

    def engine(self) -> Engine:
        """The engine of one worker; raises InputError and GraphError."""
        metrics = load_metrics(self.metrics)
        app = None if self.app is None else load_app(self.app, self.app_in_flight)
        named = self.judge or self.base_url
        model = load_judge(self.judge, self.base_url) if named else None
        engine = Engine(
            metrics, {"app": app, "model": model, "limits": self.limits, "store": self.store}
        )
        engine.preload(pickle.loads(self.constants) if self.constants else {})
        return engine


def job_of(
    metrics: str,
    app: str | None,
    app_in_flight: int,
    judge: str | None,
    base_url: str | None,
    store: Store | None,
    limits: Limits,
) -> Job:
    """A job with a name of its own, and its files named by absolute paths."""
    if judge is not None and names_a_file(judge):
        judge = os.path.abspath(judge)
    return Job(
        run=uuid.uuid4().hex,
        metrics=os.path.abspath(metrics),
        app=None if app is None else os.path.abspath(app),
        app_in_flight=app_in_flight,
        judge=judge,
        base_url=base_url,
        store=None if store is None else replace(store, path=os.path.abspath(store.path)),
        limits=limits,
    )


@dataclass(frozen=True, slots=True)
class Part:
    """The rows of one chunk, and what the engine that made them had asked by then.

    `totals` are those of the engine `engine` since it began: the latest count, and a chunk
    that is judged again adds what was really asked again.
    """

    first: int
    rows: Sequence[CaseResult]
    engine: str
    totals: Totals


class _Host:
    """An engine at work in a task of its own: what `open` enters, it must leave there."""

    def __init__(self, job: Job) -> None:
        self._engine = job.engine()
        self._name = uuid.uuid4().hex
        self._opened = asyncio.Event()
        self._ended = asyncio.Event()
        self._group: anyio.abc.TaskGroup
        self._task = asyncio.create_task(self._serve())

    async def _serve(self) -> None:
        async with self._engine.open(), anyio.create_task_group() as self._group:
            self._opened.set()
            try:
                await self._ended.wait()
            finally:  # also when the store fails, which cancels everything in here
                self._opened.clear()
                self._group.cancel_scope.cancel()

    async def part(self, first: int, cases: Sequence[Item]) -> Part | None:
        """Judge a chunk; raises what ends the engine, such as a store that fails.

        None when the run was ended meanwhile: nobody waits for the rows any more.
        """
        while not self._opened.is_set():
            if not await self._comes(asyncio.create_task(self._opened.wait())):
                return None
        rows: list[CaseResult] = []
        over = asyncio.get_running_loop().create_future()

        async def judge() -> None:
            try:
                await self._engine.run(cases, rows.append, first)
            except DagengineError as error:
                over.set_exception(error)
            else:
                over.set_result(None)

        self._group.start_soon(judge)
        if not await self._comes(over):
            return None
        return Part(first, rows, self._name, self._engine.totals)

    async def _comes(self, waited: asyncio.Future[Any]) -> bool:
        """Wait for something, unless the run is ended first; raises what ends the engine."""
        await asyncio.wait((waited, self._task), return_when=asyncio.FIRST_COMPLETED)
        if waited.done():
            waited.result()
            return True
        waited.cancel()
        self._task.result()
        return False

    async def end(self) -> tuple[str, Totals]:
        """Stop what is under way; returns the engine's name and what it asked."""
        self._ended.set()
        await asyncio.wait((self._task,))
        return self._name, self._engine.totals


# The engines of this process, by the run they belong to, and the runs that are over.
_hosts: dict[str, _Host] = {}
_over: set[str] = set()


async def judge_chunk(job: Job, first: int, cases: bytes) -> Part | None:
    """The task that a worker gets: pickled cases, of which the first has the index `first`.

    None when the run is over. Raises InputError: exceptions have to travel, and not all of
    ours can be pickled.
    """
    if job.run in _over:  # it was interrupted, and this chunk was still on its way
        return None
    try:
        if job.run not in _hosts:
            _hosts[job.run] = _Host(job)
        return await _hosts[job.run].part(first, pickle.loads(cases))
    except DagengineError as error:
        raise InputError(f"on a worker: {error}") from None


async def end_run(run: str) -> tuple[str, Totals] | None:
    """Close the engine of a run; None where there is none."""
    _over.add(run)
    host = _hosts.pop(run, None)
    return None if host is None else await host.end()
