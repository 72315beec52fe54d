"""What the recorded noise of a real model is held against, on runs whose odds are known."""

from __future__ import annotations

from random import Random

import pytest

pytest.importorskip("scipy")

from held import RULES, Passes, Stated, enough, intervals, odds_rows, vote_rows, voted

CHANCES = [0.02, 0.1, 0.3, 0.5, 0.7, 0.95] * 5


def drawn(chances: list[float], runs: int = 100) -> Passes:
    random = Random(7)
    return [[random.random() < chance for _ in range(runs)] for chance in chances]


def share(row: tuple[str, ...], column: int) -> float:
    return float(row[column].removesuffix(" %"))


def test_runs_that_follow_their_odds_are_told_from_runs_that_do_not() -> None:
    odds = [Stated(chance, 0.5) for chance in CHANCES]
    (row,) = odds_rows({"q": drawn(CHANCES)}, {"q": odds})
    assert share(row, 6) >= 90
    (other,) = odds_rows({"q": drawn([0.2] * len(CHANCES))}, {"q": odds})
    assert share(other, 6) < 50


def test_the_votes_that_are_enough_are_those_of_the_odds() -> None:
    assert enough([0.0, 1.0]) == 1
    assert enough([0.9, 0.1]) == 5
    assert enough([0.5]) > 99


def test_intervals_hold_later_runs_of_the_same_noise() -> None:
    kept = intervals(drawn(CHANCES), 3, draws=10, votes=enough(CHANCES))
    assert {"flip-rate", "pass-rate", "votes"} <= set(kept)
    assert all(sum(figure.held) >= 7 for figure in kept.values())


def test_votes_over_sure_cases_never_flip_and_cost_the_least() -> None:
    rule, most = RULES["majority of 9"]
    assert voted(drawn([0.0, 1.0]), rule, most, draws=3) == (0, 0, 5)


def test_rules_are_held_against_what_they_promise() -> None:
    rows = list(vote_rows({"q": drawn(CHANCES)}, draws=20))
    assert [row[0] for row in rows] == list(RULES)
    sprt = rows[2]
    assert sprt[4] == "wrong at most 5 %"
    assert share(sprt, 3) < 5
