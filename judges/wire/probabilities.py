"""Token probabilities of an answer; only what tells something becomes objects.

A short answer with twenty alternatives for every token is a body of 60 kB. As objects, it takes a
third of the processor time of its call. The completion is read without them (`completions`); here
those of the few tokens that count are found in its bytes.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Collection
from dataclasses import dataclass
from itertools import pairwise
from operator import methodcaller
from typing import Any, Final

from pydantic import TypeAdapter

from dagengine.judges.wire.completions import Completion
from dagengine.prompts.probabilities.tokens import telling_tokens
from dagengine.question import Question, TokenChoice

_KEY: Final = re.compile(rb'"top_logprobs"[ \t\r\n]*:[ \t\r\n]*')
_ESCAPED: Final = re.compile(r"(?:bytes:)?((?:\\x[0-9a-fA-F]{2})+)")
# How vocabularies write a blank and an end of a line, which some servers pass on.
_PIECES: Final = str.maketrans("Ġ▁Ċ", "  \n")
_FEW: Final = 8  # of more tokens it is quicker to read all at once
_DECODER: Final = json.JSONDecoder()


@dataclass(slots=True)
class Alternative:
    """What might have stood in the place of a token."""

    token: str
    logprob: float


_ALTERNATIVES: Final = TypeAdapter(list[Alternative] | None)
_Found = dict[int, tuple[tuple[str, float], ...]]


def tokens_of(
    completion: Completion, question: Question[Any], raw: str
) -> tuple[TokenChoice, ...] | None:
    """The tokens of the answer `raw`, when the provider sent them in OpenAI's form.

    Alternatives are kept where they tell something. Those of a reason take a hundred times the room
    of the answer, in memory and in a store.
    """
    texts = completion.token_texts
    if not texts:
        return None
    pieces = False
    if raw not in "".join(texts):
        texts = _spelling(completion) or texts
        plain = list(map(methodcaller("translate", _PIECES), texts))
        pieces = raw not in "".join(texts) and raw in "".join(plain)
        texts = plain if pieces else texts
    indices = (
        range(len(texts)) if question.parser else telling_tokens(raw, texts, question.answer_type)
    )
    try:
        choices = alternatives(completion, indices)
    except ValueError:  # pydantic's among them: probabilities in some other form
        return None
    if pieces:
        for index, pairs in choices.items():
            choices[index] = tuple((text.translate(_PIECES), value) for text, value in pairs)
    bare = {text: TokenChoice(text, ()) for text in {*texts}}
    tokens = list(map(bare.__getitem__, texts))
    for index, pairs in choices.items():
        tokens[index] = TokenChoice(texts[index], pairs)
    return tuple(tokens)


def _spelling(completion: Completion) -> list[str] | None:
    """The tokens as their bytes spell them: a character that two share belongs to the last.

    Servers give the bytes of each token, or write those of a part of a character with escapes
    (`\\xf0\\x9f`, `bytes:\\xf0`). None if the bytes are not told, or are no text.
    """
    decoder, texts = codecs.getincrementaldecoder("utf-8")(), list[str]()
    try:
        for item in _items(completion):
            escaped = _ESCAPED.fullmatch(item["token"])
            own = item.get("bytes")
            if escaped is not None:
                own = bytes.fromhex(escaped[1].replace("\\x", ""))
            texts.append(decoder.decode(item["token"].encode() if own is None else bytes(own)))
    except (ValueError, TypeError, LookupError):
        return None
    return texts


def _items(completion: Completion) -> list[dict[str, Any]]:
    """All that was sent of the tokens of a completion that has some."""
    items: list[dict[str, Any]]
    items = json.loads(completion.content)["choices"][0]["logprobs"]["content"]
    return items


def alternatives(completion: Completion, kept: Collection[int]) -> _Found:
    """By the numbers of these tokens, what might have stood there and its log-probability.

    Raises ValueError where they are not in OpenAI's form.
    """
    body, lists = completion.content, dict[int, Any]()
    # Where lists begin, and the end of the body. In a text, the quotes of the key are escaped.
    few = len(kept) <= _FEW
    ends = [*map(re.Match.end, _KEY.finditer(body)), len(body)] if few else []
    # One place for each token, or it is not certain which token a place belongs to.
    if len(ends) != len(completion.token_texts) + 1:
        items = _items(completion)
        lists = {index: items[index].get("top_logprobs") for index in kept}
    else:
        spans = list(pairwise(ends))
        for index in kept:
            lists[index] = _DECODER.raw_decode(body[slice(*spans[index])].decode())[0]
    choices: _Found = {}
    for index, entries in lists.items():
        listed = _ALTERNATIVES.validate_python(entries) or ()
        choices[index] = tuple([(entry.token, entry.logprob) for entry in listed])
    return choices
