"""Scales of ratings: whole numbers, or labels that stand for numbers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from dagengine.errors import InputError
from dagengine.prompts.answer_types import labelled_type, rating_type
from dagengine.prompts.instructions import label_instructions, rating_instructions

Around = tuple[str, str]
"""What stands before and after a value within its token, for instance a blank."""
Ends = tuple[float, float]
"""The lowest and the highest of some ratings."""
GivenScale = tuple[int, int] | Mapping[str, float]
"""A scale as people write it: the worst and the best whole number, or labels and their numbers."""

_WHOLE = re.compile(r"-?[0-9]+")
_WHOLE_TOKEN = re.compile(rf"\s*({_WHOLE.pattern})\s*")
_ALONE: Around = ("", "")
_AFTER_A_NUMBER = ' \t\r\n,}]"'


@dataclass(frozen=True, slots=True)
class WholeNumbers:
    """The whole numbers from `low` to `high`.

    `point` is what messages call one rating, `doubt` a token that begins `longer` ones. A rating
    may be several tokens, which `read_on` puts together.
    """

    low: int
    high: int
    point = "number"
    doubt = "the start of a longer number"
    reads_on = True

    @property
    def ends(self) -> Ends:
        """The lowest and the highest number."""
        return self.low, self.high

    @property
    def steps(self) -> dict[str, float]:
        """Every rating by its word, the worst first; none of over 101: nobody chooses from them."""
        numbers = range(self.low, self.high + 1)
        return {} if len(numbers) > 101 else {str(number): float(number) for number in numbers}

    def instructions(self, criteria: str) -> str:
        """The system text of a rating."""
        return rating_instructions(criteria, self.low, self.high)

    def answer_type(self, parsed: bool) -> type[BaseModel]:
        """The type of an answer, given as JSON or read out of prose by a parser."""
        return rating_type(self.low, self.high)

    def number(self, stated: Any) -> float | None:
        """The number that a stated rating stands for; None if it is none of the scale."""
        return float(stated)

    def read(self, token: str, around: Around) -> float | None:
        """The number that a token states in place of the one with `around`, or None."""
        whole = _WHOLE_TOKEN.fullmatch(token)
        return float(whole[1]) if whole and self.low <= int(whole[1]) <= self.high else None

    def longer(self, token: str, around: Around, seen: Sequence[float]) -> Ends | None:
        """The lowest and the highest rating that a token may belong to besides what it states.

        `seen` are the ratings that were seen as one token, the lowest first.
        """
        # Where one has been seen the tokenizer has longer numbers as single tokens.
        return None if seen and seen[-1] >= 10 else self._longer_numbers(token.strip())

    def read_on(self, start: str, token: str, stop: str) -> tuple[float | None, Ends | None]:
        """The rating that a start and the token after it state, and those that they may begin.

        `stop` is what comes after the rating in the answer: its first character.
        """
        tail = token.lstrip("0123456789")
        digits = token[: len(token) - len(tail)]
        if digits and not tail:
            return self.read(start + token, _ALONE), self._longer_numbers(start + token)
        is_whole = not tail or tail[0] in _AFTER_A_NUMBER or tail[0] == stop
        return self.read(start + digits, _ALONE) if is_whole else None, None

    def _longer_numbers(self, text: str) -> Ends | None:
        """The lowest and the highest number of the scale that begins with a text and is longer."""
        if text == "-":
            return (self.low, min(self.high, -1)) if self.low < 0 else None
        if not _WHOLE.fullmatch(text) or not int(text):
            return None
        start, size, longer = int(text), 10, list[float]()
        while abs(start) * size <= max(abs(self.low), abs(self.high)):
            ends = start * size, start * size + (size - 1) * (1 if start > 0 else -1)
            low, high = max(min(ends), self.low), min(max(ends), self.high)
            longer += (low, high) if low <= high else ()
            size *= 10
        return _ends_of(longer)


def _ends_of(numbers: Sequence[float]) -> Ends | None:
    return (min(numbers), max(numbers)) if numbers else None


@dataclass(frozen=True)
class Labels:
    """Labels that stand for numbers; raises InputError unless two of the numbers differ.

    Tokens are read letter for letter, and with the same blanks and quotes around them: `m` and
    `M` may be two labels.
    """

    values: Mapping[str, float]
    point = "label"
    doubt = "a part of a label"
    reads_on = False

    def __post_init__(self) -> None:
        if not all(isinstance(label, str) and label.strip() for label in self.values):
            raise InputError(f"the labels of the scale {self.values!r} must be words")
        for value in self.values.values():
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if not is_number or not abs(value) < 1e300:
                raise InputError(f"the labels of the scale {self.values!r} must stand for numbers")
        if len(set(self.values.values())) < 2:
            raise InputError(
                f"the scale {self.values!r} has one point: give it labels for two numbers at "
                'least, for instance {"poor": 1, "good": 2}'
            )

    @property
    def ends(self) -> Ends:
        return min(self.values.values()), max(self.values.values())

    @property
    def steps(self) -> dict[str, float]:
        ordered = sorted(self.values.items(), key=lambda pair: pair[1])
        return {} if len(ordered) > 101 else dict(ordered)

    def instructions(self, criteria: str) -> str:
        return label_instructions(criteria, tuple(self.values))

    def answer_type(self, parsed: bool) -> type[BaseModel]:
        return labelled_type(tuple(self.values), parsed)

    def number(self, stated: Any) -> float | None:
        return float(self.values[stated]) if stated in self.values else None

    def read(self, token: str, around: Around) -> float | None:
        prefix, suffix = around
        label = token.removeprefix(prefix).removesuffix(suffix)
        return self.values.get(label) if f"{prefix}{label}{suffix}" == token else None

    def longer(self, token: str, around: Around, seen: Sequence[float]) -> Ends | None:
        label, start = token.strip().strip('"'), token.removeprefix(around[0])
        if self.read(token, around) is None and label in self.values:
            return self.values[label], self.values[label]  # but with other blanks or quotes
        values = []
        for label, value in self.values.items():
            if token and label != start and label.startswith(start) and value not in seen:
                values.append(value)
        return _ends_of(values)

    def read_on(self, start: str, token: str, stop: str) -> tuple[float | None, Ends | None]:
        return None, None


Scale = WholeNumbers | Labels
"""What ratings may be, how they are asked for, and how they are read."""


def scale_of(given: GivenScale) -> Scale:
    """The scale that people mean; raises InputError for what makes none."""
    if isinstance(given, Mapping):
        return Labels(dict(given))
    if not isinstance(given, tuple | list) or len(given) != 2:
        raise InputError(
            "scale= takes the worst and the best whole number, such as (1, 5), or a mapping of "
            f"labels to numbers; got {given!r:.80}"
        )
    return WholeNumbers(*given)
