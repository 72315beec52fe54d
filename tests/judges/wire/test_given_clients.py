"""A client that the caller gave serves one event loop after another, and leaves nothing behind.

Measures of one thread share a loop, which ends with it, or when they have many other judges.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from typing import Any

import anyio
import httpx2
import openai
import pytest
from servers.openai_server import OpenAIServer

from dagengine.errors import ProviderError
from dagengine.judges import OpenAIJudge
from dagengine.metrics import GEval
from dagengine.prompts.answer_types import judgement_type
from dagengine.question import Message, Question
from dagengine.test_case import LLMTestCase

CASE = LLMTestCase(input="q", actual_output="a")
MINE = {"x-mine": "1"}
HTTP_CLIENTS: dict[str, Callable[[], Any]] = {
    "none": lambda: None,
    "httpx": lambda: httpx2.AsyncClient(headers=MINE),
    "mounted": lambda: httpx2.AsyncClient(mounts={"http://": httpx2.AsyncHTTPTransport()}),
    "openai": lambda: openai.DefaultAsyncHttpxClient(headers=MINE),
    "aiohttp": lambda: openai.DefaultAioHttpClient(headers=MINE),
}


class Company(openai.AsyncOpenAI):
    """A subclass that is made in another way."""

    def __init__(self, address: str) -> None:
        super().__init__(base_url=address, api_key="company", default_headers={"x-team": "t"})


def metric(judge: OpenAIJudge) -> GEval:
    return GEval("m", evaluation_steps=["look"], evaluation_params=["input"], model=judge)


def question() -> Question[Any]:
    return Question((Message(role="user", content="t"),), judgement_type(("Yes", "No")), name="q")


@pytest.mark.parametrize("kind", HTTP_CLIENTS)
def test_measure_twice_in_a_row_asks_each_question_once(kind: str) -> None:
    with OpenAIServer() as server:
        client = openai.AsyncOpenAI(
            base_url=server.base_url, api_key="k", http_client=HTTP_CLIENTS[kind]()
        )
        judge = OpenAIJudge("m", client=client)
        for count in range(1, 4):
            metric(judge).measure(CASE)
            assert len(server.requests) == count
        assert not client.is_closed()
        gc.collect()  # a connection that is left would warn here
    assert all(headers["Authorization"] == "Bearer k" for headers in server.headers)
    if kind not in ("none", "mounted"):
        assert all(headers["x-mine"] == "1" for headers in server.headers)


@pytest.mark.parametrize("end", ["other judges", "environment", "thread"])
@pytest.mark.parametrize("kind", ["httpx", "aiohttp"])
def test_a_client_that_nobody_measures_with_any_more_has_no_connection(
    kind: str, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measure(server: OpenAIServer, http: Any) -> None:
        client = openai.AsyncOpenAI(base_url=server.base_url, api_key="k", http_client=http)
        metric(OpenAIJudge("m", client=client)).measure(CASE)

    def use_client(server: OpenAIServer) -> None:
        measure(server, HTTP_CLIENTS[kind]())
        if end == "environment":
            monkeypatch.setenv("DAGENGINE_ANYTHING", "else")
        for _ in range(1 if end == "environment" else 10 if end == "other judges" else 0):
            metric(OpenAIJudge("m", base_url=server.base_url)).measure(CASE)
        gc.collect()  # a connection that is left would warn here

    with OpenAIServer() as server:
        thread = threading.Thread(target=use_client, args=(server,))
        thread.start()
        thread.join()
        gc.collect()


def test_a_client_of_a_subclass_keeps_its_headers_and_key() -> None:
    with OpenAIServer() as server:
        judge = OpenAIJudge("m", client=Company(server.base_url))
        for _ in range(2):
            metric(judge).measure(CASE)
    assert [headers["x-team"] for headers in server.headers] == ["t", "t"]
    assert [headers["Authorization"] for headers in server.headers] == ["Bearer company"] * 2


@pytest.mark.parametrize("kind", ["none", "httpx"])
def test_loops_of_both_kinds_take_turns(kind: str) -> None:
    with OpenAIServer() as server:
        client = openai.AsyncOpenAI(
            base_url=server.base_url, api_key="k", http_client=HTTP_CLIENTS[kind]()
        )
        judge = OpenAIJudge("m", client=client)
        for backend in ("asyncio", "trio", "asyncio"):
            anyio.run(judge.answer, question(), backend=backend)
        assert len(server.requests) == 3
        gc.collect()


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.anyio
async def test_measure_leaves_the_callers_own_connections_alone() -> None:
    """As in a notebook: its loop goes on while `measure` has another one."""
    with OpenAIServer() as server:
        async with openai.AsyncOpenAI(base_url=server.base_url, api_key="k") as client:
            judge = OpenAIJudge("m", client=client)
            for _ in range(2):
                await client.models.list()
                metric(judge).measure(CASE)
        assert len(server.requests) == 2


@pytest.mark.anyio
async def test_an_http_client_that_cannot_change_loops_is_named() -> None:
    def closed(request: httpx2.Request) -> httpx2.Response:
        raise RuntimeError("Event loop is closed")

    async with httpx2.AsyncClient(transport=httpx2.MockTransport(closed)) as http_client:
        client = openai.AsyncOpenAI(base_url="http://h/v1", api_key="k", http_client=http_client)
        with pytest.raises(ProviderError, match="connections of another event loop") as caught:
            await OpenAIJudge("m", client=client).answer(question())
    assert "without http_client=" in str(caught.value)
    assert not caught.value.transient
