"""Which cases a person is asked to label: failed, unsure or planned ones, or a random sample."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Literal

from dagengine.errors import InputError
from dagengine.results import MetricResult

Queue = Literal["random", "failed", "unsure", "planned"]
QUEUES: tuple[Queue, ...] = ("random", "failed", "unsure", "planned")


def is_failed(result: MetricResult) -> bool:
    """Return whether a case has no score, or one below the threshold."""
    return result.state in ("failed", "no_score")


def is_unsure(result: MetricResult) -> bool:
    """Return whether the votes of some node were split."""
    return any(len(set(map(repr, step.votes))) > 1 for step in result.steps)


def sample(places: Sequence[int], count: int, seed: str) -> list[int]:
    """A random sample of `count` places (all, when there are no more), equal for equal seeds.

    The places are in the order in which they are to be labelled: those of a smaller sample
    with the same seed come first. Raises InputError for a count below 1.
    """
    if count < 1:
        raise InputError(f"a sample has at least one case, got {count}")
    mixed = list(places)
    # All are mixed instead of `count` drawn: so a larger sample begins with the smaller one.
    Random(seed).shuffle(mixed)
    return mixed[:count]
