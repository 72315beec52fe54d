"""Endpoints that send anything: every call ends as a typed outcome, and memory is bounded."""

from __future__ import annotations

import gzip
import itertools
import json
import random
import threading
import traceback
import tracemalloc
import zlib
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

import anyio
import openai
import pytest
from servers.openai_server import Reply, completion_of
from servers.raw_server import Chunks, RawServer, chunk, response

from dagengine.errors import JudgeError, JudgeTimeoutError, ProviderError, UnparseableError
from dagengine.gateway import Gateway, Limits
from dagengine.judges import OpenAIJudge, ProviderJudge
from dagengine.prompts import Evidence, messages_for
from dagengine.prompts.answer_types import judgement_type
from dagengine.question import Answer, Question

pytestmark = pytest.mark.anyio
OK = '{"reason": "because", "verdict": true}'
CHUNKED = response(b"", "Transfer-Encoding: chunked", length=False)
TINY = Limits(attempts=1, reasks=0, call_timeout=30.0)


def question(text: str = "t") -> Question[Any]:
    return Question(messages_for("s", [Evidence("a", text)]), judgement_type(None), name="q")


# It counts the tokens of a question: nobody asks again whether all of the prompt was read.
BODY = json.dumps(completion_of({"messages": question().messages}, Reply(OK))).encode()


def require_short(error: JudgeError) -> JudgeError:
    assert len(str(error)) < 2_000
    return error


async def ended(
    chunks: Chunks, limits: Limits = TINY, *, half: bool = False, **settings: Any
) -> Answer[Any] | JudgeError:
    """How one call ends; anything but an answer or a JudgeError is raised."""
    with RawServer(chunks, half=half) as server, anyio.fail_after(120):
        judge = OpenAIJudge("m", base_url=server.base_url, **settings)
        try:
            return await Gateway(limits).ask(judge, question())
        except JudgeError as error:
            return require_short(error)


def once(*data: bytes) -> Chunks:
    return lambda: data


def endless(*first: bytes, then: bytes) -> Chunks:
    return lambda: itertools.chain(first, itertools.repeat(then))


@cache
def gzipped_zeros(size: int) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, zlib.MAX_WBITS | 16)
    pieces = [packer.compress(bytes(1 << 20)) for _ in range(size >> 20)]
    return b"".join([*pieces, packer.flush()])


ENDLESS: dict[str, Chunks] = {
    "a chunked body": endless(CHUNKED, then=chunk(b" " * 60_000)),
    "a body without a length": endless(response(length=False), then=b" " * 60_000),
    "a long string": endless(CHUNKED, chunk(b'{"choices": "'), then=chunk(b"x" * 60_000)),
    "a body of an enormous length": endless(
        response(b"", "Content-Length: 99999999999999", length=False), then=b" " * 60_000
    ),
    "an error": endless(
        response(b"", "Transfer-Encoding: chunked", status="500 no", length=False),
        then=chunk(b"<" * 60_000),
    ),
}
GZIP = "Content-Encoding: gzip"


@pytest.mark.parametrize("kind", ENDLESS)
async def test_an_endless_body_is_not_read_on(kind: str) -> None:
    with RawServer(ENDLESS[kind]) as server, anyio.fail_after(120):
        judge = OpenAIJudge("m", base_url=server.base_url, max_bytes=1_000_000)
        with pytest.raises(
            ProviderError, match=r"longer than 1,000,000 bytes.*max_bytes"
        ) as caught:
            await judge.answer(question())
    assert not caught.value.transient
    assert server.sent < 20_000_000  # what the connection's buffers take


@pytest.mark.parametrize("chunked", [True, False], ids=["chunked", "of known length"])
async def test_a_long_body_that_stops_halfway_does_not_stop_the_others(chunked: bool) -> None:
    whole = BODY + b" " * 150_000
    if chunked:
        first, rest = CHUNKED + chunk(whole[:100_000]), chunk(whole[100_000:]) + chunk(b"")
    else:
        first, rest = response(whole)[:100_000], response(whole)[100_000:]
    stopped, ended = threading.Event(), threading.Event()
    turns = itertools.count()

    def chunks() -> Iterator[bytes]:
        turn = next(turns)
        yield first
        if not turn:
            stopped.set()
            ended.wait(60)
        yield rest

    with RawServer(chunks) as server, anyio.fail_after(120):
        judge, gateway = OpenAIJudge("m", base_url=server.base_url), Gateway(TINY)
        async with anyio.create_task_group() as group:
            group.start_soon(gateway.ask, judge, question("one"))
            await anyio.to_thread.run_sync(stopped.wait, 60)
            try:
                await gateway.ask(judge, question("two"))
            finally:
                ended.set()


