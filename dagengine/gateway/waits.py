"""Who waits for another attempt, and why: for people who look at a run."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from dagengine.errors import JudgeError, JudgeTimeoutError, ProviderError
from dagengine.results import Waiting


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
        """How many wait at this moment, by reason."""
        return merged(one_waits(why, until) for why, until in list(self._waiting.values()))


def one_waits(why: str, until: float, count: int = 1) -> Waiting:
    """So many wait until a time of `time.monotonic`."""
    return Waiting(why, count, max(0.0, until - time.monotonic()))


def reason(error: Exception) -> str:
    """An error in one word: the HTTP status if there is one."""
    if isinstance(error, ProviderError) and error.status is not None:
        return str(error.status)
    return "timeout" if isinstance(error, JudgeTimeoutError) else "no answer"


def merged(waits: Iterable[Waiting]) -> list[Waiting]:
    """One entry for each reason, the most frequent first."""
    found: dict[str, Waiting] = {}
    for one in waits:
        other = found.get(one.why, Waiting(one.why, 0, one.seconds))
        found[one.why] = Waiting(one.why, other.count + one.count, min(other.seconds, one.seconds))
    return sorted(found.values(), key=lambda one: (-one.count, one.why))
