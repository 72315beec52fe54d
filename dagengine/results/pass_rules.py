"""What passed means: the state of a result and of a case, and conditions on figures.

Scores and thresholds make states. `--fail-if` takes a measure, a sign and a number.
"""

from __future__ import annotations

import operator
import re
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from dagengine.errors import InputError, did_you_mean

State = Literal["failed", "no_score", "passed", "scored"]
"""Below its threshold; without a score; not below it; with a score and no threshold."""
STATES: tuple[State, ...] = ("failed", "no_score", "passed", "scored")
"""From the one that says most about a case to the one that says least."""
SIGNS: dict[State, str] = {"failed": "✕", "no_score": "⊘", "passed": "✓", "scored": "·"}
LETTERS: dict[State, str] = {"failed": "f", "no_score": "n", "passed": "p", "scored": "-"}
"""States in the columns of a page, in the order of `STATES`."""

Combine = Literal["last", "min", "max", "mean", "error"]
"""How several scores of one metric become one; `error` is a failure of the case."""
_COMBINING: dict[Combine, Callable[[Sequence[float]], float]] = {
    "min": min, "max": max, "mean": statistics.fmean,
}  # fmt: skip
_OPERATORS: dict[str, Callable[[float, float], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}
_SHAPE = re.compile(
    r"\s*(?:(?P<of>.+)\.)?(?P<measure>(?!(?:low|high)\b)[a-z][a-z-]*?)(?:\.(?P<bound>low|high))?"
    r"\s*(?P<sign>>=|<=|>|<)\s*(?P<limit>-?[0-9.]+(?:e-?[0-9]+)?)\s*"
)


def passes(score: float | None, threshold: float | None) -> bool | None:
    """Whether a score is not below a threshold; None where one of the two is missing."""
    return None if score is None or threshold is None else score >= threshold


def state_of(score: float | None, success: bool | None) -> State:
    """State of a metric on a case; `success` is None without a threshold."""
    if score is None:
        return "no_score"
    if success is None:
        return "scored"
    return "passed" if success else "failed"


def case_state(states: Iterable[State]) -> State:
    """State of a case: as the metric that says most. Any failed metric fails the case."""
    # A missing score does not hide a failure: what is below its threshold stays there, whatever the
    # other metric would have said.
    return STATES[min(map(STATES.index, states), default=STATES.index("scored"))]


def strict_score(score: float) -> float:
    """Score where only a perfect one counts: 1 if it is perfect, otherwise 0."""
    return 1.0 if score >= 1.0 else 0.0


def combine_scores(scores: Sequence[float], how: Combine) -> float:
    """One score of several, which are in topological order."""
    combine = _COMBINING.get(how)
    return scores[-1] if combine is None else combine(scores)


class Points(BaseModel):
    """The points that a case won of a rubric, and those that were possible.

    `tags` has both for the criteria of each tag that have positive points.
    """

    model_config = ConfigDict(frozen=True)
    won: float
    possible: float
    tags: dict[str, tuple[float, float]] = Field(default_factory=dict)

    @property
    def share(self) -> float:
        """The share that was won, at most 1, and below 0 where more was lost."""
        return self.won / self.possible


@dataclass(frozen=True, slots=True)
class End:
    """A node of a metric and what it said last: its answer, or the kind of its failure."""

    metric: str
    node: str
    answer: str
    state: State

    def __str__(self) -> str:
        return f"{self.node} → {self.answer}" if self.answer else self.node


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition, for instance `flip-rate>0.05` or `Faithfulness.mean.low<0.8`.

    `of` is what the measure belongs to (empty: to the whole). `bound` names a limit of the
    measure's interval, `low` or `high`, or is `value`.
    """

    text: str
    of: str
    measure: str
    bound: str
    sign: str
    limit: float

    def holds(self, value: float) -> bool:
        """Return whether a value meets the condition."""
        return _OPERATORS[self.sign](value, self.limit)


def parse_condition(
    text: str, example: str, measures: Sequence[str] = (), counts: Sequence[str] = ()
) -> Condition:
    """The condition that a text states; raises InputError, with an `example`, for none.

    Also for another one than `measures`, if there are some, and for a bound of `counts`.
    """
    match = _SHAPE.fullmatch(text)
    if match is None:
        raise InputError(
            f"--fail-if {text!r}: write a measure, a comparison sign and a number: {example}"
        )
    try:
        limit = float(match["limit"])
    except ValueError:
        raise InputError(f"--fail-if {text!r}: {match['limit']!r} is not a number") from None
    measure, bound = match["measure"], match["bound"] or "value"
    if measures and measure not in measures:
        hint = did_you_mean(measure, measures) or f"use {', '.join(measures)}"
        raise InputError(f"--fail-if {text!r}: there is no measure {measure!r}; {hint}")
    if bound != "value" and measure in counts:
        raise InputError(f"--fail-if {text!r}: {measure} is a number, and has no .{bound}")
    return Condition(text, match["of"] or "", measure, bound, match["sign"], limit)
