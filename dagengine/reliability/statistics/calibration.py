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
from dagengine.reliability.statistics.sums import (
    SummedMeasure,
    Sums,
    Totals,
    groups_of,
    mean,
    total,
)

Stated = Sequence[tuple[float, bool]]


@SummedMeasure
def brier_score(stated: Stated) -> Sums:
    """Mean of (probability - happened)², from 0 (best) to 1; 0.25 for always 0.5.

    Brier 1950, https://doi.org/10.1175/1520-0493(1950)078<0001:VOFEIT>2.0.CO;2.
    """
    _require_probabilities(stated)
    return mean((p - happened) ** 2 for p, happened in stated)


def debiased_calibration_error(
    stated: Stated, *, cases: Sequence[Hashable] | None = None, bins: int = 10, level: float = 0.95
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
    items = _errors_by_case(stated, groups_of(cases, len(stated)), bins)
    sums = Sums(items, _squared_error)
    value = sums.value()
    if value is None or len(items) < 3:
        return Unknown("undefined" if value is None else "too few items", len(items), 3)
    # Of the square where every bin is calibrated: Σ (mᵦ/m)² · 2(Σ d²/mᵦ)²/(mᵦ(mᵦ - 1)).
    all_ = total(items)
    sizes = _bins_of(all_)
    m = math.fsum(size for _, size in sizes)
    own = math.fsum((size / m) ** 2 * 2 * (all_[k, "squares"] / size) ** 2 / (size * (size - 1))
                    for k, size in sizes)  # fmt: skip
    limits = jackknife(items, lambda _: sums, level=level, own=own)
    if limits is None:
        return Unknown("too few items", len(items))
    root, low, high = (math.sqrt(max(square, 0.0)) for square in (value, *limits))
    return Interval.around(root, (low, high), level, "jackknife", len(items))


def _errors_by_case(stated: Stated, cases: Sequence[Hashable], bins: int) -> list[Totals]:
    """The addends of each case: by bin, how much higher it states probabilities than happens."""
    errors = defaultdict[Hashable, defaultdict[int, list[float]]](lambda: defaultdict(list))
    for case, k, (p, happened) in zip(cases, _bin_numbers(stated, bins), stated, strict=True):
        errors[case][k].append(p - happened)
    items: list[Totals] = []
    for row in errors.values():
        item: dict[tuple[int, str], float] = {}
        for k, own in row.items():
            # Answers of one case depend on each other, so a case adds one mean to a bin.
            d = statistics.fmean(own)
            item |= {(k, "cases"): 1.0, (k, "sum"): d, (k, "squares"): d * d}
        items.append(item)
    return items


def _squared_error(all_: Totals) -> float:
    sizes = _bins_of(all_)
    # S² less the squares of single cases leaves products of different cases: they share no noise.
    shares = (size * ((all_[k, "sum"] ** 2 - all_[k, "squares"]) / (size * (size - 1)))
              for k, size in sizes)  # fmt: skip
    return math.fsum(shares) / math.fsum(size for _, size in sizes)


def _bins_of(all_: Totals) -> list[tuple[int, float]]:
    """The bins of two cases or more, with their number."""
    return [(key[0], size) for key, size in all_.items() if key[1] == "cases" and size > 1]


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
    members: list[list[tuple[float, bool]]] = [[] for _ in range(bins)]
    for k, answer in zip(_bin_numbers(stated, bins), stated, strict=True):
        members[k].append(answer)
    rows: list[ReliabilityBin] = []
    for k, answers in enumerate(members):
        means = map(statistics.fmean, zip(*answers, strict=True)) if answers else (None, None)
        rows.append(ReliabilityBin(k / bins, (k + 1) / bins, len(answers), *means))
    return rows


def _require_probabilities(stated: Stated) -> None:
    if bad := [p for p, _ in stated if not 0 <= p <= 1]:
        raise InputError(f"a probability lies between 0 and 1, got {bad[0]}")


def _bin_numbers(stated: Stated, bins: int) -> list[int]:
    """The bin of every answer; 0 belongs to the first."""
    _require_probabilities(stated)
    if bins < 1:
        raise InputError(f"bins must be at least 1, got {bins}")
    return [max(math.ceil(p * bins) - 1, 0) for p, _ in stated]
