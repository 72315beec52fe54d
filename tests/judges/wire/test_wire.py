"""What the judge's own way to a server does as the openai client's HTTP layer would."""

from __future__ import annotations

import json
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import openai
import pytest
from servers.openai_server import Json, OpenAIServer, Reply, valid_reply
from servers.raw_server import RawServer, response

from dagengine.errors import ProviderError, UnparseableError
from dagengine.judges import OpenAIJudge
from dagengine.judges.wire.completions import read_completion, reply_text, usage_of
from dagengine.judges.wire.dialects.response_shapes import refusal_in
from dagengine.prompts import Evidence, messages_for
from dagengine.prompts.answer_types import judgement_type, list_type, output_type, rating_type
from dagengine.question import FirstMatch, Options, Question

pytestmark = pytest.mark.anyio

OK = '{"reason": "because", "verdict": "Yes"}'
COMPLETION = (
    b'{"choices": [{"message": {"content": "{\\"reason\\": \\"b\\", \\"verdict\\": true}"}}]}'
)
YES = FirstMatch((("y", True),))
SHAPES = (
    judgement_type(("Yes", "No")),
    rating_type(1, 5),
    list_type(("yes", "no"), 2),
    output_type(str),
    output_type(list[str]),
)
STRANGE = 'braces {{ x }} "quotes" \\ \n\ttabs \u2028 é 🙂 \x00 dagengine: the evidence'
PARAMETERS: dict[str, Any] = {"top_p": 0.5, "metadata": {"team": "é", "n": [1, None]}}


def question(text: str = "t", shape: Any = SHAPES[0], **more: Any) -> Question[Any]:
    return Question(messages_for("Is it so?", [Evidence("text", text)]), shape, name="q", **more)


def questions() -> Iterator[Question[Any]]:
    """One of every kind that makes another request."""
    for shape in SHAPES:
        yield question(STRANGE, shape)
    yield question("no UTF-8: \udcff, a pair: \ud83d\ude00")
    yield question(options=Options(temperature=None, seed=3, max_tokens=90, top_logprobs=2))
    yield question(options=Options(temperature=0))
    yield question(options=Options(temperature=0.0))
    yield question(STRANGE, judgement_type(None), parser=YES)
    yield question().again('{"verdict": "Maybe"}', "it is none of them")


def rejecting(*words: str) -> Any:
    """A server that knows only some ways of asking for structure."""

    def respond(body: Json) -> Reply:
        refused = [word for word in words if word in str({**body, "messages": ()})]
        return Reply(f"unknown: {refused[0]}", status=400) if refused else valid_reply(body)

    return respond


def told(server: OpenAIServer) -> list[Any]:
    """The bytes and the headers of all requests, without how they travelled."""
    own = {"host", "connection", "content-length", "accept-encoding"}
    kept = [
        sorted((name.lower(), value) for name, value in headers.items() if name.lower() not in own)
        for headers in server.headers
    ]
    return list(zip(server.bodies, kept, strict=True))


