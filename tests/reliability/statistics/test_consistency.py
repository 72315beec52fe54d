"""Measures of a judge: against other packages, against definitions, and where undefined."""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import combinations, pairwise
from statistics import fmean
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagengine.errors import InputError
from dagengine.reliability.statistics.accuracy_and_kappa import (
    accuracy,
    cohen_kappa,
    fleiss_kappa,
    krippendorff_alpha,
    label_kappa,
    majority_baseline,
)
from dagengine.reliability.statistics.correlation_and_bias import (
    Compared,
    Measured,
    brier_score,
    first_wins,
    length_bias,
    list_bias,
    longer_wins,
    position_consistency,
    position_preference,
    reliability,
)
from dagengine.reliability.statistics.stability import (
    entropy,
    flip_rate,
    icc,
    majority_share,
    missing_effect,
    missing_rate,
    score_spread,
    total_agreement,
)

PROPERTY = settings(max_examples=40)
Rows = list[list[Any]]


def tables(
    votes: st.SearchStrategy[Any], *, rows: int = 1, columns: int = 1, missing: bool = True
) -> st.SearchStrategy[Rows]:
    cell = st.one_of(st.none(), votes, votes, votes) if missing else votes
    return st.integers(columns, 6).flatmap(
        lambda width: st.lists(
            st.lists(cell, min_size=width, max_size=width), min_size=rows, max_size=15
        )
    )


verdicts = st.sampled_from(["yes", "no", "unsure"])
ratings = st.integers(1, 4)
# Eighths are exact, so that equal means equal in every package.
scores = st.one_of(st.integers(1, 4).map(float), st.integers(0, 80).map(lambda n: n / 8))


def same(found: float | None, wanted: float) -> bool:
    """Undefined here is not a number (or no number at all) there."""
    if found is None:
        return not math.isfinite(wanted)
    return abs(found - wanted) <= 1e-9


def mean_or_none(values: Iterable[float]) -> float | None:
    known = list(values)
    return fmean(known) if known else None


@pytest.fixture(scope="module")
def scipy_stats() -> Any:
    return pytest.importorskip("scipy.stats")


@pytest.fixture(scope="module")
def sklearn_metrics() -> Any:
    return pytest.importorskip("sklearn.metrics")


@pytest.fixture(scope="module")
def statsmodels_raters() -> Any:
    return pytest.importorskip("statsmodels.stats.inter_rater")


@pytest.fixture(scope="module")
def krippendorff_package() -> Any:
    return pytest.importorskip("krippendorff")


@pytest.fixture(scope="module")
def numpy() -> Any:
    return pytest.importorskip("numpy")


@pytest.fixture(scope="module")
def sklearn_calibration() -> Any:
    return pytest.importorskip("sklearn.calibration")


# Within items.


@PROPERTY
@given(tables(verdicts))
def test_flips_are_pairs_of_answers_that_differ(table: Rows) -> None:
    rows = [[vote for vote in row if vote is not None] for row in table]
    pairs = [list(combinations(row, 2)) for row in rows if len(row) > 1]
    wanted = mean_or_none(fmean(a != b for a, b in row) for row in pairs)
    assert flip_rate(table) == pytest.approx(wanted)
    shares = [max(Counter(row).values()) / len(row) for row in rows if row]
    assert majority_share(table) == pytest.approx(mean_or_none(shares))


def test_total_agreement_of_answers_texts_and_paths() -> None:
    assert total_agreement([["a", "a"], ["a", "b"], [None, None], ["a", None]]) == 0.5
    assert total_agreement([[("x", "y"), ("x", "y")], [("x",), ("x", "y")]]) == 0.5
    with pytest.raises(InputError, match=r"same number of columns, got \[1, 2\]"):
        total_agreement([["a"], ["a", "b"]])


def test_the_rule_for_missing_answers_and_its_effect() -> None:
    table: Rows = [["yes", "yes", None, None], [None, None, None, None], ["yes", "no", "no", "no"]]
    assert missing_rate(table) == 0.5
    assert flip_rate(table) == 0.25
    assert flip_rate(table, missing="own category") == pytest.approx(7 / 18)
    assert missing_effect(table) == pytest.approx(7 / 18 - 1 / 4)
    assert missing_effect([[None]]) is None
    with pytest.raises(InputError, match="choose 'drop' or 'own category'"):
        flip_rate(table, missing="ignore")  # type: ignore[arg-type]


