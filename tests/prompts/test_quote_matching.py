"""Where quotes stand: against a plain matcher, over all of Unicode, and at a size of 10^6."""

from __future__ import annotations

import re
import unicodedata

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dagengine.prompts.quotes import fold, quote_parts, quote_places

MARKS = "\"'`´‘’‚‛“”„‟«»‹›′″‴‵‶「」『』＂＇"  # noqa: RUF001
# Where the plain matcher and a faster one could part: runs, marks, what combines, what is wide.
NASTY = st.sampled_from([*"aAbé.… \t\n\u00a0-–—\u200b\u00ad\u0301\ufe0fﬁ½²Åक्षि好안" + MARKS])  # noqa: RUF001
TEXTS = st.text(st.one_of(NASTY, st.characters()), max_size=40)


def plain(text: str) -> str:
    """The normal form in words of the documents: all of a text at once, without places."""
    marked = "".join("'" if character in MARKS else character for character in text)
    decomposed = unicodedata.normalize("NFKD", marked)
    shown: list[str] = []
    for character in decomposed:
        kind = unicodedata.category(character)
        if character.isspace() or kind == "Cc":
            shown.append(" ")
        elif kind == "Cf" or "\ufe00" <= character <= "\ufe0f" or character >= "\U000e0100":
            continue
        elif kind == "Pd" or character == "−":  # noqa: RUF001
            shown.append("-")
        else:
            shown.append("'" if character in MARKS else character)
    return re.sub(r"(['\- ])\1+", r"\1", "".join(shown))


@given(TEXTS)
@settings(max_examples=400)
@example("e\u0301\u0323 ﬁ")
@example("a\u200b\u0301")
@example("- \u2014 \u00ad -")
def test_the_form_of_a_text_is_that_of_a_plain_normalisation(text: str) -> None:
    assert fold(text).plain == plain(text)


@given(TEXTS)
@settings(max_examples=300)
def test_every_character_of_the_form_is_made_of_what_stands_at_its_place(text: str) -> None:
    form = fold(text)
    assert len(form.plain) == len(form.starts) == len(form.ends)
    for character, start, end in zip(form.plain, form.starts, form.ends, strict=True):
        assert character in plain(text[start:end]) or character in "'- "
        assert 0 <= start < end <= len(text)


@given(st.text(st.characters(), min_size=3, max_size=60), st.data())
@settings(max_examples=300)
def test_what_is_copied_is_found_where_it_was_copied(text: str, data: st.DataObject) -> None:
    words = [match.span() for match in re.finditer(r"\S+", text)]
    if not words:
        return
    first = data.draw(st.integers(0, len(words) - 1))
    last = data.draw(st.integers(first, len(words) - 1))
    quote = text[words[first][0] : words[last][1]]
    if len(quote_parts(quote)) != 1:  # marks and points alone quote nothing
        return
    places = quote_places(quote, fold(text))
    # White space is one character of many: what it stands beside may combine with it.
    if not places:
        assert any(map(unicodedata.combining, unicodedata.normalize("NFKD", text)))
        return
    ((start, end),) = places
    assert plain(text[start:end]).strip("' ") == plain(quote).strip("' ")


@given(st.text("ab ", max_size=40), st.text("ab", min_size=1, max_size=3))
def test_a_short_quote_is_found_as_a_word_wherever_a_plain_search_finds_one(
    text: str, quote: str
) -> None:
    wanted = re.search(rf"(?<![ab]){quote}(?![ab])", text)
    places = quote_places(quote, fold(text))
    assert bool(places) == (wanted is not None)


@given(
    st.lists(st.sampled_from(["one two three", "four five six", "seven eight nine"]), max_size=6)
)
def test_an_ellipsis_joins_two_parts_in_their_order(sentences: list[str]) -> None:
    text = ". ".join(sentences)
    places = quote_places("two three … five six", fold(text))
    in_order = re.search("two three.*five six", text)
    assert bool(places) == (in_order is not None)
    if places:
        assert [text[start:end] for start, end in places] == ["two three", "five six"]


@pytest.mark.parametrize(
    ("quote", "text"),
    [
        ("“It\u2019s  late”", "She said it: 'It's late' and left."),
        ("closed — on Sunday", "closed - on Sunday"),
        ("closed-on Sunday", "closed–on\nSunday"),  # noqa: RUF001
        ("café", "the cafe\u0301 is open"),
        ("fine", "a ﬁne day"),
        ("10 km", "10\u00a0km"),
        ("soft hyphen", "soft hy\u00adphen"),
        ("open … Sunday", "open on Monday and on Sunday"),
        ("open [...] Sunday", "open on Monday and on Sunday"),
        ("wait... what is it", "wait... what is it"),
        ("周日关门", "商店周日关门。"),
        ("42", "It is 42 degrees."),
    ],
)
def test_what_differs_in_writing_only_is_found(quote: str, text: str) -> None:
    assert quote_places(quote, fold(text))


@pytest.mark.parametrize(
    ("quote", "text"),
    [
        ("Open on sunday", "Open on Sunday"),
        ("open on Monday", "open on Sunday"),
        ("no", "nothing is known"),
        ("cafe", "the café"),
        ("Sunday … open", "open on Sunday"),
        ("a … b … c", "a b c"),
        ("o … n", "open on"),
        ("…", "anything"),
        ("", "anything"),
        (" ' ", "any' thing"),
        ("f", "a ﬁne day"),
    ],
)
def test_what_differs_in_words_is_not_found(quote: str, text: str) -> None:
    assert quote_places(quote, fold(text)) == ()


@pytest.mark.parametrize("unit", ["words and more ", "été café ", "好的我们走 ", "''-- "])
def test_a_million_characters_are_searched(unit: str) -> None:
    text = unit * (1_000_000 // len(unit)) + "the very last words"
    ((start, end),) = quote_places("the very last words", fold(text))
    assert text[start:end] == "the very last words"
    assert not quote_places("the very best words", fold(text))


def test_a_text_made_of_near_misses_ends() -> None:
    assert quote_places("é" * 299 + "e", fold("é" * 300_000)) == ()
