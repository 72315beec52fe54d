"""Odds of options from the most likely alternatives of one token: what is known holds."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagengine.prompts.probabilities.options import LEAST_MASS, SURE, Masses, unknown_of
from dagengine.prompts.probabilities.weighted_scores import stated_probability
from dagengine.question import Answer, TokenChoice

ANY: Any = None


def masses(options: dict[str, float], *others: float) -> Masses:
    return Masses.of(options, [*filter(None, options.values()), *others])


def test_odds_are_the_shares_of_the_options() -> None:
    found = masses({"A": 0.6, "B": 0.2}, 0.2)
    assert dict(found.odds or ()) == pytest.approx({"A": 0.75, "B": 0.25})
    assert (found.total, found.chance("A")) == pytest.approx((0.8, 0.75))


def test_below_half_of_the_mass_nothing_is_known() -> None:
    found = masses({"A": 0.3, "B": 0.19}, 0.51)
    assert (found.odds, found.chance("A")) == (None, None)
    assert found.total == pytest.approx(0.49)


def test_an_option_that_is_not_told_has_at_most_what_is_left_and_the_least_of_what_is() -> None:
    found = masses({"A": 0.8, "B": 0.0}, 0.05)
    odds = found.odds or ()
    assert dict(odds) == pytest.approx({"A": 0.8 / 0.85, "B": 0.0})  # B has 0.05 at most
    assert unknown_of(odds) == pytest.approx(0.05 / 0.85)
    assert found.chance("A") is None


def test_an_option_that_is_not_told_and_faint_counts_as_impossible() -> None:
    found = masses({"A": 0.9, "B": 0.0}, 0.05, 0.0001)
    assert found.odds == (("A", 1.0), ("B", 0.0))
    assert found.chance("A") == 1.0


@given(
    weights=st.lists(st.floats(1e-9, 1.0), min_size=2, max_size=26),
    options=st.integers(2, 5),
    top=st.integers(1, 20),
)
def test_the_true_odds_are_within_the_bounds(weights: list[float], options: int, top: int) -> None:
    """Of a whole distribution the server tells the most likely; the first few are the options."""
    total = math.fsum(weights)
    true = {f"o{place}": weight / total for place, weight in enumerate(weights)}
    told = dict(sorted(true.items(), key=lambda one: -one[1])[:top])
    names = list(true)[:options]
    found = Masses.of({name: told.get(name, 0.0) for name in names}, list(told.values()))
    assert (found.odds is None) == (math.fsum(told.get(name, 0.0) for name in names) < LEAST_MASS)
    whole = math.fsum(true[name] for name in names)
    odds = dict(found.odds or ())
    rest = unknown_of(found.odds or ())
    for name in odds:
        # What counts as impossible is below a thousandth; nothing else is left to chance.
        assert odds[name] - 0.0011 <= true[name] / whole <= odds[name] + rest + 0.0011
        chance = found.chance(name)
        assert chance is None or abs(chance - true[name] / whole) <= SURE + 0.0011


def judgement(mass: dict[str, float]) -> Answer[Any]:
    parts = ('{"verdict": "', "Yes", '"}')
    tokens = tuple((token, math.log(share)) for token, share in mass.items())
    choices = [TokenChoice(part, tokens if part == "Yes" else ()) for part in parts]
    return Answer(ANY, "".join(parts), tuple(choices))


@pytest.mark.parametrize(
    ("mass", "probability", "whole"),
    [
        ({"Yes": 0.6, "No": 0.2, "The": 0.2}, 0.75, 0.8),
        ({"Yes": 0.0001, "The": 0.9999}, None, 0.0001),  # nothing is sure of a ten-thousandth
        ({"Yes": 0.9}, None, 0.9),  # the other verdict may have the rest
        ({"Yes": 0.999, "yes": 0.0005, "The": 0.0005}, 1.0, 0.9995),
        ({"The": 1.0}, None, 0.0),
    ],
)
def test_a_stated_verdict_has_a_probability_where_most_of_it_is_told(
    mass: dict[str, float], probability: float | None, whole: float
) -> None:
    sure, share = stated_probability(judgement(mass), "Yes", ("Yes", "No"))
    assert sure == (None if probability is None else pytest.approx(probability, abs=1e-3))
    assert share == pytest.approx(whole)
