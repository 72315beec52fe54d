"""What a server says of itself: its kind, its window and its places, asked before any question.

What comes back is read as untrusted data: a page, a string or an absurd number says nothing.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Hashable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from ipaddress import ip_address
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar, cast
from urllib.parse import urlsplit

import anyio
import anyio.lowlevel
from pydantic import AliasPath, BaseModel, Field, ValidationError

from dagengine.judges.wire.completions import prompt_of
from dagengine.judges.wire.endpoint import follow_redirects
from dagengine.prompts.parsing import without_surrogates
from dagengine.question import NO_FACTS, Message, ServerFacts

if TYPE_CHECKING:
    from openai import AsyncOpenAI

M = TypeVar("M", bound=BaseModel)
E = TypeVar("E", bound="_Named")
Pages = dict[str, bytes]
_MODELS, _PROPS, _LIBRARY = "v1/models", "props", "api/v0/models"
_VERSION, _PROCESSES = "api/version", "api/ps"
_PAGES: Final = (_PROPS, _LIBRARY, _VERSION, _PROCESSES)

OLLAMA: Final = "Ollama"
SECONDS: Final = 3.0
"""The time limit of all that is asked of one server."""
FRESH: Final = 60.0
"""For so many seconds facts hold for all judges that ask one server in one way."""
_MOST: Final = 1_000  # servers whose facts are kept
_RECENT: Final[dict[Hashable, tuple[float, ServerFacts]]] = {}
_ASKING: Final[dict[Hashable, anyio.Event]] = {}
Tokens = Annotated[int, Field(strict=True, ge=1, le=10**9)]
Places = Annotated[int, Field(strict=True, ge=1, le=10**4)]


class _Props(BaseModel):
    """`/props` of llama.cpp; its window is already that of one place."""

    n_ctx: Tokens = Field(validation_alias=AliasPath("default_generation_settings", "n_ctx"))
    total_slots: Places


class _Named(BaseModel):
    id: str


class _Model(_Named):
    owned_by: str = ""
    max_model_len: Tokens | None = None


class _Models(BaseModel):
    """`/v1/models`; vLLM says how many tokens each model reads."""

    data: list[_Model]


class _Loaded(_Named):
    loaded_context_length: Tokens | None = None
    max_context_length: Tokens


class _Library(BaseModel):
    """`/api/v0/models` of LM Studio; a model that is not loaded yet has no loaded length."""

    data: list[_Loaded]


class _Version(BaseModel):
    """`/api/version` of Ollama."""

    version: str


class _Running(_Named):
    id: str = Field(validation_alias="name")
    context_length: Tokens | None = None


class _Processes(BaseModel):
    """`/api/ps` of Ollama: the models that are in memory."""

    models: list[_Running]


class _Shown(BaseModel):
    """`/api/show` of Ollama: what a model was made for, under names of its architecture."""

    model_info: dict[str, Any]


async def recent_facts(
    key: Hashable, api: AsyncOpenAI, model: str, *, sizes: bool
) -> ServerFacts | None:
    """The `server_facts` of the last minute, asked once for all judges with one key."""
    flight = key, anyio.lowlevel.current_token()
    if flight in _ASKING:
        await _ASKING[flight].wait()
    since, facts = _RECENT.get(key, (-math.inf, None))
    if time.monotonic() - since < FRESH:
        return facts
    event = _ASKING[flight] = anyio.Event()
    try:
        facts = await server_facts(api, model, sizes=sizes)
    finally:
        _ASKING.pop(flight, None)
        event.set()
    if facts is not None:
        if len(_RECENT) >= _MOST:
            _RECENT.clear()
        _RECENT[key] = time.monotonic(), facts
    return facts


def forget_facts(key: Hashable) -> None:
    """Have a server asked again: it may be another one, or have other settings now."""
    _RECENT.pop(key, None)


async def server_facts(api: AsyncOpenAI, model: str, *, sizes: bool) -> ServerFacts | None:
    """Facts that the server behind a client tells about itself within `SECONDS`.

    None when nothing answered, or not yet: it may be asked again. Providers that are known by
    their addresses are not asked. Of a judge that `sizes` the window with each request it is that
    of the model, not the one that is loaded.
    """
    base = str(api.base_url)
    if is_provider(base):
        return NO_FACTS
    pages = await _pages(api, base)
    if pages is None:
        return None
    facts = _facts(pages, model)
    if facts.server == OLLAMA and sizes:
        page = await _page(api, "api/show", {"model": model})
        settings = (_read(_Shown, page) or _Shown(model_info={})).model_info
        for name, size in settings.items():
            if name.endswith(".context_length") and isinstance(size, int) and 0 < size <= 10**9:
                return replace(facts, window=size)
        return replace(facts, window=None)
    return facts


async def loaded_window(api: AsyncOpenAI, model: str) -> int | None:
    """The window of a model that Ollama has in memory; None if it is not."""
    return _window_in(await _page(api, _PROCESSES), model)


def root_of(base_url: str) -> str:
    """The address of a server without the path of its OpenAI protocol; it ends with a slash."""
    plain = urlsplit(base_url)._replace(query="", fragment="").geturl()
    return f"{plain.rstrip('/').removesuffix('/v1')}/"


@cache
def is_provider(base_url: str) -> bool:
    """Return whether an address is that of a provider with known models, not one's own server."""
    host = urlsplit(base_url).hostname or ""
    # Names of one's own network have no dot, and nobody sells an API under a bare number.
    if "." not in host:
        return False
    with suppress(ValueError):
        ip_address(host)
        return False
    from genai_prices import data_snapshot  # its list is kept by people who look providers up

    providers = data_snapshot.get_snapshot().providers
    return any(re.match(provider.api_pattern, base_url) for provider in providers)