@pytest.mark.parametrize("words", [(), ("json_schema",), ("json_schema", "tool_choice")])
async def test_every_request_is_byte_for_byte_that_of_the_openai_client(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_ORG_ID", "org-1")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "x-team: evals")
    requests: list[Any] = []
    for own in (True, False):
        with OpenAIServer(rejecting(*words)) as server:
            async with openai.AsyncOpenAI(base_url=server.base_url, api_key="k") as client:
                judge = (
                    OpenAIJudge("m", base_url=server.base_url, api_key="k", parameters=PARAMETERS)
                    if own
                    else OpenAIJudge("m", client=client, parameters=PARAMETERS)
                )
                for asked in questions():
                    with suppress(UnparseableError):
                        await judge.answer(asked)
            timeouts = {"x-stainless-read-timeout"}  # this client has the default one
            requests.append(
                [(body, [h for h in heads if h[0] not in timeouts]) for body, heads in told(server)]
            )
    assert requests[0] == requests[1]
    assert ("x-team", "evals") in requests[0][0][1]
    assert ("openai-organization", "org-1") in requests[0][0][1]


async def test_one_connection_serves_one_question_after_the_other() -> None:
    with OpenAIServer(lambda body: Reply(OK)) as server:
        judge = OpenAIJudge("m", base_url=server.base_url)
        async with judge.session():
            for number in range(5):
                await judge.answer(question(str(number)))
    assert len(server.requests) == 5
    assert len(server.connections) == 1


async def test_a_server_on_ipv6_is_reached() -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6")
    with OpenAIServer(lambda body: Reply(OK), host="::1") as server:
        judge = OpenAIJudge("m", base_url=server.base_url)
        assert (await judge.answer(question())).value.verdict == "Yes"
        await judge.require_reachable()


@pytest.mark.parametrize("half", [b"", COMPLETION[:20]], ids=["before", "within"])
async def test_a_question_cancelled_while_its_answer_comes_leaves_nothing_to_the_next(
    half: bytes,
) -> None:
    whole = response(COMPLETION)
    head = whole[: len(whole) - len(COMPLETION)]
    begun = anyio.Event()
    pieces = [head + half]

    def chunks() -> Iterator[bytes]:
        if not pieces:
            yield whole
            return
        yield pieces.pop()
        anyio.from_thread.run_sync(begun.set, token=token)
        stopped.acquire()

    stopped = threading.Semaphore(0)
    token = anyio.lowlevel.current_token()
    with RawServer(chunks) as server:
        judge = OpenAIJudge("m", base_url=server.base_url)
        shape = judgement_type(None)
        async with judge.session():
            async with anyio.create_task_group() as group:
                group.start_soon(judge.answer, question("first", shape))
                await begun.wait()
                group.cancel_scope.cancel()
            with anyio.fail_after(30):
                answer = await judge.answer(question("second", shape))
            assert answer.value.verdict is True
        stopped.release()


async def test_a_redirect_within_the_origin_takes_body_headers_and_query_along() -> None:
    moved = [Reply(status=307, headers={"Location": "/v1/there/chat/completions?x=1"}, body="")]
    with OpenAIServer(lambda body: moved.pop() if moved else Reply(OK)) as server:
        judge = OpenAIJudge("m", base_url=f"{server.base_url}?key=1", api_key="k")
        await judge.answer(question(STRANGE))
    assert server.bodies[0] == server.bodies[1]
    assert [headers["Authorization"] for headers in server.headers] == ["Bearer k"] * 2
    assert server.queries == ["key=1", "x=1&key=1"]


@pytest.mark.parametrize("trusted", [True, False])
async def test_only_certificates_that_the_environment_trusts_are_taken(
    trusted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl to make a certificate with")
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"),
            *("-keyout", str(key), "-out", str(certificate)),
        ],
        check=True,
        capture_output=True,
    )
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    if trusted:
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    with OpenAIServer(lambda body: Reply(OK), tls=tls) as server:
        judge = OpenAIJudge("m", base_url=server.base_url)
        if trusted:
            assert (await judge.answer(question())).value.verdict == "Yes"
        else:
            with pytest.raises(ProviderError, match=r"(?i)certificate"):
                await judge.answer(question())
            assert not server.requests


