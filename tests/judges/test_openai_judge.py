"""The judge behind the OpenAI chat protocol, against a real HTTP server."""

from __future__ import annotations

import asyncio
import gc
import json
import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import anyio
import pytest
from aiohttp import web
from servers.asking import FAST, LIMIT, OK, SHAPE, VERDICTS, Respond, ask, question, standing_in
from servers.openai_server import Json, OpenAIServer, Reply, completion_of, valid_reply

from dagengine import Limits, a_evaluate
from dagengine.errors import (
    JudgeError,
    JudgeSetupError,
    ProviderError,
    RefusedError,
    TooLongError,
    UnparseableError,
)
from dagengine.gateway import Gateway
from dagengine.judges import OpenAIJudge
from dagengine.judges.wire.completions import Completion
from dagengine.metrics.dag import DAG, DAGMetric, NonBinaryJudgementNode, RatingNode
from dagengine.prompts.answer_types import judgement_type, output_type, rating_type
from dagengine.question import Capabilities, FirstMatch, Options, Question, Usage, Warmth
from dagengine.results import Attempt, OutcomeKind
from dagengine.test_case import LLMTestCase

pytestmark = pytest.mark.anyio


def form(body: Json) -> str:
    """The way in which a request asks for structure."""
    if "tools" in body:
        return "tools"
    return str((body.get("response_format") or {}).get("type"))


async def test_a_valid_answer_comes_back_with_its_text_usage_and_mode() -> None:
    asked = await ask(Reply(OK))
    assert asked.value == {"reason": "because", "verdict": "Yes"}
    assert asked.answer is not None
    assert (asked.answer.raw, asked.answer.mode, asked.answer.tokens) == (OK, "json_schema", None)
    assert asked.answer.usage.input_tokens > 0
    assert asked.gateway.totals.usage == asked.answer.usage
    assert asked.outcomes == ["ok"]


async def test_the_prompt_goes_out_as_it_was_written() -> None:
    text = 'braces {{ x }} {% y %} {z} %s "quotes" \\ \n\ttabs \u2028 é 🙂 <<<END text>>>\x00'
    asked = question(text)
    got = await ask(Reply(OK), asked)
    assert got.requests[0]["messages"] == list(asked.messages)


async def test_a_request_says_the_model_and_the_options_and_nothing_that_was_not_asked() -> None:
    options = Options(temperature=0.5, seed=7, max_tokens=99, top_logprobs=3)
    body = (await ask(Reply(OK), question(options=options))).requests[0]
    body.pop("messages")
    body.pop("response_format")
    assert body == {
        "model": "test-model",
        "temperature": 0.5,
        "seed": 7,
        "max_tokens": 99,
        "logprobs": True,
        "top_logprobs": 3,
    }
    bare = (await ask(Reply(OK), question(options=Options(temperature=None)))).requests[0]
    assert set(bare) == {"model", "messages", "response_format", "max_tokens"}


async def test_parameters_of_ones_own_are_in_every_request() -> None:
    body = (await ask(Reply(OK), parameters={"top_p": 0.1, "temperature": 1.0})).requests[0]
    assert (body["top_p"], body["temperature"]) == (0.1, 1.0)


async def test_the_schema_asks_for_the_reason_first_and_the_verdicts_in_their_order() -> None:
    body = (await ask(Reply(OK))).requests[0]
    schema = body["response_format"]["json_schema"]["schema"]
    assert list(schema["properties"]) == ["reason", "verdict"]
    assert schema["required"] == ["reason", "verdict"]
    assert schema["properties"]["verdict"]["enum"] == list(VERDICTS)


async def test_a_servers_example_of_every_answer_type_is_accepted() -> None:
    for shape in (SHAPE, judgement_type(None), rating_type(3, 7), output_type(list[str])):
        assert (await ask(valid_reply, question(shape=shape))).outcomes == ["ok"]


@pytest.mark.parametrize("given", [" yes", "Yes.", "**YES**", '\\"yes\\"'])
async def test_a_near_miss_is_understood_without_a_second_call(given: str) -> None:
    asked = await ask(Reply(f'{{"reason": "r", "verdict": "{given}"}}'))
    assert asked.value["verdict"] == "Yes"
    assert len(asked.requests) == 1


@pytest.mark.parametrize(
    "text",
    [
        f"```json\n{OK}\n```",
        f"```\n{OK}\n```",
        f'<think>perhaps {{"reason": "x", "verdict": "No"}}</think>\n\n{OK}',
        f"<think>perhaps</think>\n```json\n{OK}\n```",
        f'<think>the answer is {{"reason": "unfinished</think>{OK}',
        f"<THINK>[1] of the set {{yes, no\n</THINK>\n{OK}",
        f"of the set {{yes, no\n</think>\n\n{OK}",  # some servers give the opening tag away
        f"Here is my answer:\n{OK}\nI hope that this helps.",
        f"\n\n  {OK}  \n",
        "{'reason': 'because', 'verdict': 'Yes',}",
    ],
)
async def test_the_answer_is_found_in_what_plain_text_models_put_around_it(text: str) -> None:
    asked = await ask(Reply(text))
    assert asked.value == {"reason": "because", "verdict": "Yes"}
    assert len(asked.requests) == 1


