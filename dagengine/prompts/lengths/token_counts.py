"""Estimates of the tokens that a prompt has, from its text alone, and a bound that always holds.

The estimates are for efficient tokenizers (GPT-4o's, Llama 3's). Others need more tokens, up to
five times as many for a language that they were not made for, and hardly ever fewer.
`gateway.window` compares them with what a server counts, to notice one that cuts prompts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from dagengine.question import Message

_LONG_WORD: Final = 20  # characters; a longer word is data and not language
_MOST_TOKENS: Final = 3.0  # per word, on average; the least is one
_PROSE: Final = 7.0  # characters per word, blank included: a text with fewer is prose
# Characters per token
_WORDS: Final = 5.0  # of words, each with the blank after it
_DATA: Final = 3.5  # of long paths, URLs, code without blanks
_CODED: Final = 1.8  # of base64, hashes, keys: capitals and digits among small letters
_RUN: Final = 64.0  # of runs: a line, dots
# Tokens per character
_IDEOGRAPH: Final = 0.55  # of ideographs, syllables and emoji
_UNSPACED: Final = 0.35  # of alphabets without blanks between words, as Thai
_IDEOGRAPHS: Final = re.compile("[\u2e80-\U0003ffff]")
_UNSPACED_LETTERS: Final = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff]")
_MAYBE_CODED: Final = re.compile(r"[A-Za-z0-9+/=]{20,}")
_CAPITAL_OR_DIGIT: Final = re.compile("[A-Z0-9]")
# The most characters per token, on average, for any tokenizer in use.
_MOST_CHARACTERS: Final = 10.0
_MOST_IDEOGRAPHS: Final = 4.0
_RUNS: Final = re.compile(r"\s{2,}|(.)\1{3,}", re.DOTALL)  # blanks, or one character repeated
_REPEATS: Final = re.compile(r"(.{2,8}?)\1{3,}", re.DOTALL)  # a few characters repeated


@dataclass(frozen=True, slots=True)
class Size:
    """The tokens (estimated) and characters of a text, and its `script`.

    That is what most of its tokens are of: "words", "data" or "ideographs".
    """

    tokens: float
    characters: int
    script: str

    def __add__(self, other: Size) -> Size:
        script = self.script if self.tokens >= other.tokens else other.script
        return Size(self.tokens + other.tokens, self.characters + other.characters, script)


NOTHING: Final = Size(0.0, 0, "words")


def size_of(messages: Iterable[Message]) -> Size:
    """Estimate the size of a prompt, for an efficient tokenizer."""
    size: Size | None = None
    for message in messages:
        measure = _cached_size if message["role"] == "system" else _size
        part = measure(message["content"])
        size = part if size is None else size + part
    return size or NOTHING


def least_tokens(messages: Iterable[Message]) -> int:
    """The tokens that a prompt has at least, whatever the tokenizer: a bound, far from the truth.

    A run of blanks or of one character may be a single token.
    """
    least = 0.0
    for message in messages:
        text = _REPEATS.sub(r"\1", _RUNS.sub(" ", message["content"]))
        ideographs = 0
        if not text.isascii():
            ideographs = len(_IDEOGRAPHS.findall(text)) + len(_UNSPACED_LETTERS.findall(text))
        least += (len(text) - ideographs) / _MOST_CHARACTERS + ideographs / _MOST_IDEOGRAPHS
    return int(least)


def _size(text: str) -> Size:
    # A prompt is measured with every answer. In plain prose it is quicker to count the blanks than
    # to split the text into its words.
    if text.isascii() and "\t" not in text and "   " not in text:
        line = text.replace("\n", " ")
        count = float(line.count(" ") - line.count("  ") + 1)
        if len(text) <= _PROSE * count:
            tokens = max(count, min(len(text) / _WORDS, _MOST_TOKENS * count))
            return Size(tokens, len(text), "words")
    # In any other text words are what is left when ideographs and data are taken out.
    words, letters = text.split(), len(text)
    ideograph_tokens = data_tokens = 0.0
    if not text.isascii():
        ideographs = len(_IDEOGRAPHS.findall(text))
        unspaced = len(_UNSPACED_LETTERS.findall(text))
        if ideographs + unspaced:
            ideograph_tokens = _IDEOGRAPH * ideographs + _UNSPACED * unspaced
            letters -= ideographs + unspaced
            words = _UNSPACED_LETTERS.sub(" ", _IDEOGRAPHS.sub(" ", text)).split()
    count = float(len(words))
    if words and max(map(len, words)) > _LONG_WORD:
        long = [word for word in words if len(word) > _LONG_WORD]
        data_tokens = sum(map(_data_tokens, long))
        letters -= sum(map(len, long))
        count -= len(long)
    # Blanks in a row are few tokens: they count as far as there are words between them.
    word_tokens = max(count, min(letters / _WORDS, _MOST_TOKENS * count))
    if not data_tokens and not ideograph_tokens:
        return Size(word_tokens, len(text), "words")
    parts = {"words": word_tokens, "data": data_tokens, "ideographs": ideograph_tokens}
    return Size(sum(parts.values()), len(text), max(parts, key=parts.__getitem__))


_cached_size = lru_cache(maxsize=256)(_size)  # many prompts have the same instructions


def _data_tokens(word: str) -> float:
    """Estimate the tokens of a long word: a run, or data with coded parts."""
    if len(set(word)) <= 4:
        return 1 + len(word) / _RUN
    coded = 0
    for part in _MAYBE_CODED.findall(word):
        if 3 * len(_CAPITAL_OR_DIGIT.findall(part)) > len(part):
            coded += len(part)
    return coded / _CODED + (len(word) - coded) / _DATA
