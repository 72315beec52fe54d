"""Conditions on a judge card, as `--fail-if` takes them, and what changed between two cards."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from dagengine.errors import InputError
from dagengine.reliability.card.values import Figure, JudgeCard, MetricCard
from dagengine.reliability.card.words import TITLES, full

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
        """One line for every measure of that name that fails, or is undefined."""
        found = [
            (metric.metric, node, measure)
            for metric in card.metrics
            for node, measure in _named(metric)
            if measure.name == self.measure
        ]
        if not found:
            return [f"{self.text}: nothing on the card is called {self.measure}"]
        lines = [self._line(metric, node, measure) for metric, node, measure in found]
        return [line for line in lines if line]

    def _line(self, metric: str, node: str, measure: Figure) -> str:
        where = f"{self.text}: {metric}{f', node {node!r}' if node else ''}"
        value = getattr(measure, self.bound)
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


def _named(metric: MetricCard) -> Iterator[tuple[str, Figure]]:
    """Every measure, with the node that it belongs to, or none."""
    for measure in metric.measures:
        yield "", measure
    for node in metric.nodes:
        for measure in (node.flip_rate, node.effect, node.share):
            yield node.node, measure


@dataclass(frozen=True, slots=True)
class Difference:
    """One measure on two cards. `apart` says that their intervals do not overlap."""

    metric: str
    node: str
    old: Figure | None
    new: Figure | None

    @property
    def apart(self) -> bool:
        """Whether no value lies in both intervals; a sure sign, but not the only one."""
        old, new = self.old, self.new
        if old is None or new is None or old.low is None or new.low is None:
            return False
        assert old.high is not None
        assert new.high is not None
        return old.high < new.low or new.high < old.low


def differences(old: JudgeCard, new: JudgeCard) -> list[Difference]:
    """Every measure that one of two cards has, in the order of the newer."""
    before, after = _by_place(old), _by_place(new)
    return [
        Difference(metric, node, before.get((metric, node, name)), after.get((metric, node, name)))
        for metric, node, name in {**after, **before}
    ]


def _by_place(card: JudgeCard) -> dict[tuple[str, str, str], Figure]:
    return {
        (metric.metric, node, measure.name): measure
        for metric in card.metrics
        for node, measure in _named(metric)
    }


def failures(card: JudgeCard, conditions: Sequence[FailIf]) -> list[str]:
    """One line for everything that fails."""
    return [line for condition in conditions for line in condition.failures(card)]
