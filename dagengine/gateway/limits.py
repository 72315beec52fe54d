"""How hard a run may try: calls at once, deadlines, retries, rates, money."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dagengine.errors import InputError
from dagengine.gateway.prices import Price, as_price

_WHOLE = {"max_in_flight": 1, "attempts": 1, "reasks": 0, "remembered": 0}
_ABOVE_ZERO = {
    "call_timeout": "seconds",
    "case_timeout": "seconds",
    "requests_per_minute": "requests",
    "tokens_per_minute": "tokens",
}
_NOT_NEGATIVE = ("backoff", "max_backoff", "patience")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How hard a run may try. The defaults suit a hosted provider and a local server alike.

    **Calls at once.** `max_in_flight` (64) is the ceiling of judge calls under way in the
    whole run; cases are not limited. How many of them one judge is really sent is found out
    while the run goes on, so the ceiling need not be tuned: raise it for a fast server.

    **Rates**, per judge: `requests_per_minute` and `tokens_per_minute` (None: no limit)
    spread the calls evenly. Tokens are estimated before a call and learnt from what the
    server counts. Set them when a provider publishes them: otherwise its rejections tell.

    **Time**, in seconds: `call_timeout` (120) for one call once it has started,
    `case_timeout` (None: no deadline) for everything a case needs, waiting included.

    **Failures.** `attempts` (5) is the number of calls for one question while failures are
    transient, `reasks` (2) how often an answer that does not fit is asked for again. Waits
    between attempts grow from `backoff` (0.5) to `max_backoff` (30) seconds with jitter and
    never undercut Retry-After. `patience` (60) is how many seconds a judge may be out of
    order: meanwhile its questions wait without using up attempts, afterwards they fail at
    once. A Retry-After beyond it ends a question.

    **Money.** `max_calls` (None: any) is the number of calls of the run, repeated ones
    included; `budget` (None: any) is US dollars. No call starts beyond them, and what was
    not asked ends as `over_budget`. `prices` maps a model's name to US dollars per million
    tokens, `(input, output)` or `(input, output, cached input)`, and goes before the
    public list (`genai-prices`), which ages; `"*"` stands for every other model.

    **Memory.** `remembered` (100,000) answers are kept for equal questions later in the run.
    One counts for every kB that it takes: a long text for several, token probabilities of
    a long answer for 100. With a store only the latest are kept, since it finds the others.

    Raises InputError, naming the field, when a value makes no sense.
    """

    max_in_flight: int = 64
    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None
    call_timeout: float | None = 120.0
    case_timeout: float | None = None
    attempts: int = 5
    reasks: int = 2
    backoff: float = 0.5
    max_backoff: float = 30.0
    patience: float = 60.0
    max_calls: int | None = None
    budget: float | None = None
    prices: Mapping[str, Price | tuple[float, ...]] = field(default_factory=dict[str, Price])
    remembered: int = 100_000

    def __post_init__(self) -> None:
        for name, least in _WHOLE.items():
            _require_whole(name, getattr(self, name), least)
        if self.max_calls is not None:
            _require_whole("max_calls", self.max_calls, 0)
        for name, unit in _ABOVE_ZERO.items():
            value = getattr(self, name)
            if value is not None and not value > 0:  # NaN is not
                raise InputError(f"{name} must be a positive number of {unit}, got {value!r}")
        for name in _NOT_NEGATIVE:
            if not getattr(self, name) >= 0:
                raise InputError(f"{name} must not be negative, got {getattr(self, name)!r}")
        if self.budget is not None and not 0 <= self.budget < math.inf:
            raise InputError(f"budget must be a number of US dollars from 0 on, got {self.budget}")
        for model, price in self.prices.items():
            as_price(model, price)


def _require_whole(name: str, value: Any, least: int) -> None:
    if not isinstance(value, int) or value < least:
        raise InputError(f"{name} must be a whole number from {least} on, got {value!r}")


DEFAULT_LIMITS = Limits()
