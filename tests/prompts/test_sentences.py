"""Sentences of a text: what ends one, and what only looks like an end."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagengine.prompts.evidence import sentences


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", []),
        ("No full stop", ["No full stop"]),
        ("It rained. We stayed.", ["It rained.", "We stayed."]),
        ("it rained. we stayed.", ["it rained.", "we stayed."]),
        ("eBay fell. iPhones rose.", ["eBay fell.", "iPhones rose."]),
        ("Pi is 3.14. Dr. J. Smith said so!", ["Pi is 3.14.", "Dr. J. Smith said so!"]),
        (
            "See No. 5 of the U.S. report. It is new.",
            ["See No. 5 of the U.S. report.", "It is new."],
        ),
        ("He works at Acme Inc. in Ohio.", ["He works at Acme Inc. in Ohio."]),
        ("Fig. 3 shows it (see pp. 3-4).", ["Fig. 3 shows it (see pp. 3-4)."]),
        ("Is it open? No. Why?", ["Is it open?", "No.", "Why?"]),
        ("The plan is A. The other is B.", ["The plan is A.", "The other is B."]),
        ('He said "stop." She did.', ['He said "stop."', "She did."]),
        ("e.g. this, etc. and that.", ["e.g. this, etc. and that."]),
        ("1. First\n2. Second", ["1. First", "2. Second"]),
        ("1.2. Scope. More of it.", ["1.2. Scope.", "More of it."]),
        ("- apples\n- pears", ["- apples", "- pears"]),
        ("Title\nText here. More", ["Title", "Text here.", "More"]),
        ("a line that\r\nis  wrapped. Next.", ["a line that is wrapped.", "Next."]),
        ("今日は雨。明日は晴れ。", ["今日は雨。", "明日は晴れ。"]),
        ("One...\n\n---\nTwo", ["One...", "Two"]),
        ("half a \ud800 character. Next.", ["half a \ufffd character.", "Next."]),
    ],
)
def test_a_text_is_told_apart_into_its_sentences(text: str, found: list[str]) -> None:
    assert sentences(text) == found


@given(st.text())
def test_no_letter_is_lost_or_made_up(text: str) -> None:
    def letters(one: str) -> list[str]:
        return [character for character in one if character.isalnum()]

    found = sentences(text)
    assert letters("".join(found)) == letters(text)
    assert all(letters(sentence) for sentence in found)
