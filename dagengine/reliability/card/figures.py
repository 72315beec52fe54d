"""From a statistic of items to a figure on the card, with its interval."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

from dagengine.reliability.card.values import Figure
from dagengine.reliability.statistics.intervals import bootstrap
from dagengine.reliability.statistics.sums import Sums

T = TypeVar("T")


def figure(
    name: str,
    items: Sequence[T],
    statistic: Callable[[Sequence[T]], Sums | float | None],
    level: str,
    note: str,
    groups: Sequence[Hashable] | None = None,
) -> Figure:
    """A statistic of items with its interval; `note` says why it may be undefined.

    Items of equal `groups`, which are the cases or the groups that they form, stay together when
    resampling. `items` of the figure are the groups that add to the value.
    """
    found = statistic(items)
    value = found.value() if isinstance(found, Sums) else found
    count = _adding(found, items, groups)
    if value is None:
        return Figure(name, None, items=count, level=level, note=note)
    bounds = bootstrap(items, statistic, groups=groups)
    if bounds is None:
        return Figure(name, value, items=count, level=level)
    return Figure(name, value, bounds.low, bounds.high, bounds.level, count, level)


def _adding(
    found: Sums | float | None, items: Sequence[T], groups: Sequence[Hashable] | None
) -> int:
    """How many groups have an item that adds something."""
    names = range(len(items)) if groups is None else groups
    if not isinstance(found, Sums):
        return len(set(names))
    return len({name for name, one in zip(names, found.items, strict=True) if one})
