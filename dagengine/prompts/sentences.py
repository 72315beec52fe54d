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
    import sentencex

    segment: Any = cast(Any, sentencex).segment  # a compiled module without types
    lines: list[list[str]] = []
    for line in _SURROGATES.sub("\ufffd", text).splitlines():
        plain = " ".join(line.split())
        if lines and plain[:1].islower():
            lines[-1].append(plain)
        else:
            lines.append([plain])
    pieces: list[str] = []
    for line in map(" ".join, lines):
        # The number of a list item stays with the item: alone it would be a sentence.
        number = _LIST_NUMBER.match(line)
        start = number.end() if number else 0
        parts = list(map(str.strip, segment("en", line[start:])))
        pieces += [line[:start] + part for part in parts[:1]] + parts[1:]
    return list(filter(says_something, pieces))


def says_something(text: str) -> bool:
    """Return whether a text has a letter or a digit, and so at least one sentence."""
    return any(map(str.isalnum, text))
