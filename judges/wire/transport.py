"""How requests travel: through aiohttp on asyncio, through the client's own layer on trio.

The openai client's HTTP layer puts together again for every call what is the same for all of them:
address, headers, authorisation. On the direct way (`DirectSend`) the client writes them once, and
says what a failure is; the bytes between travel through aiohttp.
"""

from __future__ import annotations

import copy
import os
import ssl
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import chain
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass
from weakref import WeakKeyDictionary

import aiohttp
import anyio
import httpx2
import openai
import sniffio
from anyio.lowlevel import RunVar
from openai import AsyncOpenAI, DefaultAsyncHttpxClient
from openai._base_client import AsyncHttpxClientWrapper
from openai._models import FinalRequestOptions

from dagengine.errors import ProviderError
from dagengine.judges.wire.requests import (
    REDIRECTS,
    Body,
    encode,
    redirect_target,
    redirected_too_often,
)
from dagengine.judges.wire.response_bodies import ENCODINGS, SMALL, BodyReader, recode, without_wire
from dagengine.redaction import public_text

ANOTHER_LOOP: Final = (
    "the http_client of the judge's client has connections of another event loop, for instance "
    "that of a notebook. Make the client without http_client=, or make one client per event loop"
)
_OF_ANOTHER_LOOP = ("Event loop is closed", "different loop", "Session is closed")
CONNECT_TIMEOUT: Final = 30.0
"""Seconds that connecting may take; the gateway limits the time of a call."""
_TIMEOUT: Final = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT)
_KEEP_ALIVE = 5.0  # seconds, as in the client's own transports
_OF_AIOHTTP = frozenset({b"accept-encoding", b"connection", b"content-length", b"host"})
_HEADER = 1 << 16  # bytes of one header, as proxies send them
_PIECE = 1 << 14  # bytes of a long body that are taken at once
Headers = Iterable[tuple[str, str]]


class Received(NamedTuple):
    """A response whose body is decoded and complete."""

    status: int
    headers: Sequence[tuple[bytes, bytes]]
    body: bytes

    def response(self, url: str) -> httpx2.Response:
        """The response to a POST to `url`, as the openai client knows it."""
        return _response(*self, httpx2.Request("POST", url))


