"""Whether a judge is in order, told from how its calls ended. No clock, no I/O.

::

    closed ──failures in a row──▶ open ──patience used up──▶ given up
      ▲ │                           │ probes, after            ▲
      │ │ ◀──────any answer─────────┘ growing waits            │
      │ └──what may hold for all──▶ in doubt ──the harmless question fails alike
      └──────────any answer────────────┘

The next probe waits until the last one has ended, or has lasted so much longer than calls that
failed that the judge seems to be at work on it. Once in 60 s it is the harmless question: its
answer shows that what failed is about the questions that met it. In doubt nothing else goes out:
after failures that may hold for all (key, model, quota, a wait beyond the patience), the first of a
judge that never answered, later as many in a row as open the circuit.

A judge that `returns` is tried again after it was given up, by one question at a time.
"""

from __future__ import annotations

import math

_GIVEN_UP = "the judge is given up: "
FOR_GOOD = f"{_GIVEN_UP}whatever it is asked"
"""How the reason begins if nothing but somebody's hand brings the judge back."""
_IN_A_ROW = 5
_FIRST_WAIT = 0.25
_LONGEST_WAIT = 5.0
_AT_WORK, _AS_LONG = 0.5, 2.0  # seconds, and times the seconds of the longest failure
_APART = 60.0  # seconds between two harmless questions
_FIRST_TRY, _LONGEST_TRY = 5.0, 60.0  # seconds between two tries of a judge that is given up
_MIXED = frozenset({403, 404})  # they are often about one question


