"""How far texts share their words, without regard to what these mean."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby

# Scripts that put no spaces between words, or none between a word and what is joined to it.
_JOINED = re.compile(
    "[\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u31f0-\u31ff\u3400-\u9fff"
    "\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff]+"
)
# Words that a reason quotes.
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Overlap:
    """How far an item is met, from 0 to 1, and why."""

    share: float
    reason: str


def words_of(text: str, stem: int) -> dict[str, str]:
    """The words of a text by what makes them equal, in order of first use.

    Numbers are equal as a whole, other words by their first `stem` letters.
    """
    words: dict[str, str] = {}
    for word in _tokens(text):
        words.setdefault(word if _has_digit(word) else word[:stem], word)
    return words


def _has_digit(word: str) -> bool:
    return any(map(str.isdigit, word))


@lru_cache(maxsize=4096)
def _in_word(character: str) -> bool:
    """Return whether a character is a letter, a digit, or a mark that belongs to one."""
    return character.isalnum() or unicodedata.category(character).startswith("M")


def _tokens(text: str) -> Iterable[str]:
    """Words without regard to case; pairs of characters where words are not set apart."""
    plain = unicodedata.normalize("NFKC", text).casefold()
    for inside, run in groupby(plain, _in_word):
        if not inside:
            continue
        word, offset = "".join(run), 0
        for joined in _JOINED.finditer(word):
            if joined.start() > offset:
                yield word[offset : joined.start()]
            pairs = joined.group()
            yield from (pairs[start : start + 2] for start in range(max(1, len(pairs) - 1)))
            offset = joined.end()
        if offset < len(word):
            yield word[offset:]


@lru_cache(maxsize=4096)
def _weight(word: str) -> int:
    """Letters, where the first two of a word do not count: short words say little."""
    if _has_digit(word) or _JOINED.match(word):
        return len(word)
    return max(0, len(word) - 2)


def _part(item: Mapping[str, str], within: Mapping[str, str]) -> float:
    """The share of an item's letters in words that are also in the other one."""
    whole, common = sum(map(_weight, item.values())), item.keys() & within.keys()
    if not whole:  # nothing but short words
        return len(common) / max(len(item), 1)
    return sum(_weight(item[key]) for key in common) / whole


def support_of(
    item: Mapping[str, str], by_sentence: Sequence[Mapping[str, str]], together: Mapping[str, str]
) -> Overlap:
    """Overlap of an item with sentences: in all of them together, and in the best one."""
    missing = [word for key, word in item.items() if key not in together]
    numbers = list(filter(_has_digit, missing))
    if numbers:
        return Overlap(0.0, f"the evidence has no {_few_words(numbers)}")
    best = max((_part(item, sentence) for sentence in by_sentence), default=0.0)
    share = (_part(item, together) + best) / 2
    lacking = f", it has no {_few_words(missing)}" if missing else ""
    return Overlap(share, f"{share:.0%} of the words are in the evidence{lacking}")


def relevance_of(
    item: Mapping[str, str], by_sentence: Sequence[Mapping[str, str]], together: Mapping[str, str]
) -> Overlap:
    """Overlap of an item and a text in words, in terms of the shorter one."""
    share = max(_part(item, together), _part(together, item))
    common = [word for key, word in item.items() if key in together]
    shared = f": {_few_words(common)}" if common else ""
    return Overlap(share, f"{share:.0%} of the words are in common{shared}")


def usefulness_of(
    item: Mapping[str, str], by_sentence: Sequence[Mapping[str, str]], together: Mapping[str, str]
) -> Overlap:
    """Largest overlap of a sentence with an item."""
    share = max((_part(sentence, item) for sentence in by_sentence), default=0.0)
    return Overlap(share, f"{share:.0%} of the words of one sentence are in it")


def _few_words(words: Sequence[str]) -> str:
    """A few words, the longest first: those that say most."""
    longest = sorted(words, key=len, reverse=True)[:_SHOWN]
    return ", ".join(map(repr, longest))
