"""Measures of a judge that are functions of sums over items.

An item says what it adds (`{"pairs": 1, "differ": 0.4}`), and the measure is computed from the
totals. So a measure of the whole sample, of a resample and of the sample without one item is the
same formula on other totals. This makes bootstrap intervals cheap.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, update_wrapper
from itertools import chain
from typing import Any, Concatenate, Generic, Literal, ParamSpec, TypeVar

from dagengine.errors import InputError, load_extra


def needs(module: str) -> Any:
    """Return a module that intervals and cards need; raises MissingExtraError without the extra."""
    return load_extra(module, "intervals and judge cards need", "benchmark")


class Extra:
    """A module of the extra `benchmark`, which is loaded when it is used."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(needs(self._name), attribute)


numpy, special, stats = Extra("numpy"), Extra("scipy.special"), Extra("scipy.stats")

Vote = Hashable
"""An answer: a verdict, a number, a raw text, or the tuple of nodes that was the path."""

Table = Sequence[Sequence[Vote | None]]
"""One row per item, one column per repetition or rater; None is an answer nobody could parse."""

ScoreTable = Sequence[Sequence[float | None]]
"""A table of scores."""

Groups = Sequence[Hashable] | None
"""The group of each item, where items of one group depend on each other; None if none do."""

Missing = Literal["drop", "own category"]
"""What an unparseable answer counts as: nothing, or one more verdict equal to its like."""

Totals = Mapping[Any, float]
Item = TypeVar("Item")
Value = TypeVar("Value")
P = ParamSpec("P")


@dataclass(frozen=True)
class Sums:
    """What every item adds, and the formula of the totals.

    `formula` gives None, or not a number, if the measure is not defined; a quotient of zero by zero
    is undefined by itself. `most` says that the measure is a mean over items of shares that lie
    between 0 and this; None, that it is something else. `limit` is what such a mean is expected
    to be at most, where that is less. `unseen` is the most that an item can add on average, over
    the chance that it does not add 0: behind a 0 of many repetitions little is hidden. `of_arrays`
    says that the formula also takes arrays, of many totals together.
    """

    items: Sequence[Totals]
    formula: Callable[[Totals], float | None]
    most: float | None = None
    limit: float | None = None
    unseen: float | None = None
    of_arrays: bool = False
    _left_out: dict[bytes, Any] = field(default_factory=dict, init=False, compare=False)

    def value(self) -> float | None:
        """The measure of all items."""
        return self.of(total(self.items))

    def of(self, totals: Totals) -> float | None:
        """The measure of these totals."""
        try:
            value = self.formula(totals)
        except ZeroDivisionError:
            return None
        return None if value is None or math.isnan(value) else value

    @cached_property
    def adds(self) -> list[bool]:
        """Whether each item adds something."""
        return list(map(bool, self.items))

    @cached_property
    def matrix(self) -> Any:
        """The addends, a row per item and a column per total; equal items may be one object."""
        keys = self._keys
        rows = indices(map(id, self.items))
        different = dict(zip(rows, self.items, strict=True)).values()
        values = [[item.get(key, 0.0) for key in keys] for item in different]
        return numpy.array(values, dtype=float).reshape(-1, len(keys))[rows]

    def left_out(self, groups: Any) -> Any:
        """The measure without group 0, without group 1, and so on; nan where it is undefined.

        `groups` is an array of the group of each item.
        """
        key = groups.tobytes()
        if key not in self._left_out:
            matrix = in_groups(self.matrix, groups)
            # All above a row and all below it: less an item, a total of zero would be one of
            # rounding.
            empty = numpy.zeros((1, matrix.shape[1]))
            above = numpy.vstack([empty, matrix[:-1]]).cumsum(0)
            below = numpy.vstack([empty, matrix[:0:-1]]).cumsum(0)[::-1]
            self._left_out[key] = self.each(above + below)
        return self._left_out[key]

    def each(self, totals: Any) -> Any:
        """The measure of each row of totals, an array; nan where it is undefined."""
        if not self.of_arrays:
            rows = (defaultdict(float, zip(self._keys, row, strict=True))
                    for row in totals.tolist())  # fmt: skip
            return numpy.array(list(map(self.of, rows)), dtype=float)
        columns = defaultdict(float, zip(self._keys, totals.T, strict=True))
        with numpy.errstate(invalid="ignore", divide="ignore"):
            values: Any = self.formula(columns)
        return numpy.where(numpy.isfinite(values), values, numpy.nan)

    @cached_property
    def _keys(self) -> list[Hashable]:
        return list(dict.fromkeys(chain.from_iterable(self.items)))


@dataclass(frozen=True)
class _Difference(Sums):
    """The first of two measures of the same items, minus the second."""

    sides: tuple[Sums, ...] = ()

    def value(self) -> float | None:
        value, subtrahend = (side.value() for side in self.sides)
        return None if value is None or subtrahend is None else value - subtrahend

    @cached_property
    def matrix(self) -> Any:
        return numpy.hstack([side.matrix for side in self.sides])

    def left_out(self, groups: Any) -> Any:
        return self.sides[0].left_out(groups) - self.sides[1].left_out(groups)

    def each(self, totals: Any) -> Any:
        width = self.sides[0].matrix.shape[1]
        return self.sides[0].each(totals[:, :width]) - self.sides[1].each(totals[:, width:])


