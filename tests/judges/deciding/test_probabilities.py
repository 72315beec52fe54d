"""Token probabilities are found in the bytes of a completion as reading all of them would."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from servers.openai_server import Json, Reply, completion_of

from dagengine.judges.wire.completions import Completion
from dagengine.judges.wire.logprobs import tokens_of
from dagengine.prompts.answer_types import rating_type
from dagengine.question import FirstMatch, Message, Question, TokenChoice

SHAPE = rating_type(1, 5)
RAW = '{"reason": "r", "score": 4}'
PIECES = ['{"reason": "', "r", '", "score": ', "4", "}"]
TEXTS = st.one_of(
    st.sampled_from(['"top_logprobs":', '"top_logprobs"', "top_logprobs", "]", '"', "\\", "é🙂"]),
    st.text(st.characters(exclude_categories=["Cs"])),
)
ALTERNATIVES = st.lists(
    st.fixed_dictionaries({"token": TEXTS, "logprob": st.floats(-50, 0)}), max_size=4
)


def question(**more: Any) -> Question[Any]:
    return Question((Message(role="user", content="t"),), SHAPE, **more)


def body(entries: list[Json], **settings: Any) -> bytes:
    reply = Reply(RAW, logprobs=entries)
    return json.dumps(completion_of({"messages": []}, reply), **settings).encode()


def entries(alternatives: list[Any]) -> list[Json]:
    return [
        {"token": piece, "logprob": 0.0, "top_logprobs": found}
        for piece, found in zip(PIECES, alternatives, strict=True)
    ]


def expected(found: list[Any], kept: set[int]) -> tuple[TokenChoice, ...]:
    pairs = [tuple((one["token"], one["logprob"]) for one in each or ()) for each in found]
    return tuple(
        TokenChoice(piece, pairs[index] if index in kept else ())
        for index, piece in enumerate(PIECES)
    )


@given(
    st.lists(ALTERNATIVES, min_size=5, max_size=5),
    st.sampled_from([None, 2]),
    st.booleans(),
)
def test_the_alternatives_of_the_score_are_those_that_were_sent(
    found: list[list[Json]], indent: int | None, ascii_only: bool
) -> None:
    content = body(entries(found), indent=indent, ensure_ascii=ascii_only)
    assert tokens_of(Completion.read(content), question(), RAW) == expected(found, {3})


def test_a_parser_is_given_all_of_them() -> None:
    found: list[Any] = [[{"token": str(index), "logprob": -1.0}] for index in range(5)]
    asked = question(parser=FirstMatch(((r"\d", None),)))
    assert tokens_of(Completion.read(body(entries(found))), asked, RAW) == expected(
        found, set(range(5))
    )


@pytest.mark.parametrize("place", [0, 3, 4])
def test_a_token_without_alternatives_shifts_none_of_the_others(place: int) -> None:
    found: list[Any] = [[{"token": str(index), "logprob": -1.0}] for index in range(5)]
    sent = entries(found)
    del sent[place]["top_logprobs"]
    found[place] = None
    assert tokens_of(Completion.read(body(sent)), question(), RAW) == expected(found, {3})
    sent[place]["top_logprobs"] = None
    assert tokens_of(Completion.read(body(sent)), question(), RAW) == expected(found, {3})


def test_a_key_of_that_name_elsewhere_is_not_taken_for_a_tokens_own() -> None:
    found: list[Any] = [[{"token": str(index), "logprob": -1.0}] for index in range(5)]
    whole = json.loads(body(entries(found)))
    echoed = json.dumps({"request": {"top_logprobs": 20}, **whole}).encode()
    assert tokens_of(Completion.read(echoed), question(), RAW) == expected(found, {3})


@pytest.mark.parametrize("wrong", ["none", [1], [{"token": "4"}], [{"token": 4, "logprob": 0}]])
def test_alternatives_in_another_form_are_none(wrong: Any) -> None:
    sent = entries([[], [], [], wrong, []])
    assert tokens_of(Completion.read(body(sent)), question(), RAW) is None
