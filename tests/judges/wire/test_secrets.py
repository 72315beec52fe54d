"""Secrets of judges: they reach the endpoint that they are for, and nothing that outlives a run."""

from __future__ import annotations

import base64
import json
import os
import pickle
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from servers.openai_server import OpenAIServer, Reply

from dagengine import a_evaluate
from dagengine.errors import (
    DagengineError,
    JudgeSetupError,
    ProviderError,
    RefusedError,
    UnparseableError,
)
from dagengine.gateway import Limits
from dagengine.judges import (
    CustomJudge,
    OpenAIBatchJudge,
    OpenAIJudge,
    ProviderJudge,
    ScriptedJudge,
    as_judge,
)
from dagengine.metrics.dag import DAG, BinaryJudgementNode, DAGMetric
from dagengine.question import Judge
from dagengine.redaction import public_text, public_value, secrets_of_environment
from dagengine.store.maintenance import open_to_look, records
from dagengine.test_case import LLMTestCase

pytestmark = pytest.mark.anyio
SECRET = "hush-6B1xQ"
OK = '{"reason": "because", "verdict": true}'
HOST = "127.0.0.1"


def at(base_url: str, user: str = "", query: str = "") -> str:
    return base_url.replace(HOST, f"{user}@{HOST}" if user else HOST) + query


def nested(value: Any, depth: int) -> Any:
    return value if depth == 0 else {"a": [nested(value, depth - 1)]}


def with_client(url: str) -> OpenAIJudge:
    import openai

    client = openai.AsyncOpenAI(
        base_url=at(url, f"u:{SECRET}"), api_key=SECRET, default_headers={"x-api-key": SECRET}
    )
    return OpenAIJudge("m", client=client)


def in_parameter(name: str, depth: int) -> Callable[[str], OpenAIJudge]:
    return lambda url: OpenAIJudge("m", base_url=url, parameters=nested({name: SECRET}, depth))


PLACES: dict[str, Callable[[str], OpenAIJudge]] = {
    "key": lambda url: OpenAIJudge("m", base_url=url, api_key=SECRET),
    "password": lambda url: OpenAIJudge("m", base_url=at(url, f"user:{SECRET}")),
    "user": lambda url: OpenAIJudge("m", base_url=at(url, SECRET)),
    "escaped": lambda url: OpenAIJudge("m", base_url=at(url, f"user:%68{SECRET[1:]}")),
    "query": lambda url: OpenAIJudge("m", base_url=at(url, query=f"?key={SECRET}&api-version=1")),
    "any query": lambda url: OpenAIJudge("m", base_url=at(url, query=f"?x={SECRET}")),
    "everywhere": lambda url: OpenAIJudge(
        "m", base_url=at(url, f"{SECRET}:{SECRET}", f"?k={SECRET}"), api_key=SECRET
    ),
    "client": with_client,
    "headers": lambda url: OpenAIJudge(
        "m", base_url=url, parameters={"extra_headers": {"X-My-Key": SECRET}}
    ),
    "address in a parameter": lambda url: OpenAIJudge(
        "m", base_url=url, parameters={"proxy": f"http://u:{SECRET}@p:1/?a={SECRET}"}
    ),
}  # fmt: skip
NAMES = ("api_key", "api-key", "password", "Authorization", "client_secret", "token")
PLACES |= {
    f"parameter {name} at depth {depth}": in_parameter(name, depth)
    for name in NAMES
    for depth in (0, 1, 3)
}
REPLIES: dict[str, Reply] = {
    "an answer": Reply(OK),
    "an answer that quotes it": Reply(f'{{"reason": "the key is {SECRET}!", "verdict": true}}'),
    "a refusal that names it": Reply(f"bad key {SECRET}", status=401),
    "a page": Reply(body=f"<html>{SECRET}</html>"),
    "an answer that does not fit": Reply(f"{SECRET} is wrong"),
    "a redirection": Reply(status=307, headers={"Location": f"http://u:{SECRET}@x.invalid/?{SECRET}"}),
    "no answer": Reply(drop=True),
}  # fmt: skip


class Spans:
    """The spans of a run, as text."""

    def __init__(self) -> None:
        self._kept = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self._kept))
        self.tracer = provider.get_tracer("test")

    def __str__(self) -> str:
        return "".join(span.to_json() for span in self._kept.get_finished_spans())


