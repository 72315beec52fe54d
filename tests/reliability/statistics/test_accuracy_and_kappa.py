"""Labels against verdicts: tables, and intervals that stay honest where labels are rare."""

from __future__ import annotations

import math
import warnings
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import balanced_accuracy_score, cohen_kappa_score, confusion_matrix

from dagengine.errors import InputError
from dagengine.reliability.statistics.accuracy_and_kappa import (
    Confusion,
    ac1_interval,
    accuracy,
    balanced_accuracy_interval,
    baseline_interval,
    kappa_interval,
    label_ceiling,
    label_kappa,
    label_rates,
    people_agreement,
)
from dagengine.reliability.statistics.intervals import (
    Interval,
    Unknown,
    bootstrap,
    design_effect,
    effective_groups,
)

Pairs = list[tuple[Any, Any]]
INTERVALS = (kappa_interval, ac1_interval, balanced_accuracy_interval)


def judged(size: int, kinds: str, right: float, seed: int = 1) -> Pairs:
    random = Random(seed)
    labels = [random.choice(kinds) for _ in range(size)]
    return [(x, x if random.random() < right else random.choice(kinds)) for x in labels]


def known(found: Interval | Unknown) -> Interval:
    assert isinstance(found, Interval), found
    assert -1 <= found.low <= found.value <= found.high <= 1
    return found


def test_the_table_is_that_of_scikit_learn() -> None:
    pairs = judged(60, "abc", 0.7)
    table = Confusion(pairs, kinds="abc")
    labels, verdicts = zip(*pairs, strict=True)
    assert (table.counts == confusion_matrix(labels, verdicts)).all()
    assert (table.kinds, table.items) == (("a", "b", "c"), 60)


def test_a_missing_verdict_is_the_last_column_or_left_out() -> None:
    pairs: Pairs = [("a", None), ("a", "b"), (None, "a"), ("b", "b")]
    assert Confusion(pairs).kinds == ("a", "b", None)
    assert Confusion(pairs).counts.tolist() == [[0, 1, 1], [0, 1, 0], [0, 0, 0]]


def test_values_are_those_of_independent_implementations() -> None:
    pairs = judged(80, "aaab", 0.8)
    labels, verdicts = zip(*pairs, strict=True)
    kappa = known(kappa_interval(pairs)).value
    assert kappa == pytest.approx(cohen_kappa_score(labels, verdicts))
    assert kappa == pytest.approx(label_kappa(pairs))
    balanced = known(balanced_accuracy_interval(pairs)).value
    assert balanced == pytest.approx(balanced_accuracy_score(labels, verdicts))


def test_ac1_is_its_closed_form_and_stays_high_where_kappa_collapses() -> None:
    """Of 125 pairs 118 are both positive, 5 and 2 differ: the paradox of kappa."""
    pairs: Pairs = [("+", "+")] * 118 + [("+", "-")] * 5 + [("-", "+")] * 2
    share = (123 + 120) / 250
    chance = 2 * share * (1 - share)
    assert known(ac1_interval(pairs)).value == pytest.approx((118 / 125 - chance) / (1 - chance))
    assert known(kappa_interval(pairs)).value == pytest.approx(-0.0234, abs=1e-3)
    assert known(ac1_interval(pairs)).low > 0.85
    assert known(ac1_interval([("+", "+")] * 9, kinds=["+", "-"])).value == 1


@pytest.mark.parametrize(("cases", "low"), [(20, 0.31), (40, 0.53), (60, 0.67), (100, 0.80)])
def test_a_perfect_judge_shows_as_much_as_its_labels_allow(cases: int, low: float) -> None:
    rare = cases // 10
    pairs: Pairs = [(1, 1)] * (cases - rare) + [(0, 0)] * rare
    found = known(kappa_interval(pairs))
    assert (found.value, found.high) == (1, 1)
    assert found.low == pytest.approx(low, abs=0.05)


def test_one_label_alone_shows_nothing() -> None:
    only: Pairs = [("a", "a")] * 30
    for of in INTERVALS:
        assert of(only) == Unknown("undefined", 30)
        assert of([]) == Unknown("undefined", 0)
        assert of([(None, None)]) == Unknown("undefined", 0)
    assert balanced_accuracy_interval([*only, ("b", "b")], kinds="abc").items == 31
    assert isinstance(balanced_accuracy_interval([*only, ("b", "b")], kinds="abc"), Unknown)
    assert known(ac1_interval(only, kinds="ab")).low > 0.7


