"""Are stated probabilities what they say? Brier score, log loss, calibration error.

All take stated answers, (probability, happened): the probability that was given to an event,
and whether it happened, as the probability of the verdict and whether it was right. They are
computed over the pooled answers and are None without any. Drop what has no probability.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from dagengine.errors import InputError
from dagengine.reliability.statistics.sums import Sums, Totals, mean, measure, total

__all__ = ["ReliabilityBin", "brier_score", "calibration_error", "log_loss", "reliability"]

Stated = Sequence[tuple[float, bool]]


@measure
def brier_score(stated: Stated) -> Sums:
    """Mean of (probability - happened)², from 0 (best) to 1; 0.25 for always 0.5.

    Brier 1950, https://doi.org/10.1175/1520-0493(1950)078<0001:VOFEIT>2.0.CO;2.
    """
    return mean((p - happened) ** 2 for p, happened in _checked(stated))


@measure
def log_loss(stated: Stated) -> Sums:
    """Mean of -ln of the probability given to what happened, from 0 (best); ln 2 for 0.5.

    A certainty that failed would be infinite: probabilities are kept 2⁻⁵² away from 0 and 1,
    so that it costs 36 (Good 1952, https://doi.org/10.1111/j.2517-6161.1952.tb00104.x).
    """
    return mean((_surprise(p, happened) for p, happened in _checked(stated)), most=None)


@measure
def calibration_error(stated: Stated, *, bins: int = 10) -> Sums:
    """Expected calibration error, from 0 (best) to 1.

    Σ nᵦ/n · |mean probability - share that happened| over `bins` bins of equal width, the upper
    end belonging to the bin and 0 to the first (Naeini et al. 2015,
    https://doi.org/10.1609/aaai.v29i1.9602). Noise within bins makes it too high with few
    answers per bin: compare at equal numbers and bins only. Its interval has the same fault.
    """
    return Sums(_binned(stated, bins), _expected_error)


@dataclass(frozen=True, slots=True)
class ReliabilityBin:
    """The answers whose probability lies above `low` up to `high`.

    `stated` is their mean probability and `observed` the share that happened, None when there
    is no answer.
    """

    low: float
    high: float
    answers: int
    stated: float | None
    observed: float | None


def reliability(stated: Stated, *, bins: int = 10) -> list[ReliabilityBin]:
    """The reliability table behind `calibration_error`, one row per bin, from 0 to 1."""
    all_ = total(_binned(stated, bins))
    rows = []
    for k in range(bins):
        size = all_[k, "answers"]
        found = [all_[k, name] / size if size else None for name in ("stated", "happened")]
        rows.append(ReliabilityBin(k / bins, (k + 1) / bins, int(size), *found))
    return rows


def _checked(stated: Stated) -> Stated:
    if bad := [p for p, _ in stated if not 0 <= p <= 1]:
        raise InputError(f"a probability lies between 0 and 1, got {bad[0]}")
    return stated


def _surprise(p: float, happened: bool) -> float:
    given = p if happened else 1 - p
    epsilon = sys.float_info.epsilon
    return -math.log(min(max(given, epsilon), 1 - epsilon))


def _binned(stated: Stated, bins: int) -> list[Totals]:
    if bins < 1:
        raise InputError(f"bins={bins}: at least one is needed")
    places = [(max(math.ceil(p * bins) - 1, 0), p, happened) for p, happened in _checked(stated)]
    return [
        {(k, "answers"): 1.0, (k, "stated"): p, (k, "happened"): float(happened)}
        for k, p, happened in places
    ]


def _expected_error(all_: Totals) -> float:
    places = {place for place, _ in all_}
    gaps = [abs(all_[k, "stated"] - all_[k, "happened"]) for k in places]
    return sum(gaps) / sum(all_[k, "answers"] for k in places)