async def test_an_answer_that_does_not_fit_is_asked_for_again_with_what_was_wrong() -> None:
    wrong = '{"reason": "r", "verdict": "Perhaps"}'
    asked = await ask([Reply(wrong), Reply(OK)])
    assert asked.value["verdict"] == "Yes"
    first, second = asked.requests
    assert second["messages"][: len(first["messages"])] == first["messages"]
    reply, complaint = second["messages"][len(first["messages"]) :]
    assert reply == {"role": "assistant", "content": wrong}
    assert complaint["role"] == "user"
    for part in ("verdict", "'Yes', 'Partly' or 'No'", "'Perhaps'"):
        assert part in complaint["content"]
    assert asked.outcomes == ["unparseable", "ok"]


async def test_garbage_is_asked_for_again_only_so_often_and_then_kept_as_raw_text() -> None:
    asked = await ask([Reply("garbage one"), Reply("garbage two"), Reply("garbage three")])
    assert isinstance(asked.error, UnparseableError)
    assert asked.error.raw == "garbage three"
    assert asked.outcomes == ["unparseable"] * 3
    assert len(asked.requests) == 3
    assert asked.requests[1]["messages"][-2]["content"] == "garbage one"
    # The tokens of answers that did not fit were paid for like any other.
    used = asked.gateway.totals.usage
    assert used.output_tokens == 6
    assert used == sum((attempt.usage for attempt in asked.ledger), Usage())


async def test_an_unparseable_answer_is_in_the_result_with_its_raw_text() -> None:
    tree = DAG(
        NonBinaryJudgementNode("ok?", evaluation_params=["input"], then={"Yes": 10, "No": 0})
    )
    with OpenAIServer(lambda body: Reply("I would rather not say")) as server:
        judge = OpenAIJudge("m", base_url=server.base_url)
        case = LLMTestCase(input="i")
        result = await a_evaluate([case], [DAGMetric("m", tree)], model=judge, show=False)
    failure = result.rows[0].metrics[0].failure
    assert failure is not None
    assert (failure.kind, failure.raw) == (OutcomeKind.UNPARSEABLE, "I would rather not say")


@pytest.mark.parametrize("score", ["0", "11", "15", "-1", "7.5", '"eight"', "true", "null"])
async def test_a_rating_off_the_scale_is_asked_for_again_and_never_clamped(score: str) -> None:
    wrong, right = f'{{"reason": "r", "score": {score}}}', '{"reason": "r", "score": 4}'
    asked = await ask([Reply(wrong), Reply(right)], question(shape=rating_type(1, 10)))
    assert asked.value["score"] == 4
    assert len(asked.requests) == 2
    assert "score" in asked.requests[1]["messages"][-1]["content"]
    stubborn = await ask(Reply(wrong), question(shape=rating_type(1, 10)))
    assert isinstance(stubborn.error, UnparseableError)
    assert stubborn.error.raw == wrong


_REFUSALS = [
    Reply(None, refusal="I cannot help with that"),
    Reply("", finish_reason="content_filter"),
    Reply(OK, finish_reason="content_filter"),
    Reply(
        status=400,
        body=json.dumps({"error": {"message": "policy", "code": "content_filter"}}),
    ),
]


@pytest.mark.parametrize("reply", _REFUSALS)
async def test_a_refusal_is_final(reply: Reply) -> None:
    asked = await ask(reply)
    assert isinstance(asked.error, RefusedError)
    assert asked.outcomes == ["judge_refused"]
    assert len(asked.requests) == 1


@pytest.mark.parametrize("finish_reason", ["error", "abort"])
async def test_an_answer_that_the_server_broke_off_is_no_answer_however_whole_it_looks(
    finish_reason: str,
) -> None:
    asked = await ask(Reply(OK, finish_reason=finish_reason))
    assert isinstance(asked.error, ProviderError)
    assert set(asked.outcomes) == {"provider_error"}
    assert f"finish_reason '{finish_reason}'" in str(asked.error)


async def test_the_tokens_of_a_refusal_are_counted() -> None:
    asked = await ask(Reply(None, refusal="I cannot help with that"))
    assert asked.gateway.totals.usage.input_tokens > 0
    assert asked.ledger[0].usage == asked.gateway.totals.usage


@pytest.mark.parametrize("text", ['{"reason": "r", "verd', "", OK])
async def test_an_answer_cut_off_at_the_token_limit_is_unparseable_and_says_why(text: str) -> None:
    asked = await ask(Reply(text, finish_reason="length"))
    assert isinstance(asked.error, UnparseableError)
    assert "cut off at the token limit" in str(asked.error)
    assert asked.error.raw == text
    assert set(asked.outcomes) == {"unparseable"}


