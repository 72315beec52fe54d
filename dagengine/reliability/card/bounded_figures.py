"""From a statistic, or an interval, to a figure on the card."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import TypeVar

from dagengine.reliability.card.values import Figure
from dagengine.reliability.statistics.intervals import Interval, Unknown, bootstrap
from dagengine.reliability.statistics.measures import measure_of
from dagengine.reliability.statistics.sums import Sums, groups_of

T = TypeVar("T")

NOT_RANDOM = "so they are not a random sample"
"""How a note ends that refuses labels which are said to be a random sample."""


def figure(
    name: str,
    items: Sequence[T],
    statistic: Callable[[Sequence[T]], Sums | float | None],
    note: str,
    groups: Sequence[Hashable] | None = None,
    level: str = "",
    confidence: float = 0.95,
) -> Figure:
    """A statistic of items with its interval; `note` says why it may be undefined.

    `level` says what it is computed from, where that is not always the same. Items of equal
    `groups`, which are the cases or the groups that they form, stay together when resampling.
    `items` of the figure are the groups that add to the value, none without one.
    """
    result, level = statistic(items), level or measure_of(name).level
    value = result.value() if isinstance(result, Sums) else result
    # How many groups have an item that adds something; a plain function does not say which do.
    names = groups_of(groups, len(items))
    adding = set(names)
    if isinstance(result, Sums):
        adding = {name for name, adds in zip(names, result.adds, strict=True) if adds}
    count = len(adding)
    if value is None:
        return Figure(name, None, level=level, note=note)
    statistic_of = (lambda _: result) if isinstance(result, Sums) else statistic
    bounds = bootstrap(items, statistic_of, groups=groups, level=confidence)
    if bounds is None:
        return Figure(name, value, items=count, level=level)
    return Figure(name, value, bounds.low, bounds.high, bounds.level, count, level)


def reaching(sides: Sequence[Figure]) -> Figure:
    """The first figure, whose interval also holds those by other rules for missing answers."""
    measure = sides[0]
    if measure.value is None or len(sides) < 2:
        return measure
    ends: list[float] = []
    for side in sides:
        if side.value is not None:
            ends += (side.value if end is None else end for end in (side.low, side.high))
    return replace(measure, low=min(ends), high=max(ends))


_REASONS = {
    "undefined": "it is not defined for these cases",
    "too few items": "too few cases",
    "too few groups": "too few groups of cases",
    "no variation within items": "the runs of a case never differ",
    "no variation between items": "all cases have the same mean score",
    "one item varies": "only one case makes the runs, or the cases, differ",
    "no variation": "all values are equal",
    "too few labels": "too few labels",
    "labels are not random": "the labelled cases are not a random sample",
}


def figure_of(
    name: str, found: Interval | Unknown | None, level: str = "", note: str = ""
) -> Figure:
    """An interval as a figure; if it is not known, the figure says why (by `note`, if given)."""
    level = level or measure_of(name).level
    if isinstance(found, Interval):
        bounds = found.low, found.high, found.level
        return Figure(name, found.value, *bounds, items=found.items, level=level)
    if found is None:
        return Figure(name, None, level=level, note=note)
    count = 0 if found.reason == "undefined" else found.items
    return Figure(name, None, items=count, level=level, note=note or reason(found))


def reason(found: Unknown) -> str:
    """Why something is not known, in words, and how many cases are needed."""
    needed = "" if found.needed is None else f"; {found.needed} are needed"
    return f"{_REASONS[found.reason]} (n = {found.items}{needed})"
