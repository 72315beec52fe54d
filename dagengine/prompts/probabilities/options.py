"""How likely each option is, as far as what a server tells of one token bounds it.

A server tells the most likely alternatives of a token and their probabilities. The *mass* of an
option is the probability of the alternatives that mean it. If all options have less than a half,
the model would rather have said something else: then nothing is known of them. An option that is
not among the alternatives is not impossible, but less likely than each of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Final

from dagengine.question import Odds

LEAST_MASS: Final = 0.5
"""Below this share of all probability on the options (0 to 1), their odds are not known."""
FAINT: Final = 0.001
"""Options without a mass count as impossible up to this share of the mass of the others."""
SURE: Final = 0.01
"""A probability is not known when options without a mass may change it by more than this."""


@dataclass(frozen=True, slots=True)
class Masses:
    """The mass of each of some `options` (0: not among the alternatives), from 0 to 1.

    `hidden` is the most that the options with mass 0 may have together: each at most as much as
    the least likely alternative, and all of them at most what the alternatives leave of 1.
    """

    options: Mapping[Any, float]
    hidden: float

    @classmethod
    def of(cls, options: Mapping[Any, float], alternatives: Sequence[float]) -> Masses:
        """The masses of options, given the probabilities of all alternatives."""
        absent = sum(not mass for mass in options.values())
        remainder = max(0.0, 1 - math.fsum(alternatives))
        return cls(options, min(remainder, absent * min(alternatives, default=1.0)))

    @property
    def total(self) -> float:
        """The mass of all options (0 to 1)."""
        return min(1.0, math.fsum(self.options.values()))

    @property
    def odds(self) -> Odds | None:
        """The least probability of each option, if the answer is one of them.

        They add up to 1 if `hidden` is faint; otherwise what is missing belongs to options with
        mass 0. None if the mass of all is below half of the probability.
        """
        mass = math.fsum(self.options.values())  # rounding may lift it above 1
        if mass < LEAST_MASS:
            return None
        largest = mass if self.hidden <= FAINT * mass else mass + self.hidden
        return tuple((option, own / largest) for option, own in self.options.items())

    def chance(self, option: Any) -> float | None:
        """The probability of one option; None if it is not known (see `sure_of`)."""
        odds = self.odds
        return None if odds is None else sure_of(option, odds)


def sure_of(option: Any, odds: Odds) -> float | None:
    """The probability of an option by its odds; None if these leave more than `SURE` open."""
    return None if unknown_of(odds) > SURE else dict(odds).get(option)


def unknown_of(odds: Odds) -> float:
    """Probability that odds leave open (0 to 1)."""
    unknown = 1 - math.fsum(map(itemgetter(1), odds))
    return unknown if unknown > 1e-9 else 0.0  # so little, also below 0, comes of rounding


class MassCount:
    """The masses of many answers: how many are below half, and the one warning about them."""

    def __init__(self) -> None:
        self.answers = self.below = 0
        self._sum = 0.0

    def add(self, mass: float) -> None:
        """Count one answer; `mass` is that of all its options (0 to 1)."""
        self.answers += 1
        self.below += mass < LEAST_MASS
        self._sum += mass

    @property
    def warning(self) -> str | None:
        """Warning if the mass of most answers is below half."""
        if 2 * self.below <= self.answers:
            return None
        mean = mass_words(self._sum / self.answers)
        answers = "the answer" if self.answers == 1 else f"{self.answers:,} answers"
        return (
            f"the judge puts only {mean} of its probability on what it may answer (mean of "
            f"{answers}; {self.below:,} below a half), so their odds and confidence are not used"
        )


def mass_words(mass: float) -> str:
    """A mass in per cent, for a reason or a warning."""
    # Two digits, but 100 % has three.
    return f"{100 * mass:.2g} %" if mass < 0.995 else f"{100 * mass:.0f} %"
