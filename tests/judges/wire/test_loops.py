"""Where a text begins to repeat itself."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagengine.judges.wire.refusals_and_loops import ROUNDS, Loop, loop_in

LEAST = 40  # characters
LETTERS = st.text("ab", max_size=30)


def longest_loop(text: str) -> tuple[int, int] | None:
    """The start and the size of the unit, by comparing every unit with the end."""
    found: tuple[int, int] | None = None
    for size in range(1, len(text) // ROUNDS + 1):
        start = len(text) - size
        while start > 0 and text[start - 1] == text[start - 1 + size]:
            start -= 1
        length = len(text) - start
        if length >= max(ROUNDS * size, LEAST) and (found is None or start < found[0]):
            found = (start, size)
    return found


@given(LETTERS, st.text("abc \n", min_size=1, max_size=20), st.integers(ROUNDS, 9), st.data())
def test_what_is_repeated_until_the_end_is_found(
    before: str, unit: str, rounds: int, data: st.DataObject
) -> None:
    part = unit[: data.draw(st.integers(0, len(unit) - 1))]
    text = before + unit * rounds + part
    loop = loop_in(text)
    if len(text) - len(before) < LEAST:
        return
    assert loop is not None
    assert loop.start <= len(before)
    size = len(loop.unit)
    assert text[loop.start : loop.start + size] == loop.unit
    assert text[loop.start + size :] == text[loop.start : -size]


@given(st.one_of(LETTERS, st.text("ab", min_size=40, max_size=70)))
def test_it_is_the_loop_that_begins_first_with_its_shortest_unit(text: str) -> None:
    expected = longest_loop(text)
    loop = loop_in(text)
    assert (loop and (loop.start, len(loop.unit))) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "The answer is good.",
        "Well ..............................",
        "100000000000000000000",
        "It is good. It is good. It is bad, for these reasons and for several others.",
    ],
)
def test_a_text_that_ends_otherwise_has_no_loop(text: str) -> None:
    assert loop_in(text) is None


def test_blanks_without_an_end_are_a_loop_of_blanks() -> None:
    loop = loop_in('{"verdict":' + " \n" * 50)
    assert loop == Loop(11, " \n")


def test_of_a_very_long_text_the_end_is_looked_at() -> None:
    text = "start " + "so it is, and " * 5_000
    loop = loop_in(text)
    assert loop is not None
    assert len(text) - 20_000 == loop.start
    assert sorted(loop.unit) == sorted("so it is, and ")
