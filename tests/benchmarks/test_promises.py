"""What cards of runs that are drawn from odds are held against, on odds that can be reckoned."""

from __future__ import annotations

import pytest

pytest.importorskip("scipy")

from odds_promises import MOST, enough, kept, truths

COIN, SURE = {1.0: 0.5, 0.0: 0.5}, {1.0: 1.0, 0.0: 0.0}


def test_truths_are_those_of_the_odds() -> None:
    found = truths([COIN, SURE, {0.0: 0.25, 2 / 3: 0.75}])
    assert found["flip-rate"] == pytest.approx((0.5 + 0 + 2 * 0.25 * 0.75) / 3)
    assert found["pass-rate"] == pytest.approx((0.5 + 1 + 0.75) / 3)
    assert found["mean-score"] == pytest.approx((0.5 + 1 + 0.5) / 3)


def test_no_votes_settle_coins() -> None:
    assert enough([SURE]) == 1
    assert enough([{1.0: 0.9, 0.0: 0.1}]) == 5
    assert enough([COIN, SURE]) > MOST


def test_what_benchmarks_say_is_held_against_it() -> None:
    found = kept([{1.0: 0.9, 0.0: 0.1}, {1.0: 0.1, 0.0: 0.9}], 20, 3, 4)
    assert all(len(one.held) == 4 for one in found.values())
    assert sum(one.share for one in found.values()) > 0.8 * len(found)
    assert len(found["votes"].silent) == 4
