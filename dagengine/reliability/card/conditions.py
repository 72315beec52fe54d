"""Conditions on a judge card, as `--fail-if` takes them, and as held against two of them."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from dagengine.errors import InputError
from dagengine.reliability.card.values import Contrast, Figure, JudgeCard, every_setting
from dagengine.reliability.card.words import TITLES, difference, full, place, title

_OPERATORS: dict[str, Callable[[float, float], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}
_SHAPE = re.compile(r"\s*([a-z-]+?)(\.low|\.high)?\s*(>=|<=|>|<)\s*(-?[0-9.]+(?:e-?[0-9]+)?)\s*")


@dataclass(frozen=True, slots=True)
class FailIf:
    """One condition under which a benchmark fails, for instance `flip-rate>0.05`.

    It holds the value, or with `.low` or `.high` a bound of the interval, against a number.
    Shares are numbers from 0 to 1.
    """

    text: str
    measure: str
    bound: str
    sign: str
    limit: float

    def failures(self, card: JudgeCard) -> list[str]:
        """One line for every measure of that name that fails, or is undefined.

        A bound that no judge could reach with so few cases does not fail: see `undecided`.
        """
        found = [
            (where, measure) for where, measure in _named(card) if measure.name == self.measure
        ]
        if not found:
            return [f"{self.text}: nothing on the card is called {self.measure}"]
        lines = [self._line(f"{self.text}: {where}", measure) for where, measure in found]
        return [line for line in lines if line]

    def undecided(self, card: JudgeCard) -> list[str]:
        """One line for every measure whose bound even a judge without an error would fail."""
        return [
            f"{self.text}: {where}: n too small ({measure.items}): a judge without an error would "
            f"have {self.measure}.low {measure.best:.2f} here"
            for where, measure in _named(card)
            if measure.name == self.measure and self._out_of_reach(measure)
        ]

    def _out_of_reach(self, measure: Figure) -> bool:
        best = measure.best if self.bound == "low" else None
        return best is not None and _OPERATORS[self.sign](best, self.limit)

    def fails(self, contrast: Contrast, level: float = 0.05) -> bool:
        """Whether a difference of two cards holds the condition, and is no chance.

        Its p, corrected for all differences that stand together, must lie below `level`.
        """
        value, p = getattr(contrast.difference, self.bound), contrast.corrected
        if value is None or p is None or p >= level:
            return False
        return _OPERATORS[self.sign](value, self.limit)

    def _line(self, where: str, measure: Figure) -> str:
        value = getattr(measure, self.bound)
        if self._out_of_reach(measure):
            return ""
        if value is None:
            note = measure.note if measure.value is None else "it has no interval"
            return f"{where}: {self.measure} is undefined: {note}"
        holds = _OPERATORS[self.sign](value, self.limit)
        return f"{where}: {full(measure)}" if holds else ""


def parse(text: str) -> FailIf:
    """The condition that a text states; raises InputError when it states none."""
    found = _SHAPE.fullmatch(text)
    if found is None:
        raise InputError(
            f"--fail-if {text!r}: write a measure, a sign and a number: flip-rate>0.05"
        )
    name, bound, sign, limit = found.groups()
    if name not in TITLES:
        raise InputError(f"--fail-if {text!r}: no measure is called {name!r}; {_known()} are")
    try:
        return FailIf(text, name, bound[1:] if bound else "value", sign, float(limit))
    except ValueError:
        raise InputError(f"--fail-if {text!r}: {limit!r} is not a number") from None


def _known() -> str:
    return ", ".join(TITLES)


def _named(card: JudgeCard) -> Iterator[tuple[str, Figure]]:
    """Every measure, with the metric, setting and node that it belongs to."""
    for metric, under in every_setting(card):
        where = place(card, metric, under)
        yield from ((where, measure) for measure in under.measures)
        for node in under.nodes:
            for measure in (node.flip_rate, node.effect, node.share):
                yield f"{where}, node {node.node!r}", measure
    for metric in card.metrics:
        yield from ((metric.metric, measure) for measure in metric.across)


def failures(card: JudgeCard, conditions: Sequence[FailIf]) -> list[str]:
    """One line for everything that fails."""
    return [line for condition in conditions for line in condition.failures(card)]


def worse(found: Sequence[Contrast], conditions: Sequence[FailIf]) -> list[str]:
    """One line for every difference of two cards that a condition holds for."""
    return [
        f"{condition.text}: {one.other}: {title(one.difference)} {difference(one)}"
        for condition in conditions
        for one in found
        if one.difference.name == condition.measure and condition.fails(one)
    ]


def undecided(card: JudgeCard, conditions: Sequence[FailIf]) -> list[str]:
    """One line for everything that the card has too few cases to tell."""
    return [line for condition in conditions for line in condition.undecided(card)]
