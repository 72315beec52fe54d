"""A judge card as one page: HTML with its plots inside, no scripts, nothing fetched."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dagengine.reliability.card import words as card_words
from dagengine.reliability.card.values import Figure, JudgeCard, every_setting

# Rows of the strip plot; the cases with the greatest spread come first.
SHOWN_CASES = 20


def card_page(card: JudgeCard) -> str:
    """The page; equal cards give equal pages."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "number": card_words.number,
        "interval": card_words.interval,
        "title": card_words.title,
        "votes": card_words.node_votes,
        "difference": card_words.difference,
        "visible": card_words.visible,
        "at": _at,
        "dot": _radius,
    }
    return environment.get_template("card.html").render(
        card=card,
        words=card_words,
        settings=[(m, under, card_words.answers(under)) for m, under in every_setting(card)],
        shown=SHOWN_CASES,
    )


def _at(value: float | None, measure: Figure | None = None) -> str:
    """Where a value stands on its axis, in per cent of the width, with a margin of 2."""
    low = -1.0 if measure is not None and measure.name in card_words.SIGNED else 0.0
    share = ((value or 0.0) - low) / (1 - low)
    return f"{2 + 96 * min(max(share, 0.0), 1.0):.2f}%"


def _radius(count: int, of: Any) -> str:
    """A dot whose area grows with its share of the runs."""
    return f"{2.5 + 4.5 * (count / max(of, 1)) ** 0.5:.1f}"