@pytest.mark.parametrize("packed", [False, True], ids=["endless", "bomb"])
async def test_a_client_of_the_callers_reads_no_further_either(packed: bool) -> None:
    bomb = response(gzipped_zeros(1 << 26), GZIP)
    with (
        RawServer(once(bomb) if packed else ENDLESS["a chunked body"]) as server,
        anyio.fail_after(120),
    ):
        async with openai.AsyncOpenAI(base_url=server.base_url, api_key="k") as client:
            judge = OpenAIJudge("m", client=client, max_bytes=1_000_000)
            with pytest.raises(ProviderError, match=r"longer than 1,000,000 bytes"):
                await judge.answer(question())
            assert not client.is_closed()
    assert server.sent < 20_000_000


@pytest.mark.parametrize("kind", ["a chunked body", "an error", "a small body, unpacked"])
async def test_a_provider_s_own_client_reads_no_further_either(kind: str) -> None:
    zeros = gzip.compress(bytes(4 << 20))
    bomb = once(response(zeros, "Content-Encoding: gzip"))
    with RawServer(ENDLESS.get(kind, bomb)) as server, anyio.fail_after(120):
        options: Any = {"base_url": server.base_url, "api_key": "k", "max_retries": 0}
        judge = ProviderJudge("openai/m", max_bytes=500_000, **options)
        with pytest.raises(ProviderError, match="longer than 500,000 bytes") as raised:
            async with judge.session():
                await judge.answer(question())
    assert raised.value.__cause__ is None
    assert raised.value.__context__ is None


async def test_a_provider_s_own_client_reads_what_is_within_the_limit() -> None:
    call = {"name": "Judgement", "arguments": OK}
    body = completion_of({"messages": []}, Reply(OK))
    body["choices"][0]["message"] |= {
        "content": None, "tool_calls": [{"id": "1", "type": "function", "function": call}]
    }  # fmt: skip
    sent = gzip.compress(json.dumps(body).encode())
    with RawServer(once(response(sent, "Content-Encoding: gzip"))) as server, anyio.fail_after(120):
        options: Any = {"base_url": server.base_url, "api_key": "k", "max_retries": 0}
        async with (judge := ProviderJudge("openai/m", **options)).session():
            answer = await judge.answer(question())
    assert answer.value.verdict is True


async def test_an_error_keeps_nothing_of_its_response() -> None:
    body = json.dumps(completion_of({"messages": []}, Reply("{" * 2_000_000))).encode()
    for reply in (response(body), response(body, status="500 no"), response(b"<" * 2_000_000)):
        with RawServer(once(reply)) as server, anyio.fail_after(120):
            judge = OpenAIJudge("m", base_url=server.base_url)
            with pytest.raises(JudgeError) as caught:
                await judge.answer(question())
        error = caught.value
        assert error.__context__ is error.__cause__ is None
        names = {frame.name for frame in traceback.extract_tb(error.__traceback__)}
        assert not {"_ask", "_read", "post", "send"} & names


async def test_a_small_body_that_unpacks_to_a_large_one_is_not_unpacked() -> None:
    bomb = gzipped_zeros(1 << 26)
    await ended(once(response(BODY)))  # what is imported for the first time is not counted
    tracemalloc.start()
    try:
        found = await ended(once(response(bomb, GZIP)))
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert "longer than 4,000,000 bytes" in str(found)
    assert most < 30_000_000


async def test_the_memory_of_many_endless_answers_at_once_is_bounded() -> None:
    chunks = ENDLESS["a long string"]
    with RawServer(chunks) as server, anyio.fail_after(100):
        judge = OpenAIJudge("m", base_url=server.base_url)
        found: list[str] = []

        async def ask(number: int) -> None:
            try:
                await judge.answer(question(str(number)))
            except ProviderError as error:
                found.append(str(error))

        async with judge.session():
            tracemalloc.start()
            try:
                async with anyio.create_task_group() as group:
                    for number in range(16):
                        group.start_soon(ask, number)
                _, most = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
    assert len(found) == 16
    assert all("longer than" in text for text in found)
    assert most < 20_000_000


RAW_DEFLATE = zlib.compress(BODY, wbits=-zlib.MAX_WBITS)


