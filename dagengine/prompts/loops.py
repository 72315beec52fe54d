"""Where a text begins to repeat itself: models without an end in sight often do."""

from __future__ import annotations

from typing import Final, NamedTuple

ROUNDS: Final = 3
"""How often something is in a row at the end of a text that repeats itself."""
_LEAST = 40  # characters: a row of dots or a large number is no loop
_LOOKED_AT = 20_000  # characters at the end of a text


class Loop(NamedTuple):
    """What a text repeats until its end, and from which character on."""

    start: int
    unit: str

    @property
    def is_blank(self) -> bool:
        """Return whether it is nothing but blanks and line ends."""
        return not self.unit.strip()


def loop_in(text: str) -> Loop | None:
    """The loop at the end of a text; None if it ends otherwise.

    A loop is one unit at least three times in a row, the last time perhaps in part after that, and
    40 characters in all. Of several readings the one that begins first counts, with its shortest
    unit. Takes time in proportion to the length; of a longer text the last 20,000 characters count.
    """
    tail = text[-_LOOKED_AT:]
    # The end repeats a unit of n characters as far back as the text equals itself n earlier.
    equal = _equal_starts(tail[::-1])
    longest, size = 0, 0
    for unit, length in enumerate(equal):
        if unit and unit + length >= max(ROUNDS * unit, _LEAST) and unit + length > longest:
            longest, size = unit + length, unit
    if not longest:
        return None
    start = len(tail) - longest
    return Loop(len(text) - longest, tail[start : start + size])


def _equal_starts(text: str) -> list[int]:
    """For every offset, the characters from there on that equal those from the start (Z function).

    Gusfield, Algorithms on Strings, Trees and Sequences, 1997, section 1.3.
    """
    equal = [0] * len(text)
    begin = end = 0
    for offset in range(1, len(text)):
        length = min(end - offset, equal[offset - begin]) if offset < end else 0
        while offset + length < len(text) and text[length] == text[offset + length]:
            length += 1
        equal[offset] = length
        if offset + length > end:
            begin, end = offset, offset + length
    return equal