async def _pages(api: AsyncOpenAI, base: str) -> Pages | None:
    """Pages of every kind of server, asked at the same time; None when nothing answered."""
    root = root_of(base)
    urls = {page: f"{root}{page}" for page in _PAGES} | {_MODELS: f"{base.rstrip('/')}/models"}
    pages: Pages = {}
    answered = False

    async def ask(page: str, url: str) -> None:
        nonlocal answered
        with suppress(Exception), anyio.move_on_after(SECONDS):
            content = await _get(api, url)
            # Also a 404 says that there is a server.
            answered = True
            if content is not None:
                pages[page] = content

    async with anyio.create_task_group() as tasks:
        for page, url in urls.items():
            tasks.start_soon(ask, page, url)
    return pages if answered else None


def _facts(pages: Pages, model: str) -> ServerFacts:
    props = _read(_Props, pages.get(_PROPS))
    if props is not None:
        return ServerFacts("llama.cpp", props.n_ctx, props.total_slots)
    library = _read(_Library, pages.get(_LIBRARY))
    if library is not None:
        loaded = _entry_of(library.data, model)
        if loaded is None:
            return ServerFacts("LM Studio")
        return ServerFacts("LM Studio", loaded.loaded_context_length or loaded.max_context_length)
    if _read(_Version, pages.get(_VERSION)) is not None:
        return ServerFacts(OLLAMA, _window_in(pages.get(_PROCESSES), model))
    # Last, since all of these servers have this page, and most name only their models in it.
    models = _read(_Models, pages.get(_MODELS)) or _Models(data=[])
    served = _entry_of(models.data, model)
    if served is None or served.max_model_len is None:
        return NO_FACTS
    return ServerFacts({"vllm": "vLLM"}.get(served.owned_by, ""), served.max_model_len)


def _window_in(page: bytes | None, model: str) -> int | None:
    processes = _read(_Processes, page) or _Processes(models=[])
    running = _entry_of(processes.models, model)
    return None if running is None else running.context_length


def _entry_of(entries: list[E], model: str) -> E | None:
    """The entry of a model; of a server with one model, that one."""
    for entry in entries:
        if entry.id.removesuffix(":latest") == model.removesuffix(":latest"):
            return entry
    return entries[0] if len(entries) == 1 else None


def _read(shape: type[M], page: bytes | None) -> M | None:
    try:
        return shape.model_validate_json(page or b"")
    except ValidationError:
        return None


async def _get(api: AsyncOpenAI, url: str, body: dict[str, Any] | None = None) -> bytes | None:
    """The body of a GET, or of a POST of a body; None where the server says that there is none.

    Raises what the client raises when nothing answers, and when the server is not ready (503).
    """
    import httpx2
    import openai

    shape: Any = {"cast_to": httpx2.Response}
    shape["options"] = {"max_retries": 0, "follow_redirects": False}
    request = partial(api.get, **shape)
    if body is not None:
        request = partial(api.post, body=without_surrogates(body), **shape)
    try:
        return cast("bytes", (await follow_redirects(request, url)).content)
    except openai.APIStatusError as error:
        if error.status_code == 503:
            raise
    return None


class _Tokens(BaseModel):
    """`/tokenize` of llama.cpp (a list) or of vLLM (a count)."""

    tokens: list[Any] = []
    count: Annotated[int, Field(strict=True, ge=0, le=10**9)] | None = None


async def token_count(
    api: AsyncOpenAI, facts: ServerFacts, model: str, messages: Sequence[Message]
) -> int | None:
    """Number of tokens of messages, from a server that counts without answering, else None.

    llama.cpp counts the texts without the template around them.
    """
    if facts.server not in ("llama.cpp", "model file", "vLLM"):
        return None
    body: dict[str, Any] = {"model": model, "messages": list(messages)}
    if facts.server != "vLLM":
        body = {"content": prompt_of(messages)}
    answer = _read(_Tokens, await _page(api, "tokenize", body))
    return None if answer is None else answer.count or len(answer.tokens) or None


async def _page(api: AsyncOpenAI, path: str, body: dict[str, Any] | None = None) -> bytes | None:
    """The page at a path under the server's root; None if it fails, or is late."""
    with suppress(Exception), anyio.move_on_after(SECONDS):
        return await _get(api, f"{root_of(str(api.base_url))}{path}", body)
    return None
