"""The scope of a worker: it serves one node after another, and none that is not its own."""

from __future__ import annotations

import math
from collections.abc import Awaitable

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


async def under(seat: Seat, work: Awaitable[int]) -> int | None:
    """What some work gives under the scope of a seat; None when it was cancelled."""
    seat.scope(math.inf)
    try:
        result = await work
    except BaseException as error:
        if seat.stopped(error):
            return None
        raise
    seat.left()
    return result


async def test_one_scope_serves_nodes_until_it_is_cancelled() -> None:
    with Seat() as seat:
        first = seat.scope(math.inf)
        assert await under(seat, waiting()) == 1
        assert seat.scope(math.inf) is first
        assert await under(seat, waiting(first)) is None
        second = seat.scope(math.inf)
        assert second is not first
        assert await under(seat, waiting()) == 1


async def test_what_a_node_gives_after_it_was_cancelled_counts_and_its_scope_serves_no_other() -> (
    None
):
    async def given() -> int:
        scope.cancel()
        return 1

    with Seat() as seat:
        scope = seat.scope(math.inf)
        assert await under(seat, given()) == 1
        await anyio.lowlevel.checkpoint()  # not cancelled: the scope has ended
        assert seat.scope(math.inf) is not scope


async def test_a_deadline_holds_for_one_node() -> None:
    with Seat() as seat:
        kept = seat.scope(math.inf)
        assert await under(seat, waiting()) == 1
        late = seat.scope(anyio.current_time() + 1000)
        assert late is kept
        assert await under(seat, waiting()) == 1
        assert seat.scope(math.inf).deadline == math.inf
        seat.scope(anyio.current_time() - 1)
        assert await under(seat, waiting()) is None
        assert await under(seat, waiting()) == 1


async def test_an_error_and_a_cancellation_from_outside_go_on() -> None:
    async def broken() -> int:
        raise ValueError("broken")

    with anyio.CancelScope() as outer, Seat() as seat:
        with pytest.raises(ValueError, match="broken"):
            await under(seat, broken())
        await under(seat, waiting(outer))
        raise AssertionError("it was cancelled")
    assert outer.cancelled_caught