async def test_a_text_that_was_to_be_short_is_not_cut_off() -> None:
    first = FirstMatch((("^m", "Yes"), ("^M", "No")))
    one = question(parser=first, options=Options(max_tokens=1))
    with OpenAIServer(lambda body: Reply("m", finish_reason="length")) as server:
        answer = await OpenAIJudge("m", base_url=server.base_url).answer(one)
    assert answer.raw == "m"


@pytest.mark.parametrize(
    "failure",
    [
        Reply("slow down", status=429, headers={"Retry-After": "0"}),
        Reply("overloaded", status=500),
        Reply("overloaded", status=503),
        Reply(drop=True),
    ],
)
async def test_a_transient_failure_is_tried_again_and_counted(failure: Reply) -> None:
    asked = await ask([failure, failure, Reply(OK)])
    assert asked.value["verdict"] == "Yes"
    assert asked.outcomes == ["provider_error", "provider_error", "ok"]
    totals = asked.gateway.totals
    assert (totals.calls, totals.retried, totals.failed) == (3, 2, 2)
    assert len(asked.requests) == 3  # nobody else retries behind the gateway's back
    assert all(body["messages"] == asked.requests[0]["messages"] for body in asked.requests)


@pytest.mark.parametrize("failure", [Reply("overloaded", status=503), Reply(drop=True)])
async def test_a_failure_that_does_not_pass_ends_after_the_attempts_allowed(failure: Reply) -> None:
    asked = await ask(failure)
    assert isinstance(asked.error, ProviderError)
    assert asked.error.transient
    assert asked.outcomes == ["provider_error"] * 3
    assert len(asked.requests) == 3


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "7"}, 7.0),
        ({"Retry-After": "1.5"}, 1.5),
        ({"retry-after-ms": "250", "Retry-After": "1"}, 0.25),
        ({"Retry-After": "soon"}, None),
        ({"Retry-After": "²"}, None),
        ({"Retry-After": "٣"}, None),
        ({"Retry-After": "-1"}, None),
        ({"Retry-After": "1e3"}, None),
        ({"Retry-After": "inf"}, None),
        ({"Retry-After": "."}, None),
        ({"Retry-After": "9" * 400}, None),
        ({"Retry-After": "Thu, 99 Foo 99999 99:99:99 GMT"}, None),
        ({}, None),
    ],
)
async def test_the_seconds_to_wait_are_those_that_the_provider_asked_for(
    headers: dict[str, str], seconds: float | None
) -> None:
    asked = await ask(Reply("slow", status=429, headers=headers), limits=Limits(attempts=1))
    assert asked.error.retry_after == seconds


async def test_a_date_to_wait_for_is_understood_too() -> None:
    date = format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)
    asked = await ask(
        Reply("slow", status=429, headers={"Retry-After": date}), limits=Limits(attempts=1)
    )
    assert asked.error.retry_after is not None
    assert 3000 < asked.error.retry_after <= 3600


@pytest.mark.parametrize(("status", "hint"), [(400, "boom"), (401, "API key"), (404, "address")])
async def test_a_rejected_request_is_final_and_says_what_to_check(status: int, hint: str) -> None:
    asked = await ask(Reply("boom", status=status))
    assert isinstance(asked.error, ProviderError)
    assert (asked.error.status, asked.error.transient) == (status, False)
    assert f"HTTP {status}: boom" in str(asked.error)
    assert hint in str(asked.error)
    # Words that nobody knows may be about a demand, of which each is left out once.
    assert len(asked.requests) == 1 if status == 401 else 1 < len(asked.requests) < 10
    assert asked.gateway.totals.calls == 1


async def test_an_empty_account_is_final_though_its_status_is_429() -> None:
    body = {"error": {"message": "you are out of credit", "code": "insufficient_quota"}}
    asked = await ask(Reply(status=429, body=json.dumps(body)))
    assert "out of credit" in str(asked.error)
    assert len(asked.requests) == 1


_NO_COMPLETIONS = [
    Reply(body="<html>Sign in</html>", headers={"Content-Type": "text/html"}),
    Reply(body="<html>Sign in</html>"),
    Reply(body="not JSON"),
    Reply(body=""),
    Reply(body='"a plain string"'),
    Reply(body="a plain string", headers={"Content-Type": "text/plain"}),
    Reply(body='{"choices": []}'),
    Reply(body='{"choices": null}'),
    Reply(body='{"choices": [{"index": 0, "finish_reason": "stop"}]}'),
    Reply(body="{}"),
    Reply(body="[]"),
    Reply(body="null"),
]


@pytest.mark.parametrize("structured", [True, False], ids=["structured", "text"])
@pytest.mark.parametrize("reply", _NO_COMPLETIONS, ids=lambda reply: reply.body)
async def test_what_is_no_completion_is_a_provider_error(reply: Reply, structured: bool) -> None:
    parser = None if structured else FirstMatch((("Yes", "Yes"),))
    asked = await ask(reply, question(parser=parser))
    assert isinstance(asked.error, ProviderError)
    assert not asked.error.transient
    assert asked.outcomes == ["provider_error"]
    assert asked.gateway.totals.calls == len(asked.requests) == 1
    # Written for people: not the name of an exception from somewhere below.
    assert str(asked.error).startswith("the endpoint ")


