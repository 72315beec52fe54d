"""Clients of other providers, whose responses are read up to a limit like those of our own."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from types import FunctionType, ModuleType
from typing import Any, Final

from dagengine.errors import ProviderError
from dagengine.judges.wire.bodies import ENCODINGS, BodyReader, without_wire

_CLIENTS: Final = frozenset({("AsyncClient", "httpx"), ("AsyncClient", "httpx2")})
_DEPTH: Final = 5  # of a provider's client: what wraps what
_NO_PARTS: Final = (type, FunctionType, ModuleType)


def bound(client: Any, reader: BodyReader, given: Iterable[Any] = ()) -> list[Any]:
    """Have every HTTP client inside of `client` read its bodies through a reader; returns them.

    Those of httpx and httpx2 are found, which most providers' packages use. Others read on as they
    do, and so do those that the caller has `given`.
    """
    clients: list[Any] = []
    visited = {id(client) for client in given}
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
        pieces = aiter(response.stream)
        try:
            body = await self._reader.read(pieces, response.headers.get("Content-Encoding", ""))
        except ProviderError:
            await response.aclose()
            with suppress(Exception):  # it is closed: the iterators in it end, too
                async for _ in pieces:
                    pass
            raise
        finally:
            await response.aclose()
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
