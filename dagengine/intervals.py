"""Confidence intervals by resampling whole items."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Interval:
    """A value and its confidence interval."""

    value: float
    low: float
    high: float
    level: float
    method: str
    items: int


def bootstrap(
    items: Sequence[T],
    statistic: Callable[[Sequence[T]], float | None],
    *,
    level: float = 0.95,
    resamples: int = 500,
    seed: int = 0,
) -> Interval | None:
    """Percentile bootstrap over items; None where there is no interval."""
    value = statistic(items)
    if value is None or len(items) < 2:
        return None
    draws = random.Random(seed)
    again = (statistic(draws.choices(items, k=len(items))) for _ in range(resamples))
    found = sorted(one for one in again if one is not None)
    if not found or found[0] == found[-1]:
        return None
    cut = int((1 - level) / 2 * len(found))
    return Interval(value, found[cut], found[-1 - cut], level, "percentile", len(items))
