"""The scope of a worker: it serves one node after another, and none that is not its own."""

from __future__ import annotations

import math
from collections.abc import Awaitable

import anyio
import anyio.lowlevel
import pytest

from dagengine.execution.worker_tasks import WorkerScope

pytestmark = pytest.mark.anyio


async def waiting(cancel: anyio.CancelScope | None = None) -> int:
    if cancel is not None:
        cancel.cancel()
    await anyio.lowlevel.checkpoint()
    return 1


async def under(worker: WorkerScope, work: Awaitable[int]) -> int | None:
    """What some work gives under the scope of a worker; None when it was cancelled."""
    worker.scope(math.inf)
    try:
        result = await work
    except BaseException as error:
        if worker.is_cancellation(error):
            return None
        raise
    worker.note_end()
    return result


async def test_one_scope_serves_nodes_until_it_is_cancelled() -> None:
    with WorkerScope() as worker:
        first = worker.scope(math.inf)
        assert await under(worker, waiting()) == 1
        assert worker.scope(math.inf) is first
        assert await under(worker, waiting(first)) is None
        second = worker.scope(math.inf)
        assert second is not first
        assert await under(worker, waiting()) == 1


async def test_what_a_node_gives_after_it_was_cancelled_counts_and_its_scope_serves_no_other() -> (
    None
):
    async def given() -> int:
        scope.cancel()
        return 1

    with WorkerScope() as worker:
        scope = worker.scope(math.inf)
        assert await under(worker, given()) == 1
        await anyio.lowlevel.checkpoint()  # not cancelled: the scope has ended
        assert worker.scope(math.inf) is not scope


async def test_a_deadline_holds_for_one_node() -> None:
    with WorkerScope() as worker:
        kept = worker.scope(math.inf)
        assert await under(worker, waiting()) == 1
        late = worker.scope(anyio.current_time() + 1000)
        assert late is kept
        assert await under(worker, waiting()) == 1
        assert worker.scope(math.inf).deadline == math.inf
        worker.scope(anyio.current_time() - 1)
        assert await under(worker, waiting()) is None
        assert await under(worker, waiting()) == 1


async def test_an_error_and_a_cancellation_from_outside_go_on() -> None:
    async def broken() -> int:
        raise ValueError("broken")

    with anyio.CancelScope() as outer, WorkerScope() as worker:
        with pytest.raises(ValueError, match="broken"):
            await under(worker, broken())
        await under(worker, waiting(outer))
        raise AssertionError("it was cancelled")
    assert outer.cancelled_caught
