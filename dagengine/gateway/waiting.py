"""Who waits, and for what: for the run, which asks others meanwhile, and for people."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from dagengine.errors import JudgeError, JudgeTimeoutError, ProviderError
from dagengine.results import Waiting


class Resting:
    """The questions that hold no place because they wait for something else: `count` of them.

    They wait for a retry, for the answer to an equal question, or for one judge of several. Others
    may be asked meanwhile, so whoever may have some is told that one begins to wait.
    """

    def __init__(self) -> None:
        self.count = 0
        self._told: list[Callable[[], None]] = []

    def __enter__(self) -> None:
        self.count += 1
        for tell in self._told:
            tell()

    def __exit__(self, *_: object) -> None:
        self.count -= 1

    @contextmanager
    def telling(self, tell: Callable[[], None]) -> Iterator[None]:
        """Call a function whenever a question begins to wait."""
        self._told.append(tell)
        try:
            yield
        finally:
            self._told.remove(tell)


class Waits:
    """The questions that wait for another attempt; may be read from any thread."""

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._waiting: dict[int, tuple[str, float]] = {}

    @contextmanager
    def during(self, error: JudgeError, seconds: float) -> Iterator[None]:
        """A question waits for so many seconds because of an error."""
        number = next(self._numbers)
        self._waiting[number] = reason(error), time.monotonic() + seconds
        try:
            yield
        finally:
            del self._waiting[number]

    def now(self) -> list[Waiting]:
        """Numbers of waiting calls at this moment, by reason."""
        return merge_waits(one_waits(why, until) for why, until in list(self._waiting.values()))


def one_waits(why: str, until: float, count: int = 1) -> Waiting:
    """So many wait until a time of `time.monotonic`."""
    return Waiting(why, count, max(0.0, until - time.monotonic()))


def reason(error: Exception) -> str:
    """An error in one word: the HTTP status if there is one."""
    if isinstance(error, ProviderError) and error.status is not None:
        return str(error.status)
    return "timeout" if isinstance(error, JudgeTimeoutError) else "no answer"


def merge_waits(waits: Iterable[Waiting]) -> list[Waiting]:
    """One entry for each reason, the most frequent first."""
    by_reason: dict[str, Waiting] = {}
    for wait in waits:
        total = by_reason.get(wait.why, Waiting(wait.why, 0, wait.seconds, wait.silent))
        silent = min(wait.silent, total.silent) if wait.silent and total.silent else wait.silent
        seconds = min(total.seconds, wait.seconds)
        by_reason[wait.why] = Waiting(wait.why, total.count + wait.count, seconds, silent)
    return sorted(by_reason.values(), key=lambda wait: (-wait.count, wait.why))
