"""Bootstrap intervals: that they cover, and where there are none."""

from __future__ import annotations

import math
import statistics
import sys
from collections.abc import Sequence
from functools import partial
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from interval_coverage import coverage, noisy_judge

from dagengine.errors import InputError, MissingExtraError
from dagengine.reliability.statistics.accuracy_and_kappa import (
    accuracy,
    fleiss_kappa,
    krippendorff_alpha,
    label_kappa,
)
from dagengine.reliability.statistics.correlation_and_bias import spearman
from dagengine.reliability.statistics.intervals import Interval, bootstrap, variance_of
from dagengine.reliability.statistics.stability import (
    entropy,
    flip_rate,
    icc,
    score_spread,
    total_agreement,
)
from dagengine.reliability.statistics.sums import SummedMeasure, mean

pytest.importorskip("numpy")
pytest.importorskip("scipy")

TABLE: list[list[bool | None]] = [
    [True] * 5,
    [True, True, False, True, True],
    [False, True, False, True, True],
] * 8


def ends(found: Interval | None) -> tuple[float, float]:
    assert found is not None
    return found.low, found.high


def test_an_interval_says_how_it_was_made() -> None:
    found = bootstrap(TABLE, flip_rate, level=0.9)
    assert found is not None
    assert found.value == flip_rate(TABLE)
    assert (found.level, found.method, found.items) == (0.9, "Wilson", 24)
    assert 0 < found.low < found.value < found.high < 1
    wider = ends(bootstrap(TABLE, flip_rate, level=0.99))
    assert wider[0] < found.low
    assert found.high < wider[1]


def test_equal_seeds_give_equal_intervals() -> None:
    found = bootstrap(TABLE, fleiss_kappa, seed=3)
    assert found is not None
    assert found.method == "BCa"
    assert found == bootstrap(TABLE, fleiss_kappa, seed=3)
    assert found != bootstrap(TABLE, fleiss_kappa, seed=4)


@pytest.mark.parametrize("measure", [entropy, fleiss_kappa, krippendorff_alpha])
def test_totals_and_items_give_the_same_interval(measure: SummedMeasure[Any, ...]) -> None:
    by_items = bootstrap(TABLE, lambda rows: measure(rows), resamples=300)
    assert ends(bootstrap(TABLE, measure, resamples=300)) == pytest.approx(ends(by_items))


def test_a_choice_of_rule_keeps_the_totals() -> None:
    table = [[*row, None] for row in TABLE]
    chosen = partial(flip_rate.sums, missing="own category")
    found = bootstrap(table, chosen)
    assert found is not None
    assert found.value == flip_rate(table, missing="own category")
    assert found.value > (flip_rate(table) or 0)


def test_any_function_of_items_has_an_interval() -> None:
    random = Random(1)
    pairs = [(x := random.random(), x + random.gauss(0, 0.3)) for _ in range(40)]

    def rank(items: Sequence[tuple[float, float]]) -> float | None:
        return spearman([a for a, _ in items], [b for _, b in items])

    low, high = ends(bootstrap(pairs, rank, resamples=200))
    assert 0 < low < (rank(pairs) or 0) < high < 1


def test_items_of_one_case_are_drawn_together() -> None:
    # The nodes of a case say the same: twice the rows, but no more cases.
    once = bootstrap(TABLE, flip_rate)
    twice = [row for row in TABLE for _ in range(2)]
    cases = [case for case in range(len(TABLE)) for _ in range(2)]
    together = bootstrap(twice, flip_rate, groups=cases)
    assert together is not None
    assert together.items == len(TABLE)
    assert ends(together) == pytest.approx(ends(once))
    alone = ends(bootstrap(twice, flip_rate))
    assert alone[1] - alone[0] < 0.8 * (together.high - together.low)


def test_items_that_add_nothing_are_not_counted() -> None:
    unanswered: list[list[bool | None]] = [*TABLE, [None] * 5, [True, *[None] * 4]]
    assert bootstrap(unanswered, flip_rate) == bootstrap(TABLE, flip_rate)


def test_a_share_that_never_varies_still_has_an_interval() -> None:
    found = bootstrap([[True] * 5] * 30, flip_rate)
    assert found is not None
    assert (found.value, found.low, found.method) == (0, 0, "Wilson")
    # t of 29; a coin flips in half of its pairs, and its five answers differ in 15 of 16 cases
    most, share = 0.5 / (15 / 16), 2.045230**2 / (30 + 2.045230**2)
    assert found.high == pytest.approx(most * share)
    alike = bootstrap([[True] * 5] * 30, total_agreement)
    assert ends(alike) == pytest.approx((1 - share, 1))


