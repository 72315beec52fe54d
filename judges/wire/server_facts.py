"""Servers of one's own: what they say of themselves, and the door of Ollama that cuts no prompts.

Kind, window and places are asked before any question. What comes back is read as untrusted data: a
page, a string or an absurd number says nothing.

Ollama's OpenAI-compatible door ignores every setting of the window and cuts what is longer.
`/api/chat` takes the window with each request (`num_ctx`): here the smallest step that prompt and
answer fit into, and never a smaller one than before, since every change loads the model anew.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Awaitable, Callable, Hashable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from ipaddress import ip_address
from typing import TYPE_CHECKING, Annotated, Any, Final, Generic, TypeVar, cast
from urllib.parse import urlsplit

import anyio
import anyio.lowlevel
from pydantic import AliasChoices, AliasPath, BaseModel, Field, ValidationError

from dagengine.errors import TooLongError, TruncatedError
from dagengine.judges.wire.completions import Completion, prompt_of, read_completion, usage_of
from dagengine.judges.wire.connection import Send
from dagengine.judges.wire.dialects.error_responses import of_response
from dagengine.judges.wire.requests import Body, RequestForm, follow_redirects
from dagengine.prompts.json_in_text import fields_of
from dagengine.prompts.lengths.token_counts import size_of
from dagengine.prompts.parsing import without_surrogates
from dagengine.question import NO_FACTS, Message, Question, ServerFacts

if TYPE_CHECKING:
    from openai import AsyncOpenAI


M = TypeVar("M", bound=BaseModel)
E = TypeVar("E", bound="_Named")
Pages = dict[str, bytes | None]
_MODELS, _PROPS, _LIBRARY = "v1/models", "props", "api/v0/models"
_VERSION, _PROCESSES = "api/version", "api/ps"
_PAGES: Final = (_PROPS, _LIBRARY, _VERSION, _PROCESSES)

OLLAMA: Final = "Ollama"
SECONDS: Final = 3.0
"""The time limit of all that is asked of one server."""
FRESH: Final = 60.0
"""For so many seconds facts hold for all judges that ask one server in one way."""
_MOST_SERVERS: Final = 1_000  # whose facts are kept
_RECENT: Final[dict[Hashable, tuple[float, ServerFacts]]] = {}
_ASKING: Final[dict[Hashable, anyio.Event]] = {}
_STEP: Final = 4096  # tokens of the smallest window; larger ones double it
_ANSWER: Final = 2048  # tokens of an answer without a bound of its own
_DENSITY: Final = 1.6  # tokens of most models per token of an efficient tokenizer
_AROUND: Final = 128  # tokens of the template around messages
# Keys of a request to `/api/chat`, and those of the OpenAI protocol that have another form there;
# all other settings are options of the model.
_CHAT_KEYS: Final = frozenset({"keep_alive", "options", "think", "shift", "truncate"})
_OPENAI_KEYS: Final = frozenset(
    {"model", "messages", "response_format", "tools", "tool_choice", "parallel_tool_calls"}
    | {"max_tokens", "max_completion_tokens", "logprobs", "top_logprobs", "stream"}
    | {"reasoning_effort"}
)
Tokens = Annotated[int, Field(strict=True, ge=1, le=10**9)]
Places = Annotated[int, Field(strict=True, ge=1, le=10**4)]


class _Props(BaseModel):
    """`/props` of llama.cpp; its window is already that of one place."""

    n_ctx: Tokens = Field(validation_alias=AliasPath("default_generation_settings", "n_ctx"))
    total_slots: Places


class _Named(BaseModel):
    id: str


class _Model(_Named):
    """Of `/v1/models`; vLLM says how many tokens each model reads."""

    owned_by: str = ""
    max_model_len: Tokens | None = None


class _Loaded(_Named):
    """Of `/api/v0/models` of LM Studio; a model that is not loaded yet has no loaded length."""

    loaded_context_length: Tokens | None = None
    max_context_length: Tokens


class _Version(BaseModel):
    """`/api/version` of Ollama."""

    version: str


class _Running(_Named):
    """Of `/api/ps` of Ollama: a model that is in memory."""

    id: str = Field(validation_alias="name")
    context_length: Tokens | None = None


class _List(BaseModel, Generic[E]):
    """A page about several models."""

    entries: list[E] = Field(validation_alias=AliasChoices("data", "models"))


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
        if len(_RECENT) >= _MOST_SERVERS:
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
    if not pages:
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


async def _pages(api: AsyncOpenAI, base: str) -> Pages:
    """Pages of every kind of server, asked at the same time: those for which there is an answer."""
    root = root_of(base)
    urls = {page: f"{root}{page}" for page in _PAGES} | {_MODELS: f"{base.rstrip('/')}/models"}
    pages: Pages = {}

    async def ask(page: str, url: str) -> None:
        with suppress(Exception), anyio.move_on_after(SECONDS):
            pages[page] = await _get(api, url)  # None for a 404, which also says that it is there

    async with anyio.create_task_group() as tasks:
        for page, url in urls.items():
            tasks.start_soon(ask, page, url)
    return pages


def _facts(pages: Pages, model: str) -> ServerFacts:
    """Kind, window and places of a server by the pages that it has."""
    props = _read(_Props, pages.get(_PROPS))
    if props is not None:
        return ServerFacts("llama.cpp", props.n_ctx, props.total_slots)
    library = _read(_List[_Loaded], pages.get(_LIBRARY))
    if library is not None:
        loaded = _entry_of(library, model)
        if loaded is None:
            return ServerFacts("LM Studio")
        return ServerFacts("LM Studio", loaded.loaded_context_length or loaded.max_context_length)
    if _read(_Version, pages.get(_VERSION)) is not None:
        return ServerFacts(OLLAMA, _window_in(pages.get(_PROCESSES), model))
    # Last, since all of these servers have this page, and most name only their models in it.
    served = _entry_of(_read(_List[_Model], pages.get(_MODELS)), model)
    if served is None or served.max_model_len is None:
        return NO_FACTS
    return ServerFacts({"vllm": "vLLM"}.get(served.owned_by, ""), served.max_model_len)


def _window_in(page: bytes | None, model: str) -> int | None:
    running = _entry_of(_read(_List[_Running], page), model)
    return None if running is None else running.context_length


def _entry_of(page: _List[E] | None, model: str) -> E | None:
    """The entry of a model; of a server with one model, that one."""
    entries = [] if page is None else page.entries
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

    options = {"max_retries": 0, "follow_redirects": False}
    settings: Any = {"cast_to": httpx2.Response, "options": options}
    request = partial(api.get, **settings)
    if body is not None:
        request = partial(api.post, body=without_surrogates(body), **settings)
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
    answer = _read(_Tokens, await _page(api, "tokenize", body)) or _Tokens()
    return answer.count or len(answer.tokens) or None


async def _page(api: AsyncOpenAI, path: str, body: dict[str, Any] | None = None) -> bytes | None:
    """The page at a path under the server's root; None if it fails, or is late."""
    with suppress(Exception), anyio.move_on_after(SECONDS):
        return await _get(api, f"{root_of(str(api.base_url))}{path}", body)
    return None