async def written(judge: Judge, folder: Path, output: Callable[[], str]) -> dict[str, str]:
    """Everything that a run with a judge shows and writes down."""
    node = BinaryJudgementNode("ok?", evaluation_params=["input"], then={True: 10, False: 0})
    spans, attempts = Spans(), list[Any]()
    try:
        result: Any = await a_evaluate(
            [LLMTestCase(input="i")],
            [DAGMetric("m", DAG(node))],
            model=judge,
            store=folder / "answers.db",
            limits=Limits(attempts=1, reasks=1),
            on_attempt=attempts.append,
            tracer=spans.tracer,
        )
    except DagengineError as error:
        result = f"{error} {error!r}"
    files = [path.read_bytes().decode(errors="replace") for path in folder.iterdir()]
    return {
        "result": f"{result} {result!r} {list(result)!r} {getattr(result, 'rows', ())!s}",
        "attempts": f"{attempts}",
        "spans": f"{spans}",
        "files": "".join(files),
        "judge": f"{judge} {judge!r} {judge.identity} {getattr(judge, 'durable_identity', '')}",
        "output": output(),
    }


# What a server replies is one thing for all names and depths of a parameter. A run with every
# place and every reply is on both event loops, but not with every pair of them.
TRIED = [
    (place, reply, ("asyncio", "trio")[(row + column) % 2])
    for row, place in enumerate(PLACES)
    for column, reply in enumerate(REPLIES)
    if not place.startswith("parameter") or place == "parameter token at depth 3"
    or reply == ("an answer", "a refusal that names it")[row % 2]
]  # fmt: skip


