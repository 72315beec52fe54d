"""Conditions on a judge card, as `--fail-if` takes them, and as compared with two of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

from dagengine.errors import InputError
from dagengine.reliability.card.measures import MEASURES
from dagengine.reliability.card.values import Contrast, Figure, JudgeCard, every_setting
from dagengine.reliability.card.verdict import verdict
from dagengine.reliability.card.words import difference, full, place, title
from dagengine.results.conditions import Condition, parse_condition


@dataclass(frozen=True, slots=True)
class FailIf(Condition):
    """One condition under which a benchmark fails, for instance `flip-rate>0.05`.

    It compares the value with a number; with `.low` or `.high`, a bound of the interval.
    Shares are numbers from 0 to 1.
    """

    def failures(self, card: JudgeCard) -> list[str]:
        """One line for every measure of that name that fails, or is undefined.

        A bound that no judge could reach with so few cases does not fail: see `undecided`.
        """
        measures = [
            (where, measure)
            for where, measure in _named_figures(card)
            if measure.name == self.measure
        ]
        if not measures:
            return [f"{self.text}: the card has no measure {self.measure}"]
        lines: list[str] = []
        for where, measure in measures:
            value = getattr(measure, self.bound)
            if self._out_of_reach(measure):
                continue
            if value is None:
                note = measure.note if measure.value is None else "it has no interval"
                lines.append(f"{self.text}: {where}: {self.measure} is undefined: {note}")
            elif self.holds(value):
                lines.append(f"{self.text}: {where}: {full(measure)}")
        return lines

    def undecided_lines(self, card: JudgeCard) -> list[str]:
        """One line for every measure whose bound even a judge without errors would fail."""
        return [
            f"{self.text}: {where}: too few cases (n = {measure.items}): even a judge without "
            f"errors would have {self.measure}.low {measure.best:.2f}"
            for where, measure in _named_figures(card)
            if measure.name == self.measure and self._out_of_reach(measure)
        ]

    def _out_of_reach(self, measure: Figure) -> bool:
        best = measure.best if self.bound == "low" else None
        return best is not None and self.holds(best)

    def fails(self, contrast: Contrast, level: float = 0.05) -> bool:
        """Return whether a difference of two cards meets the condition, and is not chance.

        Its p, corrected for all differences compared together, must be below `level`.
        """
        value, p = getattr(contrast.difference, self.bound), contrast.corrected
        if value is None or p is None or p >= level:
            return False
        return self.holds(value)


_VERDICT = "verdict!=use"


@dataclass(frozen=True, slots=True)
class FailUnlessUse:
    """The condition `verdict!=use`: the judge is not to be used, or it is not known."""

    text: str = _VERDICT

    def failures(self, card: JudgeCard) -> list[str]:
        """One line for every metric and setting that is not to be used."""
        made = ((place(card, metric, under), verdict(card, metric, under))
                for metric, under in every_setting(card))  # fmt: skip
        return [f"{self.text}: {where}: {advice.headline}" for where, advice in made
                if advice.kind not in ("use", "use_with")]  # fmt: skip

    def undecided_lines(self, card: JudgeCard) -> list[str]:
        """Nothing: what is not known fails."""
        return []


def condition(text: str) -> FailIf | FailUnlessUse:
    """The condition on one card that a text states; raises InputError if it states none."""
    return FailUnlessUse() if text.replace(" ", "") == _VERDICT else parse(text)


def parse(text: str) -> FailIf:
    """The condition that a text states; raises InputError if it states none."""
    condition = parse_condition(text, "flip-rate>0.05")
    if condition.of or condition.measure not in MEASURES:
        name = f"{condition.of}.{condition.measure}" if condition.of else condition.measure
        raise InputError(
            f"--fail-if {text!r}: there is no measure {name!r}; use one of {', '.join(MEASURES)}"
        )
    return FailIf(**asdict(condition))


def _named_figures(card: JudgeCard) -> Iterator[tuple[str, Figure]]:
    """Every measure, with the metric, setting and node that it belongs to."""
    for metric, under in every_setting(card):
        where = place(card, metric, under)
        yield from ((where, measure) for measure in under.measures)
        for node in under.nodes:
            figures = (node.flip_rate, node.effect, node.share, node.people, node.unsupported)
            for measure in figures:
                if measure is not None:
                    yield f"{where}, node {node.node!r}", measure
    for metric in card.metrics:
        yield from ((metric.metric, measure) for measure in metric.across)


def failures(card: JudgeCard, conditions: Sequence[FailIf | FailUnlessUse]) -> list[str]:
    """One line for everything that fails."""
    return [line for condition in conditions for line in condition.failures(card)]


def worse(found: Sequence[Contrast], conditions: Sequence[FailIf]) -> list[str]:
    """One line for every difference of two cards that a condition holds for."""
    return [
        f"{condition.text}: {contrast.other}: {title(contrast.difference)} {difference(contrast)}"
        for condition in conditions
        for contrast in found
        if contrast.difference.name == condition.measure and condition.fails(contrast)
    ]


def undecided_lines(card: JudgeCard, conditions: Sequence[FailIf | FailUnlessUse]) -> list[str]:
    """One line for everything that the card has too few cases to tell."""
    return [line for condition in conditions for line in condition.undecided_lines(card)]