async def test_a_question_with_a_parser_asks_for_plain_text() -> None:
    parser = FirstMatch(((r"therefore: (\w+)", None),))
    asked = await ask(Reply("Well, therefore: Partly"), question(parser=parser))
    assert asked.value["verdict"] == "Partly"
    assert asked.answer is not None
    assert (asked.answer.mode, form(asked.requests[0])) == ("text", "None")


async def test_a_text_without_what_the_parser_looks_for_is_asked_for_again() -> None:
    parser = FirstMatch((("Yes", "Yes"),))
    asked = await ask([Reply("hm"), Reply("Yes!")], question(parser=parser))
    assert asked.value["verdict"] == "Yes"
    assert len(asked.requests) == 2


def without(*forms: str) -> Respond:
    """A server that knows none of these ways of asking for structure."""

    def respond(body: Json) -> Reply:
        if form(body) in forms:
            return Reply(f"unknown parameter: response_format/{form(body)}", status=400)
        return Reply(OK)

    return respond


@pytest.mark.parametrize(
    ("lacking", "mode"), [(("json_schema",), "tools"), (("json_schema", "tools"), "json")]
)
async def test_a_server_without_schemas_is_asked_in_another_way_that_the_answer_names(
    lacking: tuple[str, ...], mode: str
) -> None:
    asked = await ask(without(*lacking))
    assert asked.answer is not None, asked.error
    assert (asked.answer.mode, asked.value["verdict"]) == (mode, "Yes")
    assert asked.ledger[-1].mode == mode
    assert len(asked.requests) == len(lacking) + 1


async def test_the_pasted_schema_of_the_last_way_leaves_the_material_alone() -> None:
    asked = question("the {{ material }}")
    body = (await ask(without("json_schema", "tools"), asked)).requests[-1]
    system, user = body["messages"]
    assert user == asked.messages[1]
    assert system["content"].startswith(asked.messages[0]["content"])
    assert asked.key == question("the {{ material }}").key
    assert asked.messages == question("the {{ material }}").messages


async def test_a_server_that_knows_no_way_at_all_is_a_provider_error() -> None:
    asked = await ask(without("json_schema", "tools", "json_object"))
    assert isinstance(asked.error, ProviderError)
    assert asked.error.status == 400
    assert len(asked.requests) == 3


async def test_what_a_server_lacks_is_tried_once_and_not_for_every_question() -> None:
    with OpenAIServer(without("json_schema")) as server:
        judge = OpenAIJudge("m", base_url=server.base_url)
        async with judge.session():
            modes = [(await judge.answer(question(text))).mode for text in "abc"]
    assert modes == ["tools"] * 3
    assert [form(body) for body in server.requests] == ["json_schema", "tools", "tools", "tools"]


class Together(OpenAIServer):
    """Holds requests that `held` names back until `count` of them are there."""

    def __init__(self, respond: Respond, count: int, held: Callable[[Json], bool]) -> None:
        super().__init__(respond)
        self.here = self.most = 0
        self._held = held
        self._count = count
        self._barrier: asyncio.Barrier | None = None

    async def _chat(self, request: web.Request) -> web.Response:
        self.here += 1
        self.most = max(self.most, self.here)
        try:
            if self._held(await request.json()):
                self._barrier = self._barrier or asyncio.Barrier(self._count)
                await self._barrier.wait()
            return await super()._chat(request)
        finally:
            self.here -= 1


async def ask_all(server: OpenAIServer, questions: list[Question[Any]]) -> list[Any]:
    """Answers or errors of all questions, asked at once with one judge."""
    found: list[Any] = [None] * len(questions)
    judge, gateway = OpenAIJudge("m", base_url=server.base_url), Gateway(FAST)

    async def one(place: int) -> None:
        try:
            found[place] = await gateway.ask(judge, questions[place])
        except JudgeError as error:
            found[place] = error

    with anyio.fail_after(LIMIT):
        async with judge.session(), anyio.create_task_group() as group:
            for place in range(len(questions)):
                group.start_soon(one, place)
    return found


async def test_questions_in_flight_together_find_out_together_what_a_server_lacks() -> None:
    """Four refusals of one way of asking are no reason to give up the next way, too."""
    count = 4  # as many as a run begins with
    with Together(without("json_schema"), count, lambda b: form(b) == "json_schema") as server:
        found = await ask_all(server, [question(str(n)) for n in range(count)])
    assert [getattr(answer, "mode", answer) for answer in found] == ["tools"] * count


