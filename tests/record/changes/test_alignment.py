"""Cases of two runs are paired by content, whatever their order."""

from __future__ import annotations

from collections import Counter
from itertools import zip_longest

from hypothesis import given
from hypothesis import strategies as st

from dagengine.record.changes.diff import Alignment, pairs_of_keys

KEYS = st.lists(st.sampled_from("abcd"), max_size=8)


def aligned(old: list[str], new: list[str]) -> tuple[list[tuple[int, int]], Alignment]:
    alignment, found = Alignment(), []
    for place, (one, other) in enumerate(zip_longest(old, new)):
        pairs = (
            None if one is None else alignment.offer(0, place, one),
            None if other is None else alignment.offer(1, place, other),
        )
        found += [pair for pair in pairs if pair is not None]
    return found, alignment


@given(KEYS, KEYS)
def test_equal_keys_are_paired_and_the_rest_is_left(old: list[str], new: list[str]) -> None:
    pairs, alignment = aligned(old, new)
    assert all(old[one] == new[other] for one, other in pairs)
    common = Counter(old) & Counter(new)
    assert Counter(old[one] for one, _ in pairs) == common
    assert len({one for one, _ in pairs}) == len({other for _, other in pairs}) == len(pairs)
    assert Counter(old[place] for place in alignment.left(0)) == Counter(old) - common
    assert Counter(new[place] for place in alignment.left(1)) == Counter(new) - common


def test_copies_of_a_case_are_paired_in_their_order() -> None:
    pairs, _ = aligned(["a", "b", "a"], ["a", "a", "b"])
    assert sorted(pairs) == [(0, 0), (1, 2), (2, 1)]


def test_only_what_is_alone_in_both_runs_is_paired_by_what_is_left() -> None:
    old = {0: "a", 1: "b", 2: "b", 3: None}
    new = {5: "b", 6: "a", 7: None}
    assert list(pairs_of_keys(old, new)) == [(0, 6)]
