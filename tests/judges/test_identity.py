"""Identities of judges: what may change an answer is in them, no secret is, old stores are read."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import instructor
import openai
import pytest
from servers.openai_server import Json, OpenAIServer, Reply

from dagengine import a_evaluate
from dagengine.errors import InputError
from dagengine.gateway import Gateway, Limits
from dagengine.judges import (
    AnthropicBatchJudge,
    DecisionJudge,
    EmbeddingJudge,
    FileBatchJudge,
    LabelJudge,
    OpenAIBatchJudge,
    OpenAIJudge,
    ProviderJudge,
    ScriptedJudge,
)
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode
from dagengine.prompts.answer_types import judgement_type
from dagengine.question import Answer, Judge, Message, Question, durable_identity
from dagengine.store.database import connect, entry_of, insert, key_of
from dagengine.test_case import LLMTestCase
from dagengine.voting import judged_by

HERE, KEY = "http://h/v1", "sk-hush-6B1xQ-abcdefgh"
CASES = [LLMTestCase(input="i")]


def client(url: str = HERE, **settings: Any) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=url, api_key=KEY, **settings)


def metric(judge: Judge | None, name: str = "m") -> DAGMetric:
    node = BinaryJudgementNode("ok?", evaluation_params=["input"], then={True: 10, False: 0})
    return DAGMetric(name, DAG(node), model=judge)


# Every string here is in somebody's store.
OLD: dict[str, tuple[Callable[[], Judge], str]] = {
    "model": (lambda: OpenAIJudge("m"), "openai m at https://api.openai.com/v1 with {}"),
    "address": (
        lambda: OpenAIJudge("m", base_url="http://u:p@h/v1/", parameters={"top_p": 0.5}),
        'openai m at http://h/v1 with {"top_p": 0.5}',
    ),
    "keys in the query": (
        lambda: OpenAIJudge("m", base_url=f"{HERE}?key=a&access_token=b&sig=c"),
        f"openai m at {HERE} with {{}}",
    ),
    "extra headers": (
        lambda: OpenAIJudge("m", base_url=HERE, parameters={"extra_headers": {"x-route": "a"}}),
        f'openai m at {HERE} with {{"extra_headers": {{"x-route": "a"}}}}',
    ),
    "client": (lambda: OpenAIJudge("m", client=client()), f"openai m at {HERE} with {{}}"),
    "headers of each request": (
        lambda: OpenAIJudge("m", client=client(default_headers={
            "X-Api-Key": "s", "X-Note": KEY, "traceparent": "t", "X-Request-Id": "1",
            "User-Agent": "u", "X-Removed": openai.Omit(),
        })),
        f"openai m at {HERE} with {{}}",
    ),
    "batch": (lambda: OpenAIBatchJudge("m"), "openai m at https://api.openai.com/v1 with {}"),
    "files": (
        lambda: FileBatchJudge("m", "f"), "batch files m at http://batch-files.invalid with {}",
    ),
    "labels": (lambda: LabelJudge("m", base_url=HERE), f"labels m at {HERE} with {{}}"),
    "decisions": (
        lambda: DecisionJudge("m", base_url=HERE, version="v", pack=False),
        f"decisions m (v) at {HERE} with {{}}",
    ),
    "vectors": (
        lambda: EmbeddingJudge("m", base_url=HERE), f"embeddings of openai m at {HERE} with {{}}",
    ),
    "Anthropic's batch": (
        lambda: AnthropicBatchJudge("m", parameters={"top_k": 1}), 'anthropic/m with {"top_k": 1}',
    ),
    "provider": (
        lambda: ProviderJudge("anthropic/m", base_url=HERE, default_headers={"x-route": "a"}),
        f'anthropic/m with {{"base_url": "{HERE}", "default_headers": {{"x-route": "a"}}}}',
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", OLD)
def test_judges_without_extra_headers_find_their_old_answers(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # An account of the environment, and headers where nothing is sent, are not of the judge.
    monkeypatch.setenv("OPENAI_ORG_ID", "theirs")
    if kind == "files":
        monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "x-route: a")
    make, name = OLD[kind]
    assert durable_identity(make()) == name


def azure(version: str) -> openai.AsyncAzureOpenAI:
    return openai.AsyncAzureOpenAI(azure_endpoint="https://r", api_key="k", api_version=version)


DIFFERENT: dict[str, Callable[[str], Judge]] = {
    "headers": lambda value: OpenAIJudge("m", client=client(default_headers={"x-route": value})),
    "query": lambda value: LabelJudge("m", client=client(default_query={"route": value})),
    "address": lambda value: EmbeddingJudge("m", base_url=f"{HERE}?route={value}"),
    "organization": lambda value: DecisionJudge("m", client=client(organization=value)),
    "project": lambda value: OpenAIBatchJudge("m", client=client(project=value)),
    "version": lambda value: OpenAIJudge("m", client=azure(value)),
    "provider": lambda value: ProviderJudge("openai/m", base_url=f"{HERE}?route={value}"),
}


@pytest.mark.parametrize("kind", DIFFERENT)
def test_what_may_change_answers_is_in_both_identities(kind: str) -> None:
    one, equal, other = map(DIFFERENT[kind], ("wordA", "wordA", "wordB"))
    assert one.identity == equal.identity != other.identity
    assert durable_identity(one) == durable_identity(equal) != durable_identity(other)
    assert "(digest " in str(durable_identity(one))
    assert "wordA" not in f"{one.identity} {durable_identity(one)}".replace("openai/wordA", "")


def test_headers_of_the_environment_are_in_the_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", f"X-Route: a\nX-Key: {KEY}")
    judge = OpenAIJudge("m", base_url=HERE)
    given = OpenAIJudge("m", client=client(default_headers={"x-route": "a"}))
    monkeypatch.delenv("OPENAI_CUSTOM_HEADERS")
    assert judge.durable_identity != given.durable_identity
    assert KEY not in judge.identity
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", f"X-Route: a\nX-Key: {KEY}")
    assert judge.durable_identity == given.durable_identity
    assert KEY in judge.secrets


class Plain(openai.AsyncOpenAI):
    """A client that is only made in another way."""

    def __init__(self) -> None:
        super().__init__(base_url=HERE, api_key=KEY)


class Signing(Plain):
    """A client that does something with requests."""

    async def _prepare_options(self, options: Any) -> Any:
        return options


def test_a_client_with_ways_of_its_own_counts_by_itself() -> None:
    plain = OpenAIJudge("m", client=Plain())
    assert plain.durable_identity == f"openai m at {HERE} with {{}}"
    for own in (Signing(), client(http_client=httpx2.AsyncClient())):
        judge, equal = OpenAIJudge("m", client=own), OpenAIJudge("m", client=own)
        assert judge.durable_identity is None
        assert judge.identity == equal.identity != plain.identity
        assert judge.identity != OpenAIJudge("m", client=Signing()).identity
        assert judge.former_identity == plain.durable_identity


CLIENTS: dict[str, Callable[[], Any]] = {
    "sync": lambda: openai.OpenAI(api_key="k"),
    "sync Azure": lambda: openai.AzureOpenAI(
        azure_endpoint="https://r", api_key="k", api_version="1"
    ),
    "class": lambda: openai.AsyncOpenAI,
    "wrapped": lambda: instructor.from_openai(client()),
    "HTTP": httpx2.AsyncClient,
    "resource": lambda: client().chat,
    "address": lambda: HERE,
}


@pytest.mark.parametrize("kind", CLIENTS)
def test_only_an_asynchronous_client_of_openai_is_taken(kind: str) -> None:
    for judge in (OpenAIJudge, OpenAIBatchJudge, LabelJudge, DecisionJudge, EmbeddingJudge):
        with pytest.raises(InputError, match=r"pass AsyncOpenAI\(…\)"):
            judge("m", client=CLIENTS[kind]())
    with pytest.raises(InputError, match="leave out client="):
        ProviderJudge("openai/m", client=CLIENTS[kind]())


def test_an_address_beside_a_client_is_an_error() -> None:
    with pytest.raises(InputError, match="leave out base_url="):
        OpenAIJudge("m", client=client(), base_url="http://another/v1")


class Router:
    """A server that is strict or lenient, as headers or the query say."""

    def __init__(self) -> None:
        self.server = OpenAIServer(self.respond)

    def respond(self, body: Json) -> Reply:
        asked = self.server.headers[-1].get("x-route"), self.server.queries[-1]
        strict = asked[0] == "strict" or "route=strict" in asked[1]
        return Reply(json.dumps({"reason": "r", "verdict": not strict}))


ROUTES: dict[str, Callable[[str, str], Judge]] = {
    "header": lambda url, route: OpenAIJudge(
        "m", client=client(url, default_headers={"x-route": route})
    ),
    "query": lambda url, route: OpenAIJudge("m", base_url=f"{url}?route={route}"),
    "query of the client": lambda url, route: OpenAIJudge(
        "m", client=client(url, default_query={"route": route})
    ),
}


@pytest.mark.anyio
@pytest.mark.parametrize("kind", ROUTES)
async def test_judges_on_two_routes_share_no_answer(kind: str, tmp_path: Path) -> None:
    router, make, store = Router(), ROUTES[kind], tmp_path / "answers.db"
    with router.server as server:
        lenient, strict = (make(server.base_url, route) for route in ("lenient", "strict"))
        both = [metric(lenient, "a"), metric(strict, "b")]
        (row,) = await a_evaluate(CASES, both, show=False)
        assert [each.score for each in row.metrics] == [1.0, 0.0]
        jury = judged_by(metric(None), [lenient, strict, make(server.base_url, "strict")])
        (row,) = await a_evaluate(CASES, [jury], show=False)
        assert row.metrics[0].score == 0.0
        asked = len(server.requests)
        for judge, score in ((lenient, 1.0), (strict, 0.0), (lenient, 1.0), (strict, 0.0)):
            result = await a_evaluate(CASES, [metric(judge)], store=store, show=False)
            assert result.scores("m") == [score]
        assert len(server.requests) == asked + 2


@pytest.mark.anyio
async def test_judges_that_differ_only_in_their_key_share_answers_and_no_limits(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with OpenAIServer() as server:
        wrong, right, again = (
            OpenAIJudge("m", base_url=server.base_url, api_key=key) for key in ("no", "yes", "yes")
        )
        both = [metric(wrong, "a"), metric(right, "b"), metric(again, "c")]
        await a_evaluate(CASES, both, show=False)
        assert len(server.requests) == 1
        assert caplog.text.count("these judges differ only in their key: answers are shared") == 1
        gateway = Gateway(Limits())
        states = [gateway._state(judge) for judge in (wrong, right, again)]
        assert states[0].limiter is not states[1].limiter
        assert states[1] is states[2]


def test_a_judge_of_batches_waits_as_one_beside_its_equal(caplog: pytest.LogCaptureFixture) -> None:
    gateway = Gateway(Limits())
    at_once, batched = (gateway._state(kind("m")) for kind in (OpenAIJudge, OpenAIBatchJudge))
    assert at_once.limiter is not batched.limiter
    assert caplog.text.count("differ only in how they are asked") == 1


def stored(path: Path, name: str, count: int) -> None:
    """A store with answers of a judge of this name."""
    shape = judgement_type(None)
    value = shape.model_validate({"reason": "r", "verdict": True})
    db = connect(path, 1.0)
    for number in range(count):
        question = Question((Message(role="user", content=f"{number}"),), shape, name="n")
        entry = entry_of(key_of(name, question), name, question, Answer(value, "{}"))
        assert entry is not None
        insert(db, [entry])
    db.close()


@pytest.mark.anyio
async def test_answers_that_another_identity_costs_are_counted_before_one_is_paid(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = tmp_path / "answers.db"
    router = Router()
    async with httpx2.AsyncClient() as own:
        with router.server as server:
            stored(store, f"openai m at {server.base_url} with {{}}", 7)
            stored(store, f"openai n at {server.base_url} with {{}}", 2)
            judges = [
                ROUTES["header"](server.base_url, "strict"),
                OpenAIJudge("m", client=client(server.base_url, http_client=own)),
            ]
            for judge in judges:
                caplog.clear()
                await a_evaluate(CASES, [metric(judge)], store=store, show=False)
                (line,) = [r.getMessage() for r in caplog.records if "not used" in r.getMessage()]
                assert f"{7 + (judge is judges[1])} answers of openai m at" in line
            caplog.clear()
            await a_evaluate(CASES, [metric(judges[0])], store=store, show=False)
            old = OpenAIJudge("m", base_url=server.base_url)
            await a_evaluate(CASES, [metric(old)], store=store, show=False)
            await a_evaluate(CASES, [metric(ScriptedJudge({}))], store=store, show=False)
            assert "not used" not in caplog.text
