"""What models cost: a small table that ages, and prices of one's own.

US dollars per million tokens of input, output and cached input, standard (not batch or
priority) processing, short prompts, collected on 2026-11-21 through the public price list
of the `genai-prices` package (0.2.3), which refers to:

- developers.openai.com/api/docs/pricing
- anthropic.com/pricing
- ai.google.dev/gemini-api/docs/pricing

**Providers change their prices without notice.** Give `Limits.prices` when it matters.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from dagengine.errors import InputError
from dagengine.question import Usage

ANY = "*"
# Endings that name a release of a model and not another model.
_RELEASE = re.compile(r"-(latest|preview|\d{4}-\d{2}-\d{2}|\d{8}|\d{3})$")


class Price(NamedTuple):
    """US dollars per million tokens; `cached` is for input that the provider had cached."""

    input: float
    output: float
    cached: float | None = None

    def of(self, usage: Usage) -> float:
        """US dollars for these tokens."""
        cached = self.input if self.cached is None else self.cached
        fresh = usage.input_tokens - usage.cached_tokens
        paid = fresh * self.input + usage.cached_tokens * cached + usage.output_tokens * self.output
        return paid / 1e6


PRICES: Mapping[str, Price] = {
    "gpt-4-turbo": Price(10.0, 30.0),
    "gpt-4.1": Price(2.0, 8.0, 0.5),
    "gpt-4.1-mini": Price(0.4, 1.6, 0.1),
    "gpt-4.1-nano": Price(0.1, 0.4, 0.025),
    "gpt-4o": Price(2.5, 10.0, 1.25),
    "gpt-4o-2024-05-13": Price(5.0, 15.0),
    "gpt-4o-mini": Price(0.15, 0.6, 0.075),
    "gpt-5": Price(1.25, 10.0, 0.125),
    "gpt-5-mini": Price(0.25, 2.0, 0.025),
    "gpt-5-nano": Price(0.05, 0.4, 0.005),
    "gpt-5.1": Price(1.25, 10.0, 0.125),
    "gpt-5.2": Price(1.75, 14.0, 0.175),
    "gpt-5.4": Price(2.5, 15.0, 0.25),
    "gpt-5.4-mini": Price(0.75, 4.5, 0.075),
    "gpt-5.4-nano": Price(0.2, 1.25, 0.02),
    "gpt-5.5": Price(5.0, 30.0, 0.5),
    "o1": Price(15.0, 60.0, 7.5),
    "o3": Price(2.0, 8.0, 0.5),
    "o3-mini": Price(1.1, 4.4, 0.55),
    "o4-mini": Price(1.1, 4.4, 0.275),
    "claude-3-haiku": Price(0.25, 1.25, 0.03),
    "claude-3-5-haiku": Price(0.8, 4.0, 0.08),
    "claude-3-5-sonnet": Price(3.0, 15.0, 0.3),
    "claude-3-7-sonnet": Price(3.0, 15.0, 0.3),
    "claude-haiku-4-5": Price(1.0, 5.0, 0.1),
    "claude-opus-4-1": Price(15.0, 75.0, 1.5),
    "claude-opus-4-5": Price(5.0, 25.0, 0.5),
    "claude-opus-4-6": Price(5.0, 25.0, 0.5),
    "claude-opus-4-7": Price(5.0, 25.0, 0.5),
    "claude-sonnet-4-5": Price(3.0, 15.0, 0.3),
    "claude-sonnet-4-6": Price(3.0, 15.0, 0.3),
    "gemini-2.0-flash": Price(0.1, 0.4, 0.025),
    "gemini-2.0-flash-lite": Price(0.075, 0.3),
    "gemini-2.5-flash": Price(0.3, 2.5, 0.03),
    "gemini-2.5-flash-lite": Price(0.1, 0.4, 0.01),
    "gemini-2.5-pro": Price(1.25, 10.0, 0.125),
    "gemini-3-flash": Price(0.5, 3.0, 0.05),
    "gemini-3-pro": Price(2.0, 12.0, 0.2),
}


def as_price(model: str, given: Any) -> Price:
    """`(input, output)` or `(input, output, cached input)` as a price; raises InputError."""
    if isinstance(given, Price):
        return given
    if isinstance(given, tuple | list) and len(given) in (2, 3) and all(map(_is_amount, given)):
        return Price(*given)
    raise InputError(
        f"prices[{model!r}] must be (input, output) or (input, output, cached input) in US "
        f"dollars per million tokens, got {given!r}"
    )


def _is_amount(value: Any) -> bool:
    return isinstance(value, int | float) and 0 <= value < float("inf")


def find_price(model: str | None, own: Mapping[str, Any]) -> Price | None:
    """The price of a model, or None when it is not known.

    The user's prices go first, and among them `*` stands for every model that has none. A
    provider in front of the name (`openai/gpt-4o`) and a release behind it
    (`gpt-4o-2024-11-20`) are left out where they are not listed.
    """
    bare = (model or "").rpartition("/")[2]
    names = (model or "", bare, _RELEASE.sub("", bare))
    for name in (*names, ANY):
        if name in own:
            return as_price(name, own[name])
    return next((PRICES[name] for name in names if name in PRICES), None)