@pytest.mark.parametrize("cases", [10, 40, 300])
@pytest.mark.parametrize("runs", [2, 3, 5, 8, 20])
def test_no_noise_above_the_bound_hides_from_all_runs(cases: int, runs: int) -> None:
    """Enumerated: a share of the cases has odds p, as many that flips are just above the bound."""
    found = bootstrap([[True] * runs] * cases, flip_rate)
    assert found is not None
    for p in (place / 100 for place in range(1, 51)):
        share = found.high / (2 * p * (1 - p))
        hidden = p**runs + (1 - p) ** runs
        if share <= 1:
            assert (1 - share + share * hidden) ** cases <= 0.025


def test_what_has_no_interval() -> None:
    assert bootstrap([], flip_rate) is None
    assert bootstrap(TABLE[:1], flip_rate) is None
    assert bootstrap([[None, None]] * 9, flip_rate) is None
    assert bootstrap([[True] * 5] * 9, fleiss_kappa) is None
    assert bootstrap([[0.1, 0.2]] * 9, score_spread) is None
    perfect = [("yes", "yes"), ("no", "no")] * 9
    assert bootstrap(perfect, label_kappa) is None
    assert bootstrap(perfect, accuracy) is not None


@given(
    st.lists(st.lists(st.sampled_from([None, 1, 2]), min_size=2, max_size=4), max_size=6),
    st.sampled_from([flip_rate, entropy, fleiss_kappa, krippendorff_alpha, icc]),
)
@settings(deadline=None)
def test_an_interval_holds_its_value_or_there_is_none(
    table: list[list[float | None]], measure: SummedMeasure[Any, ...]
) -> None:
    found = bootstrap(table, measure, resamples=20)
    assert found is None or found.low <= found.value <= found.high
    assert found is None or found.value == measure(table)


def test_arguments_that_do_not_fit_are_refused() -> None:
    with pytest.raises(InputError, match="between 0 and 1"):
        bootstrap(TABLE, flip_rate, level=95)
    with pytest.raises(InputError, match="24 items need as many groups, got 1"):
        bootstrap(TABLE, flip_rate, groups=["a"])


def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numpy", None)
    with pytest.raises(MissingExtraError, match=r'pip install "dagengine\[benchmark\]"'):
        bootstrap(TABLE, flip_rate)


@pytest.mark.parametrize(
    ("items", "repeats", "measure"),
    [(30, 10, flip_rate), (100, 5, flip_rate), (100, 20, entropy), (100, 5, icc)],
)
def test_intervals_cover_the_truth(items: int, repeats: int, measure: object) -> None:
    row = next(one for one in noisy_judge() if one.measure is measure)
    found = coverage(row, items, repeats, trials=200, resamples=400)
    # 95 % of 200 samples, give or take 2.5 standard errors.
    assert 0.912 <= found.covered <= 0.988
    assert abs(found.bias) <= 3 * found.bias_error


@pytest.mark.parametrize("cases", [20, 40])
def test_the_interval_of_a_share_holds_for_every_share(cases: int) -> None:
    """By enumeration: no share from 0.001 to 0.5 is held in fewer than 93 % of samples."""
    binom = pytest.importorskip("scipy.stats").binom
    made = [bootstrap([1.0] * k + [0.0] * (cases - k), mean) for k in range(cases + 1)]
    for share in (k / 1000 for k in range(1, 501, 3)):
        holds = [k for k, one in enumerate(made) if one and one.low <= share <= one.high]
        assert sum(binom.pmf(holds, cases, share)) > 0.93, share


def test_the_interval_of_a_flip_rate_reaches_what_it_can_be() -> None:
    """A coin asked twice may differ on more than half of the cases; it flips half of the time."""
    found = bootstrap([[True, k >= 125] for k in range(200)], flip_rate)
    assert found is not None
    assert (found.value, found.low) == (0.625, 0.5)


@given(st.lists(st.floats(-1e6, 1e6) | st.sampled_from([0.0, 0.125, 1 / 3]), min_size=2))
def test_variances_are_those_of_the_standard_library(values: list[float]) -> None:
    square, root = variance_of(values)
    rounding = (1e-15 * max(map(abs, values))) ** 2  # of the mean
    assert square == pytest.approx(statistics.variance(values), rel=1e-12, abs=rounding)
    assert root == math.sqrt(square)
