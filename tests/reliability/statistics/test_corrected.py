"""The corrected rate: right where the judge's own is not, and refused where nothing is known."""

from __future__ import annotations

import statistics
import warnings
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagengine.errors import InputError
from dagengine.reliability.statistics.corrected import (
    Corrected,
    corrected_difference,
    corrected_mean,
    corrected_rate,
)
from dagengine.reliability.statistics.intervals import Interval, Unknown

pytest.importorskip("scipy")


def judged(
    rate: float, hit: float, alarm: float, labels: int, seed: int, cases: int = 2000
) -> tuple[list[bool], list[bool | None]]:
    """A judge that passes `hit` of what passes and `alarm` of what does not."""
    random = Random(seed)
    truth = [random.random() < rate for _ in range(cases)]
    said = [random.random() < (hit if one else alarm) for one in truth]
    return said, [one if k < labels else None for k, one in enumerate(truth)]


def known(found: Corrected | Unknown) -> Corrected:
    assert isinstance(found, Corrected), found
    one = found.estimate
    assert one.low <= one.value <= one.high
    assert one.low < one.high
    return found


def width(one: Interval) -> float:
    return one.high - one.low


@pytest.mark.parametrize(
    ("rate", "hit", "alarm", "labels"),
    [(0.7, 0.9, 0.1, 100), (0.98, 0.9, 0.1, 20), (0.9, 1, 0, 20), (0.6, 0.99, 0.7, 50)],
)
def test_the_corrected_rate_holds_the_truth(
    rate: float, hit: float, alarm: float, labels: int
) -> None:
    held = plain = 0
    for seed in range(80):
        found = known(corrected_rate(*judged(rate, hit, alarm, labels, seed), random=True))
        assert found.estimate.low >= 0
        assert found.estimate.high <= 1
        held += found.estimate.low <= rate <= found.estimate.high
        plain += abs(found.judge - rate) < 0.02
    assert held >= 70
    assert hit == 1 or plain < 80


def test_a_good_judge_is_worth_labels_and_a_coin_is_not() -> None:
    good = [
        known(corrected_rate(*judged(0.7, 0.9, 0.1, 100, seed), random=True)) for seed in range(12)
    ]
    assert all(one.telling for one in good)
    assert statistics.fmean(one.worth for one in good) > 170
    assert statistics.fmean(width(one.estimate) / width(one.labels_alone) for one in good) < 0.75
    for seed in range(12):
        coin = known(corrected_rate(*judged(0.7, 0.5, 0.5, 100, seed), random=True))
        assert width(coin.estimate) <= 1.02 * width(coin.labels_alone)
    constant = known(corrected_rate(*judged(0.7, 1, 1, 100, 1), random=True))
    assert not constant.telling
    assert constant.estimate == constant.labels_alone


def test_several_verdicts_are_strata_of_their_own() -> None:
    random = Random(6)
    truth = [random.random() < 0.6 for _ in range(1000)]
    said: list[str | None] = [
        random.choice(("great", "good", None)) if one else random.choice(("bad", "bad", "good"))
        for one in truth
    ]
    labels = [one if k < 150 else None for k, one in enumerate(truth)]
    found = known(corrected_rate(said, labels, random=True, passed=("great", "good")))
    assert found.estimate.low < 0.6 < found.estimate.high
    assert found.judge == sum(one in ("great", "good") for one in said) / 1000
    assert found.worth > 165


def unlike(labelled: int) -> Unknown:
    return Unknown("labels are not random", labelled, detail="results")


def test_what_was_not_drawn_at_random_is_refused() -> None:
    said, labels = judged(0.7, 0.9, 0.1, 100, 1)
    assert corrected_rate(said, labels, random=False) == Unknown("labels are not random", 100)
    order = sorted(range(2000), key=lambda k: said[k])
    passed_last = [said[k] for k in order]
    assert corrected_rate(passed_last, labels, random=True) == unlike(100)
    few = [label if k < 9 else None for k, label in enumerate(labels)]
    assert corrected_rate(said, few, random=True) == Unknown("too few labels", 9, 10)
    scores = [k / 200 for k in range(200)]
    people = [score if k < 50 else None for k, score in enumerate(scores)]
    assert corrected_mean(scores, people, random=True) == unlike(50)
    assert corrected_mean(scores, people, random=False) == Unknown("labels are not random", 50)


