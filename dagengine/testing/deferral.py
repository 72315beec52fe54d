"""Whether a verdict may come after its test has gone on, and what waits for it then.

A verdict may come later only where nobody could catch its error (`frames_between`). Fixtures that
the case may need are kept until it is there (`FixtureGuard`).
"""

from __future__ import annotations

import dis
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from types import CodeType, FrameType, TracebackType
from typing import Any

import pytest

from dagengine.testing.verdicts import Pending

TIMEOUT = pytest.StashKey[Any]()
"""The settings of the timer that pytest-timeout has set for a test."""
_LOOK = 0.5  # seconds between two looks at whether the user has interrupted a wait
# First instruction of a handler around the whole body of a coroutine from Python 3.12 on: it turns
# StopIteration into a RuntimeError, and lets everything else pass.
_PASSES_ON = dis.opmap.get("CALL_INTRINSIC_1"), 3


@dataclass(slots=True, eq=False)
class Held:
    """One test: what it has to report, and the verdicts that it waits for.

    `code` is the test function's, as it stands before any plugin puts another in its place.
    `index` is the number of the test in its worker of pytest-xdist. With `reruns`, a failed attempt
    is not reported: the test runs again. `funcargs` are its fixtures, once its body is over.
    """

    item: pytest.Item
    code: CodeType | None
    index: int | None
    reruns: bool
    events: list[pytest.TestReport | str] = field(default_factory=list[pytest.TestReport | str])
    verdicts: list[Pending] = field(default_factory=list[Pending])
    funcargs: dict[str, Any] | None = None
    is_over: bool = False

    @property
    def is_judged(self) -> bool:
        """Return whether every verdict is there."""
        return all(pending.future.done() for pending in self.verdicts)

    @property
    def has_failed(self) -> bool:
        """Return whether a phase of it failed by itself."""
        return any(isinstance(event, pytest.TestReport) and event.failed for event in self.events)


def wait_for(future: Future[Any], look: Callable[[], None]) -> None:
    """Return when a future is done, however; an interrupt ends the wait.

    `look` is called again and again in the meantime.
    """
    while not future.done():
        with suppress(CancelledError, TimeoutError):
            future.exception(_LOOK)
        if not future.done():
            look()


@contextmanager
def without_timer(item: pytest.Item | None) -> Iterator[None]:
    """No timeout runs in the test `item`, which waits for others; then its timer is set again."""
    settings = None if item is None else item.stash.get(TIMEOUT, None)
    if item is None or settings is None:
        yield
        return
    item.ihook.pytest_timeout_cancel_timer(item=item)
    try:
        yield
    finally:
        item.ihook.pytest_timeout_set_timer(item=item, settings=settings)


class FixtureGuard:
    """Makes the teardown of fixtures wait for verdicts.

    A fixture wider than one test always waits: the judge or the server behind it cannot be told
    from others. A function's fixture waits if its value is the judge, the app or a metric of the
    case. Otherwise `monkeypatch` or `capsys` would make the tests run one by one.

    `running` returns the test that runs; `look` is called while a verdict does not come.
    """

    def __init__(self, running: Callable[[], pytest.Item | None], look: Callable[[], None]) -> None:
        self._running, self._look = running, look
        self._futures: dict[Any, list[Future[Any]]] = {}

    def hold(self, item: pytest.Item, future: Future[Any], used: Sequence[Any]) -> None:
        """Keep the fixtures of a test until `future` is done: wide ones, and those that are `used`.

        `used` are the judge, the app and the metrics of its case.
        """
        request = getattr(item, "_request", None)
        for definition in getattr(request, "_fixture_defs", {}).values():
            # The value of a fixture may also be a list: then what is in it counts.
            result = definition.cached_result
            value = None if result is None else result[0]
            values = value if isinstance(value, list | tuple) else [value]
            is_used = any(part is not None and part is thing for part in values for thing in used)
            if definition.scope != "function" or is_used:
                if definition not in self._futures:
                    # Finalizers run last in, first out: this one before the fixture's own.
                    definition.addfinalizer(lambda definition=definition: self._wait(definition))
                self._futures.setdefault(definition, []).append(future)

    def _wait(self, definition: Any) -> None:
        with without_timer(self._running()):
            for future in self._futures.pop(definition, ()):
                wait_for(future, self._look)


def frames_between(caller: FrameType, test: CodeType | None) -> list[FrameType] | None:
    """The frames from the test function (first) to `caller`, where nothing catches in between.

    An exception raised now would reach the end of the test: then it may be raised later, too. No
    frame may have a handler for the instruction it is at. Frames with one have a `try` or a `with`
    (`pytest.raises` is one), or are the event loop of a library. The compiler has written that
    down: every code object has a table of the instructions that a handler covers.
    (https://github.com/python/cpython/blob/main/InternalDocs/exception_handling.md)

    None when a handler covers one of them, or when `caller` is not called by the test function
    `test`: a fixture, a thread, a doctest.
    """
    frames: list[FrameType] = []
    frame: FrameType | None = caller
    while frame is not None and test is not None:
        code = frame.f_code
        bytecode: Any = dis.Bytecode(code)
        for handler in bytecode.exception_entries:
            covers, target = handler.start <= frame.f_lasti < handler.end, handler.target
            if covers and tuple(code.co_code[target : target + 2]) != _PASSES_ON:
                return None
        frames.append(frame)
        if code is test:
            return frames[::-1]
        frame = frame.f_back
    return None


def traceback_of(frames: list[FrameType]) -> TracebackType | None:
    """The traceback that an exception raised in the last of the frames would have."""
    trace: TracebackType | None = None
    for frame in reversed(frames):
        trace = TracebackType(trace, frame, frame.f_lasti, frame.f_lineno)
    return trace


def plugin_of_class(config: pytest.Config, name: str) -> Any:
    """The plugin whose class is called so, which has no public name; None without one."""
    plugins = config.pluginmanager.get_plugins()
    return next((plugin for plugin in plugins if type(plugin).__name__ == name), None)
