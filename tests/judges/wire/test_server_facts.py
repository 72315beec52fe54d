"""What servers say of themselves before the first question, from real HTTP servers."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import anyio
import httpx2
import openai
import pytest
from servers.local_servers import LLAMA, LM_STUDIO, OLLAMA, VLLM, TellingServer
from servers.raw_server import RawServer, response

from dagengine import evaluate
from dagengine.judges import LabelJudge, LexicalJudge, OpenAIJudge
from dagengine.judges.wire import server_facts
from dagengine.judges.wire.server_facts import is_provider, root_of
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode
from dagengine.prompts.answer_types import rating_type
from dagengine.question import NO_FACTS, Question, ServerFacts, facts_of
from dagengine.test_case import LLMTestCase

pytestmark = pytest.mark.anyio
PAGES = 5  # that a server is asked for


@pytest.mark.parametrize(
    ("pages", "facts"),
    [
        (LLAMA, ServerFacts("llama.cpp", 4096, 4)),
        (VLLM, ServerFacts("vLLM", 8192)),
        (LM_STUDIO, ServerFacts("LM Studio", 4096)),
        (OLLAMA, ServerFacts("Ollama", 32768)),
        ({"/v1/models": {"data": [{"id": "x", "max_model_len": 99}]}}, ServerFacts("", 99)),
        ({}, NO_FACTS),
    ],
)
async def test_a_server_says_its_kind_its_window_and_its_places(
    pages: Mapping[str, Any], facts: ServerFacts
) -> None:
    with TellingServer(pages) as server:
        assert await facts_of(OpenAIJudge("m", base_url=server.base_url)) == facts


async def test_every_judge_behind_an_address_has_facts_and_others_have_none() -> None:
    with TellingServer(LLAMA) as server:
        labels = LabelJudge("m", base_url=server.base_url)
        assert (await facts_of(labels)).slots == 4
    with TellingServer(OLLAMA) as server:  # a judge that cannot ask for a window has the loaded one
        assert (await facts_of(LabelJudge("m", base_url=server.base_url))).window == 4096
    assert await facts_of(LexicalJudge()) is NO_FACTS


@pytest.mark.parametrize(
    "page",
    [
        "<html>sign in</html>",
        "[" * 100_000,
        {"default_generation_settings": {"n_ctx": -1}, "total_slots": 4},
        {"default_generation_settings": {"n_ctx": 10**30}, "total_slots": 4},
        {"default_generation_settings": {"n_ctx": "4096"}, "total_slots": 4},
        {"default_generation_settings": [], "total_slots": True},
        500,
    ],
)
async def test_nonsense_says_nothing(page: Any) -> None:
    pages = dict.fromkeys(["/props", "/v1/models", "/api/ps", "/api/v0/models"], page)
    with TellingServer(pages) as server:
        assert await facts_of(OpenAIJudge("m", base_url=server.base_url)) == NO_FACTS


async def test_a_server_is_asked_once() -> None:
    with TellingServer(LLAMA) as server:
        judge = OpenAIJudge("m", base_url=server.base_url)
        await facts_of(judge)
        pages = len(server.told)
        await facts_of(judge)
        assert len(server.told) == pages


def test_twenty_measures_in_a_loop_ask_a_local_server_once() -> None:
    ask = BinaryJudgementNode("Is it so?", evaluation_params=["input"], then={True: 10, False: 0})
    with TellingServer(LLAMA) as server:
        for number in range(20):
            judge = OpenAIJudge("m", base_url=server.base_url)
            DAGMetric("m", DAG(ask), model=judge).measure(LLMTestCase(input=str(number)))
        assert len(server.told) == PAGES


async def test_judges_of_one_server_ask_it_once_at_the_same_time_but_not_with_another_key() -> None:
    with TellingServer(LLAMA) as server:
        judges = [OpenAIJudge("m", base_url=server.base_url) for _ in range(5)]
        async with anyio.create_task_group() as group:
            for judge in judges:
                group.start_soon(facts_of, judge)
        assert len(server.told) == PAGES
        await facts_of(OpenAIJudge("m", base_url=server.base_url, api_key="other"))
        await facts_of(OpenAIJudge("n", base_url=server.base_url))
        assert len(server.told) == 3 * PAGES


async def test_facts_are_asked_again_after_a_minute_and_when_they_are_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with TellingServer(LLAMA) as server:
        judge = OpenAIJudge("m", base_url=server.base_url)
        await facts_of(judge)
        judge.forget_facts()  # an unused judge has nothing to drop
        await facts_of(judge)
        assert len(server.told) == PAGES
        with suppress(ValueError):
            async with judge.session():
                await facts_of(judge)
                raise ValueError
        await facts_of(judge)
        assert len(server.told) == 2 * PAGES
        monkeypatch.setattr(server_facts, "FRESH", 0.0)
        await facts_of(judge)
        assert len(server.told) == 3 * PAGES


def test_a_prompt_that_contradicts_the_facts_has_the_server_asked_again_once_in_a_run() -> None:
    small, large = (
        {"/props": {"default_generation_settings": {"n_ctx": tokens}, "total_slots": 4}}
        for tokens in (64, 40_960)
    )
    ask = BinaryJudgementNode("Is it so?", evaluation_params=["input"], then={True: 10, False: 0})
    metric = DAGMetric("m", DAG(ask))
    cases = [LLMTestCase(input=f"{number} " + "A long text of words. " * 100) for number in (1, 2)]
    with TellingServer(small) as server:
        judge = OpenAIJudge("m", base_url=server.base_url)
        rows = evaluate(cases, [metric], model=judge, show=False).rows
        assert all("needs about" in str(row.metrics[0].failure) for row in rows)
        assert len(server.told) == 2 * PAGES
        server.pages = large  # it was started again meanwhile
        rows = evaluate(cases, [metric], model=judge, show=False).rows
        assert [row.metrics[0].score for row in rows] == [1.0, 1.0]
        assert server.told.count("/props") == 3


async def test_a_connection_error_drops_the_facts() -> None:
    with TellingServer(LLAMA) as server:
        judge = OpenAIJudge("m", base_url=server.base_url)
        async with judge.session():
            assert (await facts_of(judge)).window == 4096
            error = openai.APIConnectionError(request=httpx2.Request("POST", server.base_url))
            judge.failure(error, Question(({"role": "user", "content": "?"},), rating_type(0, 1)))
            server.pages = VLLM
            assert (await facts_of(judge)).window == 8192


async def test_a_server_that_is_not_ready_is_asked_again_later() -> None:
    loading: dict[str, Any] = dict.fromkeys(["/props", "/v1/models", "/api/ps"], 503)
    loading |= dict.fromkeys(["/api/v0/models", "/api/version"], 503)
    with TellingServer(loading) as server:
        judge = OpenAIJudge("m", base_url=server.base_url)
        assert await facts_of(judge) == NO_FACTS
        server.pages = LLAMA
        assert (await facts_of(judge)).server == "llama.cpp"


async def test_silence_and_absence_are_no_facts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_facts, "SECONDS", 0.05)
    with RawServer(lambda: iter([])) as silent:
        assert await facts_of(OpenAIJudge("m", base_url=silent.base_url)) == NO_FACTS
    assert await facts_of(OpenAIJudge("m", base_url="http://127.0.0.1:1/v1")) == NO_FACTS


async def test_facts_of_another_origin_are_not_read() -> None:
    with TellingServer(LLAMA) as other:
        moved = f"Location: {other.base_url.removesuffix('/v1')}/props"
        page = response(b"", moved, status="307 Temporary Redirect")
        with RawServer(lambda: iter([page])) as server:
            assert await facts_of(OpenAIJudge("m", base_url=server.base_url)) == NO_FACTS
        assert not other.told


async def test_a_judge_without_a_key_has_no_facts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    assert await facts_of(OpenAIJudge("m")) == NO_FACTS


@pytest.mark.parametrize(
    ("address", "provider"),
    [
        ("https://api.openai.com/v1/", True),
        ("https://x.openai.azure.com/openai/", True),
        ("https://api.groq.com/openai/v1/", True),
        ("http://localhost:1234/v1/", False),
        ("http://192.168.1.7:8000/v1/", False),
        ("http://[::1]:8000/v1/", False),
        ("https://models.example.org/v1/", False),
    ],
)
def test_providers_are_known_by_their_addresses(address: str, provider: bool) -> None:
    assert is_provider(address) is provider


def test_the_root_of_a_server_is_its_address_without_the_protocol() -> None:
    assert root_of("http://localhost:11434/v1/") == "http://localhost:11434/"
    assert root_of("http://host/ollama/v1?x=1") == "http://host/ollama/"
    assert root_of("http://host") == "http://host/"
