"""Fixtures live until the verdicts are there that need what they own; and how tests wait."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager, suppress
from typing import Any

import pytest

TIMEOUT = pytest.StashKey[Any]()
"""The settings of the timer that pytest-timeout has set for a test."""
_LOOK = 0.5  # seconds between two looks at whether the user has interrupted a wait


def wait_for(future: Future[Any], look: Callable[[], None] | None = None) -> None:
    """Return when a future is done, however; an interrupt ends the wait.

    `look` is called again and again in the meantime.
    """
    while not future.done():
        with suppress(CancelledError, TimeoutError):
            future.exception(_LOOK)
        if look is not None and not future.done():
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
    """Has the teardown of fixtures wait for verdicts.

    A fixture wider than one test always waits: the judge or the server behind it cannot be told
    from others. A function's fixture waits if its value is the judge, the app or a metric of the
    case. Otherwise `monkeypatch` or `capsys` would make the tests run one by one.

    `running` gives the test that runs; `look` is called while a verdict does not come.
    """

    def __init__(self, running: Callable[[], pytest.Item | None], look: Callable[[], None]) -> None:
        self._running, self._look = running, look
        self._waiting: dict[Any, list[Future[Any]]] = {}

    def hold(self, item: pytest.Item, future: Future[Any], used: Sequence[Any]) -> None:
        """Keep the fixtures of a test that a case may need, whose judge, app and metrics are
        `used`."""
        request = getattr(item, "_request", None)
        for definition in getattr(request, "_fixture_defs", {}).values():
            # The value of a fixture may also be a list: then what is in it counts.
            result = definition.cached_result
            value = None if result is None else result[0]
            values = value if isinstance(value, list | tuple) else [value]
            owns = any(value is not None and value is thing for value in values for thing in used)
            if definition.scope != "function" or owns:
                if definition not in self._waiting:
                    # Finalizers run last in, first out: this one before the fixture's own.
                    definition.addfinalizer(lambda definition=definition: self._wait(definition))
                self._waiting.setdefault(definition, []).append(future)

    def _wait(self, definition: Any) -> None:
        with without_timer(self._running()):
            for future in self._waiting.pop(definition, ()):
                wait_for(future, self._look)
