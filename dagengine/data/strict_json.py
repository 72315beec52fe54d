"""JSON of a data set, read without guessing: what would be lost or changed is a flaw.

Python's own reader takes the last of two equal keys and turns `NaN` into a number. It stops at an
integer of more than 4,300 digits (`sys.set_int_max_str_digits`). In a data set these are mistakes
of one row, so they are named and cost that row alone.
"""

from __future__ import annotations

import ast
import io
import itertools
import json
import math
import tokenize
from collections import Counter
from collections.abc import Callable
from typing import Any

from dagengine.prompts.json_in_text import require_shallow


class FlawError(ValueError):
    """Says what is wrong with a JSON text, as the end of a sentence about its place."""


def read_json(text: str) -> Any:
    """The value of one JSON text; raises FlawError for the first flaw."""
    try:
        return _decode(_RAISING, text.rstrip())  # else the flaw of a cut text is on the next line
    except json.JSONDecodeError as error:
        what = error.msg.removesuffix(" at")
        raise FlawError(f"not JSON: {what} at column {error.colno}") from None


def read_marked(text: str) -> Any:
    """The value of one JSON text, with a FlawError in the place of every object or number at fault.

    Raises FlawError for a text that is not JSON as a whole.
    """
    try:
        return _decode(_MARKING, text)
    except json.JSONDecodeError as error:
        raise FlawError(str(error)) from None


def item_or_flaw(item: Any) -> Any:
    """A value of `read_marked`, or a flaw inside it: what reading it alone would raise."""
    # Nested values wait on a list, not on Python's stack.
    waiting = [item]
    while waiting:
        value = waiting.pop()
        if isinstance(value, FlawError):
            return value
        if isinstance(value, dict):
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
    return item


def _decode(decoder: json.JSONDecoder, text: str) -> Any:
    try:
        value = decoder.decode(text)
        require_shallow(text, value)
    except RecursionError:
        raise FlawError("nested too deeply") from None
    return value


def _decoder(flawed: Callable[[str], Any]) -> json.JSONDecoder:
    """Return a decoder that calls `flawed` with the words for a flaw, and puts the result there."""

    def object_of(pairs: list[tuple[str, Any]]) -> Any:
        # The decoder of the library would keep the last of two equal keys, and say nothing.
        value = dict(pairs)
        if len(value) == len(pairs):
            return value
        twice = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
        return flawed(f"the key {twice!r:.80} is there twice in one object; remove one")

    def integer(digits: str) -> Any:
        try:
            return int(digits)
        except ValueError:
            return flawed(
                f"an integer of {len(digits.lstrip('-'))} digits is too long; write it as text, "
                "in quotes"
            )

    def number(digits: str) -> Any:
        value = float(digits)
        return value if math.isfinite(value) else constant(digits)

    def constant(name: str) -> Any:
        return flawed(f"{name:.20} is not a JSON value; write null, or leave the field out")

    return json.JSONDecoder(
        object_pairs_hook=object_of,
        parse_int=integer,
        parse_float=number,
        parse_constant=constant,
    )


def _raise(message: str) -> Any:
    raise FlawError(message)


_RAISING = _decoder(_raise)
_MARKING = _decoder(FlawError)  # makes the error, and leaves it in the place of the value


def read_written(cell: str) -> Any:
    """The value of a cell: any JSON, or a list or object as pandas or NumPy write it.

    Raises FlawError for anything else, and if only some commas are missing.
    """
    try:
        return read_json(cell)
    except FlawError as error:
        flaw = error
    if not str(flaw).startswith("not JSON") or cell.lstrip()[:1] not in ("[", "{", "("):
        raise flaw
    try:
        # Through JSON, which makes lists of tuples, and refuses sets and other values of Python.
        value = json.loads(json.dumps(ast.literal_eval(cell.strip()), allow_nan=False))
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        raise flaw from None
    # NumPy writes no commas between texts, and Python joins texts that follow each other.
    tokens = list(tokenize.generate_tokens(io.StringIO(cell.strip()).readline))
    kinds = [token.type for token in tokens if token.type in (tokenize.STRING, tokenize.OP)]
    if (tokenize.STRING, tokenize.STRING) in itertools.pairwise(kinds):
        # More than the two brackets: there are commas, too. Without a blank a quote was doubled.
        if kinds.count(tokenize.OP) > 2 or any(
            a.end == b.start and a.type == b.type == tokenize.STRING
            for a, b in itertools.pairwise(tokens)
        ):
            raise FlawError("there is no comma between some of its items")
        value = [ast.literal_eval(t.string) for t in tokens if t.type == tokenize.STRING]
    if not isinstance(value, list | dict):
        raise flaw
    return value
