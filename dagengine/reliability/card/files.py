"""Judge cards as JSON files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from dagengine.errors import InputError
from dagengine.reliability.card.values import FORMAT, JudgeCard

_ADAPTER = TypeAdapter(JudgeCard)


def write_card(card: JudgeCard, path: Path) -> None:
    """Write a card as JSON; equal cards give equal bytes."""
    path.write_bytes(_ADAPTER.dump_json(card, indent=1) + b"\n")


def read_card(path: Path) -> JudgeCard:
    """A card from its JSON; raises InputError when it is none, or of another format."""
    if not path.is_file():
        raise InputError(f"there is no judge card {path}")
    text = path.read_bytes()
    _require_format(text, path)
    try:
        return _ADAPTER.validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(step) for step in first["loc"]) or "the file"
        raise InputError(f"{path} is not a judge card: {place}: {first['msg']}") from None


def _require_format(text: bytes, path: Path) -> None:
    try:
        found: Any = json.loads(text)
    except ValueError:
        return
    given = found.get("format", FORMAT) if isinstance(found, dict) else FORMAT
    if given == 1:
        raise InputError(
            f"{path} has format 1, whose figures pooled all judges and temperatures and which "
            f"kept no outcomes by case: make the card again (with --store it asks nothing anew)"
        )
    if given != FORMAT:
        raise InputError(f"{path} has format {given}; this version reads {FORMAT}")