async def test_questions_in_flight_together_find_out_that_there_are_no_logprobs() -> None:
    def respond(body: Json) -> Reply:
        return Reply("logprobs are not supported", status=400) if "logprobs" in body else Reply(OK)

    count = 4  # as many as a run begins with
    asked = [question(str(n), options=Options(top_logprobs=5)) for n in range(count)]
    with Together(respond, count, lambda body: "logprobs" in body) as server:
        found = await ask_all(server, asked)
    assert [getattr(answer, "mode", answer) for answer in found] == ["json_schema"] * count


async def test_questions_in_flight_together_find_out_that_beginnings_have_no_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refused = Reply("Unknown parameter: 'prompt_cache_key'.", status=400)

    def respond(body: Json) -> Reply:
        return refused if "prompt_cache_key" in body else Reply(OK)

    count = 4  # as many as a run begins with
    asked = [question(str(n)).with_notes(warmth=Warmth(str(n))) for n in range(count)]
    monkeypatch.setattr(OpenAIJudge, "hosted", True)
    with Together(respond, count, lambda body: "prompt_cache_key" in body) as server:
        found = await ask_all(server, asked)
    assert [getattr(answer, "mode", answer) for answer in found] == ["json_schema"] * count
    assert len(server.requests) == 2 * count


async def test_one_prompt_that_is_too_long_changes_nothing_for_the_others() -> None:
    """OpenAI counts the tokens of the schema in the message, which is no word against it."""
    message = (
        "This model's maximum context length is 10 tokens. However, your messages resulted in 20 "
        "tokens (including 7 in the response_format schemas.). Please reduce the length of the "
        "messages or schemas."
    )
    body = {"error": {"message": message, "param": "messages", "code": "context_length_exceeded"}}

    def respond(asked: Json) -> Reply:
        long = "too long" in asked["messages"][1]["content"]
        return Reply(status=400, body=json.dumps(body)) if long else Reply(OK)

    with OpenAIServer(respond) as server:
        judge = OpenAIJudge("m", base_url=server.base_url)
        async with judge.session():
            with pytest.raises(TooLongError, match="maximum context length") as refused:
                await judge.answer(question("too long"))
            assert (refused.value.needed, refused.value.window) == (20, 10)
            assert (await judge.answer(question("short"))).mode == "json_schema"
    assert len(server.requests) == 2


@pytest.mark.parametrize("status", [400, 403, 422])  # most servers, OpenAI, strict servers
async def test_a_server_that_rejects_logprobs_is_asked_without_them(status: int) -> None:
    def respond(body: Json) -> Reply:
        if "logprobs" in body or "top_logprobs" in body:
            return Reply("You are not allowed to request logprobs", status=status)
        return Reply('{"reason": "r", "score": 4}')

    shape = rating_type(1, 5)
    asked = await ask(respond, question(shape=shape, options=Options(top_logprobs=20)))
    assert asked.answer is not None, asked.error
    assert (asked.answer.mode, asked.answer.tokens) == ("json_schema", None)
    assert len(asked.requests) == 2


async def test_a_model_that_takes_no_temperature_is_asked_without_one() -> None:
    message = "Unsupported value: 'temperature' does not support 0.0 with this model."

    def respond(body: Json) -> Reply:
        return Reply(message, status=400) if "temperature" in body else Reply(OK)

    asked = await ask(respond)
    assert asked.answer is not None, asked.error
    assert asked.value["verdict"] == "Yes"


def entry(token: str, mass: dict[str, float] | None = None) -> Json:
    """A token as OpenAI writes it, with alternatives given as probabilities."""
    tops = [
        {"token": other, "logprob": math.log(p), "bytes": list(other.encode())}
        for other, p in (mass or {token: 1.0}).items()
    ]
    return {
        "token": token,
        "logprob": tops[0]["logprob"],
        "bytes": list(token.encode()),
        "top_logprobs": tops,
    }


RATING = '{"reason": "3 of 5", "score": 4}'
RATING_TOKENS = [
    entry('{"reason": "'),
    entry("3", {"3": 0.5, "1": 0.5}),
    entry(' of 5", "score": '),
    entry("4", {"4": 0.5, "5": 0.25, "2": 0.25}),
    entry("}"),
]


async def test_token_probabilities_are_read_into_tokens_that_spell_the_answer() -> None:
    options = Options(top_logprobs=3)
    asked = await ask(
        Reply(RATING, logprobs=RATING_TOKENS), question(shape=rating_type(1, 5), options=options)
    )
    assert asked.answer is not None, asked.error
    assert asked.answer.tokens is not None
    assert "".join(token.token for token in asked.answer.tokens) == asked.answer.raw == RATING
    score = asked.answer.tokens[3]
    assert [(token, round(math.exp(p), 6)) for token, p in score.alternatives] == [
        ("4", 0.5), ("5", 0.25), ("2", 0.25),
    ]  # fmt: skip
    # Those of a reason tell nothing, and would fill memories and stores.
    assert [token.token for token in asked.answer.tokens if token.alternatives] == ["4"]


