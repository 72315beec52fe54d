"""Requests for answers: the addresses that they go to, and the bodies that they carry.

What is the same for many questions is made once.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import parse_qsl, unquote, urljoin, urlsplit

from pydantic import BaseModel

from dagengine.errors import JudgeSetupError, ProviderError
from dagengine.judges.wire.dialects.feature_fallback import Demands
from dagengine.prompts.instructions import KEPT_CHARACTERS, shared_end
from dagengine.prompts.parsing import without_surrogates
from dagengine.question import Message, Question, Warmth
from dagengine.redaction import public_address

T = TypeVar("T")
REDIRECTS: Final = 5
"""How many times a request may be sent on."""
_MOVED: Final = frozenset({301, 302, 303, 307, 308})


Body = dict[str, Any]

# Stands where the messages of a question go, to find the place.
_PROBE: Final[list[Message]] = [
    {"role": "system", "content": "dagengine: the instructions"},
    {"role": "user", "content": "dagengine: the evidence"},
]
_ALL: Final = Demands()
TEXT: Final = "TEXT"
"""The way of asking for plain text, beside `MODES`."""


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
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    query: dict[str, object] = dict(pairs)
    if len(query) < len(pairs):
        raise JudgeSetupError(f"{source} has a name twice in its query, and only one can be sent")
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


@dataclass(slots=True, eq=False)
class RequestForm:
    """How questions of one kind are asked: everything in a request but its messages.

    `write` makes the whole body around a list of messages; it may change them. `route` gives what
    a request says of where the beginning of its prompt is warm. `mode` is the way of asking for
    structure, or `TEXT`. `limit` are the most tokens of an answer, `demands` what is asked of the
    server at most, and `fields` the fields of those that are.
    """

    write: Callable[[list[Message]], Body]
    route: Callable[[Warmth], Body]
    mode: str = TEXT
    limit: int | None = None
    demands: Demands = _ALL
    fields: frozenset[str] = frozenset()
    _around: tuple[str, str] | None = field(init=False, default=None)
    """The text before and after the messages; None if they are changed."""

    def __post_init__(self) -> None:
        body = self.write(list(_PROBE))
        parts = _JSON.encode(body).split(_JSON.encode(_PROBE))
        if body.get("messages") == _PROBE and len(parts) == 2:
            self._around = parts[0], parts[1]

    def body(self, question: Question[Any]) -> Body:
        """The body of a question's request, to be written as JSON."""
        return {**self.write(list(question.messages)), **self._more(question)}

    def _more(self, question: Question[Any]) -> Body:
        """Part of a request that says where the question's beginning is warm."""
        return {} if question.warmth is None else self.route(question.warmth)

    def encode(self, question: Question[Any]) -> bytes:
        """The body as the openai client writes it, byte for byte."""
        if self._around is None:
            return encode(self.body(question))
        head, tail = self._around
        for name, value in self._more(question).items():
            tail = f'{tail[:-1]},"{name}":{_JSON.encode(value)}}}'
        try:
            return f"{head}{question.prompt}{tail}".encode()
        except UnicodeEncodeError:
            return encode(self.body(question))


def with_cache_mark(question: Question[Any]) -> list[Any]:
    """The messages for Anthropic, with a mark where the material that others begin with ends.

    The provider keeps what is before the mark. It has nothing to gain from a short beginning.
    https://platform.claude.com/docs/en/build-with-claude/prompt-caching
    """
    messages: list[Any] = list(question.messages)
    end = shared_end(question, KEPT_CHARACTERS)
    if end:
        content = messages[1]["content"]
        shared = {"type": "text", "text": content[:end], "cache_control": {"type": "ephemeral"}}
        messages[1] = {"role": "user", "content": [shared, {"type": "text", "text": content[end:]}]}
    return messages


def encode(body: Body) -> bytes:
    """A body as the openai client writes it, byte for byte."""
    try:
        return _JSON.encode(body).encode()
    except UnicodeEncodeError:  # what was judged, or answered, has no UTF-8 form
        return _JSON.encode(without_surrogates(body)).encode()


def _plain(value: Any) -> Any:
    """The substitute for a value that JSON does not know, as in the openai client."""
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, BaseModel):
        return value.model_dump(exclude_unset=True, mode="json", by_alias=True)
    raise TypeError(
        f"a request cannot contain a {type(value).__name__}, which is not JSON: {value!r:.80}"
    )


_JSON = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=_plain)