class CircuitBreaker:
    """One judge's circuit breaker; times are seconds on any one clock.

    While the circuit is open no call goes out, except a probe from `opens_at` on.
    `is_open` says whether the judge is out of order for now. `given_up` is the reason why no
    call goes out any more, but for a try, or None. `last` is the number of the last call that
    started, and `has_answered` says whether there was ever an answer. `returns` may be set.
    """

    def __init__(
        self, name: str, patience: float, unreached: float | None = None, *, slow: bool = False
    ) -> None:
        """`patience` is how many seconds the judge may be out of order.

        `unreached` holds instead as long as there is no sign that anything is there. A `slow`
        one gets no harmless question: doubt gives it up if it never answered.
        """
        self.returns = False
        self._try, self._tries_at, self._try_wait = 0, -math.inf, _FIRST_TRY
        self._name = name
        self._longest = patience
        self._unreached = patience if unreached is None else unreached
        self._reached = self.has_answered = False
        self.last = self._alive = 0  # the last call that started, now and at the last answer
        self._failures, self._since = 0, 0.0  # in a row, from then on
        self._wait = _FIRST_WAIT
        self._probes: dict[int, float] = {}  # when each of them started
        self._longest_failure, self._next_probe = 0.0, -math.inf
        self._asks = not slow
        self._trying, self._tried = 0, -math.inf  # the call with the harmless question, its start
        self._cleared: int | None = None  # the last call when it was answered
        self.is_open = self._in_doubt = self._has_tried = False  # … since the last answer
        self.given_up: str | None = None

    @property
    def opens_at(self) -> float:
        """The time at which the next call may start; minus infinity at any time."""
        earliest = self._tried + _APART if self._in_doubt else -math.inf
        return max(earliest, self._next_probe) if self.is_open else -math.inf

    def has_answered_since(self, serial: int) -> bool:
        """Return whether there was an answer to any call since this one started."""
        return serial <= self._alive

    @property
    def patience(self) -> float:
        """Seconds that it may be out of order, by what is known of it now."""
        return self._longest if self.has_answered or self._reached else self._unreached

    def note_start(self, serial: int, now: float) -> bool:
        """Note a call that starts; returns whether it is the harmless question."""
        self.last = serial
        if self.given_up is not None:
            self._try, self._try_wait = serial, min(_LONGEST_TRY, 2 * self._try_wait)
            self._tries_at = now + self._try_wait
        if self.is_open:
            self._probes[serial] = now
            self._next_probe = now + max(_AT_WORK, _AS_LONG * self._longest_failure)
            if self._asks and now >= self._tried + _APART:
                self._trying, self._tried, self._cleared, self._has_tried = serial, now, None, True
            if self.given_up is not None:
                self._next_probe = math.inf
        return serial == self._trying

    def note_answer(self) -> None:
        """An answer of any kind: the judge is in order."""
        self.has_answered, self._alive = True, self.last
        if self._failures or self._trying:
            self._clear()
            self._failures, self.is_open, self._has_tried = 0, False, False
            self._wait, self._longest_failure = _FIRST_WAIT, 0.0
            self._probes.clear()
            self._return()

    def is_tried(self, now: float) -> bool:
        """Return whether a try has just begun, for whose end others may wait."""
        return self._try > 0 and now < self._probes.get(self._try, now) + _FIRST_TRY

    def may_try(self, now: float) -> bool:
        """Let one question go to a judge that is given up, if it is time; the next after it."""
        if not self.returns or self._try or now < self._tries_at:
            return False
        self._in_doubt, self._next_probe = False, -math.inf
        return True

    def _return(self) -> None:
        if self.returns:
            self.given_up, self._try, self._try_wait = None, 0, _FIRST_TRY

    def _clear(self) -> None:
        """End doubt and question: what failed is about single questions, or nobody can tell."""
        if self._trying:
            self._trying, self._cleared = 0, self.last
        if self._in_doubt:
            self.is_open = self._in_doubt = False

    def note_end(self, serial: int) -> None:
        """A call ended in a way that says nothing about the judge."""
        self._try = 0 if serial == self._try else self._try
        if serial == self._trying:
            self._clear()
        if self._probes.pop(serial, None) is not None and not self._probes:
            self._next_probe = -math.inf if self.given_up is None else math.inf

    def note_failure(
        self, serial: int, now: float, why: str, in_flight: int = 1, status: int | None = None
    ) -> None:
        """The endpoint gave no answer, or an error that may pass.

        `status` is 0 of a connection without an answer; None: no sign that anything is there.
        `in_flight` counts the calls in progress, this one included. Failures are often faster than
        answers, so a few of them among many calls do not open the circuit.
        """
        in_a_row = self._count(now, in_flight, status)
        if self.given_up is not None:
            self.note_end(serial)
        elif serial in self._probes:
            if serial == self._trying:
                self._trying, self._in_doubt = 0, False
            self._longest_failure = max(self._longest_failure, now - self._probes.pop(serial))
            self._wait = min(_LONGEST_WAIT, 2 * self._wait)
            self._schedule(now, why)
        elif not self.is_open and in_a_row and self._may_be_all(now, status):
            self.is_open = True
            self._schedule(now, why)

    def try_again(self, now: float) -> None:
        """Let a judge that was given up be probed as long as one that is out of order since now."""
        if self.given_up is not None:
            self.given_up, self.is_open, self._in_doubt = None, True, False
            self._since, self._wait, self._next_probe = now, _FIRST_WAIT, -math.inf
            self._failures = max(1, self._failures)
            self._probes.clear()

    def note_doubt(
        self,
        serial: int,
        now: float,
        why: str,
        in_flight: int = 1,
        status: int | None = None,
        wait: float | None = None,
    ) -> None:
        """The endpoint failed for all questions, or for this one; it asks to `wait` (seconds)."""
        in_a_row, alike = self._count(now, in_flight, status), serial == self._trying
        self.note_end(serial)
        if alike or (in_a_row and not (self._asks or self.has_answered)):
            self._in_doubt = self._asks
            self._try_wait = _LONGEST_TRY if wait is None else self._try_wait
            until = now + (wait or _LONGEST_TRY)
            self._give_up(f"{FOR_GOOD}, it fails with {why!r}; fix this, or wait", until)
        elif self._asks and (in_a_row or not self.has_answered) and self._may_be_all(now, status):
            self._next_probe = self._next_probe if self.is_open else -math.inf
            self.is_open = self._in_doubt = True

    def _count(self, now: float, in_flight: int, status: int | None) -> bool:
        self._reached = self._reached or status is not None
        if not self._failures:
            self._since = now
        self._failures += 1
        return self._failures >= max(_IN_A_ROW, in_flight)

    def _may_be_all(self, now: float, status: int | None) -> bool:
        """Return whether a failure may be about the judge: not just that question was answered."""
        stale = self._cleared is None or now >= self._tried + _APART
        return stale or (status not in _MIXED and self._alive > (self._cleared or 0))

    def note_refusal(self, serial: int, status: int | None) -> None:
        """The endpoint refused this question for good."""
        self.note_end(serial)
        if status is not None and not self._in_doubt:  # it did answer
            self._failures, self.is_open = 0, False
            self._return()

    def _schedule(self, now: float, why: str) -> None:
        """Plan the next probe; the last one is at the end of the patience."""
        end = self._since + self.patience
        if now < end:
            self._next_probe = min(now + self._wait, end)
        elif self._probes:  # the judge may be at work on them
            self._next_probe = math.inf
        elif self._asks and not self._has_tried:
            self._next_probe, self._in_doubt = now, True
        else:
            self._give_up(
                f"{_GIVEN_UP}{self._failures} calls in a row failed in {now - self._since:.0f} s, "
                f"the last one with {why!r}: its patience of {self.patience:g} s is used up; see "
                "that it runs",
                now + _FIRST_TRY,
            )

    def _give_up(self, why: str, until: float) -> None:
        self.is_open, self._next_probe = True, math.inf
        self._tries_at = max(self._tries_at, until)
        if self.given_up is None:
            hint = "it is tried again from time to time" if self.returns else "and run again"
            # The name is long: what happened goes first.
            self.given_up = f"{why}, {hint} (judge: {self._name!r})"
