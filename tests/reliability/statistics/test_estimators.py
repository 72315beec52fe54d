"""The estimators hold the truth on simulated tables; the benchmark's command counts in full."""

from __future__ import annotations

import pytest

pytest.importorskip("scipy")

from rows import Trial, held
from simulated.estimators import trials
from simulated.paired_power import repaired, steadier
from simulated.votes_needed import POPULATIONS, enough, votes

SEEDS = 20
FEW = [
    "sure, noisy and coins, 40x5",
    "three verdicts, 20x8",
    "20 dialogues of 5",
    "prevalence 0.9, 40 cases",
    "5 labels, 20 cases",
    "20 dialogues of 5 cases",
    "yes and no, 10x5",
    "100x5",
    "off by 0.0, 30x5",
    "a judge right in 90%, 20 labels",
    "a judge right in 60%, 50 labels",
]
TRIALS: list[Trial] = [trial for trial in trials() if trial.name in FEW]


@pytest.mark.parametrize("trial", TRIALS, ids=lambda one: f"{next(iter(one.truth))}, {one.name}")
def test_intervals_hold_the_truth(trial: Trial) -> None:
    for row in held(trial, SEEDS):
        assert row.share >= 0.8, row.name
        assert row.unknown <= 0.5, row.name
        assert 0 < row.width < 1.5, row.name


@pytest.mark.parametrize("name", ["all at .1", "a fifth coins", "sure, noisy and coins"])
def test_votes_hold_the_truth_or_are_not_known(name: str) -> None:
    found = votes(POPULATIONS[name], 40, 20, 6)
    assert found.held >= 0.8
    assert found.wrong <= 0.2
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
