"""Two judges on the same cases: paired tests find what intervals side by side hide."""

from __future__ import annotations

import warnings
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagengine.errors import InputError
from dagengine.reliability.statistics.accuracy_and_kappa import label_kappa
from dagengine.reliability.statistics.intervals import Interval, Unknown
from dagengine.reliability.statistics.paired_comparisons import (
    Comparison,
    cases_needed,
    compare_means,
    compare_measures,
    compare_shares,
    compare_unpaired,
    holm,
    visible_difference,
)

stats = pytest.importorskip("scipy.stats")


def found(result: Comparison | Unknown) -> Comparison:
    assert isinstance(result, Comparison), result
    assert 0 <= result.p <= 1
    if isinstance(result.interval, Interval):
        assert result.interval.low <= result.value <= result.interval.high
    return result


def limits(result: Comparison) -> tuple[float, float]:
    assert isinstance(result.interval, Interval)
    return result.interval.low, result.interval.high


def table(won: int, lost: int, size: int) -> list[tuple[bool, bool]]:
    same = [(True, True)] * (size - won - lost)
    return [(False, True)] * won + [(True, False)] * lost + same


@pytest.mark.parametrize(("won", "lost"), [(10, 2), (5, 0), (3, 3), (0, 0), (1, 8)])
def test_mid_p_is_the_exact_one_less_half_of_what_was_seen(won: int, lost: int) -> None:
    one = found(compare_shares(table(won, lost, 40)))
    assert one.value == pytest.approx((won - lost) / 40)
    assert (one.cases, one.differing) == (40, won + lost)
    if won + lost:
        exact = stats.binomtest(won, won + lost, 0.5).pvalue
        seen = stats.binom.pmf(won, won + lost, 0.5)
        assert one.p == pytest.approx(1.0 if won == lost else exact - seen)
    else:
        assert one.p == 1


def test_agresti_min_is_its_closed_form() -> None:
    one = found(compare_shares(table(10, 2, 40)))
    error = (10.5 + 2.5 - (10.5 - 2.5) ** 2 / 42) ** 0.5 / 42
    middle = 8 / 42
    assert limits(one) == pytest.approx((middle - 1.959964 * error, middle + 1.959964 * error))


def test_a_repair_that_side_by_side_intervals_hide_is_found() -> None:
    """Of 100 cases 26 were wrong, and 10 of these were repaired."""
    pairs = [(k >= 26, k >= 16) for k in range(100)]
    one = found(compare_shares(pairs))
    assert one.p < 0.01
    assert limits(one)[0] > 0
    unpaired = found(compare_unpaired([float(a) for a, _ in pairs], [float(b) for _, b in pairs]))
    assert unpaired.p > 0.05


def test_scores_are_compared_by_the_paired_t_test() -> None:
    random = Random(1)
    pairs = [(x := random.gauss(0, 1), x + random.gauss(0.2, 0.4)) for _ in range(50)]
    one = found(compare_means(pairs))
    oracle = stats.ttest_rel([b for _, b in pairs], [a for a, _ in pairs])
    assert one.test == "paired t"
    assert one.p == pytest.approx(oracle.pvalue)
    assert limits(one) == pytest.approx(tuple(oracle.confidence_interval()))


def test_few_scores_are_compared_by_all_changes_of_sign() -> None:
    random = Random(2)
    pairs = [(0.0, round(random.gauss(0.3, 0.5), 1)) for _ in range(10)]
    one = found(compare_means(pairs))
    changes = [b for _, b in pairs if b]
    oracle = stats.permutation_test(
        (changes,), lambda x, axis: x.mean(axis), permutation_type="samples", vectorized=True
    )
    null = np.abs(oracle.null_distribution)
    as_far = np.isclose(null, abs(oracle.statistic))
    assert one.test == "sign permutation mid-p"
    assert one.p == pytest.approx(oracle.pvalue - as_far.mean() / 2)


