"""How parts of a picture look: colours in both lights, and texts cut to what a reader takes in.

The light colours are those of every form; an SVG has the dark ones, too.
"""

from __future__ import annotations

from textwrap import wrap
from typing import Literal

from dagengine.system.terminal import clip

Tone = Literal["", "soft", "fail", "none", "mark"]
"""What a piece of text says by its colour: nothing, less, failed, no score, or the path taken."""
Words = tuple[tuple[str, Tone], ...]
"""One line, in pieces of one tone each."""

LIGHT = {
    "ground": "#ffffff",
    "ink": "#1f2933",
    "soft": "#52606d",
    "edge": "#8795a1",
    "line": "#d9e0e6",
    "flow": "#b8c4cf",
    "bar": "#9fb3c4",
    "mark": "#0b5394",
    "fail": "#b3261e",
    "fail-ground": "#fbeae7",
    "none": "#6b3fa0",
    "judgement": "#fdf8e4",
    "task": "#eef3f6",
    "code": "#f3effb",
    "metric": "#eaf4fa",
    "frame": "#f8fafb",
}
DARK = {
    "ground": "#11161c",
    "ink": "#e4e9ee",
    "soft": "#a3b1be",
    "edge": "#7b8a98",
    "line": "#2d3843",
    "flow": "#465563",
    "bar": "#5d7285",
    "mark": "#84bcf2",
    "fail": "#ff9484",
    "fail-ground": "#41221f",
    "none": "#c9aef8",
    "judgement": "#2a2716",
    "task": "#1b2630",
    "code": "#251f35",
    "metric": "#16293a",
    "frame": "#151c23",
}
FONT = "Helvetica,Arial,sans-serif"
NAME, SMALL, ANSWER, TITLE = 13, 11, 12, 16  # pixels

_LONGEST = 600  # characters of a text


def clean(text: str, longest: int = _LONGEST) -> str:
    """Text without control characters, which have no place in XML, and no longer than one reads.

    Graphviz takes no label of more than 16,384 characters.
    """
    return "".join(char if char.isprintable() else " " for char in clip(text, longest))


def lines_of(text: str, width: int, most: int) -> list[str]:
    """A text in at most so many lines of at most so many characters.

    They are as narrow as this number of lines allows, unless the text is cut.
    """
    short = clean(text)
    lines = wrap(short, width, max_lines=most, placeholder=" …") or [""]
    least = max(width // 2, *map(len, short.split()), 0)  # no word is broken for it
    for narrow in range(least, width * (len(lines) > 1)):
        if len(even := wrap(short, narrow)) <= len(lines):
            return even
    return lines


def plain(words: Words) -> str:
    """A line without its tones."""
    return "".join(text for text, _ in words)


def text_width(text: str, size: int, bold: bool = False) -> float:
    """About how many pixels a line takes, where nothing measures it; rather more than less.

    Letters of Chinese, Japanese and Korean are as wide as high.
    """
    # The first wide letters of Unicode are from U+1100 on.
    narrow = sum(char < "\u1100" for char in text)
    return size * (narrow * (0.58 if bold else 0.51) + (len(text) - narrow))
