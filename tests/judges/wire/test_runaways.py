"""Answers without an end: bounded, told apart, and never asked for again in the same words."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from servers.asking import Asked, ask, question, standing_in
from servers.openai_server import Json, OpenAIServer, Reply, valid_reply

from dagengine.errors import RunawayError, UnparseableError
from dagengine.gateway.gateway import Gateway, Limits
from dagengine.judges import OpenAIJudge
from dagengine.prompts.answer_types import judgement_type, list_type, output_type, rating_type
from dagengine.question import FirstMatch, Options

pytestmark = pytest.mark.anyio

OK = '{"reason": "because", "verdict": "Yes"}'
SHAPES = (
    judgement_type(("Yes", "No")),
    rating_type(1, 5),
    list_type(("yes", "no"), 2),
    output_type(str),
    output_type(list[str]),
)
LIMITS = ("max_tokens", "max_completion_tokens")
HINTS = ("max_tokens", "Options", "reasoning_effort", "--", "temperature", "disable_any")
CUT = '{"reason": "It is so because ' + "of this, of that, of those, " * 2
LOOP = '{"reason": "' + "on and on, " * 40
BLANKS = '{"reason":' + " \n" * 300


def messages(asked: Asked) -> list[str]:
    return [json.dumps(body["messages"]) for body in asked.requests]


def assert_never_the_same_and_no_hints(asked: Asked) -> None:
    sent = messages(asked)
    assert len(set(sent)) == len(sent)
    assert not [hint for hint in HINTS for text in sent if hint in text]


@pytest.mark.parametrize("shape", SHAPES)
async def test_every_request_has_bounds_and_a_token_limit_above_them(shape: Any) -> None:
    asked = await ask(valid_reply, question(shape=shape))
    body = asked.requests[0]
    schema = body["response_format"]["json_schema"]["schema"]
    bounds = [int(part) for part in _numbers(schema, "maxLength")]
    assert bounds or shape is output_type(bool)
    assert body["max_tokens"] > max(bounds)
    # What the schema allows for one text of every field is below the limit.
    assert body["max_tokens"] >= 64 + sum(bounds)


def _numbers(part: Any, key: str) -> list[Any]:
    if isinstance(part, list):
        return [found for inner in part for found in _numbers(inner, key)]
    if not isinstance(part, dict):
        return []
    own = [part[key]] if isinstance(part.get(key), int) else []
    return own + [found for inner in part.values() for found in _numbers(inner, key)]


@pytest.mark.parametrize("text", ["plain", "json_schema", "tool_choice"])
async def test_the_bounds_hold_in_every_way_of_asking(text: str) -> None:
    rejected = {"plain": (), "json_schema": ("json_schema",)}.get(
        text, ("json_schema", "tool_choice")
    )

    def respond(body: Json) -> Reply:
        refused = [word for word in rejected if word in body or word in str(body)[-9_000:]]
        kinds = [word for word in refused if word != "json_schema" or "response_format" in body]
        return Reply(f"unknown: {kinds[0]}", status=400) if kinds else Reply(OK)

    asked = await ask(respond)
    assert '"maxLength": 400' in json.dumps(asked.requests[-1]).replace('\\"', '"')
    assert asked.requests[-1]["max_tokens"] > 400


async def test_openai_itself_is_sent_no_bounds_and_no_limit_that_nobody_set() -> None:
    there = "https://api.openai.com/v1"
    with OpenAIServer(valid_reply) as server, standing_in(server, there) as client:
        judge = OpenAIJudge("m", client=client)
        for shape in SHAPES:
            with suppress(UnparseableError):  # the server's list of verdicts numbers none
                await judge.answer(question(shape=shape))
        await judge.answer(question(options=Options(max_tokens=70)))
        await judge.answer(question().with_notes(max_tokens=80))
        await client.close()
    for body in server.requests[: len(SHAPES)]:
        assert not body.keys() & {*LIMITS}
        assert "maxLength" not in json.dumps(body["response_format"])
    assert not [
        n for body in server.requests for n in _numbers(body["response_format"], "maxItems")
    ]
    assert [body["max_tokens"] for body in server.requests[-2:]] == [70, 80]


async def test_a_model_that_knows_the_limit_by_its_new_name_is_told_by_that_name() -> None:
    def respond(body: Json) -> Reply:
        if "max_tokens" in body:
            return Reply(
                "Unsupported parameter: 'max_tokens' is not supported with this model. Use "
                "'max_completion_tokens' instead.",
                status=400,
            )
        return Reply(OK)

    with OpenAIServer(respond) as server:
        judge = OpenAIJudge("m", base_url=server.base_url)
        for text in ("a", "b"):
            await judge.answer(question(text, options=Options(max_tokens=90)))
        given = OpenAIJudge("m", base_url=server.base_url, parameters={"max_tokens": 5})
        await given.answer(question())
    sent = [{name: body[name] for name in LIMITS if name in body} for body in server.requests]
    old, new = LIMITS
    assert sent == [{old: 90}, {new: 90}, {new: 90}, {old: 5}, {new: 5}]


@pytest.mark.parametrize(
    "message",
    [
        "'max_tokens' or 'max_completion_tokens' is too large: 700. This model's maximum context "
        "length is 512 tokens and your request has 300 input tokens (700 > 512 - 300).",
        "This model's maximum context length is 512 tokens. However, you requested 900 tokens (300 "
        "in the messages, 600 in the completion).",
        "`inputs` tokens + `max_new_tokens` must be <= 512.",
    ],
)
async def test_a_limit_that_no_window_has_room_for_is_left_out_and_remembered(message: str) -> None:
    def respond(body: Json) -> Reply:
        too_many = body.get("max_tokens", 0) > 500
        return Reply(message, status=400) if too_many else valid_reply(body)

    with OpenAIServer(respond) as server:
        judge = OpenAIJudge("m", base_url=server.base_url)
        for text in ("a", "b"):
            await judge.answer(question(text, output_type(str)))
        await judge.answer(question(shape=judgement_type(None), options=Options(max_characters=9)))
    sent: list[Any] = [body.get("max_tokens") for body in server.requests]
    assert sent[0] > 500
    assert sent[1:3] == [None, None]  # nothing that large again
    assert sent[3] < 500


@pytest.mark.parametrize("text", [CUT, '{"reason": "r", "verd', OK])
async def test_a_cut_answer_is_asked_for_once_more_shorter(text: str) -> None:
    asked = await ask(Reply(text, finish_reason="length"))
    assert isinstance(asked.error, RunawayError)
    assert (asked.error.cause, asked.error.raw) == ("cut", text)
    assert "cut off at the token limit of" in str(asked.error)
    assert "--max-tokens" in str(asked.error)
    assert asked.outcomes == ["unparseable"] * 2
    assert_never_the_same_and_no_hints(asked)
    shown = asked.requests[1]["messages"][-2:]
    assert [message["role"] for message in shown] == ["assistant", "user"]
    assert len(shown[0]["content"]) < 120
    assert "shorter" in shown[1]["content"]


async def test_the_shorter_answer_counts() -> None:
    asked = await ask([Reply(CUT, finish_reason="length"), Reply(OK)])
    assert asked.value["verdict"] == "Yes"
    assert asked.outcomes == ["unparseable", "ok"]


async def test_an_invalid_answer_is_told_what_was_wrong_and_a_cut_one_after_it_is_not() -> None:
    replies = [Reply('{"verdict": "Maybe"}'), Reply(CUT, finish_reason="length")]
    asked = await ask(replies, limits=Limits(reasks=5))
    assert isinstance(asked.error, RunawayError)
    assert len(asked.requests) == 3
    assert_never_the_same_and_no_hints(asked)
    assert "Maybe" in messages(asked)[1]


@pytest.mark.parametrize(
    ("text", "said"),
    [(LOOP, "'on and on, ' 40 times"), (BLANKS, "characters are blank")],
    ids=["loop", "blanks"],
)
@pytest.mark.parametrize("end", ["length", "stop"])
async def test_an_answer_that_repeats_itself_is_called_so(text: str, said: str, end: str) -> None:
    asked = await ask(Reply(text, finish_reason=end))
    assert isinstance(asked.error, RunawayError)
    assert asked.error.cause == "loop"
    assert "the answer repeats itself" in str(asked.error)
    assert said in str(asked.error)
    assert len(asked.requests) == 2
    assert_never_the_same_and_no_hints(asked)
    assert messages(asked)[1].count("on and on, ") < 10


async def test_blanks_after_a_complete_answer_take_nothing_from_it() -> None:
    asked = await ask(Reply(OK + "\n" * 500, finish_reason="length"))
    assert asked.value["verdict"] == "Yes"
    assert len(asked.requests) == 1


def thinking(needs: int, **reply: Any) -> Callable[[Json], Reply]:
    """A model that thinks so many tokens before it answers."""

    def respond(body: Json) -> Reply:
        if body.get("max_tokens", 10**6) < needs:
            return Reply(finish_reason="length", **reply)
        return Reply(OK)

    return respond


@pytest.mark.parametrize(
    "reply",
    [
        {"content": "", "reasoning": "Let me see"},
        {"content": None, "reasoning": "Let me see"},
        {"content": "<think>Let me see"},
        {"content": ""},
    ],
)
async def test_thoughts_that_leave_no_room_get_room_and_the_next_question_has_it(
    reply: Json,
) -> None:
    with OpenAIServer(thinking(5_000, **reply)) as server:
        judge = OpenAIJudge("m", base_url=server.base_url)
        answer = await judge.answer(question("a"))
        assert answer.value.verdict == "Yes"
        await judge.answer(question("b"))
        await judge.answer(question("c", options=Options(max_tokens=50)))
    first, again, next_one, own = [body["max_tokens"] for body in server.requests]
    assert first < 1_000
    assert again == next_one > 5_000
    assert own == again - first + 50
    assert server.requests[0]["messages"] == server.requests[1]["messages"]
    assert answer.usage.input_tokens > 1


async def test_thoughts_without_an_end_are_final_and_name_the_remedy() -> None:
    asked = await ask(thinking(10**9, content="", reasoning="Let me see, " * 9))
    assert isinstance(asked.error, RunawayError)
    assert asked.error.cause == "thinking"
    assert "reasoning_effort" in str(asked.error)
    assert [body["max_tokens"] > 10_000 for body in asked.requests] == [False, True]
    assert asked.outcomes == ["unparseable"]
    assert asked.ledger[0].usage.input_tokens == asked.error.tokens[0] > 0
    assert_no_hint_was_sent(asked)


def assert_no_hint_was_sent(asked: Asked) -> None:
    assert not [hint for hint in HINTS for text in messages(asked) if hint in text]


async def test_a_limit_of_the_caller_is_not_raised_for_thoughts() -> None:
    asked = await ask(thinking(5_000, content=""), parameters={"max_tokens": 9})
    assert isinstance(asked.error, RunawayError)
    assert [body["max_tokens"] for body in asked.requests] == [9]


async def test_the_limit_of_a_run_holds_where_a_node_says_nothing() -> None:
    with OpenAIServer(valid_reply) as server:
        judge = OpenAIJudge("m", base_url=server.base_url)
        gateway = Gateway(Limits(max_tokens=77))
        await gateway.ask(judge, question("a"))
        await gateway.ask(judge, question("b", options=Options(max_tokens=55)))
        await gateway.ask(
            OpenAIJudge("m", base_url=server.base_url, parameters={"max_tokens": 33}), question("c")
        )
    assert [body["max_tokens"] for body in server.requests] == [77, 55, 33]


async def test_prose_for_a_parser_has_a_limit_and_a_cut_one_is_not_read() -> None:
    found = FirstMatch((("yes", True),))
    prose = question(shape=judgement_type(None), parser=found)
    asked = await ask(Reply("yes, but", finish_reason="length"), prose)
    assert isinstance(asked.error, UnparseableError)
    assert asked.requests[0]["max_tokens"] > 2_000
