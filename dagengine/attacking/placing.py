"""Words put into a field of a case that another party controls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, get_args

from dagengine.errors import InputError
from dagengine.prompts.evidence import as_text
from dagengine.test_case import ConversationalTestCase, LLMTestCase, TestCase

Position = Literal["end", "start", "middle"]
POSITIONS: tuple[str, ...] = get_args(Position)
FIELDS = ("actual_output", "input", "retrieval_context", "context", "tools_called", "turns")
"""The fields that an attack can be in; of turns those of the assistant, of tools their output."""


def attacked_field(case: TestCase) -> str:
    """The field that the application under test writes."""
    if isinstance(case, LLMTestCase):
        return "actual_output"
    if isinstance(case, ConversationalTestCase):
        return "turns"
    raise InputError("attacks need cases with one answer or with turns, not arena test cases")


def checked_places(fields: Sequence[str], positions: Sequence[str]) -> None:
    """Raise InputError for a field that no attack can be in, and for an unknown position."""
    for what, names, usable in (("field", fields, FIELDS), ("position", positions, POSITIONS)):
        if stray := [name for name in names if name not in usable]:
            raise InputError(
                f"there is no {what} {stray[0]!r} for attacks; use {', '.join(usable)}"
            )
    if not positions:
        raise InputError(f"give at least one position: {', '.join(POSITIONS)}")


def put_words(
    case: TestCase, field: str, position: str, words: str, *, whole: bool
) -> TestCase | None:
    """The case with the words in a field, or in its place; None if the case has no such field.

    Of a list the last item has them at the end of it, the first one at the start. Nothing else of
    the case changes.
    """
    value = getattr(case, field, None)
    if not value:
        return None
    if isinstance(value, str):
        new: Any = _join(value, position, words, whole)
    else:
        indices = [n for n, item in enumerate(value) if getattr(item, "role", "") != "user"]
        if not indices:
            return None
        offset = indices[{"start": 0, "end": -1}.get(position, len(indices) // 2)]
        new = [
            _item(item, position, words, whole) if n == offset else item
            for n, item in enumerate(value)
        ]
    return case.model_copy(update={field: new})


def _item(item: Any, position: str, words: str, whole: bool) -> Any:
    if isinstance(item, str):
        return _join(item, position, words, whole)
    name = "content" if hasattr(item, "content") else "output"
    text = getattr(item, name)
    text = "" if text is None else as_text(text)
    return item.model_copy(update={name: _join(text, position, words, whole)})


def _join(text: str, position: str, words: str, whole: bool) -> str:
    if whole:
        return words
    if position == "end":
        return f"{text}\n{words}"
    if position == "start":
        return f"{words}\n{text}"
    # Between two words: half a word before an attack would give it away, or break a name.
    blank = text.find(" ", len(text) // 2)
    middle = len(text) if blank < 0 else blank
    return f"{text[:middle]} {words}{text[middle:]}"
