"""`--fail-if` of an attack: conditions on the attack card."""

from __future__ import annotations

from collections.abc import Sequence

from dagengine.attacking.values import AttackCard, Share
from dagengine.errors import InputError
from dagengine.results.conditions import Condition, parse_condition

MEASURES = ("falls", "attack-success", "null-pass", "drift")
"""Cells that are red; the largest share turned by a family; null answers that pass; twins."""
_EXAMPLE = "'falls>0'"


def condition(text: str) -> Condition:
    """The condition that a text states; raises InputError if it states none."""
    rule = parse_condition(text, _EXAMPLE)
    if rule.measure not in MEASURES:
        raise InputError(
            f"--fail-if {text!r}: there is no measure {rule.measure!r}; use {', '.join(MEASURES)}"
        )
    if rule.bound != "value" and rule.measure == "falls":
        raise InputError(f"--fail-if {text!r}: falls is a number, and has no .{rule.bound}")
    return rule


def failures(card: AttackCard, conditions: Sequence[Condition]) -> list[str]:
    """One line for everything that fails, or is undefined."""
    return [line for wanted in conditions for line in _lines(card, wanted)]


def _lines(card: AttackCard, wanted: Condition) -> list[str]:
    if wanted.measure == "falls":
        red = [cell for cell in card.red if wanted.of in ("", cell.metric, cell.node)]
        number = float(len(red))
        return [f"{wanted.text}: {number:g} are shown to fall"] if wanted.holds(number) else []
    shares = _shares(card, wanted)
    if not shares:
        return [f"{wanted.text}: it is undefined: nothing was attacked"]
    values = [(where, getattr(share, wanted.bound)) for where, share in shares]
    undefined = [where for where, value in values if value is None]
    return [f"{wanted.text}: {where}: too few cases" for where in undefined] + [
        f"{wanted.text}: {where}: {value:.3f}"
        for where, value in values
        if value is not None and wanted.holds(value)
    ]


def _shares(card: AttackCard, wanted: Condition) -> list[tuple[str, Share]]:
    if wanted.measure == "null-pass":
        figures = [(own.metric, own.metric, own.null) for own in card.metrics]
    elif wanted.measure == "drift":
        figures = [(f.metric, f"{f.metric}, {f.family}", f.turned) for f in card.figures]
    else:
        figures = [
            (c.metric, f"{c.metric}, {c.family}", c.attacked) for c in card.cells if not c.node
        ]
    return [
        (where, share)
        for metric, where, share in figures
        if share is not None and share.cases and wanted.of in ("", metric)
    ]
