"""A judge card as files: JSON, and one page of HTML without scripts."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from dagengine.errors import InputError, require_format
from dagengine.regular_files import write_whole
from dagengine.reliability.card import card_words
from dagengine.reliability.card.four_questions import QUESTIONS, answers, seen_from
from dagengine.reliability.card.values import (
    FORMAT,
    Figure,
    JudgeCard,
    every_setting,
    page_form,
)
from dagengine.reliability.card.verdict import DEMANDS, MARKS, SIGNS, errors, verdict
from dagengine.results.html import document
from dagengine.terminal import counted

# Rows of the strip plot; the cases with the greatest spread come first.
SHOWN_CASES = 20
_ADAPTER = TypeAdapter(JudgeCard)


def write_card(card: JudgeCard, path: str | Path) -> None:
    """Write a card as JSON; equal cards give equal bytes."""
    write_whole(Path(path), _ADAPTER.dump_json(card, indent=1) + b"\n")


def read_card(path: str | Path) -> JudgeCard:
    """A card from its JSON; raises InputError if it is not valid, or of another format."""
    path = Path(path)
    if not path.is_file():
        raise InputError(f"there is no judge card {path}")
    text = path.read_bytes()
    _require_format(text, path)
    try:
        return _ADAPTER.validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key_path = ".".join(str(step) for step in first["loc"]) or "the file"
        raise InputError(f"{path} is not a judge card: {key_path}: {first['msg']}") from None


def _require_format(text: bytes, path: Path) -> None:
    try:
        data: Any = json.loads(text)
    except (ValueError, RecursionError):  # the reader of the card says so
        return
    version = data.get("format", FORMAT) if isinstance(data, dict) else FORMAT
    if version == 1:
        raise InputError(
            f"{path} has format 1, which pooled all judges and temperatures and had no outcomes "
            "by case: make the card again (with --store this makes no new calls)"
        )
    require_format(data, FORMAT, str(path))
    if version != FORMAT:
        raise InputError(f"{path} has format {version}, but this version reads format {FORMAT}")


# The page.


@page_form
def card_page(card: JudgeCard) -> str:
    """The page; equal cards give equal pages."""
    filters = {
        "number": card_words.number,
        "interval": card_words.interval,
        "title": card_words.title,
        "votes": card_words.votes_of,
        "difference": card_words.difference,
        "visible": card_words.visible,
        "at": _at,
        "tied": lambda text: text.replace(" %", "\N{NO-BREAK SPACE}%"),
        # Quoted names may be cut off on the page; the title has them whole.
        "clipped": lambda text: re.sub("“([^”]+)”", r'“<b title="\1">\1</b>”', html.escape(text)),
        "counted": counted,
        # The area of a dot grows with its share of the runs.
        "dot": lambda count, of: f"{2.5 + 4.5 * (count / max(of, 1)) ** 0.5:.1f}",
    }
    return document(
        Path(__file__).with_name("card.html"),
        filters,
        card=card,
        words=card_words,
        questions=QUESTIONS,
        settings=[
            (metric, under, answers(under), verdict(card, metric, under))
            for metric, under in every_setting(card)
        ],
        signs=SIGNS,
        marks=MARKS,
        demands=DEMANDS,
        errors=errors,
        seen_from=seen_from,
        shown=SHOWN_CASES,
    )


def _at(value: float | None, measure: Figure | None = None) -> str:
    """Position of a value on its axis, in per cent of the width, with a margin of 2."""
    low = -1.0 if measure is not None and card_words.signed(measure) else 0.0
    share = ((value or 0.0) - low) / (1 - low)
    return f"{2 + 96 * min(max(share, 0.0), 1.0):.2f}%"
