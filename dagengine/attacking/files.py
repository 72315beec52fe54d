"""An attack card as files: JSON, and one page of HTML that runs nothing and loads nothing."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

from dagengine.attacking import words
from dagengine.attacking.values import AttackCard
from dagengine.regular_files import write_whole
from dagengine.results.html import document
from dagengine.terminal import counted


def card_json(card: AttackCard) -> str:
    """The card as JSON; every character outside ASCII is an escape, so that none hides."""
    return json.dumps(dataclasses.asdict(card), indent=1) + "\n"


def card_page(card: AttackCard) -> str:
    """The page; hidden characters are escapes, and all else is text."""
    filters = {
        "per_cent": words.per_cent,
        "where": words.where,
        "counted": counted,
        "coded": _code_markup,
    }
    return document(Path(__file__).with_name("attack.html"), filters, card=card, words=words)


def _code_markup(text: str) -> Any:
    """A text as HTML, with what is between backticks as code."""
    from markupsafe import Markup, escape  # comes with jinja2

    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))


def write_attack(card: AttackCard, folder: Path) -> tuple[Path, Path]:
    """Write `attack.html` and `attack.json` into a folder."""
    page, data = folder / "attack.html", folder / "attack.json"
    write_whole(page, card_page(card))
    write_whole(data, card_json(card))
    return page, data
