"""Reading a rating out of token probabilities.

The expectation over the score token's alternatives (Liu et al. 2023, G-Eval,
https://arxiv.org/abs/2303.16634). The token is found by the position of the value in the
answer's JSON, never by looking for an equal digit.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

from dagengine.question import Answer, TokenChoice

_WHOLE = re.compile(r"-?[0-9]+")
# Alternatives below this share of the mass cannot make the reading ambiguous.
_NEGLIGIBLE = 0.01


def expected_score(
    answer: Answer[Any], chosen: int, low: int, high: int, field: str = "score"
) -> tuple[float, str]:
    """The rating and its mode: `weighted`, or `raw (why)`.

    `chosen` is the rating that the answer states; low and high bound the scale.
    """
    if answer.tokens is None:
        return float(chosen), "raw (the judge gave no token probabilities)"
    token = _score_token(answer.raw, answer.tokens, field)
    if token is None:
        return float(chosen), "raw (the score is not exactly one token of the answer)"
    weights = _weights(token, low, high)
    if not weights:
        return float(chosen), "raw (no alternative is a whole number of the scale)"
    if _ambiguous(token, weights, low, high):
        return float(chosen), "raw (a token may be the start of a longer number)"
    total = math.fsum(weights.values())
    mean = math.fsum(value * weight for value, weight in weights.items()) / total
    # Rounding alone may leave the range of the alternatives.
    return min(max(mean, min(weights)), max(weights)), "weighted"


def _score_token(raw: str, tokens: tuple[TokenChoice, ...], field: str) -> TokenChoice | None:
    span = value_span(raw, field)
    # Some servers trim the answer but not its tokens (blanks, a code fence, an end token).
    # The last such place: thinking that the server cut out may hold a draft of the answer.
    offset = "".join(choice.token for choice in tokens).rfind(raw)
    if span is None or offset < 0:
        return None
    start = -offset
    for choice in tokens:
        end = start + len(choice.token)
        if start <= span[0] < end:
            covers = choice.token.strip() == raw[span[0] : span[1]]
            return choice if covers else None
        start = end
    return None


def value_span(raw: str, field: str) -> tuple[int, int] | None:
    """Where the value of a top-level `field` stands in a JSON object's text."""
    decoder = json.JSONDecoder()
    found: tuple[int, int] | None = None
    place = _after_blanks(raw, 0)
    if not raw.startswith("{", place):
        return None
    try:
        place = _after_blanks(raw, place + 1)
        while not raw.startswith("}", place):
            name, place = decoder.raw_decode(raw, place)
            place = _after_blanks(raw, place)
            start = _after_blanks(raw, place + 1)
            _, place = decoder.raw_decode(raw, start)
            if name == field:
                found = start, place  # written twice, the last one counts, as for the parser
            place = _after_blanks(raw, place)
            if not raw.startswith(",", place):
                break
            place = _after_blanks(raw, place + 1)
    except json.JSONDecodeError:
        return None
    return found


def _after_blanks(text: str, place: int) -> int:
    while place < len(text) and text[place] in " \t\r\n":
        place += 1
    return place


def _weights(choice: TokenChoice, low: int, high: int) -> dict[int, float]:
    """Probability of every whole number of the scale among the alternatives."""
    weights: dict[int, float] = {}
    for token, logprob in choice.alternatives:
        text = token.strip()
        if _WHOLE.fullmatch(text) and low <= int(text) <= high:
            weights[int(text)] = weights.get(int(text), 0.0) + math.exp(logprob)
    return {value: weight for value, weight in weights.items() if weight > 0}


def _ambiguous(choice: TokenChoice, weights: dict[int, float], low: int, high: int) -> bool:
    """Whether a token such as `1` or `-` may stand for the start of `10` or `-1`.

    It cannot when the tokenizer is seen to have longer numbers as single tokens.
    """
    if any(value >= 10 for value in weights):
        return False
    starts = [
        math.exp(logprob)
        for token, logprob in choice.alternatives
        if _may_start(token.strip(), low, high)
    ]
    return any(mass > _NEGLIGIBLE * math.fsum([mass, *weights.values()]) for mass in starts)


def _may_start(text: str, low: int, high: int) -> bool:
    """Whether a longer number of the scale may begin with `text`."""
    if text == "-":
        return low < 0
    return text.isascii() and text.isdigit() and 0 < int(text) * 10 <= high
