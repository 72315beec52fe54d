"""Sentences of a text, told apart without a judge."""

from __future__ import annotations

import re
from typing import Any, cast

# The segmenter takes UTF-8, in which lone surrogates, as real text may hold them, have no form.
_SURROGATES = re.compile("[\ud800-\udfff]")
_LIST_NUMBER = re.compile(r"(?:\d{1,3}\.)+ ")


def sentences(text: str) -> list[str]:
    """The sentences of a text, in order, each on one line.

    A line ends a sentence unless the next one begins with a small letter, as a wrapped line
    does. Within lines `sentencex` decides (Wikimedia's segmenter; abbreviations, initials
    and numbers such as "No. 5" end none). What has no letter or digit is left out.
    """
    plain = _SURROGATES.sub("\ufffd", text)
    return [piece for line in _lines(plain) for piece in _pieces(line) if says_something(piece)]


def _lines(text: str) -> list[str]:
    """Lines with plain spaces, wrapped ones joined."""
    lines: list[list[str]] = []
    for line in text.splitlines():
        plain = " ".join(line.split())
        if lines and plain[:1].islower():
            lines[-1].append(plain)
        else:
            lines.append([plain])
    return [" ".join(parts) for parts in lines]


def _pieces(line: str) -> list[str]:
    """What the segmenter makes of a line; the number of a list item stays with the item."""
    import sentencex

    segment: Any = cast(Any, sentencex).segment  # a compiled module without types
    number = _LIST_NUMBER.match(line)
    start = number.end() if number else 0
    pieces = [piece.strip() for piece in segment("en", line[start:])]
    return [line[:start] + piece for piece in pieces[:1]] + pieces[1:]


def says_something(text: str) -> bool:
    """Whether a text has a letter or a digit, and so at least one sentence."""
    return any(map(str.isalnum, text))
