"""A connection to an OpenAI-compatible endpoint: how a request body is sent and redirected."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from dagengine.errors import ProviderError
from dagengine.judges.wire.completions import Completion, make_strict, read_completion
from dagengine.judges.wire.endpoint import moved_to
from dagengine.prompts.parsing import without_surrogates

if TYPE_CHECKING:
    from openai import AsyncOpenAI

# From the least intrusive way of asking for structure to the most: the last one has to
# paste the schema into the prompt.
MODES = ("JSON_SCHEMA", "TOOLS", "JSON")
_REDIRECTS = 5
Post = Callable[[dict[str, Any]], Awaitable[Completion]]


class Connection(NamedTuple):
    """A client of one event loop, with instructor's handlers for each way of asking."""

    api: AsyncOpenAI
    post: Post
    handlers: dict[str, Any]
    owned: bool

    @classmethod
    def of(cls, api: AsyncOpenAI, post: Post, *, owned: bool) -> Connection:
        """A connection that asks by instructor's handlers; `owned` ones are closed after use."""
        _, instructor = libraries()
        registry, provider = instructor.v2.mode_registry, instructor.Provider.OPENAI
        handlers = {
            mode: registry.get_handlers(provider, getattr(instructor.Mode, mode)) for mode in MODES
        }
        return cls(api, post, handlers, owned)


@cache
def libraries() -> tuple[ModuleType, ModuleType]:
    """openai and instructor, imported when a judge first needs them (about a second)."""
    import instructor
    import instructor.v2
    import openai

    return openai, instructor


def poster(openai: ModuleType, api: AsyncOpenAI, path: str) -> Post:
    """What sends a request body to `path` and gives its completion."""
    import httpx2

    base_url = str(api.base_url)
    # The gateway retries, and counts. What is not given here is copied for every request.
    options: Any = {
        "max_retries": 0,
        "timeout": api.timeout,
        "headers": {},
        "follow_redirects": False,
    }

    async def post(body: dict[str, Any]) -> Completion:
        make_strict(body, base_url)
        try:
            return await send(body)
        except UnicodeEncodeError:  # what was judged, or answered, has no UTF-8 form
            return await send(without_surrogates(body))

    async def send(body: dict[str, Any]) -> Completion:
        place = path
        for _ in range(_REDIRECTS):
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
                return read_completion(response.content)
        raise ProviderError(f"the endpoint sends on {_REDIRECTS} times", transient=False)

    return post
