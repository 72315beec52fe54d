"""What a run asked and used: calls, sums, and what waits. Plain data."""

from __future__ import annotations

from dataclasses import dataclass

from dagengine.question import NO_USAGE, Origin, Usage
from dagengine.results.outcomes import OutcomeKind


@dataclass(frozen=True, slots=True)
class Attempt:
    """One call to a judge, as the ledger keeps it; failed ones included.

    `key` is the SHA-256 (hex) of the question, `number` counts its calls, from 1 on, and
    `seconds` is how long this call took. An answer out of a store is in the ledger, too: its
    `origin` says so, and it used nothing.
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
    """What was asked and used for one node of one metric at one judge, by the judge's identity.

    `asked` counts questions, `calls` the attempts made and `failed` those without an answer;
    `seconds` adds up the time that calls took, side by side or not. `cost` is in US dollars,
    None without a known price.
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
    """Sums over the ledger of one run.

    `asked` counts questions, `shared` those of them answered by an equal one, `cached` those
    answered by a store, `calls` the attempts made, `retried` the attempts after a first one,
    `damaged` the stored answers that could not be read any more and were asked for anew.
    `requests` are the calls as they travelled: fewer where several shared one. `speculated` counts
    what was asked before it was known to be needed, `unneeded` what of it was not; what is needed
    becomes a call when it is. `cost` is in US dollars by the known prices (see
    `dagengine.gateway.prices`), None when a judge without one was asked. `in_flight` are the calls
    under way (0 when a run is over).
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

    def __add__(self, other: Totals) -> Totals:
        """The sums over both ledgers."""
        unpriced = self.cost is None or other.cost is None
        return Totals(
            asked=self.asked + other.asked,
            shared=self.shared + other.shared,
            calls=self.calls + other.calls,
            retried=self.retried + other.retried,
            failed=self.failed + other.failed,
            usage=self.usage + other.usage,
            cached=self.cached + other.cached,
            cost=None if unpriced else (self.cost or 0.0) + (other.cost or 0.0),
            in_flight=self.in_flight + other.in_flight,
            damaged=self.damaged + other.damaged,
            requests=self.requests + other.requests,
            speculated=self.speculated + other.speculated,
            unneeded=self.unneeded + other.unneeded,
        )


@dataclass(frozen=True, slots=True)
class Waiting:
    """Questions of a run under way that wait to be asked again.

    `count` of them because of `why`: the HTTP status of a rejection, `timeout`, `no answer`. The
    first of them goes on in `seconds`.
    """

    why: str
    count: int
    seconds: float
