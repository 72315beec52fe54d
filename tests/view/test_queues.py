"""Samples of cases to label: seeded, and never empty."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagengine.errors import InputError
from dagengine.view.queues import sample


@given(st.integers(1, 30), st.integers(1, 40), st.text(max_size=4))
def test_a_sample_is_the_beginning_of_a_greater_one(size: int, count: int, seed: str) -> None:
    small, great = sample(range(size), count, seed), sample(range(size), count + 3, seed)
    assert great[: len(small)] == small
    assert len(set(small)) == len(small) == min(size, count)


def test_an_empty_sample_is_refused() -> None:
    with pytest.raises(InputError, match="at least one case"):
        sample(range(3), 0, "")
