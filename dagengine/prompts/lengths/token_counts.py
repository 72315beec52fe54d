"""How many tokens a prompt has, before and after a server has counted them.

A server that cuts prompts counts what is left, answers 200, and says nothing. What it counted is
held against the text, against what it counted for other texts, and against its limits. What is
*suspicious* so is looked into (see `gateway.window`); nothing here accuses a server. Texts
are measured as efficient tokenizers see them (GPT-4o's, Llama 3's): others need more tokens, up
to five times as many for a language that they were not made for, and hardly ever fewer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from dagengine.question import Message

_LONG: Final = 20  # characters of a word from which on it is data and not a word
_WORD: Final = 5.0  # characters per token of words, the blank included
_PROSE: Final = 7.0  # characters per word of a text that is hardly anything else than words
_DATA: Final = 3.5  # … of long paths, URLs, code without blanks
_CODED: Final = 1.8  # … of base64, hashes, keys: capitals and digits among small letters
_REPEATED: Final = 64.0  # … of lines, dots and other runs
_IDEOGRAPH: Final = 0.55  # tokens per character of ideographs, syllables and emoji
_UNSPACED: Final = 0.35  # … of alphabets without blanks between words, as Thai
_IDEOGRAPHS: Final = re.compile("[\u2e80-\U0003ffff]")
_UNSPACED_LETTERS: Final = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff]")
_CODE: Final = re.compile(r"[A-Za-z0-9+/=]{20,}")
_MIXED: Final = re.compile("[A-Z0-9]")
# The most characters that a token of any tokenizer in use has on average, by script.
_MOST_CHARACTERS: Final = 10.0
_MOST_IDEOGRAPHS: Final = 4.0
_RUNS: Final = re.compile(r"\s{2,}|(.)\1{3,}", re.DOTALL)
_PAIRS: Final = re.compile(r"(.{2,8}?)\1{3,}", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Size:
    """About how many tokens a text has, its characters, and of which script most tokens are."""

    tokens: float
    characters: int
    script: str

    def __add__(self, other: Size) -> Size:
        script = self.script if self.tokens >= other.tokens else other.script
        return Size(self.tokens + other.tokens, self.characters + other.characters, script)


NOTHING: Final = Size(0.0, 0, "words")


def size_of(messages: Iterable[Message]) -> Size:
    """The approximate tokens of a prompt, if the tokenizer is an efficient one."""
    size: Size | None = None
    for message in messages:
        own = (_cached_size if message["role"] == "system" else _size)(message["content"])
        size = own if size is None else size + own
    return size or NOTHING


def least_tokens(messages: Iterable[Message]) -> int:
    """The tokens that a prompt has at least, whatever the tokenizer: a bound, far from the truth.

    A run of blanks or of one character may be a single token.
    """
    least = 0.0
    for message in messages:
        text = _PAIRS.sub(r"\1", _RUNS.sub(" ", message["content"]))
        ideographs = 0
        if not text.isascii():
            ideographs = len(_IDEOGRAPHS.findall(text)) + len(_UNSPACED_LETTERS.findall(text))
        least += (len(text) - ideographs) / _MOST_CHARACTERS + ideographs / _MOST_IDEOGRAPHS
    return int(least)


def _size(text: str) -> Size:
    # A prompt is measured with every answer: words of plain prose are not made to be counted.
    if text.isascii() and "\t" not in text and "   " not in text:
        flat = text.replace("\n", " ")
        likely = float(flat.count(" ") - flat.count("  ") + 1)
        if len(text) <= _PROSE * likely:
            return Size(max(likely, min(len(text) / _WORD, 3 * likely)), len(text), "words")
    words = text.split()
    letters, count, data, dense = len(text), len(words), 0.0, 0.0
    if not text.isascii():
        ideographs = len(_IDEOGRAPHS.findall(text))
        unspaced = len(_UNSPACED_LETTERS.findall(text))
        if ideographs + unspaced:
            dense = _IDEOGRAPH * ideographs + _UNSPACED * unspaced
            letters -= ideographs + unspaced
            words = _UNSPACED_LETTERS.sub(" ", _IDEOGRAPHS.sub(" ", text)).split()
            count = len(words)
    if words and max(map(len, words)) > _LONG:
        long = [word for word in words if len(word) > _LONG]
        data = sum(map(_data_tokens, long))
        letters -= sum(map(len, long))
        count -= len(long)
    # Blanks in a row are few tokens: they count as far as there are words between them.
    plain = max(float(count), min(letters / _WORD, 3.0 * count))
    if not data and not dense:
        return Size(plain, len(text), "words")
    parts = {"words": plain, "data": data, "ideographs": dense}
    return Size(sum(parts.values()), len(text), max(parts, key=parts.__getitem__))


_cached_size = lru_cache(maxsize=256)(_size)  # instructions are those of many prompts


def _data_tokens(word: str) -> float:
    if len(set(word)) <= 4:
        return 1 + len(word) / _REPEATED
    coded = 0
    for part in _CODE.findall(word):
        if 3 * len(_MIXED.findall(part)) > len(part):
            coded += len(part)
    return coded / _CODED + (len(word) - coded) / _DATA
