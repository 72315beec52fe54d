"""Judge statistics: against definitions written out, and against scipy where it is installed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagengine.errors import InputError
from dagengine.reliability.statistics.correlation_and_bias import kendall, pearson, spearman
from dagengine.reliability.statistics.stability import majority

PROPERTY = settings(max_examples=40)
Measure = Callable[[Sequence[float], Sequence[float]], float | None]
Pairs = list[tuple[float, float]]

CORRELATIONS: list[Measure] = [pearson, spearman, kendall]
SCIPY_NAMES: dict[Measure, str] = {
    pearson: "pearsonr",
    spearman: "spearmanr",
    kendall: "kendalltau",
}

# Few values make ties, many make none; quarters are exact, so equal means equal everywhere.
few = st.integers(1, 4).map(float)
many = st.integers(-4000, 4000).map(lambda n: n / 4)
some_pairs: st.SearchStrategy[Pairs] = st.one_of(
    *(st.lists(st.tuples(x, y), min_size=2, max_size=60) for x in (few, many) for y in (few, many))
)
any_number = st.floats(allow_nan=False, allow_infinity=False)
any_pairs: st.SearchStrategy[Pairs] = st.lists(st.tuples(any_number, any_number), max_size=30)
labels = st.sampled_from(["A", "B", "tie"])
per_correlation = pytest.mark.parametrize("measure", CORRELATIONS)


def sides(pairs: Pairs) -> tuple[list[float], list[float]]:
    return [x for x, _ in pairs], [y for _, y in pairs]


def sign(number: float) -> int:
    return (number > 0) - (number < 0)


def tau_by_definition(x: Sequence[float], y: Sequence[float]) -> float | None:
    pairs = list(combinations(zip(x, y, strict=True), 2))
    signs = [(sign(a[0] - b[0]), sign(a[1] - b[1])) for a, b in pairs]
    in_x, in_y = (sum(s[side] != 0 for s in signs) for side in (0, 1))
    return sum(a * b for a, b in signs) / math.sqrt(in_x * in_y) if in_x and in_y else None


def ranks_by_definition(values: Sequence[float]) -> list[float]:
    return [
        1 + sum(other < value for other in values) + (values.count(value) - 1) / 2
        for value in values
    ]


@pytest.fixture(scope="module")
def scipy_stats() -> Any:
    return pytest.importorskip("scipy.stats")


@PROPERTY
@given(pairs=some_pairs)
def test_correlations_are_those_of_scipy(scipy_stats: Any, pairs: Pairs) -> None:
    x, y = sides(pairs)
    for measure in CORRELATIONS:
        found = measure(x, y)
        if len(set(x)) == 1 or len(set(y)) == 1:
            assert found is None
        else:
            wanted = getattr(scipy_stats, SCIPY_NAMES[measure])(x, y).statistic
            assert found == pytest.approx(float(wanted), abs=1e-9)


@PROPERTY
@given(some_pairs)
def test_tau_is_what_its_definition_says(pairs: Pairs) -> None:
    x, y = sides(pairs)
    assert kendall(x, y) == pytest.approx(tau_by_definition(x, y), abs=1e-12)


@PROPERTY
@given(some_pairs)
def test_rho_is_the_correlation_of_ranks(pairs: Pairs) -> None:
    x, y = sides(pairs)
    wanted = pearson(ranks_by_definition(x), ranks_by_definition(y))
    assert spearman(x, y) == pytest.approx(wanted, abs=1e-12)


@per_correlation
@PROPERTY
@given(pairs=any_pairs)
def test_a_correlation_lies_in_its_range_or_is_none(measure: Measure, pairs: Pairs) -> None:
    found = measure(*sides(pairs))
    assert found is None or -1 <= found <= 1


@per_correlation
@PROPERTY
@given(pairs=some_pairs)
def test_the_sides_may_be_exchanged(measure: Measure, pairs: Pairs) -> None:
    x, y = sides(pairs)
    assert measure(x, y) == pytest.approx(measure(y, x), abs=1e-12)


@per_correlation
def test_correlations_of_known_lists(measure: Measure) -> None:
    assert measure([1, 2, 3], [10, 20, 30]) == pytest.approx(1)
    assert measure([1, 2, 3], [3, 2, 1]) == pytest.approx(-1)
    assert measure([1e200, 2e200], [1e-200, 2e-200]) == pytest.approx(1)
    # The mean of equal values is not always their value: 0.1 three times.
    assert measure([0.1, 0.1, 0.1], [1, 2, 3]) is None
    assert measure([1], [1]) is None
    assert measure([], []) is None


def test_ties_in_both_lists() -> None:
    assert kendall([1, 1, 2, 2], [1, 2, 1, 2]) == 0
    assert kendall([1, 2, 2, 3], [1, 2, 2, 3]) == 1
    assert kendall([1, 1, 2, 3], [1, 2, 2, 3]) == pytest.approx(4 / 5)
    assert spearman([1, 1, 2, 3], [1, 2, 2, 3]) == pytest.approx(5 / 6)


@pytest.mark.parametrize("measure", CORRELATIONS)
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_no_finite_number_is_refused(measure: Measure, bad: float) -> None:
    with pytest.raises(InputError, match="finite"):
        measure([1, bad], [1, 2])
    with pytest.raises(InputError, match="finite"):
        measure([1, 2], [1, bad])


@pytest.mark.parametrize("measure", CORRELATIONS)
def test_lists_of_different_lengths_are_refused(measure: Measure) -> None:
    with pytest.raises(InputError, match="1 values cannot be compared with 2"):
        measure([1], [1, 2])


def test_votes() -> None:
    assert majority(["A", "B", "A"]) == "A"
    assert majority(["A", "B"]) is None
    assert majority([]) is None
