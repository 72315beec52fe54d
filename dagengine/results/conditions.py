"""Conditions on figures, as `--fail-if` takes them: a measure, a sign and a number."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass

from dagengine.errors import InputError

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


def parse_condition(text: str, example: str) -> Condition:
    """The condition that a text states; raises InputError, with an `example`, for none."""
    match = _SHAPE.fullmatch(text)
    if match is None:
        raise InputError(
            f"--fail-if {text!r}: write a measure, a comparison sign and a number: {example}"
        )
    try:
        limit = float(match["limit"])
    except ValueError:
        raise InputError(f"--fail-if {text!r}: {match['limit']!r} is not a number") from None
    bound = match["bound"] or "value"
    return Condition(text, match["of"] or "", match["measure"], bound, match["sign"], limit)
