"""Asking a server how a number goes on that it might have begun, but did not state.

Where one digit is one token, the alternative `1` of a stated `8` is 1 or 10, and nothing in the
answer tells which. Some servers go on with an answer that they are given. They are given this one
up to the `1`, and say in one token how likely the `0` is. Its prompt is in their cache.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from pydantic import BaseModel

from dagengine.judges.wire.dialects.demands import TOKEN_LIMITS
from dagengine.judges.wire.requests import Body
from dagengine.prompts.probabilities.masses import LEAST_MASS
from dagengine.prompts.probabilities.scales import WholeNumbers
from dagengine.prompts.probabilities.tokens import tokens_from, value_spans
from dagengine.question import Message, TokenChoice, schema_of

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
_FEW = 0.01


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
    likely = [token for token, share in chances.items() if token != stated and share > _FEW]
    starts = [token for token in likely if scale.longer(token, around, readable) is not None]
    # One request tells how one start goes on.
    if len(starts) != 1:
        return None
    text = starts[0]
    index = len(tokens) - len(path)
    return Start(index, text, raw[: span[0]] + text, raw[span[1] : span[1] + 1], scale)
