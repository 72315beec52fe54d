"""Shapley effects from answers that were drawn: unbiased, also from two answers of a node.

The Shapley effect of a node is the part of a variance that is attributed to it. It is what the node
explains beside a set of other nodes, averaged over all orders in which nodes can be fixed. (Owen
2014, https://doi.org/10.1137/130936233; Song, Nelson and Staum 2016,
https://doi.org/10.1137/15M1048070.) It is built from the variance of E[score | nodes in S], an
expectation over two runs that share the answers of S. So pairs of answers are weighed, not odds:
two runs that share a node see one answer, others two different draws of it. The effects of the odds
that were seen would put the noise of a node with few answers down to its parents.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence


def shapley_effects(
    scores: Sequence[float], counts: Sequence[Sequence[int]]
) -> tuple[float, list[float]]:
    """The variance of a function of independent answers, and each variable's Shapley effect.

    `counts` say per variable how often each answer was drawn, at least two draws in all. `scores`
    are the function on the product of the answers, the last variable fastest. Both results are
    unbiased over draws, so single ones may be negative; the effects add up to the variance.
    """
    squares = _squares(scores, counts)
    for axis, drawn in enumerate(counts):
        # Of m answers the variance is m/(m - 1) of that seen, and the square of the mean is too
        # large by the variance of a mean, which is 1/m of it.
        bit, draws = 1 << axis, sum(drawn)
        for members in range(len(squares)):
            if members & bit:
                squares[members ^ bit] -= squares[members] / (draws - 1)
                squares[members] *= draws / (draws - 1)
    effects = [
        math.fsum(
            part / members.bit_count() for members, part in enumerate(squares) if members & bit
        )
        for bit in (1 << axis for axis in range(len(counts)))
    ]
    return math.fsum(squares[1:]), effects


def _squares(scores: Sequence[float], counts: Sequence[Sequence[int]]) -> list[float]:
    """The components of the variance under the odds seen, by the set of variables (as bits)."""
    values = list(scores)
    for drawn in reversed(counts):  # each turn works on the last axis and puts it first
        size = len(drawn)
        lines = [
            _contrasts(values[start : start + size], drawn) for start in range(0, len(values), size)
        ]
        values = [line[column] for column in range(size) for line in lines]
    squares = [0.0] * (1 << len(counts))
    axes = itertools.product(*(range(len(drawn)) for drawn in counts))
    for column, value in zip(axes, values, strict=True):
        squares[sum(1 << axis for axis, index in enumerate(column) if index)] += value**2
    return squares


def _contrasts(values: Sequence[float], drawn: Sequence[int]) -> list[float]:
    """The mean, then orthonormal contrasts whose squares sum to the variance.

    Each value against the mean of those before it, as in Welford's algorithm.
    """
    draws, seen = sum(drawn), drawn[0]
    mean, contrasts = values[0], [0.0]
    for value, count in zip(values[1:], drawn[1:], strict=True):
        weight = seen * count / ((seen + count) * draws)
        contrasts.append(math.sqrt(weight) * (value - mean))
        seen += count
        mean += count / seen * (value - mean)
    return [mean, *contrasts[1:]]