async def test_token_probabilities_make_a_rating_a_weighted_one() -> None:
    metric = DAGMetric("m", DAG(RatingNode("good?", ["input"], scale=(1, 5))))

    def respond(body: Json) -> Reply:
        assert (body["logprobs"], body["top_logprobs"]) == (True, 20)
        return Reply(RATING, logprobs=RATING_TOKENS)

    with OpenAIServer(respond) as server:
        judge = OpenAIJudge("m", base_url=server.base_url)
        result = await a_evaluate([LLMTestCase(input="i")], [metric], model=judge, show=False)
    found = result.rows[0].metrics[0]
    assert found.mode == "weighted"
    assert found.score == pytest.approx((3.75 - 1) / 4)  # 4/2 + 5/4 + 2/4 = 3.75


async def test_a_server_that_gives_no_token_probabilities_makes_a_rating_a_raw_one() -> None:
    metric = DAGMetric("m", DAG(RatingNode("good?", ["input"], scale=(1, 5))))
    with OpenAIServer(lambda body: Reply(RATING)) as server:
        judge = OpenAIJudge("m", base_url=server.base_url)
        result = await a_evaluate([LLMTestCase(input="i")], [metric], model=judge, show=False)
    found = result.rows[0].metrics[0]
    assert (found.score, found.mode) == (0.75, "raw (the judge gave no token probabilities)")


_HOSTS = [
    ("https://api.openai.com/v1", True),
    ("https://eu.api.openai.com/v1", True),
    ("https://mine.openai.azure.com/openai/v1", True),
    ("https://openrouter.ai/api/v1", False),
    ("http://localhost:11434/v1", False),
    ("https://api.openai.com.example.org/v1", False),
]


@pytest.mark.parametrize(("base_url", "strict"), _HOSTS)
async def test_only_openai_is_asked_for_strict_schemas(base_url: str, strict: bool) -> None:
    with OpenAIServer(lambda body: Reply(OK)) as server, standing_in(server, base_url) as client:
        await OpenAIJudge("m", client=client).answer(question())
        assert not client.is_closed()  # it is not ours
        await client.close()
    asked = server.requests[0]["response_format"]["json_schema"]
    schema = asked["schema"]
    assert asked.get("strict", False) is strict
    assert ("additionalProperties" in schema) is strict
    assert ("maxLength" in schema["properties"]["reason"]) is not strict
    assert list(schema["properties"]) == ["reason", "verdict"]
    if strict:
        assert schema["additionalProperties"] is False
        assert schema["required"] == ["reason", "verdict"]


async def test_a_client_that_would_ask_again_by_itself_does_not() -> None:
    with (
        OpenAIServer(lambda body: Reply("busy", status=429)) as server,
        standing_in(server, "http://one.example/v1") as client,
    ):
        assert client.max_retries == 2
        with pytest.raises(ProviderError):
            await OpenAIJudge("m", client=client).answer(question())
        await client.close()
    assert len(server.requests) == 1  # the others would be in no ledger, and in no limit


