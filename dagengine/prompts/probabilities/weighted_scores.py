"""Reading ratings and verdicts out of token probabilities.

A rating is the expectation over the score token's alternatives (Liu et al. 2023, G-Eval,
https://arxiv.org/abs/2303.16634). The token is found by the position of the value in the answer: in
its JSON, or where a parser found it. It is never found by looking for an equal digit.

Where one digit is one token, `1` may begin `10`. If the answer states such a start, the token after
it tells how likely the longer number is. If another alternative is such a start, nothing tells, and
the expectation has bounds. So it has if a server does not tell all ratings. Bounds that are close
to each other count as known.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import filterfalse
from operator import attrgetter, itemgetter
from typing import Any, Final

from dagengine.prompts.probabilities.answer_tokens import token_over, tokens_from, value_span
from dagengine.prompts.probabilities.options import LEAST_MASS, Masses, mass_words, unknown_of
from dagengine.prompts.probabilities.scales import Around, Ends, Scale
from dagengine.question import Answer, Odds, Span, TokenChoice

TOLERANCE: Final = 0.05
"""How far apart the bounds of an expected score (0 to 1) may be if it counts as known."""
_WHOLE = 1.05  # of all alternatives together, with what rounding adds
# Alternatives below this share of the mass cannot make the reading ambiguous.
_NEGLIGIBLE = 0.01


@dataclass(frozen=True, slots=True)
class Reading:
    """A rating, its mode (`weighted`, or `raw (why)`), and the mass on ratings (0 to 1) if known.

    If the answer states no rating of the scale, the average of those that its tokens tell counts
    also where it is not known how far it is off: `weighted (why)`. `rating` is None if there are
    none.
    """

    rating: float | None
    mode: str
    mass: float | None = None


@dataclass(frozen=True, slots=True)
class _Part:
    """An alternative: its probability, the rating that it states, and those that it may begin."""

    mass: float
    own: float | None
    longer: Ends | None = None

    @property
    def span(self) -> Ends:
        """The lowest and the highest rating that it may be."""
        own, longer = self.own, self.longer
        if longer is None:
            assert own is not None
            return own, own
        return longer if own is None else (min(own, *longer), max(own, *longer))


_MASS, _OWN, _LONGER = attrgetter("mass"), attrgetter("own"), attrgetter("longer")


def expected_score(
    answer: Answer[Any], stated: float | None, scale: Scale, span: Span | None
) -> Reading:
    """The rating as the expectation over the alternatives of its token, else as it is stated.

    `stated` is the rating that the answer states (None: none of the scale). `span` is its start
    and end in `answer.raw`, counted in characters.
    """
    if answer.tokens is None:
        return Reading(stated, "raw (the judge gave no token probabilities)")
    if span is None:
        return Reading(stated, "raw (it is not known where the answer states the score)")
    path, text = tokens_from(span[0], answer.raw, answer.tokens), answer.raw[slice(*span)]
    if path and _whole_of(path[0]) > _WHOLE:
        return Reading(stated, "raw (the server's probabilities add up to more than 1)")
    around = _around(path[0].token, text, scale) if path else None
    if around is None:
        return Reading(stated, "raw (the score is not exactly one token of the answer)")
    first_parts = _first_parts(path, scale, around, path[0].token == text.join(around))
    parts = list(filter(_MASS, first_parts))
    mass = min(1.0, math.fsum(map(_MASS, parts)))
    if not parts:
        return Reading(stated, f"raw (no alternative is a {scale.point} of the scale)", 0.0)
    mean, why = _mean(parts, _hidden(path[0], parts, scale), scale)
    if mass < LEAST_MASS:
        why = f"only {mass_words(mass)} of the probability is on {scale.point}s of the scale"
    if why is None:
        return Reading(mean, "weighted", mass)
    if stated is None and mean is not None:
        return Reading(mean, f"weighted ({why})", mass)
    return Reading(stated, f"raw ({why})", mass)


def mean_rating(odds: Odds, ends: Ends, mass: float | None) -> tuple[float | None, str]:
    """The expectation over the odds of ratings, and the mode; None if it is not known.

    `mass` is the share of all probability (0 to 1) that the odds are made of, where that is known.
    """
    if not odds:
        return None, f"raw (only {mass_words(mass or 0.0)} of the probability is on the ratings)"
    unknown = unknown_of(odds)
    if unknown > TOLERANCE:
        return None, f"raw ({mass_words(unknown)} of the probability is unknown)"
    mean = math.fsum(number * chance for number, chance in odds) / (1 - unknown)
    return min(max(mean, ends[0]), ends[1]), "weighted"


def stated_probability(
    answer: Answer[Any], verdict: str | bool, verdicts: Sequence[str | bool]
) -> tuple[float | None, float | None]:
    """The probability of the stated verdict among all `verdicts`, and the mass on all of them.

    Both from its first token, and None without token probabilities. The probability is None, too,
    below half of the mass, where the token may begin several verdicts, and where a verdict that the
    server does not tell may change it by more than a hundredth.
    """
    if not answer.tokens:
        return None, None
    span = value_span(answer.raw, "verdict")
    choice = token_over(span[0], answer.raw, answer.tokens) if span else None
    if choice is None or not 0 < _whole_of(choice) <= _WHOLE:
        return None, None
    options, doubt = {str(option).casefold(): 0.0 for option in verdicts}, 0.0
    chances = [(token, math.exp(logprob)) for token, logprob in choice.alternatives]
    for token, chance in chances:
        start = token.strip().strip('"').casefold()
        fitting = [text for text in options if start and text.startswith(start)]
        if len(fitting) == 1:
            options[fitting[0]] += chance
        elif fitting:
            doubt += chance
    masses = Masses.of(options, list(map(itemgetter(1), chances)))
    mass = min(1.0, masses.total + doubt)
    sure = doubt <= _NEGLIGIBLE * mass
    return masses.chance(str(verdict).casefold()) if sure else None, mass


def _whole_of(choice: TokenChoice) -> float:
    """The sum of the probabilities that a server tells of a token: at most 1 if they are true."""
    logprobs = list(map(itemgetter(1), choice.alternatives))
    if max(logprobs, default=0.0) > 1:
        return math.inf  # e alone is above 1, and more might overflow
    return math.fsum(map(math.exp, logprobs))


def _around(token: str, stated: str, scale: Scale) -> Around | None:
    """The text around a rating in the token that states or begins it; None if there is more."""
    text = token.strip().strip('"')
    if text == stated:
        prefix, _, suffix = token.partition(stated)
        return prefix, suffix
    begins = text and stated.startswith(text) and token.endswith(text) and scale.reads_on
    return (token.removesuffix(text), "") if begins else None


def _first_parts(
    path: Sequence[TokenChoice], scale: Scale, around: Around, whole: bool
) -> list[_Part]:
    """The ratings that the alternatives of the token that states (`whole`) or begins one may be."""
    choice, following = path[0], path[1:]
    numbers = {token: scale.read(token, around) for token, _ in choice.alternatives}
    stated_numbers = sorted({value for value in numbers.values() if value is not None})
    parts: list[_Part] = []
    for token, logprob in choice.alternatives:
        stated, own = token == choice.token, numbers[token]
        longer = scale.longer(token, around, () if stated and not whole else stated_numbers)
        if own is None and longer is None:
            continue
        part = _Part(math.exp(logprob), own, longer)
        parts += _read_on(part, token.strip(), following, scale) if stated else [part]
    return parts


def _read_on(
    part: _Part, start: str, after: Sequence[TokenChoice], scale: Scale
) -> Iterable[_Part]:
    """The ratings that a start in the answer becomes, as far as the next token tells."""
    if part.longer is None or not scale.reads_on or not after or not after[0].alternatives:
        return [part]
    choice, next_parts = after[0], list[_Part]()
    chances = [(token, math.exp(logprob)) for token, logprob in choice.alternatives]
    for token, mass in chances:
        next_part = _Part(mass, *scale.read_on(start, token, choice.token[:1]))
        on = token == choice.token
        next_parts += _read_on(next_part, start + token, after[1:], scale) if on else [next_part]
    ratings = [each for each in next_parts if each.own is not None or each.longer is not None]
    whole = math.fsum(map(_MASS, ratings))
    if whole < LEAST_MASS:
        return [part]
    # What is not told here may be any of them, too.
    masses = list(map(itemgetter(1), chances))
    hidden = min(max(0.0, 1 - math.fsum(masses)), min(masses))
    ratings.append(_Part(hidden, None, part.span))
    return [replace(rating, mass=part.mass * rating.mass / (whole + hidden)) for rating in ratings]


def _hidden(choice: TokenChoice, parts: Sequence[_Part], scale: Scale) -> _Part:
    """The ratings that are not among the alternatives, with the most that they may have."""
    chances = list(map(math.exp, map(itemgetter(1), choice.alternatives)))
    unlisted = max(0.0, 1 - math.fsum(chances))
    stated, longer = set(map(_OWN, parts)), filter(None, map(_LONGER, parts))
    absent = list(filterfalse(stated.__contains__, scale.steps.values()))
    for low, high in longer:
        absent = [point for point in absent if not low <= point <= high]
    if not scale.steps:  # more ratings than are worth counting
        return _Part(unlisted, None, scale.ends)
    most = min(unlisted, len(absent) * min(chances))
    return _Part(most, None, (min(absent), max(absent)) if most else scale.ends)


def _mean(parts: Sequence[_Part], hidden: _Part, scale: Scale) -> tuple[float | None, str | None]:
    """The expectation over what is told, None of nothing, and why it is not known, if it is not."""
    every = [*parts, hidden] if hidden.mass else parts
    spans = [(part.mass, part.own, *part.span) for part in every]
    low = _least([(mass, least, own is None) for mass, own, least, _ in spans])
    high = -_least([(mass, -most, own is None) for mass, own, _, most in spans])
    worst, best = scale.ends
    firm = [(mass, own, least, most) for mass, own, least, most in spans if own is not None]
    why = None
    if high - low > TOLERANCE * (best - worst) or not firm:
        doubt = any(part.longer is not None and part.mass > hidden.mass for part in parts)
        cause = f"a token may be {scale.doubt}" if doubt else "the server does not tell all ratings"
        why = f"{cause}: the average is between {low:.3g} and {high:.3g}"
    return _firm_mean(firm), why


def _firm_mean(spans: Sequence[tuple[float, float, float, float]]) -> float | None:
    """The mean of alternatives that state a rating, by mass, rating and span; None without any."""
    if not spans:
        return None
    total = math.fsum(map(itemgetter(0), spans))
    # The middle of what it may be; of one with next to no mass, what it states.
    values = [
        own if mass / total <= _NEGLIGIBLE else (least + most) / 2
        for mass, own, least, most in spans
    ]
    mean = math.fsum([span[0] * value for span, value in zip(spans, values, strict=True)]) / total
    # Rounding alone may leave the range of the alternatives.
    return min(max(mean, min(values)), max(values))


def _least(parts: Iterable[tuple[float, float, bool]]) -> float:
    """The least mean of (mass, value, whether it may be left out): a few of these pull it down."""
    # What must be there comes first, then the others, the lowest first. One that is above the mean
    # of those before it would only raise the mean, and so would all that follow.
    ordered = sorted(parts, key=itemgetter(2, 1))
    total = mass = 0.0
    for weight, value, optional in ordered:
        if optional and mass and value * mass >= total:
            break
        total, mass = total + weight * value, mass + weight
    return total / mass
