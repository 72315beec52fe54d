"""What a run asked and used: calls, sums, and what waits. Plain data."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from dagengine.question import NO_USAGE, Origin, Usage
from dagengine.results.outcomes import OutcomeKind
from dagengine.system.terminal_text import counted


@dataclass(frozen=True, slots=True)
class Attempt:
    """One call to a judge, successful or failed.

    `key` is the SHA-256 (hex) of the question, `number` counts its calls, from 0 on, and `seconds`
    is how long this call took. An answer from a store is also an attempt: its `origin` says so, and
    it used no tokens.
    """

    node: str
    judge: str
    key: str
    number: int
    outcome: OutcomeKind
    seconds: float
    usage: Usage = NO_USAGE
    mode: str | None = None
    message: str | None = None
    origin: Origin = "live"


@dataclass(frozen=True, slots=True)
class Spent:
    """The questions and the usage of one node of one metric at one judge.

    `asked` counts questions, `calls` the attempts made and `failed` those without an answer.
    `seconds` is the sum of the durations of the calls, including parallel ones. `cost` is in US
    dollars, None without a known price.
    """

    metric: str
    node: str
    judge: str
    asked: int = 0
    calls: int = 0
    failed: int = 0
    usage: Usage = NO_USAGE
    cost: float | None = None
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Totals:
    """The totals of one run: questions, calls, tokens, cost.

    `asked` counts questions, `shared` questions answered by an equal one, `cached` questions
    answered by a store. `calls` counts attempts, `retried` attempts after the first one, and
    `damaged` stored answers that were damaged and asked again. `requests` counts requests: fewer
    than calls if several calls share one. `speculated` counts questions that were asked ahead, and
    `unneeded` those of them that were not needed; a needed one counts as a call. `cost` is in US
    dollars by the known prices (see `dagengine.results.prices`); None if a judge has no known
    price. `saved` are US dollars that prompt tokens from caches cost less than others. `in_flight`
    are the calls in progress (0 when a run is over).
    """

    asked: int = 0
    shared: int = 0
    calls: int = 0
    retried: int = 0
    failed: int = 0
    usage: Usage = NO_USAGE
    cached: int = 0
    cost: float | None = None
    in_flight: int = 0
    damaged: int = 0
    requests: int = 0
    speculated: int = 0
    unneeded: int = 0
    saved: float = 0.0

    def __add__(self, other: Totals) -> Totals:
        """The sums over both ledgers."""
        names = (field.name for field in fields(self) if field.name != "cost")
        sums: dict[str, Any] = {n: getattr(self, n) + getattr(other, n) for n in names}
        if self.cost is None or other.cost is None:
            # The known part of a price would be read as all of it.
            return Totals(**sums, cost=None)
        return Totals(**sums, cost=self.cost + other.cost)


@dataclass(frozen=True, slots=True)
class Waiting:
    """Questions of a run in progress that wait for a retry, or long for an answer.

    `count` of them because of `why`: the HTTP status of a rejection, `timeout`, `no answer`. The
    first of them continues in `seconds`. If a judge has given no answer for a minute, `silent` is
    for how many seconds, and `why` says for which node and of what server.
    """

    why: str
    count: int
    seconds: float
    silent: float | None = None


def cost_line(totals: Totals) -> str:
    """Questions and usage of a run, in one line."""
    calls = counted(totals.calls, "judge call")
    if 0 < totals.requests < totals.calls:
        calls += f" in {counted(totals.requests, 'request')}"
    cached = totals.cached / (totals.asked or 1)
    tokens = totals.usage.input_tokens + totals.usage.output_tokens
    kept = totals.usage.cached_tokens / (totals.usage.input_tokens or 1)
    saved = f", ${totals.saved:.2f} saved" if totals.saved >= 0.005 else ""
    parts = (
        (1, counted(totals.asked, "question")),
        (1, calls),
        (totals.speculated, f"{{:,}} asked ahead, {totals.unneeded:,} of them not needed"),
        (totals.cached, f"{{:,}} from the store ({cached:.0%})"),
        (totals.damaged, "{:,} damaged in the store and asked again"),
        (totals.shared, "{:,} shared with an equal question"),
        (totals.retried, "{:,} retried"),
        (totals.failed, "{:,} failed"),
        (tokens, "{:,} tokens"),
        (kept, f"{{:.0%}} of prompt tokens came from caches{saved}"),
        (totals.cost, "about ${:.4f}"),
    )
    return ", ".join(words.format(figure) for figure, words in parts if figure)
