"""Whether gains are more than chance, all tries counted together: a law, it asks nothing.

Candidates are compared on the same cases, and most of them mend the same ones. So their p values
come from one permutation of the whole search: under "no gain" the difference of a case is as likely
to be negative, for all candidates together (maximum of t, Westfall & Young 1993, Resampling-Based
Multiple Testing). The differences are means of repetitions, so the noise of the judge is in them.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from dagengine.reliability.statistics.sums import needs

LEVEL = 0.05
_CHANGES = 4000
Gains = Mapping[int, float]
"""The change of the share of right results, by the number of the case."""


def joint_p(gains: Sequence[Gains], groups: Mapping[int, Hashable]) -> list[float]:
    """The p value of each candidate's gain, corrected for all of them.

    Only gains count, and each p is twice that of one side, as in intervals of two sides. So if none
    is better than what it is compared with, the least p is at most 0.05 in 2.5 of 100 searches.
    Cases of a group change their sign together. Equal input gives equal values.
    """
    if not gains:
        return []
    numpy = needs("numpy")
    names = {
        name: index
        for index, name in enumerate(
            dict.fromkeys(groups.get(n, n) for gain_by_case in gains for n in sorted(gain_by_case))
        )
    }
    sums = numpy.zeros((len(names), len(gains)))
    sizes = numpy.zeros_like(sums)
    for column, gain_by_case in enumerate(gains):
        for number, gain in gain_by_case.items():
            row = names[groups.get(number, number)]
            sums[row, column] += gain
            sizes[row, column] += 1
    means = numpy.divide(sums, sizes, out=numpy.zeros_like(sums), where=sizes > 0)
    sample_sizes = (sizes > 0).sum(axis=0)
    squares = (means**2).sum(axis=0)
    # One draw of signs for all candidates: those that mend the same cases change together.
    signs = numpy.random.default_rng(0).choice((-1.0, 1.0), size=(_CHANGES, len(names)))
    statistic = _t(means.sum(axis=0), squares, sample_sizes)
    chance = _t(signs @ means, squares, sample_sizes).max(axis=1)
    # Rounding must not let the signs as they are fall below what was seen with them.
    exceed = (chance[:, None] >= statistic[None, :] - 1e-9).sum(axis=0)
    return [min(1.0, 2 * float(value)) for value in (exceed + 1) / (_CHANGES + 1)]


def _t(total: Any, squares: Any, size: Any) -> Any:
    """The t of sums; a change of signs leaves the squares as they are."""
    numpy = needs("numpy")
    mean = total / numpy.maximum(size, 1)
    variance = numpy.maximum(squares / numpy.maximum(size, 1) - mean**2, 1e-12)
    return mean / numpy.sqrt(variance / numpy.maximum(size - 1, 1))
