"""Where a quote stands in a text: word for word, after a normalisation that is stated here.

Quote and text are compared in the form NFKD, without invisible characters. Any run of white space
is one blank, any run of quotation marks one mark, any run of dashes one dash. Upper and lower case
count. One ellipsis in a quote stands for words that were left out: both parts are looked for, in
their order. A short quote has to begin and end where words do.
"""

from __future__ import annotations

import re
import unicodedata
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from dagengine.question import Span

# What is its own normal form, and part of no run: most of ASCII, with single blanks in between,
# and Chinese characters.
_SELF: Final = r"[!#-&(-,./0-_a-~\u4e00-\u9fff]+"
_PLAIN: Final = re.compile(rf"{_SELF}(?: {_SELF})*")
_ELLIPSIS: Final = re.compile(r"[\[(]\s*(?:…|\.{3,})\s*[\])]|…|\.{3,}|(?:\. ){2,}\.")
_MARKS: Final = frozenset("\"'`´‘’‚‛“”„‟«»‹›′″‴‵‶「」『』＂＇")  # noqa: RUF001
_MARK, _DASH, _BLANK = "'", "-", " "
_RUNS: Final = frozenset((_MARK, _DASH, _BLANK))
_EDGE: Final = f"{_MARK}{_BLANK}"
_PARTS: Final = 2
_SHORT: Final = 20
"""Characters below which a quote has to begin and end where words do."""
_HINTED: Final = 1_000
"""Characters up to which a quote that stands nowhere is compared with all of the material."""
_LEAST: Final = 2
"""Letters and digits that each of two parts has at least."""
_TRIES: Final = 100_000
"""Places that are tried for a part: there may be a million in a text made for it."""
# Scripts that write no blanks between words.
_UNSPACED: Final = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]"
)


@dataclass(frozen=True, slots=True)
class Folded:
    """A text as quotes are compared with it.

    `starts` and `ends` say for every character of `plain` which part of the text it is made of.
    """

    plain: str
    starts: array[int]
    ends: array[int]


@lru_cache(maxsize=8)
def fold(text: str) -> Folded:
    """A text in the form in which quotes are looked for; takes time in proportion to its length."""
    plain: list[str] = []
    starts, ends = array("I"), array("I")
    previous = ""
    for start, end, form in _pieces(text):
        if form is None:  # plain characters, each of them one
            plain.append(text[start:end])
            starts.extend(range(start, end))
            ends.extend(range(start + 1, end + 1))
            previous = ""
            continue
        for character in form:
            if character == previous and character in _RUNS:
                ends[-1] = end
                continue
            plain.append(character)
            starts.append(start)
            ends.append(end)
            previous = character
    return Folded("".join(plain), starts, ends)


def _pieces(text: str) -> Iterator[tuple[int, int, str | None]]:
    """The parts of a text that are normalised by themselves: a character and what combines with it.

    The form is None for a run of plain characters.
    """
    position, size = 0, len(text)
    while position < size:
        match = _PLAIN.match(text, position)
        end = match.end() if match else position
        if end < size and _combines(text[end]):
            end -= 1 if match else 0  # the last one is not plain
        if end > position:
            yield position, end, None
        if end == size:
            return
        position = end + 1
        while position < size and _combines(text[position]):
            position += 1
        yield end, position, _form(text[end:position])


@lru_cache(maxsize=4096)
def _combines(character: str) -> bool:
    """Return whether a character belongs to the one before it."""
    if character < "\u0300":
        return False
    return unicodedata.combining(unicodedata.normalize("NFKD", character)[0]) > 0


@lru_cache(maxsize=4096)
def _form(cluster: str) -> str:
    """The form of one character with what combines with it; empty if it cannot be seen."""
    if cluster[0] in _MARKS:  # some of them decompose into a blank and an accent
        cluster = _MARK + cluster[1:]
    return "".join(map(_single, unicodedata.normalize("NFKD", cluster)))


def _single(character: str) -> str:
    """The form of one decomposed character."""
    kind = unicodedata.category(character)
    if character.isspace() or kind == "Cc":
        return _BLANK
    if kind == "Cf" or "\ufe00" <= character <= "\ufe0f" or character >= "\U000e0100":
        return ""
    if character in _MARKS:
        return _MARK
    return _DASH if kind == "Pd" or character == "−" else character  # noqa: RUF001


def quote_parts(quote: str) -> tuple[str, ...]:
    """The parts of a quote in the form in which they are looked for; empty if it quotes nothing."""
    parts = [fold(part).plain.strip(_EDGE) for part in _ELLIPSIS.split(quote)]
    nonempty = tuple(filter(None, parts))
    least = min(len(nonempty), _LEAST)
    sizes = (sum(map(str.isalnum, part)) for part in nonempty)
    return nonempty if len(nonempty) <= _PARTS and min(sizes, default=0) >= least else ()


def quote_places(quote: str, text: Folded) -> tuple[Span, ...]:
    """Spans of the parts of a quote in the folded text; empty if it is not there.

    These are the first places that fit.
    """
    spans: list[Span] = []
    position = 0
    for part in quote_parts(quote):
        offset = next(_occurrences(part, text, position), None)
        if offset is None:
            return ()
        position = offset + len(part)
        spans.append((text.starts[offset], text.ends[position - 1]))
    return tuple(spans)


def _occurrences(part: str, text: Folded, position: int) -> Iterator[int]:
    """Offsets of a part that is not cut out of a character, nor a short one out of a word."""
    plain, starts, size = text.plain, text.starts, len(part)
    offset = plain.find(part, position)
    for _ in range(_TRIES):
        if offset < 0:
            return
        end = offset + size
        cut = (offset > 0 and starts[offset - 1] == starts[offset]) or (
            end < len(plain) and starts[end] == starts[end - 1]
        )
        # A short quote ("is") stands inside of many words ("this") that it was not taken from.
        inside = size < _SHORT and (
            (offset > 0 and _in_one_word(plain[offset - 1], plain[offset]))
            or (end < len(plain) and _in_one_word(plain[end - 1], plain[end]))
        )
        if not cut and not inside:
            yield offset
        offset = plain.find(part, offset + 1)


def _in_one_word(first: str, second: str) -> bool:
    """Return whether two characters next to each other are of one word."""
    if not (first.isalnum() and second.isalnum()):
        return False
    return not (_UNSPACED.match(first) or _UNSPACED.match(second))


def nearly(quote: str, text: str) -> str | None:
    """The words of a text that a quote is nearest to; None if nothing is near.

    Only a hint for people, so it needs the optional package `rapidfuzz`; None without it. Its time
    grows with the product of both lengths, so that a long quote gets none.
    """
    if len(quote) > _HINTED:
        return None
    try:
        from rapidfuzz import fuzz
    except ImportError:
        return None
    # Above 80 of 100 a quote differs in about one character of five.
    match = fuzz.partial_ratio_alignment(quote, text, score_cutoff=80)
    if match is None or match.dest_start == match.dest_end:
        return None
    return text[match.dest_start : match.dest_end]
