"""Bodies of responses, read up to a limit: what a server sends beyond it is left unread."""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

import anyio

from dagengine.errors import InputError, ProviderError

ENCODINGS: Final = "gzip, deflate"
"""The encodings that can be undone in steps, and so up to a limit."""
SMALL: Final = 1 << 16
"""Bytes that every response may hold in memory; larger ones take turns."""
_LARGE_AT_ONCE: Final = 1
# Headers that say how a body travelled, not what it is.
_OF_THE_WIRE: Final = frozenset({b"content-encoding", b"content-length", b"transfer-encoding"})


def without_wire(headers: Sequence[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """The headers of a response whose body is decoded and complete."""
    return [pair for pair in headers if pair[0].lower() not in _OF_THE_WIRE]


def valid_limit(max_bytes: Any) -> int:
    """A limit for bodies in bytes; raises InputError for what is no number from 1 on."""
    if not isinstance(max_bytes, int) or max_bytes < 1:
        raise InputError(f"max_bytes must be a whole number from 1 on, got {max_bytes!r}")
    return max_bytes


class BodyReader:
    """Reads the bodies of one judge's responses.

    The memory of all calls in flight is bounded, too: beyond `SMALL` bytes only so many bodies
    are read at once, and the others wait in the connection's own buffers.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._large = anyio.Semaphore(_LARGE_AT_ONCE)

    async def read(self, chunks: AsyncIterator[bytes], encoding: str) -> bytes:
        """The decoded body; raises ProviderError when it is too long or cannot be decoded."""
        decoder = _Decoder(encoding)
        body = bytearray()
        async for chunk in chunks:
            body += decoder.decode(chunk, SMALL + 1 - len(body))
            if len(body) > SMALL:
                return await self._read_large(body, decoder, chunks)
        return bytes(body)

    async def _read_large(
        self, body: bytearray, decoder: _Decoder, chunks: AsyncIterator[bytes]
    ) -> bytes:
        async with self._large:
            self._unpack(body, decoder, b"")
            async for chunk in chunks:
                self._unpack(body, decoder, chunk)
            return bytes(body)

    def _unpack(self, body: bytearray, decoder: _Decoder, chunk: bytes) -> None:
        """Add a chunk in small steps: of a long one there is never a second copy in memory."""
        found = decoder.decode(chunk, SMALL)
        while found:
            body += found
            self._require_short(body)
            found = decoder.decode(b"", SMALL)

    def _require_short(self, body: bytearray) -> None:
        if len(body) > self.limit:
            body.clear()  # tracebacks keep it until the collector comes
            raise ProviderError(
                f"the response is longer than {self.limit:,} bytes and was not read further; "
                "max_bytes= of the judge sets the limit",
                transient=False,
            )


class _Decoder:
    """Undoes an encoding, never more than asked for; the rest is kept for the next step."""

    def __init__(self, encoding: str) -> None:
        name = encoding.strip().lower()
        if name not in ("", "identity", "gzip", "x-gzip", "deflate"):
            raise ProviderError(f"the response is encoded as {name:.40}", transient=False)
        self._plain = name in ("", "identity")
        self._deflate = name == "deflate"
        self._inflater = zlib.decompressobj(zlib.MAX_WBITS | (0 if self._deflate else 16))
        self._rest = b""

    def decode(self, chunk: bytes, most: int) -> bytes:
        """At most `most` decoded bytes of what has come so far."""
        if self._plain:
            return chunk  # as short as the transport's pieces
        data = self._rest + chunk
        try:
            found = self._inflater.decompress(data, most)
        except zlib.error as error:
            if not self._deflate:
                raise ProviderError(f"the response is damaged: {error}", transient=True) from None
            # Some servers send deflate without its frame.
            self._deflate, self._inflater = False, zlib.decompressobj(-zlib.MAX_WBITS)
            return self.decode(chunk, most)
        self._deflate = False
        self._rest = self._inflater.unconsumed_tail
        return found
