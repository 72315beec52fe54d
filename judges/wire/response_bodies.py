"""Bodies of responses, read up to a limit: what a server sends beyond it is left unread."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import suppress
from io import BytesIO
from types import FunctionType, ModuleType
from typing import Any, Final

import anyio

from dagengine.errors import InputError, ProviderError

ENCODINGS: Final = "gzip, deflate"
"""The encodings that can be undone in steps, and so up to a limit."""
SMALL: Final = 1 << 17
"""Bytes that every response may hold in memory: a short answer with 20 alternatives a token."""
_STOCK: Final = 1 << 20  # bytes that all of them may hold beyond that; larger ones take turns
_STEP: Final = 1 << 14  # bytes that are decoded at once
_CLIENTS: Final = frozenset({("AsyncClient", "httpx"), ("AsyncClient", "httpx2")})
_DEPTH: Final = 5  # of a provider's client: what wraps what
_NO_PARTS: Final = (type, FunctionType, ModuleType)
# Headers that say how a body travelled, not what it is.
_OF_THE_WIRE: Final = frozenset({b"content-encoding", b"content-length", b"transfer-encoding"})


def without_wire(headers: Sequence[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """The headers of a response whose body is decoded and complete."""
    return [pair for pair in headers if pair[0].lower() not in _OF_THE_WIRE]


def recode(content: bytes, content_type: str) -> bytes:
    """A body as UTF-8 without a mark: from the charset that is told, or that its start shows."""
    charset = re.search(r"charset=[\"']?([\w.:-]+)", content_type, re.IGNORECASE)
    for name in ("utf-8-sig", charset[1] if charset else json.detect_encoding(content)):
        with suppress(LookupError, ValueError):
            return content.decode(name).encode()
    return content


def valid_limit(max_bytes: Any) -> int:
    """A limit for bodies in bytes; raises InputError unless it is a number from 1 on."""
    if not isinstance(max_bytes, int) or max_bytes < 1:
        raise InputError(f"max_bytes must be a whole number from 1 on, got {max_bytes!r}")
    return max_bytes


class BodyReader:
    """Reads the bodies of one judge's responses.

    The memory of all calls in flight is bounded, too. Beyond `SMALL` bytes each and `_STOCK` bytes
    together, one body is read at a time. The others wait in the connection's own buffers. So a
    server that stops in the middle of one body does not stop those of others, but for huge ones.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.left = _STOCK
        self.turn = anyio.Semaphore(1)  # of the one body that may have more than is left

    async def read(
        self, chunks: AsyncIterator[bytes], encoding: str, length: int | None = None
    ) -> bytes:
        """The decoded body; raises ProviderError when it is too long or cannot be decoded.

        `length` is that of the body as it is sent, where that is known.
        """
        decoder, body = _Decoder(encoding), BytesIO()
        of_stock, has_turn = 0, False

        async def hold(size: int) -> None:
            """Have memory for so many bytes, or raise ProviderError beyond the limit."""
            nonlocal of_stock, has_turn
            if size > self.limit:
                body.close()  # tracebacks keep it until the collector comes
                raise ProviderError(
                    f"the response is longer than {self.limit:,} bytes and was not read further; "
                    "max_bytes= of the judge sets the limit",
                    transient=False,
                )
            growth = size - SMALL - of_stock
            if growth <= 0 or has_turn:
                return
            if growth <= self.left:
                self.left -= growth
                of_stock += growth
            else:
                # A body in its turn takes what it needs, and only one has it: two with parts of
                # what they need would wait for each other.
                await self.turn.acquire()
                has_turn = True

        try:
            await hold(length or 0)
            async for chunk in chunks:
                # In small steps: of a long body there is never a second copy in memory.
                piece = decoder.decode(chunk, _STEP)
                while piece:
                    await hold(body.tell() + len(piece))
                    body.write(piece)
                    piece = decoder.decode(b"", _STEP)
            return decoder.whole(body.getvalue())
        finally:
            self.left += of_stock
            if has_turn:
                self.turn.release()

    async def read_response(self, response: Any, chunks: AsyncIterator[bytes]) -> bytes:
        """The decoded body of a response of httpx or httpx2, which is closed then."""
        try:
            body = await self.read(chunks, response.headers.get("Content-Encoding", ""))
            return recode(body, response.headers.get("Content-Type", ""))
        except ProviderError:
            await response.aclose()
            with suppress(Exception):  # it is closed: the iterators in it end, too
                async for _ in chunks:
                    pass
            raise
        finally:
            await response.aclose()