class AiohttpTransport(httpx2.AsyncBaseTransport):
    """Sends requests to one origin, over as many connections as are needed at once.

    The environment's proxies and certificates hold, as they are at the first request. Failures
    are aiohttp's own errors. Redirects are not followed: who asks decides about them.
    """

    def __init__(self, reader: BodyReader) -> None:
        self._reader = reader
        self._session: aiohttp.ClientSession | None = None

    async def exchange(self, method: str, url: str, headers: Headers, content: bytes) -> Received:
        """Send a request, and read the whole answer."""
        session = self._session or self._open(httpx2.URL(url))
        async with session.request(
            method, url, data=content or None, headers=headers, allow_redirects=False
        ) as response:
            body = await self._body(response)
            if not body.isascii():
                body = recode(body, response.headers.get("Content-Type", ""))
            return Received(response.status, response.raw_headers, body)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request of the openai client, and read the whole answer."""
        content, headers = await request.aread(), _own_headers(request)
        received = await self.exchange(request.method, str(request.url), headers, content)
        return _response(*received, request)

    async def _body(self, response: aiohttp.ClientResponse) -> bytes:
        encoding = response.headers.get("Content-Encoding", "")
        if not encoding and (response.content_length or SMALL + 1) <= SMALL:
            return await response.read()
        # Have no more taken from the socket at once than a call may hold while it waits. asyncio
        # takes 256 kB, for every connection; the transports of other loops may not be told
        connection = response.connection
        if connection is not None:  # else all of the body is there
            with suppress(AttributeError):
                connection.transport.max_size = SMALL  # type: ignore[union-attr]
        chunks = response.content.iter_any()
        try:
            return await self._reader.read(chunks, encoding, response.content_length)
        except ProviderError:
            response.close()  # the rest of the body is on its way
            raise

    def _open(self, url: httpx2.URL) -> aiohttp.ClientSession:
        proxy = proxy_of(url.scheme, url.host)
        if proxy is not None:
            # The message names the variable of the environment, which has to be corrected.
            try:
                parts = urlsplit(proxy)
                is_address = parts.scheme in ("http", "https") and bool(parts.hostname)
            except ValueError:
                is_address = False
            if not is_address:
                raise ProviderError(
                    f"{proxy_named(url.scheme, url.host)} is no address", transient=False
                )
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=0,  # the gateway has one
                keepalive_timeout=_KEEP_ALIVE,
                ssl=certificates() if url.scheme == "https" else True,
            ),
            headers={"Accept-Encoding": ENCODINGS},
            timeout=_TIMEOUT,
            proxy=proxy,
            read_bufsize=_PIECE,
            max_field_size=_HEADER,
            max_line_size=_HEADER,
            auto_decompress=False,  # the reader does it, up to a limit
            cookie_jar=aiohttp.DummyCookieJar(),
        )
        return self._session

    async def aclose(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()


class BoundedClient(httpx2.AsyncClient):
    """Sends through another client, and reads its answers up to a limit.

    Requests are made by the other client, too: its headers, cookies and proxies hold.
    """

    def __init__(self, client: httpx2.AsyncClient, reader: BodyReader) -> None:
        super().__init__(transport=httpx2.AsyncBaseTransport(), timeout=client.timeout)
        self._sender = client
        self._reader = reader

    def build_request(self, *given: Any, **settings: Any) -> httpx2.Request:
        """The other client's request; it asks for encodings that can be undone in steps."""
        request = self._sender.build_request(*given, **settings)
        request.headers["Accept-Encoding"] = ENCODINGS
        return request

    async def send(self, request: httpx2.Request, **given: Any) -> httpx2.Response:
        """Send a request, and read the whole answer, streamed or not."""
        response = await self._sender.send(request, **{**given, "stream": True})
        body = await self._reader.read_response(response, response.aiter_raw())
        return _response(response.status_code, response.headers.raw, body, request)

    async def aclose(self) -> None:
        """Close the other client."""
        await super().aclose()
        await self._sender.aclose()


def _response(
    status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes, request: httpx2.Request
) -> httpx2.Response:
    """A response whose body is decoded and complete."""
    return httpx2.Response(status, headers=without_wire(headers), content=body, request=request)


def _own_headers(request: httpx2.Request) -> list[tuple[str, str]]:
    """The headers of a request without those that aiohttp writes itself."""
    headers = request.headers.raw
    return [(k.decode(), v.decode()) for k, v in headers if k.lower() not in _OF_AIOHTTP]


def certificates() -> ssl.SSLContext:
    """Certificates that the environment trusts, read once for each of its settings.

    A judge opens a client on every event loop, so for every `measure()`, and reading the
    certificates of a system takes longer than all else that a client needs.
    """
    return _certificates(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))


@lru_cache(maxsize=8)
def _certificates(file: str | None, folder: str | None) -> ssl.SSLContext:
    return httpx2.create_ssl_context()  # reads the two variables itself


def http_client(reader: BodyReader) -> tuple[httpx2.AsyncClient, AiohttpTransport | None]:
    """An HTTP client for the event loop that runs, and aiohttp's way below it if there is one."""
    if sniffio.current_async_library() != "asyncio":  # aiohttp knows no other
        return BoundedClient(DefaultAsyncHttpxClient(verify=certificates()), reader), None
    direct = AiohttpTransport(reader)
    return httpx2.AsyncClient(transport=direct), direct


