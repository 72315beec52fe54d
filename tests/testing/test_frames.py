"""Where nobody could catch an exception, a verdict may come later: on every version of Python."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from types import CodeType
from typing import Any

import pytest

from dagengine.testing.deferral import frames_between, traceback_of

Look = Callable[[], None]


def plain(look: Look) -> None:
    look()


def in_a_loop(look: Look) -> None:
    for _ in (1,):
        look()


def in_a_helper(look: Look) -> None:
    plain(look)


async def coroutine(look: Look) -> None:
    look()


async def awaited(look: Look) -> None:
    await coroutine(look)


async def async_loop(look: Look) -> None:
    async for _ in async_generator():
        look()


async def async_generator() -> AsyncIterator[int]:
    yield 1


def generator(look: Look) -> Iterator[None]:
    look()
    yield


def after_a_handler(look: Look) -> None:
    with suppress(ValueError):
        int("x")
    look()


def in_try(look: Look) -> None:
    try:
        look()
    except ValueError:
        return


def in_finally(look: Look) -> None:
    try:
        pass
    finally:
        look()


def in_try_finally(look: Look) -> None:
    try:
        look()
    finally:
        pass


def in_with(look: Look) -> None:
    with suppress(ValueError):
        look()


def helper_in_try(look: Look) -> None:
    try:
        plain(look)
    except ValueError:
        return


async def caught_coroutine(look: Look) -> None:
    try:
        await coroutine(look)
    except ValueError:
        return


async def in_async_with(look: Look) -> None:
    async with AsyncBlock():
        look()


class AsyncBlock:
    async def __aenter__(self) -> None: ...

    async def __aexit__(self, *_: object) -> None: ...


FREE = [plain, in_a_loop, in_a_helper, coroutine, awaited, async_loop, generator, after_a_handler,
        in_finally]  # fmt: skip
CAUGHT = [in_try, in_try_finally, in_with, helper_in_try, caught_coroutine, in_async_with]


def seen(function: Callable[[Look], Any], test: CodeType | None) -> list[str] | None:
    """The functions between a test and a call in it; None where the call's error may be caught."""
    found: list[list[str] | None] = []

    def look() -> None:
        frames = frames_between(sys._getframe(1), test)
        found.append(None if frames is None else [frame.f_code.co_name for frame in frames])

    started = function(look)
    with suppress(StopIteration):
        if started is not None:
            started.send(None)
    return found[0]


@pytest.mark.parametrize("function", FREE, ids=lambda function: function.__name__)
def test_what_nobody_catches_may_come_later(function: Callable[[Look], Any]) -> None:
    names = seen(function, function.__code__)
    assert names is not None
    assert names[0] == function.__name__


@pytest.mark.parametrize("function", CAUGHT, ids=lambda function: function.__name__)
def test_what_may_be_caught_comes_at_once(function: Callable[[Look], Any]) -> None:
    assert seen(function, function.__code__) is None


def test_what_the_test_does_not_call_comes_at_once() -> None:
    assert seen(plain, coroutine.__code__) is None
    assert seen(plain, None) is None


def test_a_traceback_begins_in_the_test_and_ends_at_the_call() -> None:
    def call() -> Any:
        return frames_between(sys._getframe(), sys._getframe(1).f_code)

    frames = call()
    found = traceback_of(frames)
    assert found is not None
    assert found.tb_next is not None
    assert (found.tb_frame, found.tb_next.tb_frame) == tuple(frames)
    assert found.tb_next.tb_next is None
