"""Blame on simulated judges: small bias, intervals that hold, and silence where it is due."""

from __future__ import annotations

import statistics

import pytest
from blame import Found, Population, found, populations

SEEDS, CASES = 30, 40
POPULATIONS = list(populations())


@pytest.mark.parametrize("times", [3, 8])
@pytest.mark.parametrize("population", POPULATIONS, ids=lambda one: f"{one.tree.name}, {one.name}")
def test_shares_are_right_and_their_intervals_hold(population: Population, times: int) -> None:
    rows: dict[str, Found] = found(population, SEEDS, CASES, times)
    for node, row in rows.items():
        errors = [(one.share or 0.0) - row.truth for one in row.known]
        noise = statistics.stdev(errors) / len(errors) ** 0.5
        assert abs(row.bias) < 0.01 + 3 * noise, node
        assert row.held >= 0.83, node  # 25 of 30; an interval that holds 95 % has fewer once in 300
        assert len(row.known) >= 0.9 * SEEDS, node


def test_without_second_answers_three_runs_tell_nothing_about_gated_nodes() -> None:
    seldom = next(one for one in POPULATIONS if one.name == "seldom reached")
    rows = found(seldom, 10, CASES, 3, second=False)
    assert not any(row.known for row in rows.values())
