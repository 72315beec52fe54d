"""Repeated scores, drift, calibration and groups: intervals, and where there are none."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagengine.errors import InputError
from dagengine.reliability.statistics.correlation_and_bias import (
    debiased_calibration_error,
    group_correlation,
    kendall,
    pearson,
    spearman,
)
from dagengine.reliability.statistics.intervals import Interval, Unknown
from dagengine.reliability.statistics.stability import drift, icc, icc_interval

stats = pytest.importorskip("scipy.stats")
Scores = list[list[float | None]]


def known(found: Interval | Unknown) -> Interval:
    assert isinstance(found, Interval), found
    assert found.low <= found.value <= found.high
    return found


def repeated(cases: int, times: int, seed: int, noise: float = 0.5) -> list[list[float]]:
    random = Random(seed)
    centres = [random.gauss(0, 1) for _ in range(cases)]
    return [[centre + random.gauss(0, noise) for _ in range(times)] for centre in centres]


def test_the_interval_of_icc_is_near_that_of_f_on_normal_scores() -> None:
    table = repeated(200, 5, seed=1)
    found = known(icc_interval(table))
    assert found.value == icc(table)
    rows = np.array(table)
    between = 5 * rows.mean(1).var(ddof=1)
    within = rows.var(1, ddof=1).mean()
    limits = [between / within / stats.f.ppf(q, 199, 800) for q in (0.975, 0.025)]
    exact = [(f - 1) / (f + 4) for f in limits]
    assert (found.low, found.high) == pytest.approx(tuple(exact), abs=0.02)


def test_the_interval_of_icc_holds_where_cases_are_few() -> None:
    """The bootstrap's holds in 90 % with ten cases."""
    random, held = Random(2), 0
    for _ in range(150):
        table = [[float(random.random() < p) for _ in range(5)] for p in (0.1, 0.9) * 6]
        found = icc_interval(table)
        truth = 0.16 / (0.16 + 0.09)
        held += isinstance(found, Unknown) or found.low <= truth <= found.high
    assert held >= 135


def test_the_interval_of_icc_allows_for_the_rare_case_that_no_few_cases_hold() -> None:
    """One case in twenty fails, which most samples of ten do not show."""
    random, truth = Random(5), 1 - 0.09 / (0.86 * 0.14)
    for _ in range(40):
        passing = [0.1 if random.random() < 0.05 else 0.9 for _ in range(10)]
        table = [[float(random.random() < p) for _ in range(19)] for p in passing]
        found = known(icc_interval(table))
        assert found.low <= truth <= found.high


