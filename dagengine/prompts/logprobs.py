"""Reading a rating out of token probabilities.

The expectation over the score token's alternatives (Liu et al. 2023, G-Eval,
https://arxiv.org/abs/2303.16634). The token is found by the position of the value in the answer: in
its JSON, or where a parser found it. It is never found by looking for an equal digit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from dagengine.prompts.scales import Around, Scale
from dagengine.prompts.tokens import token_over, value_span
from dagengine.question import Answer, Span, TokenChoice

# Alternatives below this share of the mass cannot make the reading ambiguous.
_NEGLIGIBLE = 0.01


def expected_score(
    answer: Answer[Any], stated: float | None, scale: Scale, place: Span | None
) -> tuple[float | None, str]:
    """The rating and its mode: `weighted`, or `raw (why)`.

    `stated` is the rating that the answer states (None: none of the scale). `place` is its start
    and end in `answer.raw`, counted in characters.
    """
    if answer.tokens is None:
        return stated, "raw (the judge gave no token probabilities)"
    if place is None:
        return stated, "raw (it is not known where the answer states the score)"
    token = _token_at(place, answer.raw, answer.tokens)
    if token is None:
        return stated, "raw (the score is not exactly one token of the answer)"
    before, _, after = token.token.partition(answer.raw[slice(*place)])
    weights = _weights(token, scale, (before, after))
    if not weights:
        return stated, f"raw (no alternative is a {scale.point} of the scale)"
    if _ambiguous(token, weights, scale, (before, after)):
        return stated, f"raw (a token may be {scale.doubt})"
    total = math.fsum(weights.values())
    mean = math.fsum(value * weight for value, weight in weights.items()) / total
    # Rounding alone may leave the range of the alternatives.
    return min(max(mean, min(weights)), max(weights)), "weighted"


def _token_at(place: Span, raw: str, tokens: tuple[TokenChoice, ...]) -> TokenChoice | None:
    """The token that states the value at a place, if that is exactly one token."""
    choice = token_over(place[0], raw, tokens)
    whole = choice is not None and choice.token.strip().strip('"') == raw[slice(*place)]
    return choice if whole else None


def stated_probability(
    answer: Answer[Any], verdict: str | bool, verdicts: Sequence[str | bool]
) -> float | None:
    """The probability of the stated verdict among all `verdicts`, from its first token.

    None without token probabilities, and where the token may begin several verdicts.
    """
    place = value_span(answer.raw, "verdict") if answer.tokens else None
    choice = token_over(place[0], answer.raw, answer.tokens) if place and answer.tokens else None
    if choice is None:
        return None
    masses, doubt = {str(one).casefold(): 0.0 for one in verdicts}, 0.0
    for token, logprob in choice.alternatives:
        start = token.strip().strip('"').casefold()
        fitting = [text for text in masses if start and text.startswith(start)]
        if len(fitting) == 1:
            masses[fitting[0]] += math.exp(logprob)
        elif fitting:
            doubt += math.exp(logprob)
    total = math.fsum(masses.values())
    if not total or doubt > _NEGLIGIBLE * (total + doubt):
        return None
    return masses[str(verdict).casefold()] / total


def _weights(choice: TokenChoice, scale: Scale, around: Around) -> dict[float, float]:
    """Probability of every number of the scale among the alternatives."""
    weights: dict[float, float] = {}
    for token, logprob in choice.alternatives:
        value = scale.read(token, around)
        if value is not None:
            weights[value] = weights.get(value, 0.0) + math.exp(logprob)
    return {value: weight for value, weight in weights.items() if weight > 0}


def _ambiguous(
    choice: TokenChoice, weights: dict[float, float], scale: Scale, around: Around
) -> bool:
    """Whether a token may belong to another rating, as `1` or `-` to `10` or `-1`."""
    doubtful = [
        math.exp(logprob)
        for token, logprob in choice.alternatives
        if scale.unclear(token, around, weights)
    ]
    return any(mass > _NEGLIGIBLE * math.fsum([mass, *weights.values()]) for mass in doubtful)
