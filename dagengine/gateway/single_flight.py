"""One computation per key at a time, shared by all callers that ask for it meanwhile."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import anyio

from dagengine.errors import DagengineError, JudgeError
from dagengine.gateway.call_priorities import Urgency

V = TypeVar("V")


class WithdrawnError(JudgeError):
    """Raised where a question is not asked, as nobody waits for its case; others may ask it."""


@dataclass(slots=True)
class _Flight(Generic[V]):
    """A computation in progress; one of `error` and `value` is set unless it was cancelled."""

    urgency: Urgency | None
    landed: anyio.Event | None = None  # made by the first who waits
    value: list[V] = field(default_factory=list)  # of one, as the value itself may be None
    error: DagengineError | None = None


class SingleFlight(Generic[V]):
    """Keeps results of at most `size` in total weight, least recently used out first.

    Every result weighs 1 unless `weigh` says otherwise; one that alone is too heavy is not
    kept. Errors are handed to those who waited and then forgotten. When the one who computes
    is cancelled, one of those who wait takes over.
    """

    def __init__(self, size: int, weigh: Callable[[V], int] = lambda value: 1) -> None:
        self._size = self._room = size
        self._weigh = weigh
        self._open: dict[Hashable, _Flight[V]] = {}
        self._kept: OrderedDict[Hashable, tuple[V, int]] = OrderedDict()
        self.shared = 0

    async def get(
        self,
        key: Hashable,
        make: Callable[[], Awaitable[V]],
        urgency: Urgency | None = None,
        waiting: AbstractContextManager[None] | None = None,
    ) -> V:
        """The value for `key`, computed by `make` unless it is there or in progress.

        A computation in progress becomes as urgent as `urgency`; the wait for it is in `waiting`.
        """
        while True:
            if key in self._kept:
                self._kept.move_to_end(key)
                self.shared += 1
                return self._kept[key][0]
            flight = self._open.get(key)
            if flight is None:
                break
            if flight.landed is None:
                flight.landed = anyio.Event()
            if flight.urgency is not None and urgency is not None:
                flight.urgency.lend(urgency.rank)
            with waiting or nullcontext():
                await flight.landed.wait()
            if flight.error is not None:
                self.shared += 1
                raise flight.error
            if flight.value:
                self.shared += 1
                return flight.value[0]
            # It was cancelled: neither value nor error. The first who wakes finds the key free and
            # computes, and the others wait for that one.
        flight = self._open[key] = _Flight(urgency)
        try:
            value = await make()
        except WithdrawnError:  # not handed on: the others do wait, so one of them asks
            raise
        except DagengineError as error:
            flight.error = error
            raise
        else:
            flight.value.append(value)
            self.keep(key, value)
            return value
        finally:
            del self._open[key]
            if flight.landed is not None:
                flight.landed.set()

    def __contains__(self, key: Hashable) -> bool:
        """Return whether a value is there or in progress."""
        return key in self._kept or key in self._open

    def keep(self, key: Hashable, value: V) -> None:
        """Have a value ready for whoever asks for it, unless it is too heavy."""
        weight = self._weigh(value)
        if weight > self._size:
            return
        self._room -= weight
        self._kept[key] = value, weight
        while self._room < 0:
            _, (_, freed) = self._kept.popitem(last=False)
            self._room += freed
