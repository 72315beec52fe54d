"""JSON values in a text that a model wrote, found in time that grows with its length only.

A model puts prose, code fences and remarks around its answer, and may end in the middle of it.
Every bracket might begin the answer. So the obvious search reads the rest of the text once for
every bracket: minutes for a megabyte of them. Text that does not parse is therefore first looked at
through a short window. Only so many failures may read on to the end of the text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, Final, TypeVar

V = TypeVar("V", dict[str, Any], list[Any])

_BEFORE_LIST: Final = re.compile(r"(?:^|:)[ \t]*(?=\[)", re.MULTILINE)
# What begins an object; other braces are code, formulas or damage.
_OBJECT: Final = re.compile(r"\{(?=[ \t\r\n]*[\"}])")

# A key with a number in it and an object behind it.
_MEMBER: Final = re.compile(
    r'"([^"\\\n0-9]{0,30}[0-9]{1,9}[^"\\\n0-9]{0,9})"[ \t\r\n]*:[ \t\r\n]*(?=\{)'
)

WINDOW: Final = 4_096
"""Characters that a place in a text is given at first."""
FAR: Final = 20
"""How many values that do not parse may be read beyond the window."""
DIFFERENT: Final = 100
"""How many different values are told apart."""
DEEPEST: Final = 500
"""Levels of a value: Python's own bound is another one in every version, and on every stack."""
# A repair looks again at what is nested: it is for slips, not for heaps of brackets.
_REPAIRED: Final = 50_000
_REPAIRED_BRACKETS: Final = 500
# A value that the end of the window cut off fails there, or where its last text began.
_CUT: Final = 16


class DoubledKeyError(ValueError):
    """Raised for an object that gives one key two different values."""

    def __init__(self, key: str) -> None:
        super().__init__(f"the key {key!r:.80} stands there twice, with different values")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        for key, value in pairs:
            if fields[key] != value:
                raise DoubledKeyError(key)
    return fields


_DECODER: Final = json.JSONDecoder(object_pairs_hook=_object)


def require_single_keys(text: str) -> None:
    """Raise DoubledKeyError when an object in a valid JSON text gives one key two values."""
    _DECODER.raw_decode(text.lstrip())


def require_shallow(text: str | bytes, value: Any) -> None:
    """Raise RecursionError for a value of a text that is nested more than `DEEPEST` levels deep."""
    if isinstance(text, bytes):
        brackets = text.count(b"[") + text.count(b"{")
    else:
        brackets = text.count("[") + text.count("{")
    if brackets <= DEEPEST:
        return
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(DEEPEST):
        if not level:
            return
        inner = [outer.values() if isinstance(outer, dict) else outer for outer in level]
        level = [item for item in chain.from_iterable(inner) if isinstance(item, dict | list)]
    raise RecursionError(f"a JSON value is nested more than {DEEPEST} levels deep")


def shallow_value(text: str | bytes, **hooks: Any) -> Any:
    """The value of a JSON text of others; `hooks` are those of `json.loads`.

    Raises ValueError for text that is not JSON, or that is nested more than `DEEPEST` levels deep.
    """
    try:
        value = json.loads(text, **hooks)
        require_shallow(text, value)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return value


def fields_of(value: Any) -> dict[str, Any]:
    """The fields of a JSON object; of any other value none."""
    return value if isinstance(value, dict) else {}


def items_of(value: Any) -> list[Any]:
    """The items of a JSON list; of any other value none."""
    return value if isinstance(value, list) else []


def objects_in(text: str) -> list[dict[str, Any]]:
    """The different JSON objects in a text, with prose or fences around them."""
    starts = map(re.Match.start, _OBJECT.finditer(text))
    return _values(text, starts, dict) or _repair(text, text.find("{"), dict, ("{", "}"))


def lists_in(text: str) -> list[list[Any]]:
    """The different JSON lists in a text, each at the start of a line or after a colon.

    Brackets inside a sentence are remarks and references.
    """
    starts = list(map(re.Match.end, _BEFORE_LIST.finditer(text)))
    return _values(text, starts, list) or _repair(
        text, starts[0] if starts else -1, list, ("[", "]")
    )


def numbered_objects(text: str) -> list[tuple[str, dict[str, Any]]]:
    """The objects in a text behind a key with a number in it, with their keys; no nested ones.

    In an object that was cut off these are its whole members.
    """
    keys = {match.end(): match[1] for match in _MEMBER.finditer(text)}
    return [(keys[start], value) for start, value in _values_at(text, keys, dict)]


def _values(text: str, starts: Iterable[int], kind: type[V]) -> list[V]:
    """The different JSON values that begin at such places, one after the other."""
    values = list[V]()
    for _, value in _values_at(text, starts, kind):
        if value not in values:
            values.append(value)
        if len(values) == DIFFERENT:
            break
    return values


def _values_at(text: str, starts: Iterable[int], kind: type[V]) -> Iterator[tuple[int, V]]:
    """The JSON values that begin at such places, with their places, one after the other.

    Raises DoubledKeyError, RecursionError for a value that is nested too deeply, and ValueError
    for a number with more digits than Python reads.
    """
    offset = far = 0
    for start in starts:
        if start < offset:
            continue  # inside the value before
        value, end = _decode(text[start : start + WINDOW], whole=len(text) <= start + WINDOW)
        if end < 0:
            continue
        if end == 0:
            value, end = _decode(text[start:], whole=True)
            far += end < 0
        if end > 0:
            offset = start + end
            if isinstance(value, kind):
                yield start, value
        if far == FAR:
            break


def _decode(text: str, *, whole: bool) -> tuple[Any, int]:
    """The value at the start of a text and its end: 0 where it may only be cut off, -1 if none."""
    try:
        value, end = _DECODER.raw_decode(text)
        require_shallow(text[:end], value)
        return value, end
    except json.JSONDecodeError as error:
        cut = error.msg.startswith("Unterminated") or error.pos > len(text) - _CUT
        return None, 0 if cut and not whole else -1


def _repair(text: str, start: int, kind: type[V], brackets: tuple[str, str]) -> list[V]:
    """The value from `start` to the last bracket, with small mistakes (quotes, commas) repaired.

    A value that was cut off is none: the last thing in it may have been cut, too.
    """
    opening, closing = brackets
    piece = text[start : text.rfind(closing) + 1] if start >= 0 else ""
    if not piece or len(piece) > _REPAIRED or text.count(opening) > text.count(closing):
        return []
    if sum(map(piece.count, "[{")) > _REPAIRED_BRACKETS:
        return []
    import json_repair  # few answers need it

    try:
        value = json_repair.loads(piece, skip_json_loads=True)
    except ValueError:  # nested too deeply for it
        return []
    return [value] if isinstance(value, kind) and value else []