def test_cases_of_few_groups_have_no_interval_and_of_dependent_ones_a_wider() -> None:
    pairs = judged(80, "ab", 0.8)
    few = [k // 20 for k in range(80)]
    assert kappa_interval(pairs, groups=few) == Unknown("too few groups", 4, 8)
    twice = [pair for pair in pairs for _ in range(3)]
    alone = known(kappa_interval(pairs))
    copies = known(kappa_interval(twice, groups=[k // 3 for k in range(240)]))
    assert copies.high - copies.low == pytest.approx(alone.high - alone.low, rel=0.1)
    assert design_effect([0.0, 1.0] * 8, range(16)) == 1.0
    assert design_effect([1.0] * 16, [k // 2 for k in range(16)]) == 2.0
    with pytest.raises(InputError, match="groups"):
        kappa_interval(pairs, groups=[1])


def test_rates_of_labels() -> None:
    pairs: Pairs = [("a", "a")] * 8 + [("a", "b")] * 2 + [("b", "b")] * 9 + [("b", None)]
    rates = label_rates(pairs)
    assert [*rates] == ["a", "b"]
    assert [known(share).value for share in rates["a"]] == [0.8, 0.9]
    assert [known(share).value for share in rates["b"]] == [0.9, 0.8]
    assert label_rates([]) == {}
    few = label_rates(pairs, groups=[k % 5 for k in range(len(pairs))])["a"]
    assert few[0] == Unknown("too few groups", 5, 8)
    assert isinstance(label_rates([("a", "a")])["a"][0], Unknown)


def test_people_set_a_ceiling() -> None:
    """Each of three people errs in a tenth of the cases: no judge is right more often than .9."""
    random = Random(5)
    table = [[random.random() < 0.9 for _ in range(3)] for _ in range(2000)]
    ceiling = known(label_ceiling(table))
    assert ceiling.low < 0.9 <= ceiling.high + 0.005
    assert 0.79 < ceiling.low < ceiling.value < ceiling.high < 0.93
    assert label_ceiling([[True, True]] * 9) != label_ceiling([[True, False]] * 9)
    assert label_ceiling([[True, None]]) == Unknown("too few items", 0, 2)
    few = label_ceiling([[True, False]] * 9, groups=[k % 5 for k in range(9)])
    assert few == Unknown("too few groups", 5, 8)
    assert people_agreement([["a", "b", "b"]]) == pytest.approx((0 + 0.5 + 0.5) / 3)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["a", "b", None]), st.sampled_from(["a", "b", "c", None])))
)
def test_nothing_that_users_feed_warns_or_is_not_a_number(pairs: Pairs) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for of in INTERVALS:
            for groups in (None, [k // 2 for k in range(len(pairs))]):
                found = of(pairs, groups=groups)
                assert isinstance(found, Unknown) or known(found)
        label_rates(pairs)


@pytest.mark.parametrize("size", [10, 40])
def test_the_interval_of_the_baseline_holds_where_two_labels_are_about_as_common(size: int) -> None:
    """By enumeration; resamples of the larger share, which never lie below it, hold in 88 %."""
    found = [
        baseline_interval([(place < count, True) for place in range(size)], kinds=(True, False))
        for count in range(size + 1)
    ]
    for share in (0.5, 0.55, 0.6, 0.7, 0.9):
        held = sum(
            math.comb(size, count) * share**count * (1 - share) ** (size - count)
            for count, one in enumerate(found)
            if one is not None and one.low <= share <= one.high
        )
        assert held >= 0.94


def test_the_interval_of_the_baseline_takes_every_label_for_the_commonest() -> None:
    found = baseline_interval([(kind, kind) for kind in "aaaabbbbcc" * 3])
    assert found is not None
    assert (found.value, found.items) == (0.4, 30)
    assert found.low < 1 / 3 < 0.5 < found.high
    assert baseline_interval([("a", "a")] * 9, groups=[k % 3 for k in range(9)]) is None
    assert baseline_interval([]) is None


def test_a_tie_is_right_about_no_label() -> None:
    """Ten cases of b on which the runs are tied: neither label is met, whichever is asked about."""
    pairs: Pairs = [("a", "a")] * 10 + [("b", None)] * 10
    rates = label_rates(pairs)
    assert known(rates["a"][1]).value == known(rates["b"][0]).value == 0


def test_many_labels_with_few_cases_do_not_pull_balanced_accuracy_down() -> None:
    random, held = Random(1), 0
    for _ in range(200):
        labels = [random.choice("abcdefgh") for _ in range(40)]
        pairs: Pairs = [(x, x if random.random() < 0.9 else random.choice("ij")) for x in labels]
        interval = known(balanced_accuracy_interval(pairs))
        held += interval.low <= 0.9 <= interval.high
    assert held >= 178  # 93 % of 200, less what happens once in a thousand


def test_a_tie_is_no_kind_that_chance_could_meet() -> None:
    pairs = [(True, True)] * 30 + [(False, False)] * 10 + [(True, False)] * 8
    without, tied = (ac1_interval(rows, kinds=(True, False)) for rows in
                     (pairs, [*pairs, (True, None)]))  # fmt: skip
    assert isinstance(without, Interval)
    assert isinstance(tied, Interval)
    assert without.value - 0.05 < tied.value < without.value


def test_one_large_group_leaves_few_degrees_of_freedom() -> None:
    random = Random(1)
    pairs = [(True, random.random() < 0.8) for _ in range(100)]
    even = [place // 5 for place in range(100)]
    uneven = [*[0] * 40, *(1 + place // 4 for place in range(60))]
    alone = [*[0] * 90, *range(1, 11)]
    assert effective_groups([5] * 20) == 20
    assert 5 < effective_groups([40, *[4] * 15]) < 6
    widths = [interval.high - interval.low for groups in (even, uneven)
              if (interval := bootstrap(pairs, accuracy, groups=groups)) is not None]  # fmt: skip
    assert widths[0] < widths[1]
    assert bootstrap(pairs, accuracy, groups=alone) is None
    assert isinstance(ac1_interval(pairs, groups=alone), Unknown)
