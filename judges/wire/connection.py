"""A connection to an OpenAI-compatible endpoint: how questions are put, sent and redirected."""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Awaitable, Callable, Hashable
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Any

import anyio

from dagengine.errors import ProviderError
from dagengine.judges.wire.completions import Completion, read_completion
from dagengine.judges.wire.dialects.demands import MODES
from dagengine.judges.wire.endpoint import REDIRECTS, moved_to
from dagengine.judges.wire.requests import Body, RequestForm
from dagengine.prompts.parsing import without_surrogates
from dagengine.question import Question

if TYPE_CHECKING:
    from openai import AsyncOpenAI

CHAT = "/chat/completions"
# Forms of requests that are kept.
_FORMS = 1_000
Post = Callable[[RequestForm, Question[Any]], Awaitable[Completion]]
Send = Callable[[Body], Awaitable[bytes]]


class Connection:
    """A client of one event loop; `owned` ones are closed after use.

    `exploring` is held by the one question that finds out what the server lacks.
    """

    __slots__ = ("api", "base_url", "exploring", "owned")

    def __init__(self, api: AsyncOpenAI, *, owned: bool) -> None:
        self.api, self.owned = api, owned
        self.exploring = anyio.Lock()
        self.base_url = str(api.base_url)


class SendingConnection(Connection):
    """A connection that sends requests to one path, and gives answers as they came."""

    __slots__ = ("send",)

    def __init__(self, api: AsyncOpenAI, send: Send, *, owned: bool) -> None:
        super().__init__(api, owned=owned)
        self.send = send


class ChatConnection(Connection):
    """A connection that sends questions to a chat, with instructor's handlers for each way.

    `own_door` sends them to a server's own interface, once it is known to have one.
    """

    __slots__ = ("_forms", "handlers", "own_door", "post")

    def __init__(self, api: AsyncOpenAI, post: Post, *, owned: bool) -> None:
        super().__init__(api, owned=owned)
        _, instructor = libraries()
        registry, provider = instructor.v2.mode_registry, instructor.Provider.OPENAI
        self.handlers: dict[str, Any] = {
            mode: registry.get_handlers(provider, getattr(instructor.Mode, mode)) for mode in MODES
        }
        self.post = post
        self.own_door: Post | None = None
        self._forms: dict[Hashable, RequestForm] = {}

    def form(self, key: Hashable, make: Callable[[], RequestForm]) -> RequestForm:
        """The form of the requests that `key` says everything about, made once."""
        form = self._forms.get(key)
        if form is None:
            if len(self._forms) >= _FORMS:
                self._forms.clear()
            form = self._forms[key] = make()
        return form


@cache
def libraries() -> tuple[ModuleType, ModuleType]:
    """openai and instructor, imported when a judge first needs them (about a second)."""
    import instructor
    import instructor.v2
    import openai

    return openai, instructor


def poster(openai: ModuleType, api: AsyncOpenAI, path: str) -> Post:
    """What sends questions to `path` by the openai client and gives their completions."""
    send = sender(openai, api, path)

    async def post(form: RequestForm, question: Question[Any]) -> Completion:
        return read_completion(await send(form.body(question)), question.messages)

    return post


def sender(openai: ModuleType, api: AsyncOpenAI, path: str) -> Send:
    """What sends bodies to `path` by the openai client and gives those of the answers."""
    import httpx2

    # The gateway retries, and counts. What is not given here is copied for every request.
    options: Any = {
        "max_retries": 0,
        "timeout": api.timeout,
        "headers": {},
        "follow_redirects": False,
    }

    async def sent(body: Body) -> bytes:
        place = path
        for _ in range(REDIRECTS):
            try:
                response = await api.post(
                    place, cast_to=httpx2.Response, body=body, options=options
                )
            except openai.APIStatusError as error:
                moved = moved_to(error.response)
                if moved is None:
                    raise
                place = moved
            else:
                return response.content.removeprefix(BOM_UTF8)
        raise ProviderError(
            f"the endpoint redirected the request {REDIRECTS} times", transient=False
        )

    async def send(body: Body) -> bytes:
        try:
            return await sent(body)
        except UnicodeEncodeError:  # what was judged, or answered, has no UTF-8 form
            plain: Body = without_surrogates(body)
            return await sent(plain)

    return send
