"""A connection to an OpenAI-compatible endpoint: how questions are put, sent and redirected."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable
from functools import cache, cached_property, partial
from types import ModuleType
from typing import TYPE_CHECKING, Any

import anyio

from dagengine.judges.wire.completions import Completion, read_completion
from dagengine.judges.wire.dialects.feature_fallback import MODES
from dagengine.judges.wire.requests import Body, RequestForm, follow_redirects
from dagengine.prompts.parsing import without_surrogates
from dagengine.question import Question

if TYPE_CHECKING:
    from openai import AsyncOpenAI

    from dagengine.judges.wire.transport import AiohttpTransport

CHAT = "/chat/completions"
# Forms of requests that are kept.
_FORMS = 1_000
Post = Callable[[RequestForm, Question[Any]], Awaitable[Completion]]
Send = Callable[[Any], Awaitable[bytes]]
"""What sends the body of a request."""


class Connection:
    """A client of one event loop, with instructor's handlers for each way of asking a chat.

    `owned` ones are closed after use. `direct` is a way past the client's HTTP layer. `exploring`
    is held by the one question that finds out what the server lacks. `own_door` sends questions to
    a server's own interface, once it is known to have one.
    """

    def __init__(
        self, api: AsyncOpenAI, direct: AiohttpTransport | None = None, *, owned: bool
    ) -> None:
        self.api, self.owned = api, owned
        self.exploring = anyio.Lock()
        self.base_url = str(api.base_url)
        self.own_door: Post | None = None
        self._direct = direct
        self._senders: dict[str, Send] = {}
        self._forms: dict[Hashable, RequestForm] = {}

    @cached_property
    def handlers(self) -> dict[str, Any]:
        """Handlers that word requests for structure, by mode."""
        _, instructor = libraries()
        registry, provider = instructor.v2.mode_registry, instructor.Provider.OPENAI
        return {
            mode: registry.get_handlers(provider, getattr(instructor.Mode, mode)) for mode in MODES
        }

    def sender(self, path: str) -> Send:
        """Sender of bodies to a path, which returns those of the answers as they came."""
        if path not in self._senders:
            if self._direct is None:
                self._senders[path] = sender(self.api, path)
            else:
                from dagengine.judges.wire.transport import DirectSend  # it needs the libraries

                self._senders[path] = DirectSend(self.api, self._direct, path)
        return self._senders[path]

    async def post(self, form: RequestForm, question: Question[Any]) -> Completion:
        """The completion of a question to the chat."""
        body = form.body(question) if self._direct is None else form.encode(question)
        return read_completion(await self.sender(CHAT)(body), question.messages)

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


def sender(api: AsyncOpenAI, path: str) -> Send:
    """Sender of bodies to `path` by the openai client, which returns those of the answers."""
    import httpx2

    # The gateway retries, and counts. What is not given here is copied for every request.
    options: Any = {
        "max_retries": 0,
        "timeout": api.timeout,
        "headers": {},
        "follow_redirects": False,
    }

    async def send(body: Body) -> bytes:
        ask = partial(api.post, cast_to=httpx2.Response, options=options)
        try:
            response = await follow_redirects(partial(ask, body=body), path)
        except UnicodeEncodeError:  # what was judged, or answered, has no UTF-8 form
            plain = partial(ask, body=without_surrogates(body))
            response = await follow_redirects(plain, path)
        return bytes(response.content)

    return send