async def test_a_missing_key_is_found_before_the_first_case(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_ADMIN_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    tree = DAG(
        NonBinaryJudgementNode("ok?", evaluation_params=["input"], then={"Yes": 10, "No": 0})
    )
    rows: list[Any] = []
    with pytest.raises(JudgeSetupError, match="OPENAI_API_KEY"):
        await a_evaluate(
            [LLMTestCase(input="i")], [DAGMetric("m", tree)], show=False, on_row=rows.append
        )
    assert rows == []
    with pytest.raises(JudgeSetupError, match=r"'gpt-4\.1'"):
        await OpenAIJudge("gpt-4.1").answer(question())


async def test_the_key_goes_to_the_server_and_to_nobody_else() -> None:
    with OpenAIServer(lambda body: Reply("boom", status=401)) as server:
        judge = OpenAIJudge("m", base_url=server.base_url, api_key="SECRET")
        with pytest.raises(ProviderError) as caught:
            await judge.answer(question())
    assert server.headers[0]["Authorization"] == "Bearer SECRET"
    assert "SECRET" not in f"{caught.value!r} {judge!r} {judge.identity} {server.requests}"


async def test_an_address_where_nobody_listens_is_named_whatever_the_event_loop() -> None:
    with OpenAIServer() as server:
        gone = server.base_url
    judge = OpenAIJudge("m", base_url=gone)
    with pytest.raises(ProviderError, match=f"{gone}.*is the server running") as found:
        await judge.answer(question())
    assert found.value.transient
    with pytest.raises(JudgeSetupError, match=f"nothing answers at {gone}"):
        await judge.require_reachable()


async def test_a_server_that_is_there_is_found_reachable() -> None:
    with OpenAIServer() as server:
        await OpenAIJudge("m", base_url=server.base_url).require_reachable()
    assert server.requests == []


async def test_an_answer_may_come_compressed() -> None:
    asked = await ask(Reply(OK, compressed=True))
    assert asked.value["verdict"] == "Yes"


async def test_a_server_that_has_moved_is_followed_to_its_own_origin_only() -> None:
    def moved(body: Json) -> Reply:
        return Reply(status=307, headers={"Location": places.pop(0)}, body="moved")

    with OpenAIServer(lambda body: Reply(OK)) as there, OpenAIServer(moved) as here:
        judge = OpenAIJudge("m", base_url=here.base_url, api_key="SECRET")
        own = "/v1/chat/completions"
        places = [own, own, f"{there.base_url}/chat/completions"]
        with pytest.raises(ProviderError, match=f"{there.base_url}.*another origin") as caught:
            await judge.answer(question())
        assert not caught.value.transient
        assert (len(here.requests), there.requests, places) == (3, [], [])
        places = [own] * 10
        with pytest.raises(ProviderError, match="redirected the request 5 times"):
            await judge.answer(question())


async def test_a_given_client_is_not_sent_elsewhere_with_its_key() -> None:
    import openai

    def moved(body: Json) -> Reply:
        return Reply(status=308, headers={"Location": f"{there.base_url}/x"}, body="moved")

    with OpenAIServer(lambda body: Reply(OK)) as there, OpenAIServer(moved) as here:
        async with openai.AsyncAzureOpenAI(
            api_key="SECRET", api_version="1", base_url=here.base_url
        ) as client:
            with pytest.raises(ProviderError, match="another origin"):
                await OpenAIJudge("m", client=client).answer(question())
        assert (len(here.requests), there.requests) == (1, [])


async def test_a_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    with OpenAIServer(lambda body: Reply(OK)) as proxy:
        for name in ("HTTP_PROXY", "NO_PROXY", "no_proxy"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("http_proxy", proxy.base_url.removesuffix("/v1"))
        judge = OpenAIJudge("m", base_url="http://judge.invalid/v1")
        assert (await judge.answer(question())).value.verdict == "Yes"


async def test_a_session_ends_with_its_connections_closed() -> None:
    with OpenAIServer(lambda body: Reply(OK)) as server:
        judge = OpenAIJudge("m", base_url=server.base_url)
        async with judge.session() as outer:
            async with judge.session() as inner:
                assert inner is outer
                await judge.answer(question())
            assert not outer.api.is_closed()
            await judge.answer(question())
        assert outer.api.is_closed()
        async with judge.session() as again:
            await judge.answer(question())
        assert again is not outer
    del outer, inner, again
    gc.collect()  # what was left open would warn now, and warnings are errors


async def test_a_session_closes_its_connections_after_an_error_and_a_cancellation() -> None:
    with OpenAIServer(lambda body: Reply(drop=True)) as server:
        judge = OpenAIJudge("m", base_url=server.base_url)
        clients: list[Any] = []
        with anyio.CancelScope() as scope:
            async with judge.session() as client:
                clients.append(client.api)
                with pytest.raises(ProviderError):
                    await judge.answer(question())
                scope.cancel()
                await anyio.lowlevel.checkpoint()
        assert clients.pop().is_closed()
    gc.collect()


async def test_a_run_closes_its_connections() -> None:
    tree = DAG(
        NonBinaryJudgementNode("ok?", evaluation_params=["input"], then={"Yes": 10, "No": 0})
    )
    cases = [LLMTestCase(input=str(n)) for n in range(20)]
    with OpenAIServer(valid_reply) as server:
        judge = OpenAIJudge("m", base_url=server.base_url)
        result = await a_evaluate(cases, [DAGMetric("m", tree)], model=judge, show=False)
    assert result.scores("m") == [1.0] * 20
    gc.collect()


class Ready(OpenAIJudge):
    """A judge that is asked without a careful start."""

    capabilities = Capabilities(logprobs=True, elastic=True)


async def test_as_many_requests_are_in_flight_as_the_limit_says_and_never_more() -> None:
    """Waves of 64 that are answered only when all of them are there."""
    limit = 64
    tree = DAG(
        NonBinaryJudgementNode("ok?", evaluation_params=["input"], then={"Yes": 10, "No": 0})
    )
    cases = [LLMTestCase(input=str(n)) for n in range(3 * limit)]
    with Together(valid_reply, limit, lambda body: True) as server:
        judge = Ready("m", base_url=server.base_url)
        with anyio.fail_after(LIMIT):
            result = await a_evaluate(
                cases,
                [DAGMetric("m", tree)],
                model=judge,
                limits=Limits(max_in_flight=limit, attempts=1),
                show=False,
            )
    assert result.scores("m") == [1.0] * len(cases)
    assert server.most == limit
    assert server.in_flight_max <= limit
    assert len(server.requests) == len(cases)


async def test_the_ledger_of_a_run_has_every_attempt_in_it() -> None:
    fail_first: set[str] = set()

    def respond(body: Json) -> Reply:
        text = body["messages"][1]["content"]
        if len(body["messages"]) == 2 and text not in fail_first:
            fail_first.add(text)
            return Reply("overloaded", status=503) if "odd" in text else Reply("no JSON")
        return Reply(OK)

    tree = DAG(
        NonBinaryJudgementNode("ok?", evaluation_params=["input"], then={"Yes": 10, "No": 0})
    )
    cases = [LLMTestCase(input=f"{n} {'odd' if n % 2 else 'even'}") for n in range(10)]
    ledger: list[Attempt] = []
    with OpenAIServer(respond) as server:
        judge = OpenAIJudge("m", base_url=server.base_url)
        result = await a_evaluate(
            cases,
            [DAGMetric("m", tree)],
            model=judge,
            limits=FAST,
            show=False,
            on_attempt=ledger.append,
        )
    assert result.scores("m") == [1.0] * 10
    kinds = sorted(str(attempt.outcome) for attempt in ledger)
    assert kinds == ["ok"] * 10 + ["provider_error"] * 5 + ["unparseable"] * 5
    totals = result.totals
    assert (totals.asked, totals.calls, totals.retried, totals.failed) == (10, 20, 10, 10)
    assert totals.calls == len(server.requests)
    assert totals.usage == sum((attempt.usage for attempt in ledger), Usage())


async def test_text_that_has_no_utf8_form_is_sent_with_a_sign_in_its_place() -> None:
    asked = await ask(Reply(OK), question("lone \ud800 surrogate"))
    assert asked.value["verdict"] == "Yes"
    assert "lone \ufffd surrogate" in str(asked.requests[0]["messages"])


_USAGES: list[tuple[Any, Usage]] = [
    ("abc", Usage()),
    ([1], Usage()),
    (None, Usage()),
    (7, Usage()),
    ({"prompt_tokens": 123.0, "completion_tokens": 2.0}, Usage(123, 2)),
    ({"prompt_tokens": 123.5, "completion_tokens": "2"}, Usage(123, 0)),
    ({"prompt_tokens": -5, "completion_tokens": True}, Usage()),
    ({"prompt_tokens": [5], "completion_tokens": {}}, Usage()),
    ({"prompt_tokens": 10**30, "completion_tokens": float("nan")}, Usage()),
    ({"prompt_tokens": 123, "prompt_tokens_details": "x"}, Usage(123)),
    ({"prompt_tokens": 123, "prompt_tokens_details": {"cached_tokens": 999}}, Usage(123, 0, 123)),
    ("\ud800", Usage()),
    ({"prompt_tokens": 123, "\udfff": "\ud800"}, Usage(123)),
]


@pytest.mark.parametrize(("usage", "counted"), _USAGES, ids=repr)
async def test_a_valid_answer_survives_a_strange_usage(usage: Any, counted: Usage) -> None:
    body = completion_of({"messages": []}, Reply(OK)) | {"usage": usage}
    asked = await ask(Reply(body=json.dumps(body)))
    assert asked.value["verdict"] == "Yes"
    assert asked.gateway.totals.usage == counted


async def test_a_number_of_five_thousand_digits_beside_an_answer_is_passed_over() -> None:
    body = json.dumps(completion_of({"messages": []}, Reply(OK)))
    asked = await ask(Reply(body=body.replace('"created": 0', '"created": ' + "1" * 5_000)))
    assert asked.value["verdict"] == "Yes"


def in_parts(*parts: Any) -> str:
    completion = completion_of({"messages": []}, Reply(OK))
    completion["choices"][0]["message"]["content"] = list(parts)
    return json.dumps(completion)


_HABITS = {
    "a mark before the text": "\ufeff" + json.dumps(completion_of({"messages": []}, Reply(OK))),
    "a text in one part": in_parts({"type": "text", "text": OK}),
    "a text in two parts": in_parts(*({"type": "text", "text": half} for half in (OK[:9], OK[9:]))),
    "thoughts before the text": in_parts(
        {"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]},
        {"type": "text", "text": OK},
    ),
}


@pytest.mark.parametrize("kind", _HABITS)
async def test_a_completion_in_another_servers_form_is_read(kind: str) -> None:
    asked = await ask(Reply(body=_HABITS[kind]))
    assert asked.value["verdict"] == "Yes"
    assert asked.gateway.totals.calls == 1


async def test_parts_without_a_text_are_asked_for_again() -> None:
    asked = await ask(Reply(body=in_parts({"type": "image"})))
    assert isinstance(asked.error, UnparseableError)


async def test_an_answer_does_not_keep_the_completion_it_was_read_from() -> None:
    with OpenAIServer(lambda body: Reply(OK)) as server:
        answer = await OpenAIJudge("m", base_url=server.base_url).answer(question())
    assert answer.value.verdict == "Yes"
    assert not any(isinstance(held, Completion) for held in gc.get_referents(vars(answer.value)))


@pytest.mark.parametrize(
    "logprobs",
    [[], [{"text": OK}], [{"token": OK, "top_logprobs": [{"token": "", "logprob": None}]}]],
)
async def test_token_probabilities_that_are_no_data_of_the_protocol_are_none(
    logprobs: list[Json],
) -> None:
    with OpenAIServer(lambda body: Reply(OK, logprobs=logprobs)) as server:
        answer = await OpenAIJudge("m", base_url=server.base_url).answer(question())
    assert answer.tokens is None