def test_what_has_no_icc_says_why() -> None:
    assert icc_interval([[1.0, 1.0], [0.0, 0.0]]) == Unknown("no variation within items", 2)
    one_varies: Scores = [[1.0, 0.0], [0.0, 0.0], [1.0, 1.0]]
    assert icc_interval(one_varies) == Unknown("one item varies", 3)
    assert icc_interval([[0.0, 1.0], [1.0, 1.0]]) == Unknown("too few items", 2, 3)
    assert icc_interval([[0.0, 1.0]] * 5) == Unknown("no variation between items", 5)
    assert icc_interval([]) == Unknown("undefined", 0)
    assert icc_interval([[None, 1.0]]) == Unknown("undefined", 1)
    table = repeated(20, 3, 1)
    assert icc_interval(table, groups=[k % 4 for k in range(20)]) == Unknown("too few groups", 4, 8)
    copies = [row for row in table for _ in range(2)]
    together = known(icc_interval(copies, groups=[k // 2 for k in range(40)]))
    assert together.high - together.low > 0.1


def test_drift_is_the_mean_slope_from_first_to_last() -> None:
    random = Random(3)
    table = [[0.2 * k / 4 + random.gauss(0, 0.05) for k in range(5)] for _ in range(40)]
    found = known(drift(table))
    slopes = [np.polyfit(np.linspace(-0.5, 0.5, 5), row, 1)[0] for row in table]
    exact = stats.t.interval(0.95, 39, np.mean(slopes), stats.sem(slopes))
    assert found.value == pytest.approx(np.mean(slopes))
    assert (found.low, found.high) == pytest.approx(exact)
    assert found.low < 0.2 < found.high


def test_drift_leaves_out_what_is_missing_and_what_never_varies() -> None:
    assert drift([[1.0] * 5] * 9) == Unknown("no variation", 9)
    assert drift([[1.0, None, 0.0]]) == Unknown("too few items", 1, 2)
    assert drift([[None], [1.0], []]) == Unknown("too few items", 0, 2)
    assert known(drift([[0.0, None, 1.0], [0.0, 0.0, None]])).value == pytest.approx(0.5)


def answers(cases: int, times: int, off: float, seed: int) -> tuple[list[Any], list[int]]:
    """A judge that states probabilities `off` too high, from 0.1 to 0.8."""
    random = Random(seed)
    truths = [random.uniform(0.1, 0.8) for _ in range(cases)]
    stated = [(p + off, random.random() < p) for p in truths for _ in range(times)]
    return stated, [case for case in range(cases) for _ in range(times)]


def test_a_calibrated_judge_is_not_called_miscalibrated() -> None:
    for seed in range(20):
        stated, cases = answers(30, 5, 0.0, seed)
        found = known(debiased_calibration_error(stated, cases=cases))
        assert found.low == 0


def test_a_miscalibrated_judge_is_found_with_how_much() -> None:
    stated, cases = answers(400, 5, 0.15, 1)
    found = known(debiased_calibration_error(stated, cases=cases))
    assert 0 < found.low < 0.15 < found.high
    assert found.items == 400


def test_calibration_of_few_cases_is_not_known() -> None:
    assert debiased_calibration_error([]) == Unknown("undefined", 0, 3)
    assert debiased_calibration_error([(0.5, True)] * 2) == Unknown("too few items", 2, 3)
    assert isinstance(debiased_calibration_error([(0.1, True), (0.5, True), (0.9, False)]), Unknown)
    with pytest.raises(InputError, match="groups"):
        debiased_calibration_error([(0.5, True)], cases=[1, 2])
    with pytest.raises(InputError, match="bins"):
        debiased_calibration_error([(0.5, True)], bins=0)


@pytest.mark.parametrize(
    ("of", "name"), [(spearman, "spearmanr"), (kendall, "kendalltau"), (pearson, "pearsonr")]
)
def test_correlations_within_groups_are_averaged(of: Any, name: str) -> None:
    random = Random(4)
    groups: list[list[Any]] = [
        [(random.randint(1, 5), random.randint(1, 5)) for _ in range(9)] for _ in range(12)
    ]
    each = [getattr(stats, name)(*zip(*group, strict=True)).statistic for group in groups]
    assert group_correlation(groups, of=of) == pytest.approx(statistics.fmean(each))
    constant: list[list[Any]] = [*groups, [(1, 2), (1, 3)], [(1, None)], []]
    assert group_correlation(constant, of=of) == pytest.approx(statistics.fmean(each))
    assert group_correlation([[], [(1, 1)]], of=of) is None


def test_easy_groups_do_not_make_a_judge_right_within_them() -> None:
    groups: Sequence[Sequence[tuple[float, float]]] = [
        [(level + 0.1, level), (level, level + 0.1)] for level in range(5)
    ]
    flat = [pair for group in groups for pair in group]
    assert (pearson(*zip(*flat, strict=True)) or 0) > 0.9
    assert group_correlation(groups) == -1


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.sampled_from([0.0, 1.0, 0.5, None]), min_size=3, max_size=3)))
def test_nothing_that_users_feed_is_not_a_number(table: Scores) -> None:
    for of in (icc_interval, drift):
        for groups in (None, [k // 2 for k in range(len(table))]):
            found = of(table, groups=groups)
            assert isinstance(found, Unknown) or known(found)
    stated = [(row[0], row[1] == 1) for row in table if row[0] is not None]
    calibration = debiased_calibration_error(stated)
    assert isinstance(calibration, Unknown) or known(calibration)