def test_labels_that_do_not_fit_are_refused() -> None:
    with pytest.raises(InputError, match="as many labels"):
        corrected_rate([True], [], random=True)
    halves: Any = [0.5]
    with pytest.raises(InputError, match="labels must be True or False"):
        corrected_rate([True], halves, random=True)
    with pytest.raises(InputError, match="same cases"):
        corrected_difference(([1.0], [1.0]), ([], []), random=True)


def test_a_mean_is_prediction_powered() -> None:
    random = Random(3)
    people = [min(max(random.gauss(0.6, 0.2), 0), 1) for _ in range(600)]
    scores = [0.5 * y + random.gauss(0.3, 0.05) for y in people]
    labels = [y if k < 60 else None for k, y in enumerate(people)]
    found = known(corrected_mean(scores, labels, random=True))
    y, f, rest = np.array(people[:60]), np.array(scores[:60]), np.array(scores[60:])
    weight = min(np.cov(y, f)[0, 1] / (f.var(ddof=1) * (1 + 60 / 540)), 1)
    assert found.estimate.value == pytest.approx(y.mean() + weight * (rest.mean() - f.mean()))
    assert width(found.estimate) < 0.6 * width(found.labels_alone)
    assert found.estimate.low < statistics.fmean(people) < found.estimate.high
    assert found.judge == pytest.approx(statistics.fmean(scores))


def test_a_mean_whose_labels_never_differ_is_not_known() -> None:
    scores = [k % 7 / 7 for k in range(50)]
    labels = [0.5 if k < 20 else None for k in range(50)]
    assert corrected_mean(scores, labels, random=True) == Unknown("no variation", 20)
    every = known(corrected_mean(scores, scores, random=True))
    assert every.estimate == every.labels_alone


def test_the_difference_of_two_systems_is_corrected() -> None:
    held, narrower = 0, []
    for seed in range(40):
        first, second = (judged(rate, 0.95, 0.1, 100, 2 * seed + n, 1000)
                         for n, rate in enumerate((0.6, 0.75)))  # fmt: skip
        systems: Any = (first, second)
        found = known(corrected_difference(*systems, random=True))
        assert found.estimate.low >= -1
        assert found.estimate.high <= 1
        held += found.estimate.low <= 0.15 <= found.estimate.high
        narrower.append(width(found.estimate) / width(found.labels_alone))
    assert held >= 35
    assert statistics.fmean(narrower) < 0.85


def test_equal_systems_have_a_difference_of_some_width() -> None:
    side: Any = ([1.0] * 60, [1.0] * 20 + [None] * 40)
    found = known(corrected_difference(side, side, random=True))
    assert found.estimate.low < 0 < found.estimate.high


def test_what_cancels_out_is_no_difference_with_a_sign() -> None:
    """Means are exact: a sum in floating point would be a little beside 0, and shown as -0.0."""
    labels: list[float | None] = [0.1, 0.2, 0.7, -0.1, -0.2, -0.7] * 4 + [None] * 36
    scores = [0.1, 0.2, 0.7, -0.1, -0.2, -0.7] * 10
    side: Any = ([0.0] * 60, [0.0] * 60)
    result = known(corrected_difference(side, (scores, labels), random=True))
    assert (result.estimate.value, result.judge, result.p) == (0, 0, 1)


CASES = st.tuples(st.sampled_from([True, False, None]), st.sampled_from([True, False, None]))


@settings(max_examples=60, deadline=None)
@given(st.lists(CASES, max_size=40))
def test_nothing_that_users_feed_warns_or_is_not_a_number(cases: list[Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        said, labels = [a for a, _ in cases], [b for _, b in cases]
        both = (said, labels)
        for found in (
            corrected_rate(said, labels, random=True),
            corrected_mean(said, labels, random=True),
            corrected_difference(both, both, random=True),
            corrected_difference(both, (labels, labels), random=True),
        ):
            assert isinstance(found, Unknown) or known(found)
