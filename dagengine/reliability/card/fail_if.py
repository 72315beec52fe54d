"""Conditions on a judge card, as `--fail-if` takes them, and as compared with two of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import chain, repeat

from dagengine.errors import InputError, did_you_mean
from dagengine.reliability.card.measures import MEASURES
from dagengine.reliability.card.recommendation import verdict
from dagengine.reliability.card.sentences import difference, full, place, title
from dagengine.reliability.card.types import Contrast, Figure, JudgeCard, every_setting
from dagengine.reliability.statistics.sums import present
from dagengine.results.pass_rules import Condition, parse_condition


@dataclass(frozen=True, slots=True)
class FailIf(Condition):
    """One condition under which a benchmark fails, for instance `flip-rate>0.05`.

    It compares the value with a number; with `.low` or `.high`, a bound of the interval.
    Shares are numbers from 0 to 1.
    """

    def lines(self, card: JudgeCard) -> Iterator[tuple[str, bool]]:
        """One line for every measure of that name that fails or is undefined, and if it is decided.

        It is not for a bound that even a judge without errors would not reach with so few cases.
        """
        measures = [row for row in _named_figures(card) if row[1].name == self.measure]
        if not measures:
            yield f"{self.text}: the card has no measure {self.measure}", True
        for where, measure in measures:
            value, best = getattr(measure, self.bound), measure.best
            if self.bound == "low" and best is not None and self.holds(best):
                few = f"{self.text}: {where}: too few cases (n = {measure.items}): even a judge "
                yield f"{few}without errors would have {self.measure}.low {best:.2f}", False
            elif value is None:
                note = measure.note if measure.value is None else "it has no interval"
                yield f"{self.text}: {where}: {self.measure} is undefined: {note}", True
            elif self.holds(value):
                yield f"{self.text}: {where}: {full(measure)}", True

    def fails(self, contrast: Contrast) -> bool:
        """Return whether a difference of two cards meets the condition, and is not chance.

        Its p, corrected for all differences compared together, must be below 0.05.
        """
        value, p = getattr(contrast.difference, self.bound), contrast.corrected
        return value is not None and p is not None and p < 0.05 and self.holds(value)


_VERDICT = "verdict!=use"


@dataclass(frozen=True, slots=True)
class FailUnlessUse:
    """The condition `verdict!=use`: the judge is not to be used, or it is not known."""

    text: str = _VERDICT

    def lines(self, card: JudgeCard) -> Iterator[tuple[str, bool]]:
        """One line for every metric and setting that is not to be used; unknown is decided, too."""
        for metric, under in every_setting(card):
            advice = verdict(card, metric, under)
            if advice.kind not in ("use", "use_with"):
                yield f"{self.text}: {place(card, metric, under)}: {advice.headline}", True


Conditions = Sequence[FailIf | FailUnlessUse]


def condition(text: str) -> FailIf | FailUnlessUse:
    """The condition on one card that a text states; raises InputError if it states none."""
    return FailUnlessUse() if text.replace(" ", "") == _VERDICT else parse(text)


def parse(text: str) -> FailIf:
    """The condition that a text states; raises InputError if it states none."""
    condition = parse_condition(text, "flip-rate>0.05")
    if condition.of or condition.measure not in MEASURES:
        name = f"{condition.of}.{condition.measure}" if condition.of else condition.measure
        hint = did_you_mean(name, MEASURES) or f"use one of {', '.join(MEASURES)}"
        raise InputError(f"--fail-if {text!r}: there is no measure {name!r}; {hint}")
    return FailIf(**asdict(condition))


def _named_figures(card: JudgeCard) -> Iterator[tuple[str, Figure]]:
    """Every measure, with the metric, setting and node that it belongs to."""
    for metric, under in every_setting(card):
        where = place(card, metric, under)
        yield from zip(repeat(where), under.measures)
        for node in under.nodes:
            figures = (node.flip_rate, node.effect, node.share, node.people, node.unsupported)
            yield from zip(repeat(f"{where}, node {node.node!r}"), present(figures))
    for metric in card.metrics:
        yield from zip(repeat(metric.metric), metric.across)


def failures(card: JudgeCard, conditions: Conditions) -> list[str]:
    """One line for everything that fails."""
    return _lines(card, conditions, decided=True)


def undecided_lines(card: JudgeCard, conditions: Conditions) -> list[str]:
    """One line for everything that the card has too few cases to tell."""
    return _lines(card, conditions, decided=False)


def _lines(card: JudgeCard, conditions: Conditions, decided: bool) -> list[str]:
    rows = chain.from_iterable(condition.lines(card) for condition in conditions)
    return [line for line, is_decided in rows if is_decided is decided]


def worse(found: Sequence[Contrast], conditions: Sequence[FailIf]) -> list[str]:
    """One line for every difference of two cards that a condition holds for."""
    return [
        f"{condition.text}: {contrast.other}: {title(contrast.difference)} {difference(contrast)}"
        for condition in conditions
        for contrast in found
        if contrast.difference.name == condition.measure and condition.fails(contrast)
    ]