@pytest.mark.parametrize(
    ("encoding", "packed"),
    [
        ("gzip", gzip.compress(BODY)),
        ("gzip", gzip.compress(BODY)[:-8]),  # without its checksum
        ("GZIP, identity", gzip.compress(BODY)),
        ("deflate", zlib.compress(BODY)),
        ("deflate", RAW_DEFLATE),
        ("identity", BODY),
        # Headers that proxies leave behind, or that programs mean otherwise.
        ("gzip", BODY),
        ("br", BODY),
        ("UTF-8", BODY),
        ("aws-chunked", BODY),
    ],
)
async def test_an_encoded_body_is_read(encoding: str, packed: bytes) -> None:
    header = f"Content-Encoding: {encoding}"
    whole = await ended(once(response(packed, header)))
    chunked = response(b"", header, "Transfer-Encoding: chunked", length=False)
    pieces = [chunk(bytes([byte])) for byte in packed]
    bit_by_bit = await ended(once(chunked, *pieces, b"0\r\n\r\n"))
    assert isinstance(whole, Answer)
    assert isinstance(bit_by_bit, Answer)
    assert whole.raw == bit_by_bit.raw == OK


BROTLI = b"\x0b\x02\x80abc\x03"


@pytest.mark.parametrize(
    ("status", "header", "body", "words", "transient"),
    [
        ("502 Bad", "Content-Encoding: br", BROTLI, "HTTP 502: a body with the unknown", True),
        ("401 No", "Content-Encoding: zstd", BROTLI, "unknown encoding zstd", False),
        ("200 OK", "Content-Encoding: br", BROTLI, "unknown encoding br", False),
        ("200 OK", GZIP, gzip.compress(BODY)[:-30], "EOF while parsing", True),
        ("200 OK", "X-Plain: yes", BODY[:50], "EOF while parsing", True),
    ],
)
async def test_a_body_that_cannot_be_read_keeps_its_status(
    status: str, header: str, body: bytes, words: str, transient: bool
) -> None:
    refused = await ended(once(response(body, header, status=status)))
    assert isinstance(refused, ProviderError)
    assert words in str(refused)
    assert refused.transient is transient


@pytest.mark.parametrize("brings_client", [False, True])
@pytest.mark.parametrize(
    ("charset", "encoding"),
    [("; charset=iso-8859-1", "latin-1"), ("; charset=UTF-16", "utf-16"), ("", "utf-16")],
)
async def test_a_body_in_another_charset_is_read(
    charset: str, encoding: str, brings_client: bool
) -> None:
    raw = '{"reason": "Es grüßt höflich.", "verdict": true}'
    message = {"message": {"content": raw}}
    text = json.dumps({"choices": [message]}, ensure_ascii=False)
    body = text.encode(encoding)
    head = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: application/json%b\r\n"
    head = head % charset.encode() + b"Content-Length: %d\r\n\r\n" % len(body)
    with RawServer(once(head, body)) as server, anyio.fail_after(100):
        client = (
            openai.AsyncOpenAI(api_key="k", base_url=server.base_url) if brings_client else None
        )
        place: Any = {"client": client} if client else {"base_url": server.base_url}
        answer = await OpenAIJudge("m", **place).answer(question())
    assert answer.raw == raw


async def test_a_long_header_of_a_proxy_is_read() -> None:
    answer = await ended(once(response(BODY, f"Set-Cookie: a={'b' * 20_000}")))
    assert isinstance(answer, Answer)


async def test_an_answer_of_some_megabytes_is_read_where_it_may_be() -> None:
    long = json.dumps({"reason": "r" * 900_000, "verdict": True})
    body = json.dumps(completion_of({"messages": []}, Reply(long))).encode()
    found = await ended(once(response(body)))
    assert isinstance(found, Answer)
    refused = await ended(once(response(body)), max_bytes=500_000)
    assert "longer than 500,000 bytes" in str(refused)


async def test_a_text_of_more_characters_than_are_read_is_unparseable() -> None:
    body = json.dumps(completion_of({"messages": []}, Reply("{" * 2_000_000))).encode()
    found = await ended(once(response(body)))
    assert isinstance(found, UnparseableError)
    assert "2,000,000 characters" in str(found)


def wrong_shapes() -> Iterator[Any]:
    """A completion with something else in the place of each of its parts."""
    whole = completion_of({"messages": []}, Reply(OK))
    others: list[Any] = [None, [], {}, "x", 5, -1.5, True, [[]], {"content": []}, "\ud800"]
    for other in others:
        yield other
        yield {**whole, "choices": other}
        yield {**whole, "choices": [other]}
        choice = whole["choices"][0]
        for name in ("message", "finish_reason", "logprobs"):
            yield {**whole, "choices": [{**choice, name: other}]}
        for name in ("content", "refusal", "tool_calls"):
            message = {**choice["message"], name: other}
            yield {**whole, "choices": [{**choice, "message": message}]}
        yield {**whole, "error": other}
        yield {"error": other}


