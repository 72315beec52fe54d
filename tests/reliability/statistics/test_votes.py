"""Votes for a steady verdict: what is seen is exact, and the rest is an interval."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagengine.errors import InputError
from dagengine.reliability.statistics.accuracy_and_kappa import kappa_interval
from dagengine.reliability.statistics.intervals import Interval
from dagengine.reliability.statistics.majority_votes import (
    Mixture,
    SteadyVotes,
    _by_orders,
    _exact,
    flips_of_votes,
    majority_odds,
    steady_votes,
)

pytest.importorskip("scipy")


def binomial(wins: int, votes: int, p: float) -> float:
    return float(math.comb(votes, wins) * p**wins * (1 - p) ** (votes - wins))


def differing(p: float, votes: int) -> float:
    """The truth: two majorities of this many votes differ."""
    lost = math.fsum(binomial(k, votes, p) for k in range(votes // 2 + 1, votes + 1))
    return float(2 * lost * (1 - lost))


def majority(votes: tuple[str, ...]) -> str:
    best = Counter(votes).most_common(2)
    return "tie" if len(best) > 1 and best[0][1] == best[1][1] else best[0][0]


def enumerated(row: str, votes: int) -> float:
    """All pairs of disjoint subsets."""
    found = []
    for first in itertools.combinations(range(len(row)), votes):
        rest = [k for k in range(len(row)) if k not in first]
        for second in itertools.combinations(rest, votes):
            one, other = (majority(tuple(row[k] for k in part)) for part in (first, second))
            found.append(one != other)
    return sum(found) / len(found)


def drawn(odds: list[float], times: int, seed: int) -> list[list[bool]]:
    random = Random(seed)
    return [[random.random() >= p for _ in range(times)] for p in odds]


def known(found: SteadyVotes | None) -> SteadyVotes:
    assert found is not None
    return found


@pytest.mark.parametrize(("often", "rare", "votes"), [(5, 3, 3), (4, 4, 3), (6, 1, 3), (3, 2, 1)])
def test_what_is_seen_is_the_share_of_all_disjoint_pairs_of_subsets(
    often: int, rare: int, votes: int
) -> None:
    assert _exact(often, rare, votes) == pytest.approx(enumerated("a" * often + "b" * rare, votes))


@pytest.mark.parametrize("p", [0.0, 0.07, 0.3, 0.5])
@pytest.mark.parametrize("votes", [1, 3, 5, 9])
def test_what_is_seen_is_expected_to_be_the_truth(p: float, votes: int) -> None:
    for runs in (2 * votes, 2 * votes + 3):
        mean = math.fsum(
            binomial(m, runs, p) * _exact(max(m, runs - m), min(m, runs - m), votes)
            for m in range(runs + 1)
        )
        assert mean == pytest.approx(differing(p, votes))


def test_with_three_verdicts_orders_come_near_to_all_subsets_and_a_tie_is_an_outcome() -> None:
    assert _by_orders((4, 2, 2), 3) == pytest.approx(enumerated("aaaabbcc", 3), abs=0.08)
    assert _by_orders((1, 1, 1, 1, 1, 1), 3) == 0  # always a tie


def test_the_best_fit_is_the_best_of_all_mixtures() -> None:
    """No point could gain likelihood (Lindsay 1983)."""
    mixture = Mixture([(20, rare) for rare in (0, 0, 0, 1, 2, 2, 3, 9, 10, 5, 12)])
    chances, shares = mixture._seen
    weights, _ = mixture._fitted
    gains = (shares / (chances @ weights)) @ chances
    assert gains.max() <= 1.001


def test_limits_hold_the_value_and_shrink_with_cases() -> None:
    few = Mixture([(20, rare) for rare in (0, 1, 2, 3, 4)] * 4)
    many = Mixture([(20, rare) for rare in (0, 1, 2, 3, 4)] * 40)
    for mixture in (few, many):
        low, high = mixture.limits(5)
        assert low <= mixture.flips(5) <= high
    assert few.limits(5)[1] > many.limits(5)[1]
    assert Mixture(few.cases, weight=0.5).limits(5)[1] > few.limits(5)[1]


def test_three_runs_tell_only_the_flip_rate() -> None:
    found = known(steady_votes(drawn([0.1] * 100, 3, seed=1)))
    assert (found.kind, found.least, found.most) == ("more than", 3, None)
    assert (found.runs, found.seen, found.cases) == (3, 1, 100)
    assert found.floor == found.single
    assert found.runs_to_tell is not None
    assert found.runs_to_tell > 3


def test_equal_noise_gets_a_number_that_is_right() -> None:
    for seed in range(5):
        found = known(steady_votes(drawn([0.1] * 60, 20, seed)))
        assert found.kind in ("number", "range")
        assert found.least is not None
        assert found.most is not None
        assert found.least <= 5 <= found.most


def test_coins_are_never_promised_a_number_and_what_they_still_flip_is_said() -> None:
    """Of 40 cases 8 are coins: no number of votes gets below 10 %."""
    for seed in range(5):
        found = known(steady_votes(drawn([0.0] * 32 + [0.5] * 8, 20, seed)))
        assert found.kind in ("more than", "not known")
        assert found.most is None
        assert found.seen == 9
        assert found.floor.low < 0.1 < found.floor.high


def test_coins_throughout_need_more_than_any_number() -> None:
    found = known(steady_votes(drawn([0.5] * 300, 50, seed=2)))
    assert found.most is None
    assert found.kind in ("none", "more than")
    assert found.least is None or found.least > 60


def test_an_always_equal_judge_is_sure_only_with_enough_cases() -> None:
    few, many = (known(steady_votes([[True] * 20] * cases)) for cases in (10, 100))
    assert few.kind == "not known"
    assert (many.kind, many.least, many.most, many.runs_to_tell) == ("number", 1, 1, None)
    assert 0 < many.single.high < 0.05


def test_three_verdicts_say_nothing_beyond_half_the_runs() -> None:
    random = Random(3)
    table = [random.choices("abc", (8, 1, 1), k=20) for _ in range(60)]
    found = known(steady_votes(table))
    assert found.seen == 9
    assert found.most is None or found.most <= 9
    assert found.likely is None
    wild = [random.choices("abc", (2, 1, 1), k=20) for _ in range(60)]
    assert known(steady_votes(wild)).kind == "more than"
    assert known(steady_votes(wild)).least == 11


def test_what_tells_nothing_is_none() -> None:
    for table in ([], [[None, None]] * 5, [[True]] * 9, [[True, False, True]], [[], [None]]):
        assert steady_votes(table) is None
    assert flips_of_votes([[True, False]] * 5, 3) is None


def test_rows_may_miss_runs() -> None:
    table: list[list[bool | None]] = [[*row] for row in drawn([0.1] * 30, 8, 5)]
    table[0] = [True, None, None, None, None, None, None, None]
    table[1] = [True, False, None, None, None, None, None, None]
    found = known(steady_votes(table))
    assert (found.cases, found.runs, found.seen) == (29, 8, 3)


def test_rows_of_one_case_say_less_than_as_many_cases() -> None:
    table = drawn([0.1] * 30, 20, 5)
    twice = [row for row in table for _ in range(3)]
    alone = known(steady_votes(table))
    together = known(steady_votes(twice, groups=[k // 3 for k in range(90)]))
    naive = known(steady_votes(twice))
    assert together.single.items == 30
    widths = [votes.single.high - votes.single.low for votes in (together, alone, naive)]
    assert widths[0] == pytest.approx(widths[1])
    assert widths[2] < 0.8 * widths[0]
    assert together.floor.high == pytest.approx(alone.floor.high, abs=0.01)
    assert known(steady_votes(twice, groups=[k % 2 for k in range(90)])).most is None
    with pytest.raises(InputError, match="groups"):
        steady_votes(table, groups=[1])


def test_an_even_number_and_a_target_that_is_none_are_refused() -> None:
    with pytest.raises(InputError, match="odd"):
        flips_of_votes([[True] * 9] * 9, 4)
    with pytest.raises(InputError, match="target"):
        steady_votes([[True] * 9] * 9, 0)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.lists(st.sampled_from([True, False, None]), min_size=1, max_size=9), max_size=12)
)
def test_no_answer_contradicts_the_flip_rate_or_itself(table: list[list[bool | None]]) -> None:
    found = steady_votes(table)
    if found is None:
        return
    assert found.single.low <= found.single.value <= found.single.high
    assert found.floor.low <= found.floor.value <= found.floor.high
    assert found.least is None or found.most is None or found.least <= found.most
    if found.single.low > found.target:
        assert found.least != 1
    if found.single.high > found.target:
        assert found.most != 1
    assert (found.kind == "none") == (found.least is None)


@pytest.mark.parametrize("votes", [1, 3, 5])
@pytest.mark.parametrize("row", ["ppppf", "ppff", "abc", "aabbccd", "p", ""])
def test_majorities_are_those_of_all_subsets_in_whatever_order_runs_came(
    row: str, votes: int
) -> None:
    subsets = [*itertools.combinations(row, min(votes, len(row)))] if row else []
    counts = Counter(map(majority, subsets))
    expected = {None if verdict == "tie" else verdict: count / len(subsets)
                for verdict, count in counts.items()}  # fmt: skip
    for order in (row, row[::-1]):
        assert majority_odds(order, votes) == pytest.approx(expected)


def test_kappa_of_all_runs_holds_the_kappa_of_one_run() -> None:
    """Of 40 cases with 8 runs, a quarter fails; the judge is wrong in a part of a case's runs."""
    random, held = Random(3), 0
    for _ in range(80):
        pairs: list[tuple[bool, bool]] = []
        weights: list[float] = []
        for case in range(40):
            label, wrong = case % 4 > 0, random.choice((0.0, 0.0, 0.05, 0.4))
            runs = [label ^ (random.random() < wrong) for _ in range(8)]
            odds = majority_odds(runs, 1)
            pairs += [(label, verdict is True) for verdict in odds]
            weights += odds.values()
        made = kappa_interval(pairs, weights=weights)
        assert isinstance(made, Interval)
        assert made.items == 40
        # Wrong are 11.25 % of either label, so 88.75 % agree, of which 59.6875 % by chance.
        held += made.low <= (0.8875 - 0.596875) / (1 - 0.596875) <= made.high
    assert held >= 72