def test_the_same_change_everywhere_is_found_without_an_interval() -> None:
    few, many = (found(compare_means([(0.0, 0.1)] * size)) for size in (6, 30))
    assert few.p == pytest.approx(1 / 64)
    assert many.p < 1e-8
    assert many.interval == Unknown("no variation", 30)
    assert found(compare_means([(0.4, 0.4)] * 30)).p == 1


def test_cases_of_one_group_are_one_case() -> None:
    random = Random(3)
    changes = [random.gauss(0.1, 1) for _ in range(24)]
    pairs = [(0.0, change) for change in changes for _ in range(5)]
    groups = [k // 5 for k in range(120)]
    one = found(compare_means(pairs, groups=groups))
    alone = found(compare_means([(0.0, change) for change in changes]))
    assert one.p == pytest.approx(alone.p)
    assert one.cases == 24
    assert compare_means(table(9, 1, 20), groups=[0] * 20) == Unknown("too few items", 1, 2)
    few = compare_means(table(9, 1, 20), groups=[k % 4 for k in range(20)])
    assert few == Unknown("too few groups", 4, 8)


def test_measures_that_are_no_means_are_compared_by_leaving_out_cases() -> None:
    random = Random(4)
    labels = [random.choice("ab") for _ in range(80)]

    def judge(right: float) -> list[tuple[str, str]]:
        other = {"a": "b", "b": "a"}
        return [(x, x if random.random() < right else other[x]) for x in labels]

    good, poor = judge(0.95), judge(0.7)
    one = found(compare_measures(label_kappa.sums(poor), label_kappa.sums(good)))
    assert one.value == pytest.approx((label_kappa(good) or 0) - (label_kappa(poor) or 0))
    assert limits(one)[0] > 0
    assert one.p < 0.01
    same = found(compare_measures(label_kappa.sums(good), label_kappa.sums(good)))
    assert (same.value, same.p, same.interval) == (0, 1, Unknown("no variation", 80))
    empty = label_kappa.sums([("a", "a")] * 5)
    assert compare_measures(empty, empty) == Unknown("undefined", 5)


def test_unpaired_is_welch() -> None:
    first, second = [0.1, 0.4, 0.3, None], [0.5, 0.9, 0.8, 0.7]
    one = found(compare_unpaired(first, second))
    oracle = stats.ttest_ind(second, first[:3], equal_var=False)
    assert one.p == pytest.approx(oracle.pvalue)
    assert limits(one) == pytest.approx(tuple(oracle.confidence_interval()))
    assert compare_unpaired([1.0], second) == Unknown("too few items", 1, 2)
    assert compare_unpaired([1.0] * 3, [0.0] * 3) == Unknown("no variation", 3)


def test_holm_corrects_in_steps() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([]) == []
    assert holm([0.9, 0.8]) == [1, 1]
    with pytest.raises(InputError, match="p value"):
        holm([2.0])


@pytest.mark.parametrize(("points", "cases"), [(0.02, 2936), (0.05, 464), (0.1, 110)])
def test_cases_and_the_difference_they_show_belong_together(points: float, cases: int) -> None:
    assert cases_needed(points, 0.15) == cases
    assert visible_difference(cases, 0.15) == pytest.approx(points, rel=0.01)
    with pytest.raises(InputError, match="above 0"):
        cases_needed(0, 0.15)


VALUES = st.sampled_from([0.0, 0.5, 1.0, None])


@settings(max_examples=80, deadline=None)
@given(st.lists(st.tuples(VALUES, VALUES), max_size=30))
def test_nothing_that_users_feed_warns_or_is_not_a_number(pairs: list[Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yes_no = [tuple(None if x is None else x >= 0.5 for x in pair) for pair in pairs]
        sides = [a for a, _ in pairs], [b for _, b in pairs]
        shares: list[Any] = [*yes_no]
        for result in (compare_means(pairs), compare_shares(shares), compare_unpaired(*sides)):
            assert isinstance(result, Unknown) or found(result)
