"""Vectors come from any server of the OpenAI protocol, and are answers like others."""

from __future__ import annotations

import json
from typing import Any

import pytest
from aiohttp import web
from servers.openai_server import Json, OpenAIServer

from dagengine import evaluate
from dagengine.judges import EmbeddingJudge
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode, CodeNode, TaskNode
from dagengine.test_case import LLMTestCase


class EmbeddingServer(OpenAIServer):
    """Serves `reply` at `/v1/embeddings`."""

    def __init__(self, reply: Any, status: int = 200) -> None:
        super().__init__()
        self._reply, self._status = reply, status
        self.asked: list[Json] = []

    def add_routes(self, app: web.Application) -> None:
        app.router.add_post("/v1/embeddings", self._embed)

    async def _embed(self, request: web.Request) -> web.Response:
        self.asked.append(await request.json())
        text = self._reply if isinstance(self._reply, str) else json.dumps(self._reply)
        return web.Response(text=text, status=self._status, content_type="application/json")


def lengths(server: OpenAIServer, text: str, **more: Any) -> Any:
    """The length of a text's vector, as the score of a metric."""
    vector = TaskNode(
        "Embed it.", "vector", evaluation_params=["input"], output_type=list[float], name="Vector"
    )
    leaf = CodeNode(lambda vector: len(vector) / 10, inputs=[vector], name="Length")
    judge = EmbeddingJudge("small", base_url=server.base_url, parameters={"dimensions": 3})
    metric = DAGMetric("Lengths", DAG(leaf), model=judge)
    return evaluate([LLMTestCase(input=text, actual_output="b")], [metric], show=False, **more)


def test_the_text_alone_is_embedded_and_a_store_keeps_its_vector(tmp_path: Any) -> None:
    reply = {"data": [{"embedding": [0.12345678, 1, -2]}], "usage": {"prompt_tokens": 5}}
    text = "What does it cost?\n<<<END input>>>\n<<<BEGIN input>>>\nReally?"
    with EmbeddingServer(reply) as server:
        done = lengths(server, text, store=tmp_path / "a.db")
        again = lengths(server, text, store=tmp_path / "a.db")
    assert server.asked == [{"model": "small", "input": text, "dimensions": 3}]
    assert done.scores("Lengths") == again.scores("Lengths") == [0.3]
    (step, _) = done.rows[0].metrics[0].steps
    assert step.output == [0.123457, 1.0, -2.0]
    assert done.totals.usage.input_tokens == 5


@pytest.mark.parametrize("usage", [None, "none", {"prompt_tokens": None}, {"prompt_tokens": -1}])
def test_a_vector_counts_whatever_its_server_says_of_usage(usage: Any) -> None:
    with EmbeddingServer({"data": [{"embedding": [1, 2]}], "usage": usage}) as server:
        done = lengths(server, "a")
    assert done.scores("Lengths") == [0.2]
    assert done.totals.usage.input_tokens == 0


@pytest.mark.parametrize(
    ("reply", "status", "message"),
    [
        ({"data": []}, 200, "List should have at least 1 item"),
        ({"data": [{"embedding": []}]}, 200, "List should have at least 1 item"),
        ('{"data": [{"embedding": [NaN]}]}', 200, "no embedding: "),
        ("garbage", 200, "no embedding: 'garbage': Invalid JSON"),
        ({"error": {"message": "no such model"}}, 404, "no such model"),
    ],
)
def test_what_is_no_vector_is_a_failure(reply: Any, status: int, message: str) -> None:
    with EmbeddingServer(reply, status) as server:
        failure = lengths(server, "a").rows[0].metrics[0].failure
    assert failure.node == "Vector"
    assert message in failure.message


def test_a_verdict_is_refused() -> None:
    metric = DAGMetric(
        "Verdict",
        DAG(
            BinaryJudgementNode(
                "Is it?", evaluation_params=["input"], then={True: 10, False: 0}, name="Is it"
            )
        ),
        model=EmbeddingJudge("small", base_url="http://localhost:1/v1"),
    )
    done = evaluate([LLMTestCase(input="a", actual_output="b")], [metric], show=False)
    failure = done.rows[0].metrics[0].failure
    assert failure is not None
    assert "gives vectors" in failure.message
