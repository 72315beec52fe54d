"""A rating that might have begun with another digit: the server is asked how that goes on."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import pytest
from servers.local_servers import LLAMA, TellingServer
from servers.openai_server import Json, Reply, tokens_of

from dagengine import a_evaluate
from dagengine.judges import OpenAIJudge
from dagengine.judges.wire.logprobs import open_start
from dagengine.metrics import GEval
from dagengine.prompts.answer_types import rating_type
from dagengine.question import TokenChoice
from dagengine.results import MetricResult
from dagengine.test_case import LLMTestCase

pytestmark = pytest.mark.anyio

CASE = LLMTestCase(input="why?", actual_output="so")
OPENING = '{"reason": "r", "score": '
RATED = {"8": 0.6, "9": 0.2, "1": 0.2}


def entry(token: str, chances: Mapping[str, float]) -> Json:
    found = [{"token": text, "logprob": math.log(chance)} for text, chance in chances.items()]
    return {"token": token, "logprob": 0.0, "top_logprobs": found}


def answering(rated: Mapping[str, float], then: Mapping[str, float] | Reply) -> Any:
    """A model of one digit per token, which goes on with an answer that it is given."""

    def respond(body: Json) -> Reply:
        last = body["messages"][-1]
        if last["role"] != "assistant":
            tokens = [entry(OPENING, {OPENING: 1.0}), entry("8", rated), entry("}", {"}": 1.0})]
            return Reply(f"{OPENING}8}}", logprobs=tokens)
        assert last["content"] == f"{OPENING}1"
        assert "response_format" not in body
        assert body["max_tokens"] == 1
        if isinstance(then, Reply):
            return then
        token = next(iter(then))
        return Reply(f"{OPENING}1{token}", logprobs=[entry(token, then)])

    return respond


async def rated(server: TellingServer, **more: Any) -> MetricResult:
    metric = GEval("G", evaluation_steps=["Look."], evaluation_params=["actual_output"], **more)
    judge = OpenAIJudge("m", base_url=server.base_url)
    done = await a_evaluate([CASE], [metric], model=judge, show=False)
    assert done.totals.calls == 1
    return done.rows[0].metrics[0]


async def test_a_server_that_goes_on_says_how_likely_the_ten_is() -> None:
    then = {"0": 0.6, "}": 0.1, "\n": 0.1, ".": 0.2}
    with TellingServer(LLAMA, answering(RATED, then)) as server:
        result = await rated(server)
        assert len(server.requests) == 2
    assert result.mode == "weighted"
    mean = 8 * 0.6 + 9 * 0.2 + 0.2 * (10 * 0.75 + 1 * 0.25)
    assert result.score == pytest.approx(mean / 10)


async def test_its_token_counts_and_its_probabilities_are_stored(tmp_path: Any) -> None:
    metric = GEval("G", evaluation_steps=["Look."], evaluation_params=["actual_output"])
    with TellingServer(LLAMA, answering(RATED, {"0": 1.0})) as server:
        judge = OpenAIJudge("m", base_url=server.base_url)
        runs = [
            await a_evaluate([CASE], [metric], model=judge, show=False, store=tmp_path / "a.db")
            for _ in range(2)
        ]
        assert len(server.requests) == 2
    first, second = (run.rows[0].metrics[0] for run in runs)
    assert first.score == second.score == pytest.approx(0.86)
    # The prompt counts once: with it is checked that the server read all of it.
    prompt = server.requests[0]["messages"]
    alone = sum(tokens_of(str(message["content"])) for message in prompt)
    used = runs[0].totals.usage
    assert (used.input_tokens, used.output_tokens) == (alone, len(f"{OPENING}8}}".split()) + 4)


@pytest.mark.parametrize(
    "then",
    [{"The": 0.9, "0": 0.1}, Reply("no", status=500), Reply("8"), Reply(body="[]")],
)
async def test_without_an_answer_about_it_the_rating_counts_as_stated(then: Any) -> None:
    with TellingServer(LLAMA, answering(RATED, then)) as server:
        result = await rated(server)
    assert result.score == 0.8
    assert str(result.mode).startswith("raw (a token may be the start of a longer number: ")


@pytest.mark.parametrize(
    ("pages", "mass", "scale"),
    [
        ({}, RATED, None),  # a server that does not say what it is
        (LLAMA, {"8": 0.6, "9": 0.4}, None),
        (LLAMA, {"8": 0.6, "10": 0.2, "1": 0.2}, None),
        (LLAMA, {"8": 0.6, "9": 0.395, "1": 0.005}, None),
        (LLAMA, RATED, (0, 9)),
    ],
)
async def test_nothing_more_is_asked_where_nothing_is_open_or_the_server_is_another(
    pages: Any, mass: dict[str, float], scale: tuple[int, int] | None
) -> None:
    with TellingServer(pages, answering(mass, {"0": 1.0})) as server:
        await rated(server, **({} if scale is None else {"scale": scale}))
        assert len(server.requests) == 1


def test_several_starts_are_too_many_to_ask_for() -> None:
    raw = '{"score": 85}'
    tokens = tuple(
        TokenChoice(token, tuple((text, math.log(share)) for text, share in chances.items()))
        for token, chances in (
            ('{"score": ', {}), ("8", {"8": 0.6, "7": 0.2, "9": 0.2}), ("5", {"5": 1.0}), ("}", {}),
        )
    )  # fmt: skip
    assert json.loads(raw) == {"score": 85}
    assert open_start(raw, tokens, rating_type(0, 100)) is None