class OllamaPost:
    """Sends the questions of one connection to `/api/chat`; raises what `send` raises.

    `most` is the longest window of the model, None if it is not known; `loaded` gives the window
    that it is in memory with.
    """

    def __init__(
        self, send: Send, most: int | None, loaded: Callable[[], Awaitable[int | None]]
    ) -> None:
        self._send, self._most, self._loaded = send, most, loaded
        self._window = 0

    async def __call__(self, form: RequestForm, question: Question[Any]) -> Completion:
        """The completion of a question; raises TooLongError if no window is long enough."""
        body = form.body(question)
        answer = body.get("max_tokens") or body.get("max_completion_tokens") or _ANSWER
        size = size_of(question.messages).tokens
        await self._grow(round(size * _DENSITY) + _AROUND + answer)
        try:
            reply = await self._reply(body)
        except TooLongError as error:
            if self._window == self._most:
                raise
            await self._grow((error.needed or 2 * self._window) + answer)
            reply = await self._reply(body)
        if self._looks_cut(reply):  # an old Ollama, which knows no `truncate`
            tokens_before = usage_of(reply).input_tokens
            await self._grow(2 * self._window)
            reply = await self._reply(body)
            usage = usage_of(reply)
            # A prompt that was not cut has as many tokens in the larger window.
            if self._looks_cut(reply) and usage.input_tokens != tokens_before:
                raise TruncatedError("Ollama cut the prompt; use a newer Ollama", usage.counts)
        return reply

    async def _grow(self, tokens: int) -> None:
        """Let the window have so many tokens, as far as the model has them."""
        if not self._window:
            self._window = await self._loaded() or _STEP
        while self._window < tokens:
            self._window *= 2
        if self._most is not None:
            self._window = min(self._window, self._most)

    async def _reply(self, body: Body) -> Completion:
        import openai

        try:
            content = await self._send(chat_body(body, self._window))
        except openai.APIStatusError as error:
            failure = of_response(error, prompt_of(body["messages"]))
            if isinstance(failure, TooLongError):
                raise failure from None
            raise
        return read_completion(content, body["messages"])

    def _looks_cut(self, reply: Completion) -> bool:
        # What is longer than the window is cut to half of it, with about two tokens around.
        return abs(usage_of(reply).input_tokens - (self._window // 2 + 2)) <= 1


def chat_body(body: Body, window: int) -> Body:
    """A request of the OpenAI protocol as one to `/api/chat` with a window of so many tokens."""
    effort = body.get("reasoning_effort")
    options = {key: value for key, value in body.items() if key not in _CHAT_KEYS | _OPENAI_KEYS}
    most = body.get("max_tokens") or body.get("max_completion_tokens")
    own: Body = {
        "model": body["model"],
        "messages": body["messages"],
        "stream": False,
        "think": effort in ("low", "medium", "high") and effort,
        "truncate": False,
        "shift": False,
        **{key: body[key] for key in _CHAT_KEYS & body.keys()},
    }
    if body.get("logprobs"):
        own |= {"logprobs": True, "top_logprobs": body.get("top_logprobs", 0)}
    # The schema of the answer, wherever a mode has it
    form, tools = body.get("response_format") or {}, body.get("tools") or []
    if form.get("type") == "json_schema":
        own["format"] = form["json_schema"]["schema"]
    elif form.get("type") == "json_object":
        own["format"] = "json"
    elif tools:
        own["format"] = tools[0]["function"]["parameters"]
    if most is not None:
        options["num_predict"] = most
    options |= {"num_ctx": window, **fields_of(body.get("options"))}
    return {**own, "options": options}