async def test_a_proxy_that_is_not_for_this_host_is_passed_by(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with OpenAIServer(lambda body: Reply(OK)) as server:
        judge = OpenAIJudge("m", base_url=server.base_url)
        assert (await judge.answer(question())).value.verdict == "Yes"


@pytest.mark.parametrize(
    ("proxy", "said"),
    [("junk", "the proxy junk of the environment .HTTP_PROXY. is no address"),
     ("http://127.0.0.1:1", "through the proxy http://127.0.0.1:1 of the environment")],
)  # fmt: skip
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_proxy_that_does_not_work_is_named(
    monkeypatch: pytest.MonkeyPatch, proxy: str, said: str
) -> None:
    for name in ("HTTP_PROXY", "NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", proxy)
    with pytest.raises(ProviderError, match=said):
        await OpenAIJudge("m", base_url="http://judge.invalid/v1").answer(question())


@pytest.mark.parametrize("status", [400, 401, 404, 409, 422, 429, 500, 503])
async def test_an_error_is_told_as_the_openai_client_tells_it(status: int) -> None:
    reply = Reply("no: é", status=status, headers={"Retry-After": "3"}, compressed=True)
    errors: list[ProviderError] = []
    with OpenAIServer(lambda body: reply) as server:
        async with openai.AsyncOpenAI(base_url=server.base_url, api_key="k") as client:
            for judge in (
                OpenAIJudge("m", base_url=server.base_url, api_key="k"),
                OpenAIJudge("m", client=client),
            ):
                with pytest.raises(ProviderError) as caught:
                    await judge.answer(question())
                errors.append(caught.value)
    own, other = [(str(e), e.transient, e.status, e.retry_after) for e in errors]
    assert own == other
    assert own[3] == 3.0


COUNTED = (187, 5, 0)


@pytest.mark.parametrize(
    ("counts", "usage"),
    [
        ({"completion_tokens": 5, "total_tokens": 192}, COUNTED),
        ({"completion_tokens": 5, "total_tokens": 805}, (187, 618, 0)),  # Gemini, xAI
        ({"completion_tokens": 0, "total_tokens": 247}, (187, 60, 0)),
        ({"completion_tokens": 5, "total_tokens": 10**30}, COUNTED),
        ({"completion_tokens": 5, "total_tokens": "many"}, COUNTED),
        ({"completion_tokens": 5, "total_tokens": 100}, COUNTED),
        ({"output_tokens": 5, "prompt_tokens_details": None}, COUNTED),
        ({"completion_tokens": 5, "prompt_cache_hit_tokens": 128}, (187, 5, 128)),  # DeepSeek
        ({"completion_tokens": 5, "cached_tokens": 128}, (187, 5, 128)),  # Moonshot
        ({"completion_tokens": 5, "cache_read_input_tokens": 999}, (187, 5, 187)),
        (  # gateways that fill the fields of all providers
            {
                "completion_tokens": 5,
                "prompt_cache_hit_tokens": 0,
                "cache_read_input_tokens": 0,
                "prompt_tokens_details": {"cached_tokens": 128},
            },
            (187, 5, 128),
        ),
    ],
)
def test_tokens_are_counted_as_servers_name_them(counts: Json, usage: tuple[int, ...]) -> None:
    name = "input_tokens" if "output_tokens" in counts else "prompt_tokens"
    body = {"choices": [{"message": {"content": "T"}}], "usage": {name: 187, **counts}}
    counted = usage_of(read_completion(json.dumps(body).encode()))
    assert (counted.input_tokens, counted.output_tokens, counted.cached_tokens) == usage


@pytest.mark.parametrize(
    "body",
    [
        {"content": [{"type": "tool_use", "name": "T", "input": {}}], "stop_reason": "tool_use"},
        {"choices": [{"message": {"tool_calls": [{"function": {"arguments": {}}}]}}]},
    ],
)
def test_a_call_without_arguments_is_an_empty_object_and_no_broken_server(body: Json) -> None:
    assert reply_text(read_completion(json.dumps(body).encode())) == "{}"


@pytest.mark.parametrize(
    ("text", "refuses"),
    [
        ("\u03a3\u03c5\u03b3\u03b3\u03bd\u03ce\u03bc\u03b7", True),  # an apology
        ("\u03a3\u03c5\u03b3\u03b3\u03c1\u03b1\u03c6\u03ad\u03b1\u03c2", False),  # an author
        ("मुझे खेद है", True),
        ("申し訳ありません", True),
    ],
)
def test_the_opening_of_a_refusal_is_a_whole_word(text: str, refuses: bool) -> None:
    assert refusal_in(text) is refuses
