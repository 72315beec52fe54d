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
from itertools import pairwise
from typing import Any, Final, NotRequired  # pydantic's, until Python 3.12

from pydantic import BaseModel, TypeAdapter
from typing_extensions import TypedDict

from dagengine.judges.wire.completions import Completion
from dagengine.prompts.probabilities.tokens import telling
from dagengine.question import Question, TokenChoice

_KEY: Final = re.compile(rb'"top_logprobs"[ \t\r\n]*:[ \t\r\n]*')
_ESCAPED: Final = re.compile(r"(?:bytes:)?((?:\\x[0-9a-fA-F]{2})+)")
_FEW: Final = 8  # of more tokens it is quicker to read all at once
_DECODER: Final = json.JSONDecoder()


class Alternative(TypedDict):
    """What might have stood in the place of a token."""

    token: str
    logprob: float


class _Token(TypedDict):
    top_logprobs: NotRequired[list[Alternative] | None]


class _Logprobs(TypedDict):
    content: list[_Token]


class _Choice(BaseModel):
    logprobs: _Logprobs


class _Whole(BaseModel):
    """A completion, as far as its alternatives go."""

    choices: list[_Choice]


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
    if raw not in "".join(texts):
        texts = _spelled(completion) or texts
    kept = range(len(texts)) if question.parser else telling(raw, texts, question.answer_type)
    try:
        choices = alternatives(completion, kept)
    except ValueError:  # pydantic's among them: probabilities in some other form
        return None
    bare = {text: TokenChoice(text, ()) for text in {*texts}}
    tokens = [bare[text] for text in texts]
    for index, pairs in choices.items():
        tokens[index] = TokenChoice(texts[index], pairs)
    return tuple(tokens)


def _spelled(completion: Completion) -> list[str] | None:
    """The tokens as their bytes spell them: a character that two share belongs to the last.

    Servers give the bytes of each token, or write those of a part of a character with escapes
    (`\\xf0\\x9f`, `bytes:\\xf0`). None if the bytes are not told, or are no text.
    """
    logprobs = json.loads(completion.content)["choices"][0]["logprobs"]
    decoder, texts = codecs.getincrementaldecoder("utf-8")(), list[str]()
    try:
        for item in logprobs["content"]:
            escaped = _ESCAPED.fullmatch(item["token"])
            own = item.get("bytes")
            if escaped is not None:
                own = bytes.fromhex(escaped[1].replace("\\x", ""))
            texts.append(decoder.decode(item["token"].encode() if own is None else bytes(own)))
    except (ValueError, TypeError, LookupError):
        return None
    return texts


def alternatives(completion: Completion, kept: Collection[int]) -> _Found:
    """By the numbers of these tokens, what might have stood there and its log-probability.

    Raises ValueError where they are not in OpenAI's form.
    """
    body = completion.content
    # Where lists begin, and the end of the body. In a text, the quotes of the key are escaped.
    few = len(kept) <= _FEW
    ends = [*map(re.Match.end, _KEY.finditer(body)), len(body)] if few else []
    # One place for each token, or it is not certain which token a place belongs to.
    if len(ends) != len(completion.token_texts) + 1:
        tokens = _Whole.model_validate_json(body).choices[0].logprobs["content"]
        return {index: _pairs(tokens[index].get("top_logprobs")) for index in kept}
    spans = list(pairwise(ends))
    read = {index: _DECODER.raw_decode(body[slice(*spans[index])].decode())[0] for index in kept}
    return {index: _pairs(_ALTERNATIVES.validate_python(list_)) for index, list_ in read.items()}


def _pairs(alternatives: list[Alternative] | None) -> tuple[tuple[str, float], ...]:
    return tuple(
        [(alternative["token"], alternative["logprob"]) for alternative in alternatives or ()]
    )