@pytest.mark.parametrize("table", [[], [[]], [["yes"]], [[None, None]]])
def test_one_answer_has_nothing_to_agree_with(table: Rows) -> None:
    for measure in (flip_rate, entropy, fleiss_kappa, krippendorff_alpha):
        assert measure(table) is None


# Raters.


def quiet(function: Callable[[], Any]) -> float:
    """What another package says, nan where it fails or warns its way to nan."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return float(function())
        except (ValueError, ZeroDivisionError):
            return math.nan


@PROPERTY
@given(table=st.lists(st.tuples(ratings, ratings), min_size=1, max_size=20))
def test_cohens_kappa_is_that_of_scikit_learn(
    sklearn_metrics: Any, table: list[tuple[int, int]]
) -> None:
    first, second = zip(*table, strict=True)
    wanted = quiet(lambda: sklearn_metrics.cohen_kappa_score(first, second))
    assert same(cohen_kappa(table), wanted)
    unanswered = [*table, (1, None), (None, None)]
    assert same(cohen_kappa(unanswered), wanted)


def test_cohens_kappa_is_of_two_raters() -> None:
    with pytest.raises(InputError, match="same number of columns"):
        cohen_kappa([("a", "b", "c")])


@PROPERTY
@given(tables(verdicts, columns=2, missing=False))
def test_fleiss_kappa_is_that_of_statsmodels(statsmodels_raters: Any, table: Rows) -> None:
    names = ["yes", "no", "unsure"]
    counts = [[row.count(name) for name in names] for row in table]
    found = fleiss_kappa(table)
    if len({vote for row in table for vote in row}) == 1:
        assert found is None
    else:
        assert same(found, quiet(lambda: statsmodels_raters.fleiss_kappa(counts)))


@PROPERTY
@given(tables(verdicts, columns=2, missing=False))
def test_alpha_is_fleiss_kappa_corrected_for_the_number_of_answers(table: Rows) -> None:
    kappa, alpha = fleiss_kappa(table), krippendorff_alpha(table)
    size = sum(map(len, table))
    wanted = None if kappa is None else 1 - (1 - kappa) * (size - 1) / size
    assert alpha == pytest.approx(wanted, abs=1e-9)


def test_fleiss_kappa_with_unequal_numbers_of_raters() -> None:
    table: Rows = [["a", "a", None], ["a", "b", "b"], ["b", None, None]]
    agreement = (1 + 1 / 3) / 2
    chance = ((1 + 1 / 3) / 3) ** 2 + ((2 / 3 + 1) / 3) ** 2
    assert fleiss_kappa(table) == pytest.approx((agreement - chance) / (1 - chance))


@pytest.mark.parametrize("level", ["nominal", "interval"])
@PROPERTY
@given(table=tables(ratings, rows=2, columns=2))
def test_alpha_is_that_of_krippendorff(
    krippendorff_package: Any, level: Literal["nominal", "interval"], table: Rows
) -> None:
    by_rater = [[math.nan if x is None else x for x in rater] for rater in zip(*table, strict=True)]
    paired = [x for row in table if len(row) - row.count(None) > 1 for x in row if x is not None]
    found = krippendorff_alpha(table, level=level)
    if len(set(paired)) < 2:
        assert found is None
    else:
        theirs = quiet(lambda: krippendorff_package.alpha(by_rater, level_of_measurement=level))
        assert same(found, theirs)


def test_alpha_of_a_published_table() -> None:
    # Krippendorff 2011, section C: four observers, twelve units, 0.743 and 0.849.
    observers: Rows = [
        [1, 2, 3, 3, 2, 1, 4, 1, 2, None, None, None],
        [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, None, 3],
        [None, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, None],
        [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, None],
    ]
    table = list(zip(*observers, strict=True))
    assert krippendorff_alpha(table) == pytest.approx(0.743, abs=5e-4)
    assert krippendorff_alpha(table, level="interval") == pytest.approx(0.849, abs=5e-4)


def test_alpha_refuses_what_its_level_has_no_place_for() -> None:
    with pytest.raises(InputError, match="needs numbers as answers, got 'a'"):
        krippendorff_alpha([["a", "b"]], level="interval")
    with pytest.raises(InputError, match="choose one of"):
        krippendorff_alpha([[1, 2]], level="ratio")  # type: ignore[arg-type]


@pytest.mark.parametrize("vote", ["yes", 0.1])
def test_a_constant_judge_has_no_agreement_beyond_chance(vote: Any) -> None:
    table: Rows = [[vote, vote, vote]] * 4
    assert flip_rate(table) == 0
    assert fleiss_kappa(table) is None
    assert cohen_kappa([row[:2] for row in table]) is None
    assert krippendorff_alpha(table) is None
    if vote == 0.1:
        assert krippendorff_alpha(table, level="interval") is None
        assert icc(table) is None
        assert score_spread(table) == 0


# Scores.


@PROPERTY
@given(tables(scores, rows=2, columns=2, missing=False))
def test_icc_is_that_of_the_analysis_of_variance(scipy_stats: Any, table: Rows) -> None:
    repeats = len(table[0])
    f = quiet(lambda: scipy_stats.f_oneway(*table).statistic)
    if math.isinf(f):
        assert icc(table) == 1
    elif math.isfinite(f) and f > 1e-9:
        assert icc(table) == pytest.approx((f - 1) / (f + repeats - 1), abs=1e-9)


def test_spread_and_icc_with_missing_scores() -> None:
    table: Rows = [[1.0, 3.0, None], [2.0, None, None], [5.0, 5.0, 8.0], [None, None, None]]
    deviations = (math.sqrt(2), math.sqrt(3))
    assert score_spread(table) == pytest.approx(fmean(deviations))
    # Cases count alike: variances within of 2 and 3, means of 2, 2 and 6, of which 2, 1 and 3
    # scores are behind. The case with a single score has the mean noise of the others.
    noise = (2 / 2 + 2.5 / 1 + 3 / 3) / 3
    between = 16 / 3 - noise
    assert icc(table) == pytest.approx(between / (between + 2.5))
    assert icc([[1.0, 2.0]]) is None


# Against people.


@PROPERTY
@given(st.lists(st.tuples(verdicts, verdicts), min_size=1, max_size=25))
def test_agreement_with_labels_is_that_of_scikit_learn(
    sklearn_metrics: Any, pairs: list[tuple[str, str]]
) -> None:
    labels, given_ = zip(*pairs, strict=True)
    assert same(accuracy(pairs), sklearn_metrics.accuracy_score(labels, given_))
    wanted = quiet(lambda: sklearn_metrics.cohen_kappa_score(labels, given_))
    assert same(label_kappa(pairs), wanted)
    assert majority_baseline(pairs) == max(Counter(labels).values()) / len(labels)


def test_what_was_not_answered_is_not_right() -> None:
    pairs = [("yes", "yes"), ("yes", "yes"), ("yes", None), ("no", "yes"), (None, "yes")]
    assert (accuracy(pairs), majority_baseline(pairs)) == (0.5, 0.75)
    assert label_kappa(pairs) == pytest.approx(1 - 0.5 / (1 - 0.75 * 0.75))
    assert accuracy([(None, "yes")]) is label_kappa([(None, "yes")]) is None


# Biases.


def test_position() -> None:
    pairs = [("A", "A"), ("A", "B"), ("A", "B"), ("B", "A"), ("A", "tie"), ("A", None)]
    assert position_consistency(pairs) == 1 / 5
    assert position_preference(pairs) == 3 / 4
    assert first_wins(pairs) == (0.5 + 1 + 1 + 0) / 4
    assert position_preference([("A", "A")]) is None
    assert position_preference([("tie", "A")]) == 0


@PROPERTY
@given(st.lists(st.tuples(verdicts, verdicts)))
def test_exchanging_positions_mirrors_the_preference(pairs: list[tuple[str, str]]) -> None:
    names = {"yes": "A", "no": "B"}
    winners = [(names.get(a, a), names.get(b, b)) for a, b in pairs]
    swapped = [(b, a) for a, b in winners]
    for measure in (position_preference, first_wins):
        found, other = measure(winners), measure(swapped)
        assert other == (None if found is None else pytest.approx(1 - found))


@given(st.lists(st.integers(0, 8).map(float), min_size=2, max_size=10))
def test_the_bias_of_one_list_is_its_correlation_with_the_place(
    scipy_stats: Any, row: list[float]
) -> None:
    found = list_bias([row])
    wanted = quiet(lambda: scipy_stats.pearsonr(range(len(row)), row).statistic)
    assert same(found, wanted)
    assert list_bias([row, [5.0], [None, 1.0]]) == found


def test_better_lists_are_no_bias() -> None:
    assert list_bias([[1, 0, 1], [9, 8, 9, None]]) == 0
    assert list_bias([[1, 2], [9, 8, 9], [5, 5]]) == pytest.approx(0.5 / math.sqrt(3 * 7 / 6))
    assert list_bias([[1, 1], [2, 2]]) is None


def test_longer_answers() -> None:
    rows = [(10, 5, True), (5, 10, True), (5, 10, False), (7, 7, True), (9, 1, None)]
    assert longer_wins([Compared(*row) for row in rows]) == pytest.approx(2 / 3)
    assert longer_wins([]) is None


@PROPERTY
@given(st.lists(st.tuples(scores, scores, scores), min_size=4, max_size=20))
def test_length_bias_is_the_correlation_of_what_labels_leave(
    numpy: Any,
    rows: list[tuple[float, float, float]],
) -> None:
    score, length, label = (numpy.array(side) for side in zip(*rows, strict=True))
    found = length_bias([Measured(*row) for row in rows])
    fitted = numpy.stack([numpy.ones(len(rows)), label], axis=1)
    left = [y - fitted @ numpy.linalg.lstsq(fitted, y)[0] for y in (score, length)]
    sizes = [float(numpy.linalg.norm(x)) for x in left]
    if len(set(label)) > 1 and min(sizes) > 1e-3:
        assert found == pytest.approx(float(left[0] @ left[1]) / math.prod(sizes), abs=1e-8)
    plain = length_bias([Measured(s, n) for s, n, _ in rows])
    assert same(plain, quiet(lambda: numpy.corrcoef(score, length)[0, 1]))


def test_labels_are_for_all_answers_or_for_none() -> None:
    with pytest.raises(InputError, match="either all answers have a label, or none"):
        length_bias([Measured(1, 2), Measured(1, 2, 3)])
    assert length_bias([]) is None


# Stated probabilities.

stated_answers = st.lists(
    st.tuples(st.one_of(st.floats(0, 1), st.sampled_from([0.0, 0.1, 0.5, 1.0])), st.booleans()),
    min_size=1,
    max_size=30,
)


@PROPERTY
@given(stated_answers)
def test_probability_scores_are_those_of_scikit_learn(
    sklearn_metrics: Any, stated: list[tuple[float, bool]]
) -> None:
    p, happened = zip(*stated, strict=True)
    assert same(brier_score(stated), sklearn_metrics.brier_score_loss(happened, p, pos_label=True))


@PROPERTY
@given(st.lists(st.tuples(st.integers(0, 64).map(lambda n: n / 64), st.booleans()), min_size=1))
def test_the_reliability_table_is_that_of_scikit_learn(
    sklearn_calibration: Any, stated: list[tuple[float, bool]]
) -> None:
    p, happened = zip(*stated, strict=True)
    observed, mean_stated = sklearn_calibration.calibration_curve(
        happened, p, n_bins=8, pos_label=True
    )
    rows = [row for row in reliability(stated, bins=8) if row.answers]
    assert [row.observed for row in rows] == pytest.approx(list(observed), abs=1e-9)
    assert [row.stated for row in rows] == pytest.approx(list(mean_stated), abs=1e-9)


def test_bins_cover_all_probabilities_once() -> None:
    rows = reliability([(0.0, False), (0.5, True), (1.0, True)], bins=2)
    assert [(row.low, row.high, row.answers) for row in rows] == [(0, 0.5, 2), (0.5, 1, 1)]
    assert all(a.high == b.low for a, b in pairwise(rows))
    assert reliability([], bins=1)[0].observed is None
    assert brier_score([]) is None
    with pytest.raises(InputError, match="at least 1"):
        reliability([], bins=0)
    with pytest.raises(InputError, match=r"between 0 and 1, got 1\.5"):
        brier_score([(1.5, True)])


@pytest.mark.parametrize("measure", [score_spread, icc, list_bias])
def test_scores_that_are_no_finite_numbers_are_refused(
    measure: Callable[[Sequence[Sequence[float]]], float | None],
) -> None:
    with pytest.raises(InputError, match="finite"):
        measure([[1, math.nan], [2, 3]])
