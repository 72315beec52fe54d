"""What judges behind one HTTP endpoint share: a client per event loop, keys, secrets, failures.

Nothing is imported or read from the environment before the first question.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Hashable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypedDict

import anyio
import anyio.lowlevel

from dagengine.errors import InputError, JudgeError, JudgeSetupError, ProviderError
from dagengine.judges.identity import SharedJudge, digest_mark, durable_name
from dagengine.judges.wire.completions import prompt_of
from dagengine.judges.wire.connection import Connection
from dagengine.judges.wire.dialects.error_responses import of_response
from dagengine.judges.wire.dialects.feature_fallback import Hypotheses
from dagengine.judges.wire.requests import Endpoint, endpoint_of
from dagengine.judges.wire.response_bodies import BodyReader, valid_limit
from dagengine.judges.wire.server_facts import forget_facts, is_provider, recent_facts, token_count
from dagengine.question import NO_FACTS, Capabilities, Message, Question, ServerFacts
from dagengine.redaction import (
    keep_log_public,
    public_address,
    public_text,
    public_value,
    secrets_in,
    secrets_of_address,
    secrets_of_environment,
)

if TYPE_CHECKING:
    from openai import AsyncOpenAI

_NO_KEY = "not-needed"
_ACCOUNTS = {"organization": "OPENAI_ORG_ID", "project": "OPENAI_PROJECT_ID"}


class Provider(NamedTuple):
    """Where a judge asks that was given no address, and how identities call this kind of judge.

    `address` and `key` are the environment variables that are looked at first; of an address in
    the environment `path` is left out.
    """

    name: str
    address: str
    key: str
    url: str
    path: str = ""


OPENAI = Provider("openai", "OPENAI_BASE_URL", "OPENAI_API_KEY", "https://api.openai.com/v1")


class EndpointSettings(TypedDict, total=False):
    """What every judge behind an address takes besides its model: see `OpenAIJudge`."""

    base_url: str | None
    api_key: str | None
    client: AsyncOpenAI | None
    parameters: dict[str, Any] | None
    max_bytes: int


class EndpointJudge(SharedJudge[Connection]):
    """A model behind one address, reached by a client of the `openai` package.

    `base_url`, `api_key`, `client`, `parameters` and `max_bytes` as in `OpenAIJudge`.
    """

    provider: Provider = OPENAI
    capabilities: Capabilities
    chats = False
    """Whether its questions are prompts of a chat, whose tokens the server counts."""
    sizes_window = False
    """Whether it asks for a window with each request, where a server knows how."""

    def __init__(
        self,
        model: str = "gpt-4o",
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        client: AsyncOpenAI | None = None,
        parameters: dict[str, Any] | None = None,
        max_bytes: int = 4_000_000,
    ) -> None:
        if client is not None:
            # Its library is loaded if it is one.
            if not isinstance(client, getattr(sys.modules.get("openai"), "AsyncOpenAI", ())):
                raise InputError(
                    "client= must be an AsyncOpenAI or AsyncAzureOpenAI object itself, got "
                    f"{client!r:.80}: pass AsyncOpenAI(…)"
                )
            if base_url or api_key:
                raise InputError("client= has an address and a key: leave out base_url=, api_key=")
            base_url, api_key = str(client.base_url), str(client.api_key)
        self.model = model
        self.max_bytes = valid_limit(max_bytes)
        if base_url:
            endpoint_of(base_url)  # the caller hears of a wrong address at once
        self._address = base_url
        self._api_key = api_key
        self._given = client
        self._parameters = dict(parameters or {})
        self._pickled = False
        self._clients = {}
        self._facts: ServerFacts | None = None
        self.knows_server = False
        self._facts_key: Hashable = None
        self.hypotheses = Hypotheses()

    @property
    def parameters(self) -> Mapping[str, Any]:
        """Fields added to every request body, secrets included; do not change them."""
        return self._parameters

    @property
    def base_url(self) -> str | None:
        """The address that was given, or the client's, without secrets."""
        return self._address and public_text(self._address)

    def with_parameters(self, parameters: Mapping[str, Any]) -> Self:
        """The same judge with more in the body of every request; it has its own connections."""
        twin = object.__new__(type(self))
        twin.__dict__.update(
            vars(self), _clients={}, _parameters={**self._parameters, **parameters}
        )
        # It is cached, and the parameters are a part of it.
        twin.__dict__.pop("_identity", None)
        return twin

    def _public_state(self) -> dict[str, Any]:
        if self._given is not None:
            raise TypeError(
                "a judge with your own client= cannot be pickled; use base_url= and api_key="
            )
        settings = {"_parameters": public_value(self._parameters), "_address": self.base_url}
        return {**settings, "_api_key": None, "_pickled": True, "knows_server": False}

    @property
    def _process_name(self) -> str:
        """The name within one process, which may tell more apart than `_name`, that of stores."""
        return self._name

    @property
    def identity(self) -> str:
        """Model, endpoint and parameters: what may change an answer."""
        return self._identity

    @cached_property
    def _identity(self) -> str:
        parameters = json.dumps(public_value(self._parameters), sort_keys=True, default=str)
        alone = f" {id(self._given):x}" if self._is_opaque else ""
        where = f"{self.base_url or 'default'}{self._digest}{alone}"
        return f"{self._process_name} at {where} with {parameters}"

    @property
    def durable_identity(self) -> str | None:
        """`identity` with the endpoint that holds now, which may come from the environment.

        None for a client that has an HTTP client or methods of its own, which may do anything.
        """
        return None if self._is_opaque else self.former_identity

    @property
    def former_identity(self) -> str | None:
        """The durable identity, also if answers are not stored any more."""
        name = f"{self._name} at {public_address(self._endpoint)}{self._digest}"
        return durable_name(name, self._parameters)

    @property
    def _endpoint(self) -> str:
        """The address that holds now."""
        return self._address or self._environment_address() or self.provider.url

    @property
    def _digest(self) -> str:
        """Part of the identity that differs between judges with other headers or queries."""
        return digest_mark([self._endpoint, self._parameters], self._extra_pairs, self._api_key)

    @property
    def _extra_pairs(self) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """The headers and the query that the client was given, or finds in the environment."""
        if self._given is None:
            lines = os.environ.get("OPENAI_CUSTOM_HEADERS", "") if self.provider.address else ""
            pairs = (line.partition(":") for line in lines.splitlines())
            return {name.strip(): value.strip() for name, colon, value in pairs if colon}, {}
        # An account of the environment was not chosen for this judge.
        accounts = ((name, getattr(self._given, name)) for name in _ACCOUNTS)
        headers = {f"openai-{n}": v for n, v in accounts if v != os.environ.get(_ACCOUNTS[n])}
        return {**headers, **self._given._custom_headers}, self._given._custom_query

    @cached_property
    def _is_opaque(self) -> bool:
        """Return whether code of the caller's decides what becomes of requests."""
        if self._given is None:
            return False
        own = type(self._given)
        kind = next(kind for kind in own.__mro__ if kind.__module__.split(".")[0] == "openai")
        methods = (name for name in dir(kind) if not name.startswith("__"))
        changed = any(getattr(own, name) is not getattr(kind, name) for name in methods)
        plain = _transport().AsyncHttpxClientWrapper  # the library's own
        return changed or not isinstance(self._given._client, plain)

    @property
    def _name(self) -> str:
        """The kind of judge and its model."""
        return f"{self.provider.name} {self.model}"

    def _environment_address(self) -> str | None:
        """The address in the environment."""
        address = os.environ.get(self.provider.address)
        return address and f"{address.rstrip('/')}{self.provider.path}"

    async def _begin(self, client: Connection) -> None:
        if self._given is not None and not client.owned:
            await _transport().disconnect_with_the_loop(self._given._client)

    async def _close(self, client: Connection, *, whole: bool) -> None:
        if not whole:
            self.forget_facts()
        self.knows_server = False
        if client.owned:
            await client.api.close()

    def _connect(self) -> Connection:
        import openai

        keep_log_public("openai._base_client", "httpx2", "httpx")  # they log whole addresses
        reader = BodyReader(self.max_bytes)
        if self._given is not None:
            api, owned = _transport().of_this_loop(self._given, reader)
            return Connection(api, owned=owned)
        http, direct = _transport().http_client(reader)
        own = None if self.provider is OPENAI else self.provider.url
        address = self._address or self._environment_address() or own
        timeout = openai.Timeout(None, connect=_transport().CONNECT_TIMEOUT)
        options: dict[str, Any] = {"timeout": timeout}
        source = "base_url" if self._address else self.provider.address
        endpoint = endpoint_of(address, source) if address else None
        if endpoint is not None:
            options["base_url"] = endpoint.url
            options["default_headers"] = endpoint.headers
            options["default_query"] = endpoint.query
        key = self._key(endpoint)
        try:
            api = openai.AsyncOpenAI(api_key=key, http_client=http, **options)
        except _transport().httpx2.InvalidURL as error:
            raise JudgeSetupError(f"{source} is not an address: {error}") from None
        if self.provider is not OPENAI:  # other providers need not know who that is
            api.organization = api.project = None
        return Connection(api, direct, owned=True)

    def _key(self, endpoint: Endpoint | None) -> str:
        """The key for an endpoint; raises JudgeSetupError if it needs one and none is set."""
        needless = (self._address and not self._pickled) or (endpoint and endpoint.headers)
        key = self._api_key or (_NO_KEY if needless else os.environ.get(self.provider.key))
        if not key:
            cause = "; keys are not pickled" if self._pickled else ""
            raise JudgeSetupError(
                f"no key for the model {self.model!r}: set {self.provider.key}, or pass base_url= "
                f"(--base-url) for a server that needs none{cause}"
            )
        return key

    @property
    def secrets(self) -> list[str]:
        secrets = [self._api_key or "", *secrets_in(self._parameters), *secrets_of_environment()]
        for address in (self._address, self._environment_address()):
            secrets += secrets_of_address(address) if address else []
        for pairs in self._extra_pairs:
            secrets += secrets_in({"headers": {name: str(value) for name, value in pairs.items()}})
        return secrets

    async def require_reachable(self) -> None:
        """Raise JudgeSetupError when there is no key, or nothing listens at `base_url`."""
        async with self.session() as client:
            url = client.api.base_url
            if self._address is None:
                return
            port = url.port or (443 if url.scheme == "https" else 80)
            try:
                stream = await anyio.connect_tcp(url.host, port)
            except OSError as error:
                raise JudgeSetupError(
                    f"nothing answers at {self.base_url}: {error}; is the server running and "
                    "the address right?"
                ) from None
            await stream.aclose()

    async def facts(self) -> ServerFacts:
        """The server's facts about itself; asked once a minute, and again if nothing answered.

        While connections are open it holds, until `forget_facts`.
        Never raises: a server without facts, or a judge without a key, has none.
        """
        if not self.knows_server:
            with suppress(JudgeError):
                async with self.session() as client:
                    key = self._facts_key = client.base_url, self.identity, client.api.api_key
                    sizes = self.sizes_window
                    facts = await recent_facts(key, client.api, self.model, sizes=sizes)
                    self._facts, self.knows_server = facts or self._facts, facts is not None
        return self._facts or NO_FACTS

    def forget_facts(self) -> None:
        """Ask the server again before the next question: what it said does not hold any more."""
        if self.knows_server:
            self.knows_server = False
            forget_facts(self._facts_key)

    @property
    def may_cut(self) -> bool:
        """True if the server may cut a prompt and not say so; a provider refuses long prompts."""
        return self.chats and not self.capabilities.batched and not is_provider(self._endpoint)

    async def count_tokens(self, messages: Sequence[Message]) -> int | None:
        """Number of tokens of messages, as the server counts them; None where it cannot say."""
        facts = await self.facts()
        with suppress(JudgeError):
            async with self.session() as client:
                return await token_count(client.api, facts, self.model, messages)
        return None

    def failure(self, error: Any, question: Question[Any]) -> JudgeError:
        """The JudgeError for an error that a client raised for a question."""
        import openai

        where = self.base_url or "the provider"
        # What our transport raises reaches us as the cause of an error of the client.
        for raised in (error, error.__cause__):
            if isinstance(raised, JudgeError):
                return raised
        if isinstance(error, openai.APIConnectionError):
            self.forget_facts()  # who answers next may be another server
            # The client's own words say nothing: the first cause that does is told.
            raised = error.__cause__ or error.__context__
            while raised is not None and not str(raised):
                raised = raised.__cause__ or raised.__context__
            cause = str(raised or error)
            if self._given is not None and _transport().is_of_another_loop(cause):
                return ProviderError(_transport().ANOTHER_LOOP, transient=False)
            url = error.request.url
            suspects = "the address"
            if proxy := _transport().proxy_named(url.scheme, url.host):
                where, suspects = f"{where} through {proxy}", "are the proxy and the address"
            return ProviderError(
                f"no answer from {where}: {cause}; is the server running and {suspects} right?",
                transient=True,
            )
        if isinstance(error, openai.APIStatusError):
            return of_response(error, prompt_of(question.messages))
        return ProviderError(f"{type(error).__name__}: {error}", transient=False)


def _transport() -> ModuleType:
    """The module that sends requests; it needs the libraries above."""
    from dagengine.judges.wire import transport

    return transport