def of_this_loop(given: AsyncOpenAI, reader: BodyReader) -> tuple[AsyncOpenAI, bool]:
    """A caller's client for the event loop that runs, and whether to close it.

    Connections belong to one loop, and each `measure` may run on another one. An HTTP client
    that the caller gave has to stay: only its caller knows how it reaches the provider.
    """
    # with_options() makes the client again, which a subclass may not be able to do.
    api, plain = copy.copy(given), isinstance(given._client, AsyncHttpxClientWrapper)
    sender = DefaultAsyncHttpxClient(verify=certificates()) if plain else given._client
    api._client = BoundedClient(sender, reader)
    return api, plain


def is_of_another_loop(cause: str) -> bool:
    """Return whether an error says that a connection belongs to another event loop."""
    return any(sign in cause for sign in _OF_ANOTHER_LOOP)


_States = WeakKeyDictionary[Any, list[tuple[Any, dict[str, Any]]]]
_in_use: RunVar[tuple[_States, AsyncGenerator[None, None]]] = RunVar("HTTP clients in use")


async def disconnect_with_the_loop(client: Any) -> None:
    """Have a caller's HTTP client keep no connection when the event loop that runs ends.

    It stays open: on the next loop it connects again.
    """
    states, _ = _in_use.get(None) or (None, None)
    if states is None:
        states = _States()
        end = _disconnect_at_the_end(states)
        _in_use.set((states, end))
        await anext(end)
    if client not in states:
        transports = {client._transport, *client._mounts.values()} - {None}
        states[client] = [(item, dict(vars(item))) for item in transports]


async def _disconnect_at_the_end(states: _States) -> AsyncGenerator[None, None]:
    """Wait for the loop's end, which closes the generators that are left on it."""
    try:
        yield
    finally:
        with anyio.CancelScope(shield=True):
            for transport, state in list(chain.from_iterable(states.values())):
                await transport.aclose()
                transport.__dict__.update(state)  # one of aiohttp keeps its closed session


def proxy_of(scheme: str, host: str) -> str | None:
    """The proxy that the environment has for a server; None without one."""
    proxies = {} if proxy_bypass(host) else getproxies()
    return proxies.get(scheme) or proxies.get("all")


def proxy_named(scheme: str, host: str) -> str:
    """Name of the proxy for a server in messages, without its password; empty without one."""
    proxy = proxy_of(scheme, host)
    if proxy is None:
        return ""
    name = scheme if getproxies().get(scheme) else "all"
    return f"the proxy {public_text(proxy)} of the environment ({name.upper()}_PROXY)"


class Head(NamedTuple):
    """Where a request goes, and its headers."""

    url: str
    headers: list[tuple[str, str]]


class DirectSend:
    """Sends the bodies of one client's requests; `path` is where to, as for `api.post`.

    Raises what the client would raise: `openai.APIStatusError`, `openai.APIConnectionError`;
    and ProviderError for something that is not a completion, or too long.
    """

    def __init__(self, api: AsyncOpenAI, transport: AiohttpTransport, path: str) -> None:
        self._api, self._transport, self._path = api, transport, path
        self._head: Head | None = None

    async def __call__(self, body: Body | bytes) -> bytes:
        """Send a body, as JSON if it is not written yet, and return that of the answer."""
        content = body if isinstance(body, bytes) else encode(body)
        if self._head is None:
            self._head = self._request_head(self._path)
        head = self._head
        for _ in range(REDIRECTS):
            try:
                received = await self._transport.exchange("POST", head.url, head.headers, content)
            except (aiohttp.ClientError, OSError) as error:
                request = httpx2.Request("POST", head.url)
                raise openai.APIConnectionError(request=request) from error
            if 200 <= received.status < 300:
                return received.body
            location = redirect_target(received.response(head.url))
            if location is None:
                raise self._api._make_status_error_from_response(received.response(head.url))
            # For this request only: the next one may be sent on elsewhere.
            head = self._request_head(location)
        raise redirected_too_often()

    def _request_head(self, path: str) -> Head:
        """The head that the client would send to a path."""
        # The body does not matter: address and headers are the same for every one.
        options = FinalRequestOptions.construct(method="post", url=path, json_data={})
        request = self._api._build_request(options)
        return Head(str(request.url), _own_headers(request))
