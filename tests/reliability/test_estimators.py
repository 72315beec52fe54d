"""The estimators hold the truth on simulated tables; the benchmark's command counts in full."""

from __future__ import annotations

import pytest

pytest.importorskip("scipy")

from estimators import POPULATIONS, Trial, enough, hold, trials, votes
from paired_power import repaired, steadier

SEEDS = 20
FEW = [
    "flip rate, sure, noisy and coins, 40x5",
    "flips of 9 votes, a fifth coins, 40x20",
    "flip rate, 20 dialogues of 5",
    "kappa, prevalence 0.9, 40 cases",
    "AC1, prevalence 0.95, 40 cases",
    "balanced accuracy, prevalence 0.9, 100 cases",
    "kappa, prevalence 0.8, 100 cases, 10% wrong labels",
    "ICC of yes and no, 10x5",
    "drift of 0.2, 20x3",
    "calibration off by 0.0, 30x5",
    "pass rate of 0.98, a judge right in 90%, 20 labels",
    "difference of .1, a judge right in 90%, 50 labels",
    "mean score, a judge right in 60%, 50 labels",
]
TRIALS: dict[str, Trial] = {trial.name: trial for trial in trials()}


@pytest.mark.parametrize("name", FEW)
def test_intervals_hold_the_truth(name: str) -> None:
    found = hold(TRIALS[name], SEEDS)
    assert found.held >= 0.8
    assert found.unknown <= 0.5
    assert 0 < found.width < 1.5


@pytest.mark.parametrize("name", ["all at .1", "a fifth coins", "sure, noisy and coins"])
def test_votes_hold_the_truth_or_are_not_known(name: str) -> None:
    found = votes(POPULATIONS[name], 40, 20, 10)
    assert found.held >= 0.9
    assert found.wrong <= 0.1
    assert (found.named > 0.5) == (name == "all at .1")


def test_the_truth_about_votes_is_that_of_the_design() -> None:
    found = [enough(odds) for odds in POPULATIONS.values()]
    assert found == [5, 9, 23, None, 9, 7, None]


def test_paired_tests_find_what_exact_ones_find() -> None:
    some = repaired(100, 0.4, 40)
    assert some.found >= 0.9 * some.oracle
    none = repaired(100, 0.0, 40)
    assert none.found <= 0.15
    odds = steadier(15, 5, 0.6, 40)
    assert odds.found >= 0.9 * odds.oracle
