"""Whether a judge is in order, told from how its calls ended. No clock, no I/O.

::

    closed ──failures in a row──▶ open ──patience used up──▶ given up
       ▲                             │ probes, after
       └────────any answer───────────┘ growing waits

The next probe waits until the last one has ended, or has lasted so much longer than calls that
failed that the judge seems to be at work on it.
"""

from __future__ import annotations

import math

_IN_A_ROW = 5
_HOPELESS = 3  # answers that say "no" for good, with never a "yes"
_FIRST_WAIT = 0.25
_LONGEST_WAIT = 5.0
_AT_WORK, _AS_LONG = 0.5, 2.0  # seconds, and times the seconds of the longest failure
# The key, the account, the permission, the address: nothing a repetition would change.
_FOR_GOOD = frozenset({401, 402, 403, 404, 429})


class CircuitBreaker:
    """One judge's circuit breaker; times are seconds on any one clock.

    While the circuit is open no call goes out, except a probe from `opens_at` on.
    `is_open` says whether the judge is out of order for now. `given_up` is the reason why no
    call goes out any more, or None. `last` is the number of the last call that started.
    """

    def __init__(self, name: str, patience: float, unreached: float | None = None) -> None:
        """`patience` is how many seconds the judge may be out of order.

        `unreached` holds instead as long as there is no sign that anything is there.
        """
        self._name = name
        self._longest = patience
        self._unreached = patience if unreached is None else unreached
        self._reached = False
        self.last = self._alive = 0  # the last call that started, now and at the last answer
        self._failures = 0
        self._since = 0.0
        self._wait = _FIRST_WAIT
        self._refusals = 0
        self._answered = False
        self._probes: dict[int, float] = {}  # when each of them started
        self._longest_failure = 0.0
        self._next_probe = -math.inf
        self.is_open = False
        self.given_up: str | None = None

    @property
    def opens_at(self) -> float:
        """When the next call may start; minus infinity at any time."""
        return self._next_probe if self.is_open else -math.inf

    @property
    def has_answered(self) -> bool:
        """Whether there was ever an answer."""
        return self._answered

    def has_answered_since(self, serial: int) -> bool:
        """Whether there was an answer to any call since this one started."""
        return serial <= self._alive

    @property
    def _patience(self) -> float:
        return self._longest if self._answered or self._reached else self._unreached

    def started(self, serial: int, now: float) -> None:
        """A call starts; while the circuit is open it is a probe."""
        self.last = serial
        if self.is_open:
            self._probes[serial] = now
            self._next_probe = now + max(_AT_WORK, _AS_LONG * self._longest_failure)

    def answered(self) -> None:
        """An answer of any kind: the judge is in order."""
        self._answered, self.is_open = True, False
        self._alive = self.last
        self._failures = self._refusals = 0
        self._wait, self._longest_failure = _FIRST_WAIT, 0.0
        self._probes.clear()

    def ended(self, serial: int) -> None:
        """A call ended in a way that says nothing about the judge."""
        if self._probes.pop(serial, None) is not None and not self._probes:
            self._next_probe = -math.inf

    def failed(
        self,
        serial: int,
        now: float,
        why: str,
        in_flight: int = 1,
        retry_after: float = 0.0,
        reached: bool = False,
    ) -> None:
        """The endpoint gave no answer, or an error that may pass.

        `reached` says that something is there: an error page, or a connection without an answer.
        `in_flight` counts the calls in progress, this one included. Failures are often faster than
        answers, so a few of them among many calls do not open the circuit.
        """
        self._reached = self._reached or reached
        if not self._failures:
            self._since = now
        self._failures += 1
        if retry_after > self._patience:
            self._give_up(
                f"it asks to wait {retry_after:g} s ({why}), which is longer than the patience of "
                f"{self._patience:g} s; run again later, or raise Limits.patience"
            )
        elif serial in self._probes:
            self._longest_failure = max(self._longest_failure, now - self._probes.pop(serial))
            self._wait = min(_LONGEST_WAIT, 2 * self._wait)
            self._schedule(now, why)
        elif not self.is_open and self._failures >= max(_IN_A_ROW, in_flight):
            self.is_open = True
            self._schedule(now, why)

    def try_again(self, now: float) -> None:
        """Let a judge that was given up be probed as long as one that is out of order since now."""
        if self.given_up is not None:
            self.given_up, self.is_open = None, True
            self._since, self._wait, self._next_probe = now, _FIRST_WAIT, -math.inf
            self._failures = max(1, self._failures)
            self._probes.clear()

    def refused(self, serial: int, status: int | None, why: str) -> None:
        """The endpoint refused for good."""
        self.ended(serial)
        if status is not None:  # it did answer
            self._failures, self.is_open = 0, False
        if status in _FOR_GOOD and not self._answered:
            self._refusals += 1
            if self._refusals >= _HOPELESS:
                self._give_up(
                    f"its first {self._refusals} calls all ended with {why!r}, which a retry does "
                    "not fix; fix the cause and run again"
                )

    def _schedule(self, now: float, why: str) -> None:
        """Plan the next probe; the last one is at the end of the patience."""
        end = self._since + self._patience
        if now < end:
            self._next_probe = min(now + self._wait, end)
            return
        if self._probes:  # the judge may be at work on them
            self._next_probe = math.inf
            return
        self._give_up(
            f"{self._failures} calls in a row failed in {now - self._since:.0f} s, the last one "
            f"with {why!r}; see that it runs, or raise Limits.patience ({self._patience:g} s), and "
            "run again"
        )

    def _give_up(self, why: str) -> None:
        if self.given_up is None:
            # The name is long: what happened goes first.
            self.given_up = f"the judge is given up: {why} (judge: {self._name!r})"
