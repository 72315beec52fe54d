"""The way from a question to its completion without the openai client's own HTTP layer.

That layer puts together again for every call what is the same for all of them: address, headers,
authorisation. Here the client writes them once, and says what a failure is; the bytes between
travel through aiohttp.
"""

from __future__ import annotations

from codecs import BOM_UTF8
from typing import TYPE_CHECKING, Any, NamedTuple

import aiohttp
import httpx2
import openai

from dagengine.judges.wire.endpoint import REDIRECTS, redirect_target, redirected_too_often
from dagengine.judges.wire.requests import encode
from dagengine.judges.wire.transport import AiohttpTransport

if TYPE_CHECKING:
    from openai import AsyncOpenAI

    from dagengine.judges.wire.requests import Body


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
            self._head = await self._request_head(self._path)
        head = self._head
        for _ in range(REDIRECTS):
            try:
                received = await self._transport.exchange("POST", head.url, head.headers, content)
            except (aiohttp.ClientError, OSError) as error:
                request = httpx2.Request("POST", head.url)
                raise openai.APIConnectionError(request=request) from error
            if 200 <= received.status < 300:
                return received.body.removeprefix(BOM_UTF8)
            location = redirect_target(received.response(head.url))
            if location is None:
                raise self._api._make_status_error_from_response(received.response(head.url))
            # For this request only: the next one may be sent on elsewhere.
            head = await self._request_head(location)
        raise redirected_too_often()

    async def _request_head(self, path: str) -> Head:
        """The head that the client would send to a path."""
        # The body does not matter: address and headers are the same for every one.
        async with _Pen() as pen:
            client = self._api.with_options(http_client=pen, max_retries=0)
            await client.post(path, cast_to=httpx2.Response, body={})
        return pen.written[-1]


class _Pen(httpx2.AsyncClient):
    """Notes what the openai client wants to have sent, and sends nothing."""

    def __init__(self) -> None:
        super().__init__(transport=httpx2.AsyncBaseTransport())
        self.written: list[Head] = []

    def build_request(self, method: str, url: httpx2.URL | str, **given: Any) -> httpx2.Request:
        request = super().build_request(method, url, **given)
        # Without those that an HTTP client adds for itself: how it reads, that it stays.
        self.written.append(Head(str(request.url), list(given["headers"])))
        return request

    async def send(self, request: httpx2.Request, **_: Any) -> httpx2.Response:
        return httpx2.Response(200, request=request)
