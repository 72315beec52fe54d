"""The prompt at the beginning of an answer, where a model repeats it."""

from __future__ import annotations

import re
from typing import Final

# What tokenizers put in front of a prompt: `<s>`, `<|begin_of_text|>`, `[CLS]`.
_FIRST_TOKEN: Final = re.compile(r"\s*(?:<\|?\w{1,30}\|?>|\[[A-Z]{1,10}\])")
_WORD: Final = re.compile(r"\S+")


def without_echo(prompt: str, text: str) -> str:
    """What a model added to the prompt, where its text begins with the prompt.

    A causal model returns the prompt and its answer after it. A decoded prompt may have an extra
    first token and other blanks than the written one. Any other text stays as it is.
    """
    if not prompt.strip():
        return text
    if text.startswith(prompt):
        return text[len(prompt) :]
    first = _FIRST_TOKEN.match(text)
    for start in (0, first.end() if first else 0):
        end = _end_of(prompt, text, start)
        if end is not None:
            return text[end:]
    return text


def _end_of(prompt: str, text: str, start: int) -> int | None:
    """Where the prompt ends that begins at `start`, apart from blanks; None if none does."""
    wanted = "".join(prompt.split())
    if len(text) - start < len(wanted):
        return None
    seen = 0
    for word in _WORD.finditer(text, start):
        size = min(len(word.group()), len(wanted) - seen)
        if not wanted.startswith(word.group()[:size], seen):
            return None
        seen += size
        if seen == len(wanted):
            return word.start() + size
    return None
