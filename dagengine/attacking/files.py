"""An attack card as files: JSON, and one page of HTML that runs nothing and loads nothing."""

from __future__ import annotations

import dataclasses
import json
import re
from contextlib import suppress
from json import JSONDecodeError
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from dagengine.attacking import words
from dagengine.attacking.values import FORMAT, AttackCard
from dagengine.errors import InputError, require_format
from dagengine.regular_files import write_whole
from dagengine.results.html import document
from dagengine.terminal import counted

_ADAPTER = TypeAdapter(AttackCard)


def card_json(card: AttackCard) -> str:
    """The card as JSON; every character outside ASCII is an escape, so that none hides."""
    return json.dumps(dataclasses.asdict(card), indent=1) + "\n"


def read_attack_card(path: str | Path) -> AttackCard:
    """A card from its JSON; raises InputError if it is none."""
    try:
        text = Path(path).read_bytes()
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None
    with suppress(JSONDecodeError):  # the reader of the card says so
        require_format(json.loads(text), FORMAT, str(path))
    try:
        return _ADAPTER.validate_json(text)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        raise InputError(f"{path} is not an attack card: {problem['msg']}") from None


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
