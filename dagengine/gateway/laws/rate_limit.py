"""Requests or tokens per minute, spread evenly. No clock, no I/O."""

from __future__ import annotations

import math

_BURST = 1.0  # seconds' worth that may start at once


class RateLimit:
    """A rate as the time at which everything that has started would be paid for.

    (The generic cell rate algorithm, ITU-T I.371: a leaky bucket in one number.) A single
    amount may be larger than any bucket; whatever follows it waits the longer. `taken` is what has
    started in all, `per_minute` the rate at the moment.
    """

    def __init__(self, per_minute: float) -> None:
        """`per_minute` units are let through in a minute."""
        self._paid = -math.inf
        self.taken = 0.0
        self.change(per_minute)

    def change(self, per_minute: float) -> None:
        """From now on so many units are let through in a minute; none of them with 0."""
        self.per_minute = per_minute
        self._seconds = 60.0 / per_minute if per_minute > 0 else 0.0

    def opens_at(self) -> float:
        """When the next amount may start; the first one may at any time."""
        return self._paid - _BURST if self.per_minute > 0 else math.inf

    def take(self, amount: float, now: float) -> None:
        """Start `amount` units at `now`."""
        self._paid = max(self._paid, now) + amount * self._seconds
        self.taken += amount

    def correct(self, difference: float) -> None:
        """Correct what was taken by an amount, which may be negative."""
        self._paid += difference * self._seconds
