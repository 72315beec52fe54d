"""A whole benchmark finds the truth about simulated judges."""

from __future__ import annotations

import math

import pytest
from recovered import SCENARIOS, Found, Scenario, recover

SEEDS, CASES, TIMES = 24, 16, 5


@pytest.mark.parametrize("scenario", SCENARIOS, ids=[one.name for one in SCENARIOS])
def test_estimators_find_the_truth_and_their_intervals_hold_it(scenario: Scenario) -> None:
    found = recover(scenario, SEEDS, CASES, TIMES)
    for name, one in found.items():
        assert len(one.values) == SEEDS, name
        assert abs(one.bias) <= 4 * one.error + 1e-9, name
        assert one.held >= 0.8, name
    for name, one in found.items():
        if name.startswith("variance-share"):
            assert abs(one.bias) < 0.05


def test_an_estimator_that_is_off_shows() -> None:
    off = Found(0.5, [0.7, 0.71, 0.69], 0.0)
    assert off.bias == pytest.approx(0.2)
    assert off.error == pytest.approx(0.01 / math.sqrt(3))
    assert abs(off.bias) > 4 * off.error