async def test_json_of_the_wrong_shape_at_any_level_is_typed() -> None:
    replies = [
        response(json.dumps(value).encode(), status=status)
        for status in ("200 OK", "400 Bad", "500 Oops")
        for value in wrong_shapes()
    ]
    left = iter(replies)
    with RawServer(lambda: [next(left)]) as server, anyio.fail_after(100):
        judge = OpenAIJudge("m", base_url=server.base_url)
        async with judge.session():
            for _ in replies:
                try:
                    await judge.answer(question())
                except JudgeError as error:
                    require_short(error)


DAMAGE: dict[str, Iterable[bytes]] = {
    "nothing": [],
    "no HTTP": [b"SSH-2.0-OpenSSH_9.6\r\n"],
    "half a status line": [b"HTTP/1."],
    "status 0": [response(BODY, status="0 ?")],
    "status 999": [response(BODY, status="999 ?")],
    "status 099": [response(BODY, status="099 ?")],
    "status 204": [response(b"", status="204 No Content")],
    "status 304": [response(b"", status="304 Not Modified")],
    "a redirection to nowhere": [response(b"", "Location: ", status="302 Found")],
    "a redirection to no address": [response(b"", "Location: http://[", status="302 Found")],
    "a status of letters": [response(BODY, status="abc")],
    "a header without a colon": [response(BODY, "nonsense")],
    "a long header": [response(BODY, "X: " + "x" * 1_000_000)],
    "many headers": [response(BODY, *(f"X-{n}: {n}" for n in range(50_000)))],
    "a NUL in a header": [response(BODY, "X: a\0b")],
    "two lengths": [response(BODY, "Content-Length: 5")],
    "a negative length": [response(BODY, "Content-Length: -5", length=False)],
    "a length of letters": [response(BODY, "Content-Length: x", length=False)],
    "a body that ends too early": [response(b"", "Content-Length: 5000", length=False), b"{"],
    # In one piece: aiohttp may miss a damaged chunk that comes by itself, and waits in silence.
    "a chunk of a wrong size": [CHUNKED + b"zz\r\nabc\r\n"],
    "an enormous chunk": [CHUNKED + b"f" * 40 + b"\r\n"],
    "no last chunk": [CHUNKED, chunk(BODY)],
    "what is no gzip": [response(BODY, GZIP)],
    "half a gzip": [response(gzip.compress(BODY)[:-20], GZIP)],
    "an unknown encoding": [response(BODY, "Content-Encoding: br")],
    "an unknown charset": [response(b"\xff\xfe", "Content-Type: text/html; charset=x-none")],
    "an error of an unknown charset": [
        response(b"\xff\xfe", "Content-Type: text/html; charset=x-none", status="400 no")
    ],
    "a page": [response(b"<html>Sign in</html>", status="403 no")],
    "bytes": [response(bytes(range(256)) * 50)],
}  # fmt: skip


@pytest.mark.sampled
@pytest.mark.parametrize("half", [False, True], ids=["closed", "half closed"])
@pytest.mark.parametrize("kind", DAMAGE)
async def test_a_damaged_response_is_typed(kind: str, half: bool) -> None:
    limits = Limits(attempts=1, reasks=0, call_timeout=2.0)
    found = await ended(lambda: DAMAGE[kind], limits, half=half)
    assert isinstance(found, Answer | ProviderError | JudgeTimeoutError)


@pytest.mark.parametrize("seed", range(20))
async def test_random_bytes_are_typed(seed: int) -> None:
    source = random.Random(seed)
    data = bytearray(response(BODY))
    for _ in range(source.randrange(1, 30)):
        data[source.randrange(len(data))] = source.randrange(256)
    damaged = await ended(once(bytes(data)), Limits(attempts=1, reasks=0, call_timeout=1.0))
    assert isinstance(damaged, Answer | JudgeError)
    noise = await ended(once(source.randbytes(5_000)))
    assert isinstance(noise, ProviderError)


async def test_an_answer_that_comes_byte_by_byte_is_read() -> None:
    found = await ended(lambda: (bytes([byte]) for byte in response(BODY)))
    assert isinstance(found, Answer)


@pytest.mark.parametrize("first", [b"", b"HTTP/1.1 200 OK\r\n", CHUNKED], ids=["-", "head", "body"])
async def test_endless_headers_and_silence_end_with_the_deadline_or_before(first: bytes) -> None:
    limits = Limits(attempts=1, reasks=0, call_timeout=1.0)
    headers = await ended(endless(first, then=b"X-A: " + b"a" * 4_000 + b"\r\n"), limits)
    assert isinstance(headers, ProviderError | JudgeTimeoutError)
    silence = await ended(once(first), limits, half=True)
    assert isinstance(silence, ProviderError | JudgeTimeoutError)
