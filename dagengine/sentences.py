"""The sentences of a text, told apart without a judge."""

from __future__ import annotations

import re

# A full stop that may end a sentence, with the quotes and brackets that close after it.
# Never more than one look at a character: a text may be nothing but full stops.
_STOP = re.compile(
    r"(?<![.!?…؟।])[.!?…؟।]++[\"'”’»)\]]*+(?=\s)|[。！？]++[”’」』）]*+"  # noqa: RUF001
)
# A full stop after one of these ends none: list numbers, initials, common abbreviations.
_UNFINISHED = re.compile(r"^\d{1,3}\.$|(?:^|[\s(])(?:[A-HJ-Z]|Dr|Mrs?|Ms|Prof|St|vs|e\.g|i\.e)\.$")


def sentences(text: str) -> list[str]:
    """The sentences of a text, in order: lines end one, and full stops do.

    Abbreviations and numbers at the start of a line are no sentences of their own, nor is
    what goes on with a small letter. Takes time in proportion to the length of the text.
    """
    found: list[list[str]] = []
    for line in _STOP.sub(r"\g<0>\n", text).splitlines():
        piece = " ".join(line.split())
        if not any(character.isalnum() for character in piece):
            continue
        if found and (piece[0].islower() or _UNFINISHED.search(found[-1][-1])):
            found[-1].append(piece)
        else:
            found.append([piece])
    return [" ".join(pieces) for pieces in found]
