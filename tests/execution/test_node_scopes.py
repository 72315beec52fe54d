"""The scope of a worker: it serves one node after another, and none that is not its own."""

from __future__ import annotations

import math

import anyio
import anyio.lowlevel
import pytest

from dagengine.execution.workers import Seat

pytestmark = pytest.mark.anyio


async def waiting(cancel: anyio.CancelScope | None = None) -> int:
    if cancel is not None:
        cancel.cancel()
    await anyio.lowlevel.checkpoint()
    return 1


async def test_one_scope_serves_nodes_until_it_is_cancelled() -> None:
    with Seat() as seat:
        first = seat.scope(math.inf)
        assert await seat.run(first, waiting()) == 1
        assert seat.scope(math.inf) is first
        assert await seat.run(first, waiting(first)) is None
        second = seat.scope(math.inf)
        assert second is not first
        assert await seat.run(second, waiting()) == 1


async def test_what_a_node_gives_after_it_was_cancelled_counts_and_its_scope_serves_no_other() -> (
    None
):
    async def given() -> int:
        scope.cancel()
        return 1

    with Seat() as seat:
        scope = seat.scope(math.inf)
        assert await seat.run(scope, given()) == 1
        await anyio.lowlevel.checkpoint()  # not cancelled: the scope has ended
        assert seat.scope(math.inf) is not scope


async def test_a_deadline_holds_for_one_node() -> None:
    with Seat() as seat:
        kept = seat.scope(math.inf)
        assert await seat.run(kept, waiting()) == 1
        late = seat.scope(anyio.current_time() + 1000)
        assert late is kept
        assert await seat.run(late, waiting()) == 1
        assert seat.scope(math.inf).deadline == math.inf
        over = seat.scope(anyio.current_time() - 1)
        assert await seat.run(over, waiting()) is None
        assert await seat.run(seat.scope(math.inf), waiting()) == 1


async def test_an_error_and_a_cancellation_from_outside_go_on() -> None:
    async def broken() -> int:
        raise ValueError("broken")

    with anyio.CancelScope() as outer, Seat() as seat:
        with pytest.raises(ValueError, match="broken"):
            await seat.run(seat.scope(math.inf), broken())
        await seat.run(seat.scope(math.inf), waiting(outer))
        raise AssertionError("it was cancelled")
    assert outer.cancelled_caught