@pytest.mark.parametrize(("place", "reply", "anyio_backend"), TRIED)
async def test_a_secret_is_in_nothing_that_outlives_a_run(
    place: str, reply: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with OpenAIServer(lambda body: REPLIES[reply]) as server:
        judge = PLACES[place](server.base_url)
        found = await written(judge, tmp_path, lambda: "".join(capfd.readouterr()))
        if judge._given is not None:
            await judge._given.close()
    assert [name for name, text in found.items() if SECRET in text] == []
    assert server.requests


@pytest.mark.parametrize("place", ["key", "password", "query", "any query", "everywhere"])
async def test_the_debug_log_of_a_library_has_no_secret_of_an_address(
    place: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("openai", "httpx2"):  # as OPENAI_LOG=debug does
        caplog.set_level("DEBUG", name)
    with OpenAIServer(lambda body: REPLIES["an answer"]) as server:
        await written(PLACES[place](server.base_url), tmp_path, str)
    assert "/chat/completions" in caplog.text
    assert SECRET not in caplog.text


ROUTED = ("any query", "everywhere", "address in a parameter")


@pytest.mark.parametrize("place", ROUTED)
async def test_a_judge_whose_query_may_change_answers_is_not_pickled(place: str) -> None:
    with pytest.raises(TypeError, match="set it in the environment of all"):
        pickle.dumps(PLACES[place]("http://127.0.0.1:1/v1"))


@pytest.mark.parametrize("place", [p for p in PLACES if p not in ("client", *ROUTED)])
async def test_a_pickled_judge_carries_no_secret(place: str) -> None:
    judge = PLACES[place]("http://127.0.0.1:1/v1")
    assert SECRET.encode() not in pickle.dumps(judge)
    assert pickle.loads(pickle.dumps(judge)).durable_identity == judge.durable_identity


async def test_a_pickled_judge_takes_its_key_from_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "another")
    with OpenAIServer(lambda body: Reply(OK)) as server:
        judge = OpenAIJudge("m", base_url=server.base_url, api_key=SECRET)
        await as_judge(pickle.loads(pickle.dumps(judge))).answer(asked())
        assert server.headers[0]["Authorization"] == "Bearer another"
        monkeypatch.delenv("OPENAI_API_KEY")
        with pytest.raises(JudgeSetupError, match="keys are not pickled"):
            await pickle.loads(pickle.dumps(judge)).answer(asked())


def asked() -> Any:
    from dagengine.prompts import Evidence, messages_for
    from dagengine.prompts.answer_types import judgement_type
    from dagengine.question import Question

    return Question(messages_for("s", [Evidence("a", "t")]), judgement_type(None), name="q")


async def test_a_judge_with_a_given_client_cannot_be_pickled() -> None:
    judge = with_client("http://127.0.0.1:1/v1")
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(judge)


@pytest.mark.parametrize("source", ["base_url", "environment"])
async def test_a_user_and_a_query_in_the_address_are_sent_as_they_are_meant(
    source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with OpenAIServer(lambda body: Reply(OK)) as server:
        address = at(server.base_url, "me:p%40ss%3A", "?key=a%20b&api-version=1")
        monkeypatch.setenv("OPENAI_BASE_URL", address)
        judge = OpenAIJudge("m", base_url=address if source == "base_url" else None)
        await judge.answer(asked())
        await judge.require_reachable()
    token = base64.b64encode(b"me:p@ss:").decode()
    assert server.headers[0].getall("Authorization") == [f"Basic {token}"]  # type: ignore[attr-defined]
    assert server.queries == ["key=a b&api-version=1"]


@pytest.mark.parametrize(
    "address",
    [
        f"http://[{SECRET}",
        f"http://h:{SECRET}/v1",
        f"u:{SECRET}@h/v1",
        f"h:8000/v1?key={SECRET}",
        f"http://h/v1?tag=a&tag={SECRET}",  # of which only one would be sent
    ],
)
def test_what_is_no_address_is_a_setup_error_without_it(address: str) -> None:
    with pytest.raises(JudgeSetupError) as caught:
        OpenAIJudge("m", base_url=address)
    assert SECRET not in str(caught.value)


async def test_the_options_of_another_provider_show_no_secret(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SOME_API_KEY", "environment-secret")
    options: Mapping[str, Any] = {
        "api_key": SECRET,
        "default_headers": {"x-auth": SECRET, "x-tenant": "t"},
        "nested": [{"deeper": {"client_secret": SECRET}}],
        "base_url": f"https://u:{SECRET}@host/v1?sig={SECRET}",
        "max_tokens": 5,
    }
    judge = ProviderJudge("nowhere/m", **options)
    with pytest.raises(JudgeSetupError) as caught:
        await judge.answer(asked())
    shown = f"{judge.identity} {judge.durable_identity} {judge!r} {caught.value}"
    assert SECRET not in shown
    assert SECRET.encode() not in pickle.dumps(judge)
    assert all(kept in judge.identity for kept in ("max_tokens", "x-tenant", "https://host/v1"))
    assert "environment-secret" not in str(judge._setup_error(ValueError("environment-secret")))


class Leaking:
    """A model whose HTTP library tells everything in its errors."""

    def generate(self, prompt: str) -> str:
        raise ConnectionError(f"POST https://u:{SECRET}@h/v1?key={SECRET}: Bearer {SECRET}")


async def test_the_message_of_a_models_own_library_shows_no_secret(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    judge = CustomJudge(Leaking())
    found = await written(judge, tmp_path, lambda: "".join(capfd.readouterr()))
    assert "https://h/v1" in found["result"]
    assert [name for name, text in found.items() if SECRET in text] == []


def test_judges_without_secrets_are_called_as_before() -> None:
    at_home = OpenAIJudge(
        "m", base_url="http://h:1/v1/", parameters={"top_p": 0.5, "b": [{"c": 1}]}
    )
    wanted = 'openai m at http://h:1/v1{} with {{"b": [{{"c": 1}}], "top_p": 0.5}}'
    assert at_home.durable_identity == wanted.format("")
    assert at_home.identity == wanted.format("/")
    batch = OpenAIBatchJudge("m", base_url="http://h:1/v1", parameters={"max_tokens": 5})
    assert batch.durable_identity == 'openai m at http://h:1/v1 with {"max_tokens": 5}'
    other = ProviderJudge("anthropic/m", max_tokens=5, stop=("a", "b"))
    assert other.identity == "anthropic/m with [('max_tokens', 5), ('stop', ('a', 'b'))]"
    assert other.durable_identity == 'anthropic/m with {"max_tokens": 5, "stop": ["a", "b"]}'


KEYS = (
    "sk-proj-Ab3_dEf-GhIjKlMnOpQr",
    "sk-ant-api03-AbCdEfGhIjKlMn",
    "sk-0123456789abcdef0123",
    "gsk_AbCdEfGhIjKlMnOp12",
    "hf_AbCdEfGhIjKlMnOpQr7tUv",
    "xai-AbCdEfGhIjKlMnOp12",
    "AIzaSyA-1bCdEfGhIjKlMnOpQr",
)


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("told", ["Incorrect API key provided: {}.", "key='{}'", '{{"k":"{}"}}'])
def test_a_key_that_no_variable_holds_is_known_by_its_form(key: str, told: str) -> None:
    shown = public_text(told.format(key))
    assert key[6:] not in shown
    assert shown == public_text(shown)
    assert shown.startswith(told[:5].replace("{{", "{"))


@pytest.mark.parametrize("text", [f"wrong key {KEYS[0]}", "sent: Bearer AbCdEfGhIjKl"])
async def test_a_server_s_message_shows_no_key_of_somebody_else(text: str) -> None:
    with (
        OpenAIServer(lambda body: Reply(text, status=401)) as server,
        pytest.raises(ProviderError) as caught,
    ):
        await OpenAIJudge("m", base_url=server.base_url).answer(asked())
    assert "HTTP 401: " in str(caught.value)
    assert text.split()[-1] not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "Tokens: 5",
        "see https://h.example/a-b_c/d, or ask",
        "a://",
        "5 > 3? yes",
        "",
        "sk-learn-contrib-imbalanced",
        "sk-1234, or risk-0123456789abcdef01, or a task-2026-11-22-of-many",
        "hf_hub_download_of_models",
    ],
)
def test_ordinary_texts_stay_as_they_are(text: str) -> None:
    assert public_text(text) == text


def test_ordinary_data_stay_as_they_are() -> None:
    data = {"max_tokens": 5, "prompt_cache_key": "k", "stop": ("a",), "n": [1, None, 2.5, True]}
    assert public_value(data) == data


QUOTED = f'{SECRET}"\N{EURO SIGN}'  # which JSON writes in several ways
SAYS: dict[str, Callable[[], Any]] = {
    "a reason": lambda: {"verdict": True, "reason": f"the key is {QUOTED}"},
    "an answer that does not fit": lambda: UnparseableError(f"no {QUOTED}", json.dumps(QUOTED)),
    "a refusal": lambda: RefusedError(f"I keep {QUOTED} to myself"),
}


@pytest.mark.parametrize("says", SAYS)
async def test_a_key_of_the_environment_that_a_judge_quotes_is_in_no_row_and_no_store(
    says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_API_KEY", QUOTED)
    judge = ScriptedJudge(lambda question: SAYS[says](), "quoting")
    found = await written(judge, tmp_path, str)
    assert [name for name, text in found.items() if SECRET in text] == []
    stored = "".join(json.dumps(one.as_dict()) for one in _stored(tmp_path / "answers.db"))
    assert stored
    assert SECRET not in stored


class Quoting(ScriptedJudge):
    """A judge that tells its key."""

    def __init__(self, key: str) -> None:
        super().__init__(lambda question: {"verdict": True, "reason": f"the key is {key}"}, "same")
        self.secrets = [key]


async def test_two_judges_of_one_identity_both_keep_their_keys(tmp_path: Path) -> None:
    keys = ["first-key-0123456789", "second-key-987654321"]
    metrics = [
        DAGMetric(
            key[:5],
            DAG(BinaryJudgementNode(f"{key[:5]}?", evaluation_params=["input"],
                                    then={True: 10, False: 0})),
            model=Quoting(key),
        )
        for key in keys
    ]  # fmt: skip
    result = await a_evaluate([LLMTestCase(input="i")], metrics, show=False)
    reasons = [metric.reason or "" for metric in result.rows[0].metrics]
    assert ["the key is" in reason for reason in reasons] == [True, True]
    assert [key for key in keys if key in repr(result.rows)] == []


def _stored(path: Path) -> list[Any]:
    with open_to_look(path) as db:
        return list(records(db))


def test_variables_that_come_and_go_meanwhile_do_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(200):
        monkeypatch.setenv(f"COMES_AND_GOES_{number}_TOKEN", "a" * 20)
    stopping = threading.Event()

    def change() -> None:
        while not stopping.is_set():
            for number in range(200):
                os.environ.pop(f"COMES_AND_GOES_{number}_TOKEN", None)
            for number in range(200):
                os.environ[f"COMES_AND_GOES_{number}_TOKEN"] = "a" * 20

    thread = threading.Thread(target=change)
    thread.start()
    try:
        for _ in range(200):
            secrets_of_environment()
    finally:
        stopping.set()
        thread.join()
