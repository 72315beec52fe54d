"""How likely each option is, from what a server tells of one token: what is known, and what is not.

A server tells the most likely alternatives of a token. Those that are options have a mass together.
Below a half the model would rather have said something else, and what it put on the options does
not say how sure it is of one of them. An option that is not among the alternatives is less likely
than each of them; it is not impossible.
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
"""Options that are not told and have less than this together count as impossible."""
SURE: Final = 0.01
"""A probability is not known when options that are not told may change it by more than this."""


@dataclass(frozen=True, slots=True)
class Masses:
    """What is known of some options: the probability of each (0: not told), and the rest.

    `hidden` is the most that the options that are not told may have together: each at most the
    least of what was told, and all of them what is left of 1.
    """

    options: Mapping[Any, float]
    hidden: float

    @classmethod
    def of(cls, options: Mapping[Any, float], told: Sequence[float]) -> Masses:
        """The masses of options among the probabilities of everything that was told."""
        absent = sum(not mass for mass in options.values())
        unlisted = max(0.0, 1 - math.fsum(told))
        return cls(options, min(unlisted, absent * min(told, default=1.0)))

    @property
    def total(self) -> float:
        """The share of all probability that was told for options (0 to 1)."""
        return min(1.0, math.fsum(self.options.values()))

    @property
    def odds(self) -> Odds | None:
        """The least that the probability of each option is, if the answer is one of them.

        What is missing from 1 belongs to one or several of them; nothing is missing where options
        that are not told are faint. None below half of the mass.
        """
        listed = math.fsum(self.options.values())
        if listed < LEAST_MASS:
            return None
        whole = listed if self.hidden <= FAINT * listed else listed + self.hidden
        return tuple((option, mass / whole) for option, mass in self.options.items())

    def chance(self, option: Any) -> float | None:
        """The probability of one option; None where it is not known to a hundredth."""
        odds = self.odds
        return None if odds is None else sure_of(option, odds)


def sure_of(option: Any, odds: Odds) -> float | None:
    """The probability of an option by its odds; None where it is not known to a hundredth."""
    return None if unknown_of(odds) > SURE else dict(odds).get(option)


def unknown_of(odds: Odds) -> float:
    """Probability that odds leave open (0 to 1)."""
    unknown = 1 - math.fsum(map(itemgetter(1), odds))
    return unknown if unknown > 1e-9 else 0.0  # rounding leaves less


class MassCount:
    """The masses of many answers, and what is to be said of them once."""

    def __init__(self) -> None:
        self.answers = self.below = 0
        self._sum = 0.0

    def add(self, mass: float) -> None:
        """Count one answer."""
        self.answers += 1
        self.below += mass < LEAST_MASS
        self._sum += mass

    @property
    def warning(self) -> str | None:
        """Warning if most answers are below half of the mass."""
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
    return f"{100 * mass:.2g} %" if mass < 0.995 else f"{100 * mass:.0f} %"
