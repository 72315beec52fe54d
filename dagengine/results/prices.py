"""What models cost: the public list of the `genai-prices` package, and the caller's prices.

US dollars per million tokens of input, output and cached input; standard (not batch or
priority) processing, short prompts. If a provider is cheaper at some hours, the highest price of
the day counts. So a budget holds, and an estimate is the same at every hour.

**Providers change their prices without notice.** The list is as old as the installed package;
give `Limits.prices` when it matters.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from typing import Any, NamedTuple

from dagengine.errors import InputError
from dagengine.question import Usage

ANY = "*"
# Endings that name a release of a model and not another model.
_RELEASE = re.compile(r"-(latest|preview|\d{4}-\d{2}-\d{2}|\d{8}|\d{3})$")
# Tokens of the request that is priced; many models charge more for prompts that are much longer.
_SHORT = 10_000


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

    def savings(self, usage: Usage) -> float:
        """US dollars that cached tokens cost less than others."""
        cheaper = 0.0 if self.cached is None else self.input - self.cached
        return usage.cached_tokens * cheaper / 1e6


def as_price(model: str, price: Any) -> Price:
    """`(input, output)` or `(input, output, cached input)` as a price; raises InputError."""
    if isinstance(price, Price):
        return price
    if isinstance(price, tuple | list) and len(price) in (2, 3):
        amounts = [number for number in price if isinstance(number, int | float)]
        if len(amounts) == len(price) and all(0 <= number < float("inf") for number in amounts):
            return Price(*amounts)
    raise InputError(
        f"prices[{model!r}] must be (input, output) or (input, output, cached input) in US "
        f"dollars per million tokens, got {price!r}"
    )


def find_price(model: str | None, own: Mapping[str, Any]) -> Price | None:
    """The price of a model, or None when it is not known.

    The user's prices go first, and among them `*` stands for every model that has none. A
    provider in front of the name (`openai/gpt-4o`) and a release behind it
    (`gpt-4o-2024-11-20`) are left out where they are not listed.
    """
    bare = (model or "").rpartition("/")[2]
    for name in (model or "", bare, _RELEASE.sub("", bare), ANY):
        if name in own:
            return as_price(name, own[name])
    return _public_price(model) if model else None


@cache
def _public_price(model: str) -> Price | None:
    """The price in the public list: of the provider in front of the name, or else of the maker."""
    front, _, rest = model.partition("/")  # without a slash `rest` is empty, and not in the list
    for provider, name in ((front, rest), (None, model), (None, model.rpartition("/")[2])):
        with suppress(LookupError):
            return Price(
                _per_million(name, provider, input_tokens=_SHORT),
                _per_million(name, provider, output_tokens=_SHORT),
                _per_million(name, provider, input_tokens=_SHORT, cache_read_tokens=_SHORT),
            )
    return None


def _per_million(model: str, provider: str | None, **tokens: int) -> float:
    """US dollars per million of such tokens at the dearest hour of the day; raises LookupError."""
    import genai_prices  # a tenth of a second, and only models with a name need it

    usage, today = genai_prices.Usage(**tokens), datetime.now(UTC)

    def price(moment: datetime) -> genai_prices.types.PriceCalculation:
        return genai_prices.calc_price(
            usage, model, provider_id=provider, genai_request_timestamp=moment
        )

    now = price(today)
    amounts, prices = [now.total_price], now.model.prices
    # A list has prices that hold from a day on, and prices that hold from one hour to another.
    if isinstance(prices, list) and any(hasattr(part.constraint, "start_time") for part in prices):
        hours = (today.replace(hour=hour, minute=0) for hour in range(24))
        amounts += [price(hour).total_price for hour in hours]
    return float(max(amounts) * 1_000_000 / _SHORT)
