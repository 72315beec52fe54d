"""Prompts that a server's window is too small for: what servers say of them, and what is said here.

A *window* is the number of tokens that the prompt and the answer of one call may have together.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

from dagengine.prompts.evidence import unfence
from dagengine.question import Message, ServerFacts

_CODES: Final = frozenset({"context_length_exceeded", "exceed_context_size_error"})
_OVERFLOW: Final = re.compile(
    r"context[_ ]?(?:length|size|window)|max(?:imum)?[_ ]model[_ ]len|input token count"
    r"|maximum (?:allowed|sequence|prompt|input) length|too large for model with"
    r"|range of input length|request (?:is )?too large|inputs?` (?:tokens|must have less)"
    # What is too long, then that it is so; not the schema, and no rate
    r"|\b(?:prompts?|inputs?(?! schema)|sequence|messages?|conversation|tokens?(?! per))\b"
    r"(?:[^.;\n]|\.(?=\S)){0,60}?(?:too (?:long|large|many)|exceed|longer than|超)"
    r"|too many (?:input |prompt )?tokens|exceed\w* [^.;\n]{0,40}(?:token (?:limit|count)"
    r"|of tokens)|reduce (?:the length of|your) (?:the )?(?:prompt|message|input)",
    re.IGNORECASE,
)
_NUMBER: Final = r"\D{0,30}?(\d[\d,]*)"
_WINDOW: Final = re.compile(
    r"(?:context (?:length|size|window)|maximum (?:model|allowed|sequence|prompt|input) length"
    r"|token limit|the limit)(?: is| of)?"
    rf"{_NUMBER}|> (\d[\d,]*) maximum|(\d[\d,]*) maximum context|tokens allowed \((\d[\d,]*)\)"
    r"|must be <= (\d[\d,]*)|range of input length should be \[\d+, (\d[\d,]*)",
    re.IGNORECASE,
)
_PROMPT: Final = re.compile(r"(\d{1,12}) in the messages|has (\d{1,12}) input tokens")
_COUNTS: Final = re.compile(r"(?<![\w.])\d{1,3}(?:,\d{3})+|(?<![\w.])\d{1,12}(?![\w.]*\w)")
_ANSWER: Final = 512  # tokens that an answer may need beside its prompt
_STEP: Final = 1024


class Overflow(NamedTuple):
    """A prompt that a server refused: the tokens that it needs and those there are, if said."""

    needed: int | None
    window: int | None


def overflow_in(text: str, body: Any = None) -> Overflow | None:
    """The overflow that a server's error speaks of; None if it is about anything else.

    `text` is its message, `body` its parsed body or the error object in it.
    """
    fields = body if isinstance(body, dict) else {}
    if isinstance(fields.get("error"), dict):
        fields = fields["error"]
    codes = {str(fields.get("code")), str(fields.get("type"))} & _CODES
    if not codes and not _OVERFLOW.search(text):
        return None
    start = text[:2_000]
    tokens = _count(fields.get("n_prompt_tokens"))
    window = _count(fields.get("n_ctx")) or _window_in(start)
    if not tokens and (match := _PROMPT.search(start)):  # tells the prompt from the answer
        tokens = int(next(filter(None, match.groups())))
    numbers = {int(number.replace(",", "")) for number in _COUNTS.findall(start)} - {window}
    if tokens is None and numbers:
        most = max(numbers)
        tokens = most if window is None or most > window else None
    return Overflow(tokens, window)


def _window_in(text: str) -> int | None:
    match = _WINDOW.search(text)
    digits = next(filter(None, match.groups()), "") if match else ""
    return _count(int(digits.replace(",", ""))) if 0 < len(digits) <= 12 else None


def _count(value: Any) -> int | None:
    whole = isinstance(value, int) and not isinstance(value, bool) and 0 < value < 10**12
    return value if whole else None


def too_long(messages: Sequence[Message], overflow: Overflow, facts: ServerFacts) -> str:
    """Why a prompt was not read, and the one thing to do."""
    tokens, window = overflow.needed, overflow.window or facts.window
    if tokens and window and tokens <= window:
        return (
            f"the prompt has {tokens:,} of the {window:,} tokens that the server reads, which "
            f"leaves no room for the answer; {_most(messages)}{remedy(tokens, facts)}"
        )
    need = f"needs about {tokens:,} tokens" if tokens else "is too long"
    room = f", and the server reads {window:,}" if window else " for the server"
    return f"the prompt {need}{room}; {_most(messages)}{remedy(tokens, facts)}"


def cut(messages: Sequence[Message], needed: int, read: int, facts: ServerFacts) -> str:
    """Why an answer to a part of a prompt is none, and the one thing to do."""
    return (
        f"the server read {read:,} tokens of a prompt of about {needed:,} and said nothing; "
        f"{_most(messages)}{remedy(needed, facts)}"
    )


def _most(messages: Sequence[Message]) -> str:
    """A sentence that names the field that takes most of the room."""
    whole = sum(len(message["content"]) for message in messages)
    sizes: dict[str, int] = {}
    for message in messages:
        if message["role"] != "user":
            continue
        with suppress(ValueError):  # a prompt of the caller's own has no fences
            for piece in unfence(message["content"]):
                label = piece.label.partition(" (")[0]
                sizes[label] = sizes.get(label, 0) + len(piece.text)
    if not sizes:
        return f"it has {whole:,} characters. "
    field = max(sizes, key=lambda label: sizes[label])
    return f"most of it is {field} ({sizes[field]:,} of {whole:,} characters). "


def remedy(needed: int | None, facts: ServerFacts) -> str:
    """A sentence that says how to make room for a prompt on this kind of server."""
    if needed is None:
        return "Use a model with a larger window, or shorten the text"
    room = -(-(needed + _ANSWER) // _STEP) * _STEP
    option = window_option(facts, room)
    way = f": {option}" if option else ""
    return f"Give the server a window of {room} tokens{way}; or shorten the text"


def window_option(facts: ServerFacts, tokens: int) -> str | None:
    """The option that gives a kind of server a window for each call; None where it is unknown."""
    parallel = facts.slots or 1
    side_by_side = f" --parallel {parallel}" if parallel > 1 else ""
    return {
        "llama.cpp": f"llama-server --ctx-size {tokens * parallel}{side_by_side}",
        "model file": f"GGUFJudge(..., window={tokens})",
        "Ollama": f"OLLAMA_CONTEXT_LENGTH={tokens} ollama serve",
        "vLLM": f"vllm serve --max-model-len {tokens}",
        "LM Studio": f"context length {tokens} when the model is loaded",
    }.get(facts.server)
