"""Addresses of endpoints: what goes into requests, what may be shown, and where they may lead."""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import parse_qsl, unquote, urljoin, urlsplit

from dagengine.errors import JudgeSetupError, ProviderError
from dagengine.redaction import public_address

T = TypeVar("T")
REDIRECTS: Final = 5
"""How many times a request may be sent on."""
_MOVED: Final = frozenset({301, 302, 303, 307, 308})


class Endpoint(NamedTuple):
    """An address as a client wants it: the user becomes a header, the query goes with each call."""

    url: str
    headers: dict[str, str]
    query: dict[str, object]


def endpoint_of(address: str, source: str = "base_url") -> Endpoint:
    """The parts of an address; raises JudgeSetupError, which names its source, for anything else.

    The message shows no user, no password and no query.
    """
    try:
        parts = urlsplit(address)
        # A port is checked when it is asked for, and not before.
        _ = parts.port
    except ValueError:
        raise JudgeSetupError(
            f"{source} is not an address: write http:// or https://, a host, a port if needed (a "
            "whole number), and a path; in a password, write @ : / as %40 %3A %2F"
        ) from None
    if parts.scheme not in ("http", "https"):
        public_part = address.rpartition("@")[2].partition("?")[0]
        raise JudgeSetupError(
            f"{source} {public_part!r:.200} does not begin with http:// or https://; write the "
            "whole address, for instance http://localhost:8000/v1"
        )
    user, at, host = parts.netloc.rpartition("@")
    headers = {}
    if at:
        name, _, password = (unquote(text) for text in user.partition(":"))
        token = base64.b64encode(f"{name}:{password}".encode()).decode()
        headers["Authorization"] = f"Basic {token}"
    query: dict[str, object] = dict(parse_qsl(parts.query, keep_blank_values=True))
    url = parts._replace(netloc=host, query="", fragment="").geturl()
    return Endpoint(url, headers, query)


def redirect_target(response: Any) -> str | None:
    """Address to which a response redirects, or None; raises ProviderError for elsewhere.

    A request holds the judged texts and a key: they go to no origin but the caller's.
    """
    location: str | None = response.headers.get("location")
    if response.status_code not in _MOVED or not location:
        return None
    source_url = str(response.request.url)
    try:
        target_url = urljoin(source_url, location)
        if _origin(source_url) == _origin(target_url):
            return target_url
    except ValueError:  # it is not an address
        target_url = location
    raise ProviderError(
        f"the endpoint redirects to {public_address(target_url)!r:.200}, which is another origin; "
        "nothing was sent there. If that address is right, use it as base_url",
        transient=False,
        status=response.status_code,
    )


async def follow_redirects(ask: Callable[[str], Awaitable[T]], target: str) -> T:
    """Ask at an address by the openai client, and wherever within its origin that redirects to."""
    import openai

    for _ in range(REDIRECTS):
        try:
            return await ask(target)
        except openai.APIStatusError as error:
            moved = redirect_target(error.response)
            if moved is None:
                raise
            target = moved
    raise redirected_too_often()


def redirected_too_often() -> ProviderError:
    """The error of a request that is sent on for ever."""
    return ProviderError(f"the endpoint redirected the request {REDIRECTS} times", transient=False)


def _origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    return parts.scheme, parts.hostname, port