def in_groups(matrix: Any, groups: Any) -> Any:
    """The sums of the rows of each group; `groups` is an array of the group of each row."""
    sums = [numpy.bincount(groups, column) for column in matrix.T]
    return numpy.stack(sums, 1) if sums else matrix[numpy.unique(groups)]


class SummedMeasure(Generic[Item, P]):
    """A function of items whose value is a number, and whose `sums` can be resampled.

    It decorates the function that makes the sums.
    """

    def __init__(self, sums: Callable[Concatenate[Sequence[Item], P], Sums]) -> None:
        self.sums = sums
        update_wrapper(self, sums)

    def __call__(self, items: Sequence[Item], *args: P.args, **kwargs: P.kwargs) -> float | None:
        return self.sums(items, *args, **kwargs).value()


def total(items: Sequence[Totals]) -> Totals:
    """The sum of what items add; what no item has adds nothing."""
    parts: defaultdict[Hashable, list[float]] = defaultdict(list)
    counts, different = Counter(map(id, items)), {id(item): item for item in items}
    for name, item in different.items():  # many cases may share an item
        for key, number in item.items():
            parts[key] += [number] * counts[name]
    return defaultdict(float, {key: math.fsum(numbers) for key, numbers in parts.items()})


def mean(
    values: Iterable[float | None], *, most: float | None = 1.0, limit: float | None = None,
    unseen: float | None = None,
) -> Sums:  # fmt: skip
    """The mean of one value per item; items without one (None) are left out.

    `most` is the highest value that an item can have, None if it is not a share; `limit` is what
    its expectation cannot exceed; `unseen` is that of `Sums`.
    """
    added = cache(lambda value: {} if value is None else {"items": 1.0, "value": value})
    items = [*map(added, values)]
    return replace(quotient(items, "value", "items"), most=most, limit=limit, unseen=unseen)


def quotient(items: Sequence[Totals], above: str, below: str, *, most: float | None = None) -> Sums:
    """One total over another, as a mean or a share of unequal items is."""

    return Sums(items, lambda totals: totals[above] / totals[below], most, of_arrays=True)


def difference(one: Sums, other: Sums) -> Sums:
    """The first measure minus the second, of the same items."""
    items = [item or counterpart for item, counterpart in zip(one.items, other.items, strict=True)]
    return _Difference(items, one.formula, sides=(one, other))


def groups_of(groups: Groups, size: int) -> Sequence[Hashable]:
    """The group of each of `size` items, each by itself without groups.

    Raises InputError if there are more or fewer groups.
    """
    if groups is not None and len(groups) != size:
        raise InputError(f"{size} items need as many groups, got {len(groups)}")
    return range(size) if groups is None else groups


def split_groups(rows: Iterable[tuple[Item, Hashable]]) -> tuple[list[Item], list[Hashable]]:
    """Items and their groups, from pairs of both."""
    items, groups = list[Item](), list[Hashable]()
    for item, group in rows:
        items.append(item)
        groups.append(group)
    return items, groups


def indices(values: Iterable[Hashable]) -> list[int]:
    """The number of each value; different ones are numbered as they occur."""
    numbers: dict[Hashable, int] = {}
    return [numbers.setdefault(value, len(numbers)) for value in values]


def by_row(of: Callable[[tuple[Item, ...]], Value], table: Iterable[Sequence[Item]]) -> list[Value]:
    """`of` each row. Rows of many cases are equal, and are read once."""
    return [*map(cache(of), map(tuple, table))]


def counting_votes(row: Iterable[Vote | None], missing: Missing) -> list[Vote | None]:
    """The votes of a row that count under the rule for missing answers."""
    if missing not in ("drop", "own category"):
        raise InputError(f"missing={missing!r}: choose 'drop' or 'own category'")
    return present(row) if missing == "drop" else [*row]


def present(row: Iterable[Item | None]) -> list[Item]:
    """The values of a row that are there."""
    return [value for value in row if value is not None]


def mean_score(row: Iterable[float | None]) -> float | None:
    """The mean of the scores that there are; None without any."""
    scores = present(row)
    return statistics.fmean(scores) if scores else None


def numbers(row: Iterable[float | None]) -> list[float]:
    """The scores of a row; raises InputError for what is not a finite number."""
    scores = [*map(float, present(row))]
    if bad := [score for score in scores if not math.isfinite(score)]:
        raise InputError(f"numbers must be finite, got {bad[0]}")
    return scores


def rectangular(table: Sequence[Sequence[Item]], columns: int | None = None) -> int:
    """The number of columns of a table; raises InputError when its rows differ."""
    widths = {*map(len, table), *present([columns])}
    if len(widths) > 1:
        raise InputError(f"all rows need the same number of columns, got {sorted(widths)}")
    return max(widths, default=0)


def squared_deviations(size: float, sum_: float, squares: float) -> float:
    """Σ (x - mean)² from the sums of x and x²; 0 when nothing is left but rounding."""
    deviations = squares - sum_ * sum_ / size
    return deviations * (deviations > 1e-12 * squares) + 0.0  # of arrays, too
