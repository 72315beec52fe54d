"""Whether a case has any text that a metric could judge."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

from dagengine.test_case import LLMTestCase, TestCase, Turn, read_field

Judged = tuple[tuple[str, ...], ...]
"""Paths of the fields that a metric judges; in each group, at least one field must not be empty."""

_NONE: tuple[Any, ...] = (None, [], {})


def nothing_to_judge(judged: Judged, case: TestCase) -> str | None:
    """Why there is nothing to judge in a case; None when every group of fields holds something.

    A text of white space only is nothing to judge. A field that is missing is another failure
    (`missing_field`). A list without items is not a failure: metrics have a formula for it.
    """
    for group in judged:
        values = [read_field(case, path) for path in group]
        if all(map(is_blank, values)) and any(value not in _NONE for value in values):
            names = " and ".join(f"`{path}`" for path in group)
            return f"nothing to judge: {names} {'is' if len(group) == 1 else 'are'} empty"
    return None


def is_blank(value: Any) -> bool:
    """Return whether there is no text: nothing to see in it and all its parts.

    For a turn the content counts, for a contestant the actual output. A number is never blank.
    """
    if value is None:
        return True
    if isinstance(value, str):
        # Control and format characters (a zero width space) are not seen, either.
        return all(
            letter.isspace() or unicodedata.category(letter) in ("Cc", "Cf")
            for letter in value.strip()
        )
    if isinstance(value, Turn):
        return is_blank(value.content)
    if isinstance(value, LLMTestCase):
        return is_blank(value.actual_output)
    if isinstance(value, Mapping):
        return all(map(is_blank, value.values()))
    return isinstance(value, Sequence) and all(map(is_blank, value))
