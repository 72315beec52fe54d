"""What the scores of a rating stand for, and the scale that follows from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from dagengine.errors import InputError

FULL_SCALE, STRICT_SCALE = (0, 10), (0, 1)


@dataclass(frozen=True, slots=True)
class Rubric:
    """The meaning of the scores from `score_range[0]` to `score_range[1]`, both included.

    Raises InputError unless the range is two whole numbers from 0 on, the lower one first.
    """

    score_range: tuple[int, int]
    expected_outcome: str

    def __post_init__(self) -> None:
        low_high = tuple(self.score_range)
        object.__setattr__(self, "score_range", low_high)
        whole = all(isinstance(end, int) and not isinstance(end, bool) for end in low_high)
        if len(low_high) != 2 or not whole or not 0 <= low_high[0] <= low_high[1]:
            raise InputError(
                f"score_range is {self.score_range!r}: use two whole numbers from 0 on, the "
                "lower one first, for instance (0, 2)"
            )
        if not str(self.expected_outcome).strip():
            raise InputError(f"the rubric for {low_high} needs a text as expected_outcome")

    def __str__(self) -> str:
        low, high = self.score_range
        return f"{low if low == high else f'{low} to {high}'}: {self.expected_outcome}"


def scale_of(rubric: Sequence[Rubric]) -> tuple[int, int]:
    """The scale that a rubric spans (0 to 10 without one); raises InputError if it is not valid."""
    if not rubric:
        return FULL_SCALE
    for lower, upper in pairwise(rubric):
        if upper.score_range[0] <= lower.score_range[1]:
            raise InputError(
                f"the rubric's ranges {lower.score_range} and {upper.score_range} overlap"
            )
    low, high = rubric[0].score_range[0], rubric[-1].score_range[1]
    if low == high:
        raise InputError(f"the rubric has only the score {low}: a scale needs at least two scores")
    return low, high
