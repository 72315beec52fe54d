"""Requests or tokens per minute, spread evenly. No clock, no I/O."""

from __future__ import annotations

import math

_BURST = 1.0  # seconds' worth that may start at once


class RateLimit:
    """A rate as the time at which everything that has started would be paid for.

    (The generic cell rate algorithm, ITU-T I.371: a leaky bucket in one number.) A single
    amount may be larger than any bucket; whatever follows it waits the longer.
    """

    def __init__(self, per_minute: float) -> None:
        """`per_minute` units are let through in a minute."""
        self._seconds = 60.0 / per_minute
        self._paid = -math.inf

    def opens_at(self) -> float:
        """When the next amount may start; the first one may at any time."""
        return self._paid - _BURST

    def take(self, amount: float, now: float) -> None:
        """Start `amount` units at `now`."""
        self._paid = max(self._paid, now) + amount * self._seconds

    def correct(self, difference: float) -> None:
        """What was taken turned out to be that much more (or less)."""
        self._paid += difference * self._seconds
