"""The node that running code belongs to: its questions join the node's run, or are refused.

The gateway's `Host` is set here while a node's own code runs. Whoever only has to refuse or to
change the questions of such code needs no gateway.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from dagengine.errors import InputError
from dagengine.question import Question

Change = Callable[[Question[Any]], Question[Any]]

node_at_work: ContextVar[Any] = ContextVar("dagengine node at work", default=None)
"""The node that code belongs to (a `gateway.inner_metrics.Host`); None outside of a run."""


class working_for:
    """Let what is called inside belong to a node; to no run, as a judge's own code, without one."""

    __slots__ = ("_host", "_outer")

    def __init__(self, host: Any) -> None:
        self._host = host

    def __enter__(self) -> None:
        self._outer = node_at_work.set(self._host)

    def __exit__(self, *_: object) -> None:
        node_at_work.reset(self._outer)


class _Nobody:
    """Stands in for a host where code is only looked at: it can ask nothing."""

    blocked = False

    def __getattr__(self, name: str) -> Any:
        raise InputError("no calls are possible here: this code is run only to see what it reads")


def asking_nobody() -> working_for:
    """Refuse whatever is measured by what is called inside, as in a plan."""
    return working_for(_Nobody())


@contextmanager
def asking_with(change: Change) -> Iterator[None]:
    """Have `change` made to every question of metrics that a node's own code measures."""
    host = node_at_work.get()
    if host is None:
        yield
        return
    with host.with_change(change):
        yield
