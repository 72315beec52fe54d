"""How hard a run may try: calls at once, deadlines, retries, rates, money."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from dagengine.errors import InputError
from dagengine.results.prices import Price, as_price

# Whole numbers and the least of each; the optional ones may be None.
_WHOLE = {"max_in_flight": 1, "attempts": 1, "reasks": 0, "remembered": 0}
_OPTIONAL = {"max_calls": 0, "max_tokens": 1, "max_waiting": 0}
_ABOVE_ZERO = {
    "call_timeout": "seconds",
    "case_timeout": "seconds",
    "requests_per_minute": "requests",
    "tokens_per_minute": "tokens",
}
CHANGEABLE = ("max_calls", "budget", "prices", "case_timeout", "max_waiting")
"""The limits that may be set while an engine is open; the others hold for a whole run."""
_NOT_NEGATIVE = ("backoff", "max_backoff", "patience")
# Seconds of patience with a judge, at least, and with one whose calls have no time limit; else so
# many times the limit of one call.
_LEAST, _UNLIMITED, _CALLS = 60.0, 300.0, 2.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of a run: concurrency, rates, timeouts, retries, cost. The defaults suit hosted
    and local servers.

    **Concurrency.** `max_in_flight` (64) is the maximum number of concurrent judge calls in the
    whole run. As many nodes ask, and more while questions wait for a retry or for the answer to an
    equal question; and as many nodes of plain Python are at work. The actual number per judge
    adapts during the run, so you need not tune the maximum: only raise it for a fast server. It
    begins with 4, or with what the server says that it works on at the same time. It grows while
    that brings more answers per second and nothing is rejected.

    **Rates**, per judge: `requests_per_minute` and `tokens_per_minute` (None: no limit) spread the
    calls evenly. Tokens are estimated before a call and corrected by the counts of the server. Set
    them if the provider publishes rate limits; otherwise the run adapts to rejections.

    **Time**, in seconds: `call_timeout` (120) for one call after its start; `case_timeout` (None:
    no limit) for a whole case, including waits. A call that is late is repeated once, with twice
    the time. A judge that needs longer than `call_timeout` for every answer gets twice the time for
    all calls.

    **Failures.** `attempts` (5) is the maximum number of calls for one question after transient
    errors. `reasks` (2) is the number of re-asks after an invalid answer. Waits between attempts
    grow from `backoff` (0.5) to `max_backoff` (30) seconds with jitter, and are never shorter than
    Retry-After. `patience` is the number of seconds that a judge may be unavailable: its questions
    wait without using up attempts, and then fail immediately. A Retry-After beyond it delays that
    question alone. The default (None) is 2.5 times `call_timeout`, at least 60; 60 as long as
    nothing at all is at the address. A judge that answers slowly is not unavailable.

    **Cost.** `max_calls` (None: no limit) is the maximum number of calls of the run, including
    retries. `budget` (None: no limit) is in US dollars. No call starts beyond them, and the
    remaining questions end as `over_budget`. `prices` maps a model's name to US dollars per million
    tokens, `(input, output)` or `(input, output, cached input)`; `"*"` is for all other models. It
    overrides the public list (`genai-prices`), which may be outdated.

    **Answers.** `max_tokens` (None: what the bounds of each answer need) is the maximum number of
    tokens of one answer. It is sent to the judge where the `Options` of a node do not say it.

    **Callers.** `max_waiting` (None: no limit) is the maximum number of cases that wait for their
    turn in an `Engine`. Further ones end as `over_budget` at once.

    **Memory.** `remembered` (100,000) answers are kept for equal questions later in the run. An
    answer counts once per kB: a long text counts several times, token probabilities of a long
    answer 100 times. With a store only the latest answers are kept in memory.

    Raises InputError that names the field of an invalid value.
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
    patience: float | None = None
    max_calls: int | None = None
    budget: float | None = None
    prices: Mapping[str, Price | tuple[float, ...]] = field(default_factory=dict[str, Price])
    remembered: int = 100_000
    max_tokens: int | None = None
    max_waiting: int | None = None

    def __post_init__(self) -> None:
        for name, least in {**_WHOLE, **_OPTIONAL}.items():
            value = getattr(self, name)
            if value is None and name in _OPTIONAL:
                continue
            if not isinstance(value, int) or value < least:
                raise InputError(f"{name} must be a whole number from {least} on, got {value!r}")
        for name, unit in _ABOVE_ZERO.items():
            value = getattr(self, name)
            if value is not None and not value > 0:  # NaN is not
                raise InputError(f"{name} must be a positive number of {unit}, got {value!r}")
        for name in _NOT_NEGATIVE:
            value = getattr(self, name)
            if value is not None and not value >= 0:
                raise InputError(f"{name} must not be negative, got {value!r}")
        if self.budget is not None and not 0 <= self.budget < math.inf:
            raise InputError(f"budget must be a number of US dollars from 0 on, got {self.budget}")
        for model, price in self.prices.items():
            as_price(model, price)

    def after(self, calls: int, cost: float) -> Limits:
        """The limits with what is left after so many calls, and US dollars."""
        max_calls = None if self.max_calls is None else max(self.max_calls - calls, 0)
        budget = None if self.budget is None else max(self.budget - cost, 0.0)
        return replace(self, max_calls=max_calls, budget=budget)

    @property
    def patience_of_a_judge(self) -> tuple[float, float]:
        """Seconds that a judge may be unavailable, and one of which there never was any sign."""
        if self.patience is not None:
            return self.patience, self.patience
        patience = _UNLIMITED if self.call_timeout is None else _CALLS * self.call_timeout
        return max(_LEAST, patience), _LEAST


DEFAULT_LIMITS = Limits()
