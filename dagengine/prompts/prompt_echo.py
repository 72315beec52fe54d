"""What a model repeats of its prompt: the beginning, fences around the material, instructions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache, partial
from typing import Any, Final

from pydantic import BaseModel

from dagengine.prompts.evidence import unfence
from dagengine.question import Check, Message

# What tokenizers put in front of a prompt: `<s>`, `<|begin_of_text|>`, `[CLS]`.
_FIRST_TOKEN: Final = re.compile(r"\s*(?:<\|?\w{1,30}\|?>|\[[A-Z]{1,10}\])")
_WORD: Final = re.compile(r"\S+")
_FIRST_FENCE: Final = re.compile(r"^<{3,}BEGIN ", re.MULTILINE)
# What models put around a line that they repeat.
_AROUND: Final = " \t<>\"'`*_#-.:,;()[]{}"
_LISTS: Final = (list, tuple, set, frozenset)
_ECHO: Final = re.compile(r"(?:BEGIN|END) (?=\S)")
# Shorter pieces of the instructions may be what a text says itself.
_SHORTEST_INSTRUCTION: Final = 30


def without_echo(prompt: str, text: str) -> str:
    """The text that a model added to the prompt, if its text begins with the prompt.

    A causal model returns the prompt and its answer after it. A decoded prompt may have an extra
    first token and other blanks than the written one. Any other text stays as it is.
    """
    if not prompt.strip():
        return text
    if text.startswith(prompt):
        return text[len(prompt) :]
    extra_token = _FIRST_TOKEN.match(text)
    for start in (0, extra_token.end() if extra_token else 0):
        end = _end_of(prompt, text, start)
        if end is not None:
            return text[end:]
    return text


def _end_of(prompt: str, text: str, start: int) -> int | None:
    """Offset at which the prompt that begins at `start` ends, apart from blanks; None for none."""
    plain = "".join(prompt.split())
    if len(text) - start < len(plain):
        return None
    matched = 0
    for word in _WORD.finditer(text, start):
        size = min(len(word.group()), len(plain) - matched)
        if not plain.startswith(word.group()[:size], matched):
            return None
        matched += size
        if matched == len(plain):
            return word.start() + size
    return None


def texts_of(value: Any) -> list[str]:
    """The texts in an answer, apart from verdicts and from reasons, which may quote the prompt."""
    texts, pending = list[str](), [value]
    while pending:
        part = pending.pop()
        if isinstance(part, BaseModel):
            part = {**part.__dict__, **(part.__pydantic_extra__ or {})}
        if isinstance(part, str):
            texts.append(part)
        elif isinstance(part, dict):
            pending += [part[name] for name in part if name not in ("reason", "verdict")]
        elif isinstance(part, _LISTS):
            pending += part
    texts.reverse()  # the last part of a value was taken first
    return texts


def fence_check(messages: Sequence[Message]) -> Check:
    """Finds lines of an answer that repeat a fence around the material of a prompt.

    Of the items of a list every line counts. A text may quote what it was shown, so that only its
    first line does: a model that copies its prompt begins with it.
    """
    return partial(_echoed_fence, messages)


def _echoed_fence(messages: Sequence[Message], answer: Any) -> str | None:
    first_only = isinstance(getattr(answer, "output", None), str)
    texts = map(str.strip, filter(_ECHO.search, texts_of(answer)))
    lines = [line for text in texts for line in text.splitlines()[: 1 if first_only else None]]
    suspects = list(filter(_ECHO.match, map(_bare, lines)))
    labels = _labels(messages) if suspects else []  # reads the whole prompt
    for line in suspects:
        for label in labels:
            marks = [f"BEGIN {label}", f"END {label}"]
            # "BEGIN input", say, may begin a line of code: of a label of letters alone only the
            # whole line tells. No text begins by chance with any other mark.
            if line in map(_bare, marks) or (
                not label.isalpha()
                and any(line.startswith(mark) and not line[len(mark)].isalnum() for mark in marks)
            ):
                return (
                    f"it repeats the line {line[:80]!r}, which only marks where a piece of the "
                    "material begins or ends; answer without such lines"
                )
    return None


def _bare(line: str) -> str:
    return line.strip(_AROUND)


def _labels(messages: Sequence[Message]) -> list[str]:
    """The names of the pieces of a prompt whose marks are not in the material itself."""
    for message in messages:
        text = message["content"]
        fence = _FIRST_FENCE.search(text)
        if fence is None:
            continue
        try:
            evidence = unfence(text[fence.start() :])
        except ValueError:
            continue
        material = "\n".join(piece.text for piece in evidence if _ECHO.search(piece.text))
        labels = [piece.label for piece in evidence if f"BEGIN {piece.label}" not in material]
        return [label for label in labels if f"END {label}" not in material]
    return []


def echoed_instruction(instructions: str, texts: Iterable[str], material: str) -> str | None:
    """Says which text is a piece of the instructions that the material does not have."""
    prompt = _plain_instructions(instructions)
    for text in texts:
        plain = _plain(text)
        copied = len(plain) >= _SHORTEST_INSTRUCTION and plain in prompt
        if copied and plain not in _plain(material):
            return f"it repeats the instructions ({text[:80]!r}) instead of following them"
    return None


def _plain(text: str) -> str:
    return " ".join(text.split()).strip(_AROUND).casefold()


_plain_instructions = lru_cache(maxsize=256)(_plain)  # those of one node are read with each answer
