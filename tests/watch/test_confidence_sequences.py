"""Confidence sequences against brute force: every stream of zeros and ones, by its chance."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagengine.watch.confidence_sequences import Bettor, Since

LONG = 9


def streams(mean: float, length: int) -> list[tuple[tuple[int, ...], float]]:
    """Every stream, with its probability."""
    return [
        (numbers, math.prod(mean if number else 1 - mean for number in numbers))
        for numbers in itertools.product((0, 1), repeat=length)
    ]


def ever(
    bettor: Bettor, since: Since, mean: float, length: int, happens: Callable[[Bettor, Since], bool]
) -> float:
    """The probability that it happens after one of the next numbers.

    What streams have in common is computed once.
    """
    total = 0.0
    for number, chance in ((0, 1 - mean), (1, mean)) if length else ():
        later, of_later = copy.deepcopy((bettor, since))
        later.add(number)
        ends = happens(later, of_later)
        total += chance * (1.0 if ends else ever(later, of_later, mean, length - 1, happens))
    return total


@settings(max_examples=15)
@given(mean=st.floats(0.02, 0.98), alpha=st.sampled_from([0.05, 0.2, 0.5]))
def test_the_mean_is_ever_left_out_with_a_probability_of_at_most_alpha(
    mean: float, alpha: float
) -> None:
    def leaves_it_out(bettor: Bettor, _: Since) -> bool:
        low, high = bettor.interval(alpha)
        return not low <= mean <= high

    bettor = Bettor()
    assert ever(bettor, Since(bettor), mean, LONG, leaves_it_out) <= alpha + 1e-9


@settings(max_examples=10)
@given(mean=st.floats(0.1, 0.9), alpha=st.sampled_from([0.2, 0.5]))
def test_two_stretches_of_one_mean_are_told_apart_with_a_probability_of_at_most_alpha(
    mean: float, alpha: float
) -> None:
    told_apart = 0.0
    for first, probability in streams(mean, 4):
        baseline = Bettor()
        for number in first:
            baseline.add(number)
        sides, bettor = baseline.sides(), Bettor()

        def tells_apart(_: Bettor, since: Since, sides: Any = sides) -> bool:
            return since.evidence(sides) >= math.log(1 / alpha)

        told_apart += probability * ever(bettor, Since(bettor), mean, 5, tells_apart)
    assert told_apart <= alpha + 1e-9


def test_wealth_against_the_true_mean_is_a_fair_game() -> None:
    mean = 0.3
    expected = 0.0
    for numbers, probability in streams(mean, LONG):
        bettor = Bettor(mean)
        for number in numbers:
            bettor.add(number)
        above, below = bettor.sides()
        expected += probability * (math.exp(above[0]) + math.exp(below[0])) / 2
    assert expected == pytest.approx(1)


def test_an_interval_closes_in_on_the_mean() -> None:
    bettor = Bettor()
    widths = []
    for place in range(2000):
        bettor.add(place % 4 / 3)  # 0, 1/3, 2/3, 1: scores, not only zeros and ones
        if place % 500 == 499:
            low, high = bettor.interval(0.05)
            assert low <= 0.5 <= high
            widths.append(high - low)
    assert widths == sorted(widths, reverse=True)
    assert widths[-1] < 0.1


def test_what_is_made_since_a_moment_knows_nothing_of_before() -> None:
    bettor, fresh = Bettor(), Bettor()
    for _ in range(50):
        bettor.add(1.0)
    since = Since(bettor)
    for number in (0.0, 1.0, 0.25):
        bettor.add(number)
        fresh.add(number)
    assert (since.count, since.mean) == (3, fresh.mean)
    baseline = Bettor().sides()
    assert since.evidence(baseline) == pytest.approx(Since(fresh).evidence(baseline), abs=1)
    assert since.evidence(baseline) <= 0.0  # nothing is known of a baseline without numbers
