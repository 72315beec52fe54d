"""Calibration of stated probabilities: Brier score, calibration error.

All take stated answers, (probability, happened): the probability that was given to an event, and
whether it happened. For instance, the event is that the verdict is right. The measures are computed
over the pooled answers and are None without any. Drop what has no probability.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from dagengine.errors import InputError
from dagengine.reliability.statistics.intervals import Interval, Unknown, jackknife
from dagengine.reliability.statistics.sums import Sums, Totals, mean, measure, total

__all__ = [
    "ReliabilityBin",
    "brier_score",
    "debiased_calibration_error",
    "reliability",
]

Stated = Sequence[tuple[float, bool]]


@measure
def brier_score(stated: Stated) -> Sums:
    """Mean of (probability - happened)², from 0 (best) to 1; 0.25 for always 0.5.

    Brier 1950, https://doi.org/10.1175/1520-0493(1950)078<0001:VOFEIT>2.0.CO;2.
    """
    return mean((p - happened) ** 2 for p, happened in _checked(stated))


def debiased_calibration_error(
    stated: Stated,
    *,
    cases: Sequence[Hashable] | None = None,
    bins: int = 10,
    level: float = 0.95,
) -> Interval | Unknown:
    """The root of the mean squared calibration error, from 0 (best) to 1, without its bias.

    √ Σ mᵦ/m · (S² - Σ d²)/(mᵦ(mᵦ - 1)) over bins. d is the mean of stated - happened over one
    case's answers in the bin, S the sum of d over its mᵦ cases. Products of different cases do not
    count noise as error (Kumar, Liang & Ma 2019, https://arxiv.org/abs/1909.10155); below 0 the
    square is 0. `cases` says what answers belong together; without it each is its own. The interval
    of the square is the jackknife's over cases. Its variance is increased by that of a calibrated
    judge, so that it begins at 0 if nothing is found. Unknown without a bin of two cases, or with
    fewer than three cases.
    """
    names = list(range(len(stated)) if cases is None else cases)
    if len(names) != len(stated):
        raise InputError(f"{len(stated)} answers need as many cases, got {len(names)}")
    # By case and bin, how much higher the stated probability is than what happened.
    residuals = defaultdict[Hashable, defaultdict[int, list[float]]](lambda: defaultdict(list))
    for name, bin_index, (p, happened) in zip(names, _places(stated, bins), stated, strict=True):
        residuals[name][bin_index].append(p - happened)
    # Answers of one case depend on each other, so a case adds one mean to a bin.
    items: list[dict[tuple[int, str], float]] = []
    for places in residuals.values():
        means = {k: statistics.fmean(errors) for k, errors in places.items()}
        parts = {k: {"cases": 1.0, "sum": d, "squares": d * d} for k, d in means.items()}
        items.append({(k, name): n for k, part in parts.items() for name, n in part.items()})
    sums = Sums(items, _squared_error)
    value = sums.value()
    if value is None or len(items) < 3:
        return Unknown("undefined" if value is None else "too few items", len(items), 3)
    # Of the square where every bin is calibrated: Σ (mᵦ/m)² · 2(Σ d²/mᵦ)²/(mᵦ(mᵦ - 1)).
    all_ = total(items)
    sizes = {k: size for k, size in _bins_of(all_) if size > 1}
    m = math.fsum(sizes.values())
    limits = jackknife(
        items,
        lambda _: sums,
        level=level,
        own=math.fsum(
            (size / m) ** 2 * 2 * (all_[k, "squares"] / size) ** 2 / (size * (size - 1))
            for k, size in sizes.items()
        ),
    )
    if limits is None:
        return Unknown("too few items", len(items))
    root, low, high = (math.sqrt(max(square, 0.0)) for square in (value, *limits))
    return Interval(root, min(low, root), max(high, root), level, "jackknife", len(items))


def _squared_error(all_: Totals) -> float | None:
    several = [(k, size) for k, size in _bins_of(all_) if size > 1]
    if not several:
        return None
    # S² less the squares of single cases leaves products of different cases: they share no noise.
    shares = [
        size * ((all_[k, "sum"] ** 2 - all_[k, "squares"]) / (size * (size - 1)))
        for k, size in several
    ]
    return math.fsum(shares) / math.fsum(size for _, size in several)


def _bins_of(all_: Totals) -> list[tuple[int, float]]:
    return [(key[0], size) for key, size in all_.items() if key[1] == "cases"]


@dataclass(frozen=True, slots=True)
class ReliabilityBin:
    """The answers whose probability lies above `low` up to `high`.

    `stated` is their mean probability and `observed` the share that happened, None when there is no
    answer.
    """

    low: float
    high: float
    answers: int
    stated: float | None
    observed: float | None


def reliability(stated: Stated, *, bins: int = 10) -> list[ReliabilityBin]:
    """The reliability table behind `calibration_error`, one row per bin, from 0 to 1."""
    all_ = total(
        [
            {(k, "answers"): 1.0, (k, "stated"): p, (k, "happened"): float(happened)}
            for k, (p, happened) in zip(_places(stated, bins), stated, strict=True)
        ]
    )
    rows = []
    for k in range(bins):
        size = all_[k, "answers"]
        means = [all_[k, name] / size if size else None for name in ("stated", "happened")]
        rows.append(ReliabilityBin(k / bins, (k + 1) / bins, int(size), *means))
    return rows


def _checked(stated: Stated) -> Stated:
    if bad := [p for p, _ in stated if not 0 <= p <= 1]:
        raise InputError(f"a probability lies between 0 and 1, got {bad[0]}")
    return stated


def _places(stated: Stated, bins: int) -> list[int]:
    """The bin of every answer; 0 belongs to the first."""
    if bins < 1:
        raise InputError(f"bins must be at least 1, got {bins}")
    return [max(math.ceil(p * bins) - 1, 0) for p, _ in _checked(stated)]