class _Decoder:
    """Undoes an encoding, never more than asked for; the rest is kept for the next step.

    The first byte of a body says whether it is packed: headers are left behind, or mean a charset.
    """

    def __init__(self, encoding: str) -> None:
        self._name = encoding.strip().lower()
        self._inflater = zlib.decompressobj(zlib.MAX_WBITS | 32)  # of gzip, or deflate in its frame
        self._plain, self._begun, self._rest = False, False, b""

    def decode(self, chunk: bytes, most: int) -> bytes:
        """At most `most` decoded bytes of what has come so far."""
        if chunk and not self._begun:
            self._begun, framed = True, chunk[0] == 0x1F or chunk[0] & 15 == 8
            self._plain = chunk[0] != 0x1F and "deflate" not in self._name
            if not framed:  # some servers send deflate so
                self._inflater = zlib.decompressobj(-zlib.MAX_WBITS)
        if self._plain:
            return chunk  # as short as the transport's pieces
        try:
            piece = self._inflater.decompress(self._rest + chunk, most)
        except zlib.error as error:
            raise ProviderError(f"the response is damaged: {error}", transient=True) from None
        self._rest = self._inflater.unconsumed_tail
        return piece

    def whole(self, body: bytes) -> bytes:
        """All that was decoded, or what it is in words if nobody can read it."""
        if self._plain and self._name not in ("", "identity") and min(body, default=9) < 9:
            return f"a body with the unknown encoding {self._name:.40}".encode()
        return body


def bound(client: Any, reader: BodyReader, given: Iterable[Any] = ()) -> list[Any]:
    """Have every HTTP client inside of `client` read its bodies through a reader; returns them.

    Those of httpx and httpx2 are found, which most providers' packages use. Others read on as they
    do, and so do those that the caller has `given`.
    """
    clients: list[Any] = []
    visited = set(map(id, given))
    # Level by level through attributes: what is shared, or refers back, is looked at once.
    level = [client]
    for _ in range(_DEPTH):
        below: list[Any] = []
        for thing in level:
            kinds = type(thing).__mro__
            if any((k.__name__, k.__module__.partition(".")[0]) in _CLIENTS for k in kinds):
                clients.append(thing)
                continue
            for part in vars(thing).values():
                if not hasattr(part, "__dict__") or isinstance(part, _NO_PARTS):
                    continue
                if id(part) not in visited:
                    visited.add(id(part))
                    below.append(part)
        level = below
    for http in clients:
        http._transport = _Bounded(http._transport, reader)
        for pattern, transport in http._mounts.items():
            http._mounts[pattern] = transport and _Bounded(transport, reader)
    return clients


class _Bounded:
    """A transport that gives complete responses, decoded up to the limit."""

    def __init__(self, transport: Any, reader: BodyReader) -> None:
        self._transport, self._reader = transport, reader

    async def handle_async_request(self, request: Any) -> Any:
        """Send a request, and read the whole answer; raises ProviderError beyond the limit."""
        request.headers["Accept-Encoding"] = ENCODINGS
        response = await self._transport.handle_async_request(request)
        body = await self._reader.read_response(response, aiter(response.stream))
        return type(response)(
            response.status_code,
            headers=without_wire(response.headers.raw),
            content=body,
            request=request,
            extensions=response.extensions,
        )

    async def __aenter__(self) -> _Bounded:
        await self._transport.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._transport.__aexit__(*error)

    async def aclose(self) -> None:
        """Close all connections."""
        await self._transport.aclose()
