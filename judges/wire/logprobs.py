"""Token probabilities of an answer; only what tells something becomes objects.

A short answer with twenty alternatives for every token is a body of 60 kB. As objects, it takes a
third of the processor time of its call. The completion is read without them (`completions`); here
those of the few tokens that count are found in its bytes. A server is asked how a number goes on
that the answer might have begun, but did not state.
"""

from __future__ import annotations

import codecs
import json
import math
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from operator import methodcaller
from typing import Annotated, Any, Final

from pydantic import BaseModel, Field, TypeAdapter

from dagengine.judges.wire.completions import Completion
from dagengine.judges.wire.dialects.feature_fallback import TOKEN_LIMITS
from dagengine.judges.wire.requests import Body
from dagengine.prompts.probabilities.answer_tokens import telling_tokens, tokens_from, value_spans
from dagengine.prompts.probabilities.options import LEAST_MASS
from dagengine.prompts.probabilities.scales import WholeNumbers
from dagengine.question import Message, Question, TokenChoice, schema_of

_KEY: Final = re.compile(rb'"top_logprobs"[ \t\r\n]*:[ \t\r\n]*')
_ESCAPED: Final = re.compile(r"(?:bytes:)?((?:\\x[0-9a-fA-F]{2})+)")
# How vocabularies write a blank and an end of a line, which some servers pass on.
_PIECES: Final = str.maketrans("Ġ▁Ċ", "  \n")
_FEW: Final = 8  # of more tokens it is quicker to read all at once
_DECODER: Final = json.JSONDecoder()
# Where one digit is one token, the alternative `1` of a stated `8` is 1 or 10, and nothing in the
# answer tells which. Some servers go on with an answer that they are given. They are given this one
# up to the `1`, and say in one token how likely the `0` is. Its prompt is in their cache.
CONTINUING: Final = frozenset({"llama.cpp", "model file", "vLLM"})
"""Servers that go on with the last message if it is the assistant's (vLLM by these settings)."""
_SETTINGS: Final[Body] = {
    "max_tokens": 1,
    "temperature": 0,
    "logprobs": True,
    "top_logprobs": 20,
    "continue_final_message": True,
    "add_generation_prompt": False,
}
# Starts below this share of the alternatives change no rating by much.
_LEAST_SHARE = 0.01


@dataclass(slots=True)
class Alternative:
    """What might have stood in the place of a token."""

    token: str
    logprob: Annotated[float, Field(le=100.0)]  # NaN is none, and e to the power of more neither


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


@dataclass(frozen=True, slots=True)
class Start:
    """A number that the answer might have begun: which token, what it says, and on which scale.

    `prefix` is the answer up to it and with it; `stop` is the character after the stated number.
    """

    index: int
    text: str
    prefix: str
    stop: str
    scale: WholeNumbers

    def body(self, own: Body, messages: Sequence[Message]) -> Body:
        """A request for the token after it; `own` is what every request of the judge has."""
        answer: Message = {"role": "assistant", "content": self.prefix}
        shared = {name: value for name, value in own.items() if name not in TOKEN_LIMITS}
        return {**shared, **_SETTINGS, "messages": [*messages, answer]}

    def resolve(
        self, tokens: tuple[TokenChoice, ...], following: Sequence[tuple[str, float]]
    ) -> tuple[TokenChoice, ...]:
        """The tokens with the start split into the numbers that it may be.

        As they are, where most of what follows is no number of the scale, so that nothing is known.
        """
        shares: dict[float, float] = {}
        for token, logprob in following:
            value, longer = self.scale.read_on(self.text, token, self.stop)
            if longer is not None:
                return tokens  # a number of three digits, which would have to be asked for, too
            if value is not None:
                shares[value] = shares.get(value, 0.0) + math.exp(logprob)
        whole = math.fsum(shares.values())
        if whole < LEAST_MASS:
            return tokens
        choice = tokens[self.index]
        pairs = [pair for pair in choice.alternatives if pair[0].strip() != self.text]
        for token, logprob in choice.alternatives:
            for value, share in shares.items():
                if share and token.strip() == self.text:
                    number = token.replace(self.text, f"{value:.0f}")
                    pairs.append((number, logprob + math.log(share / whole)))
        resolved = replace(choice, alternatives=tuple(pairs))
        return (*tokens[: self.index], resolved, *tokens[self.index + 1 :])


def open_start(
    raw: str, tokens: tuple[TokenChoice, ...], answer_type: type[BaseModel]
) -> Start | None:
    """The one number that an answer might have begun without saying so; None without one."""
    fields, spans = schema_of(answer_type).get("properties", {}), value_spans(raw)
    for name, span in spans.items():
        field = fields.get(name) or {}
        if field.get("type") == "integer" and {"minimum", "maximum"} <= field.keys():
            scale = WholeNumbers(field["minimum"], field["maximum"])
            return _start(raw, tokens, span, scale)
    return None


def _start(
    raw: str, tokens: tuple[TokenChoice, ...], span: tuple[int, int], scale: WholeNumbers
) -> Start | None:
    path = tokens_from(span[0], raw, tokens)
    if not path:
        return None
    stated, around = path[0].token.strip(), ("", "")
    chances = {token.strip(): math.exp(logprob) for token, logprob in path[0].alternatives}
    values = [scale.read(token, around) for token in chances]
    readable = sorted(value for value in values if value is not None)
    likely = [token for token, share in chances.items() if token != stated and share > _LEAST_SHARE]
    starts = [token for token in likely if scale.longer(token, around, readable) is not None]
    # One request tells how one start goes on.
    if len(starts) != 1:
        return None
    text = starts[0]
    index = len(tokens) - len(path)
    return Start(index, text, raw[: span[0]] + text, raw[span[1] : span[1] + 1], scale)
