"""Fences as a property: whatever texts and labels say, each is read back as it was."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagengine.prompts import Evidence
from dagengine.prompts.evidence import as_text, evidence_of, fence, unfence

_ANY = st.characters(categories=None)  # control characters and lone surrogates, too
_PIECES = [
    "<",
    ">",
    "<<<",
    ">>>",
    "<" * 31,
    "<" * 32,
    "\n",
    "\n\n",
    " ",
    "BEGIN ",
    "END ",
    "a",
    "b",
]
_CRAFTED = st.lists(st.sampled_from([*_PIECES, "<<<END a>>>", "<<<BEGIN b>>>"])).map("".join)
TEXTS = st.one_of(st.text(_ANY), _CRAFTED)
EVIDENCE = st.lists(st.builds(Evidence, TEXTS, TEXTS), max_size=4)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)


@given(EVIDENCE)
def test_evidence_is_read_back_as_it_was_whatever_texts_and_labels_say(
    evidence: list[Evidence],
) -> None:
    assert unfence(fence(evidence)) == evidence


@given(EVIDENCE, EVIDENCE)
def test_different_evidence_never_makes_the_same_prompt(
    one: list[Evidence], other: list[Evidence]
) -> None:
    assert (fence(one) == fence(other)) is (one == other)


@given(st.dictionaries(st.sampled_from(["input", "docs", "a.b"]), VALUES))
def test_fields_of_any_json_are_read_back_from_blocks_of_their_own(fields: dict[str, Any]) -> None:
    evidence = [piece for label, value in fields.items() for piece in evidence_of(label, value)]
    assert unfence(fence(evidence)) == evidence
    for label, value in fields.items():
        if not isinstance(value, list):
            assert [piece.text for piece in evidence if piece.label == label] == [as_text(value)]
        if isinstance(value, dict | float):
            assert json.loads(as_text(value)) == value


@given(EVIDENCE, st.lists(TEXTS, max_size=3))
def test_a_whole_prompt_in_a_text_opens_and_closes_nothing(
    known: list[Evidence], around: list[str]
) -> None:
    """Somebody plants all that the last prompt held, then all that the next one held."""
    planted = fence(known)
    for _ in range(3):
        evidence = [Evidence("input", planted), *(Evidence("docs", text) for text in around)]
        planted = fence(evidence)
        assert unfence(planted) == evidence


@given(EVIDENCE.filter(bool), st.integers(1, len("<<<END >>>")))
def test_a_prompt_whose_last_fence_is_cut_off_is_refused(
    evidence: list[Evidence], cut: int
) -> None:
    with pytest.raises(ValueError, match="not evidence between fences"):
        unfence(fence(evidence)[:-cut])


@given(st.one_of(TEXTS, EVIDENCE.map(fence)))
def test_what_can_be_read_is_just_what_fences_make(text: str) -> None:
    try:
        evidence = unfence(text)
    except ValueError:
        return
    assert fence(evidence) == text
