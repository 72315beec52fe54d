"""Who may talk to the server: only the page that it gave out itself, to the person who started it.

A page of another site must not read a run, or write a label, through the browser of somebody who
looks at one. So the address contains a token that no other page knows. The host must be this one:
another name that leads here is an attack by DNS. A request that says where it comes from must come
from here.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADERS = {
    "Content-Security-Policy": "frame-ancestors 'none'",  # the page brings the rest itself
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Access:
    """Refuses every request without the token, or from elsewhere; adds headers to the others."""

    def __init__(self, app: ASGIApp, token: str, hosts: Iterable[str]) -> None:
        """`hosts` are the names, with the port, by which the server may be called."""
        self._app = app
        self._prefix = f"/{token}/"
        self._hosts = frozenset(hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        refusal = self._refusal(scope)
        if refusal is not None:
            response = PlainTextResponse(refusal, 403, headers=HEADERS)
            await response(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                added = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]
                message["headers"] = [*message.get("headers", ()), *added]
            await send(message)

        await self._app(scope, receive, guarded)

    def _refusal(self, scope: Scope) -> str | None:
        """Why a request is refused; None when it is not."""
        if scope["type"] != "http":
            return "only HTTP is spoken here"
        headers = Headers(scope=scope)
        if headers.get("host") not in self._hosts:
            return "this server answers to 127.0.0.1 only"
        origin = headers.get("origin")
        if origin is not None and origin not in {f"http://{host}" for host in self._hosts}:
            return "requests from other sites are rejected"
        # Whoever leads the browser itself here knows the token: `--open` does, by a file.
        led = scope["method"] == "GET" and headers.get("sec-fetch-mode") == "navigate"
        led = led and headers.get("sec-fetch-dest") == "document"
        if not led and headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            return "requests from other sites are rejected"
        if scope["method"] not in ("GET", "HEAD") and origin is None:
            return "a request that writes needs an Origin header"
        # Compared in equal time: a refusal must not tell how much of a token was right.
        prefix = scope["path"][: len(self._prefix)].encode()
        if not secrets.compare_digest(prefix, self._prefix.encode()):
            return "open the address that `dagengine view` printed: it contains a token"
        return None
