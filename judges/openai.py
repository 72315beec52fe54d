"""A judge behind the OpenAI chat protocol: OpenAI, Azure, and every compatible server.

Structured answers go through instructor. Nothing is imported or read from the
environment before the first question.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cached_property
from types import ModuleType
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

import anyio
import anyio.lowlevel
from pydantic import BaseModel, ValidationError

from dagengine.errors import (
    InputError,
    JudgeError,
    JudgeSetupError,
    ProviderError,
    RefusedError,
    UnparseableError,
)
from dagengine.judges.identity import durable_name
from dagengine.judges.wire.bodies import BodyReader
from dagengine.judges.wire.completions import (
    Completion,
    answer_text,
    error_message,
    make_strict,
    status_error,
    usage_of,
    wire_type,
)
from dagengine.judges.wire.connection import MODES, Connection, Post, libraries, poster
from dagengine.judges.wire.endpoint import endpoint_of
from dagengine.judges.wire.probabilities import tokens_of
from dagengine.judges.wire.requests import Body, RequestForm
from dagengine.prompts.json_values import DoubledKeyError, require_single_keys
from dagengine.prompts.parsing import LONGEST, is_long, read_aside
from dagengine.question import Answer, Capabilities, Message, Options, Question
from dagengine.redaction import (
    public_address,
    public_text,
    public_value,
    secrets_in,
    secrets_of_address,
    secrets_of_environment,
    shortened,
)

if TYPE_CHECKING:
    import httpx2
    from openai import AsyncOpenAI

    from dagengine.judges.wire.transport import AiohttpTransport

T = TypeVar("T", bound=BaseModel)

_CONNECT_TIMEOUT = 30.0
_REJECTED = frozenset({400, 403, 422})  # statuses of a request that asks for too much
_NO_KEY = "not-needed"
_PATH = "/chat/completions"
_DEFAULT_URL = "https://api.openai.com/v1"


class OpenAIJudge:
    """Answers with a model behind the OpenAI chat completions protocol.

    `base_url` points to a compatible server (Ollama, vLLM, LM Studio, llama.cpp); `client`
    is a ready `AsyncOpenAI` or `AsyncAzureOpenAI` to use instead; an `http_client` that it was
    given is used as well, and serves one event loop at a time. `parameters` go into
    every request body. Without any of them the OpenAI client's own environment variables
    hold, looked up when the first question is asked.

    A user and a password in `base_url` are sent as basic authentication, in place of the key,
    and its query goes with every request. Neither is shown or written anywhere, nor is a key or
    a parameter that is secret by its name. A judge that was pickled has lost them: it takes the
    key from the environment.

    A response is read up to `max_bytes` (4 MB; log-probabilities of a long answer take several),
    also with a `client` of the caller's, and followed to another address of the same origin only.
    """

    capabilities = Capabilities(logprobs=True, caches_prefixes=True)

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
        if not isinstance(max_bytes, int) or max_bytes < 1:
            raise InputError(f"max_bytes must be a whole number from 1 on, got {max_bytes!r}")
        self.model = model
        self.max_bytes = max_bytes
        self._address = base_url
        self._api_key = api_key
        self._given = client
        self._parameters = dict(parameters or {})
        self._pickled = False
        self._clients: dict[Any, tuple[Connection, int]] = {}
        self._mode = 0
        self._logprobs = True
        self._temperature = True

    @property
    def base_url(self) -> str | None:
        """The address that was given, without secrets."""
        return self._address and public_text(self._address)

    def __getstate__(self) -> dict[str, Any]:
        """Everything but keys, passwords and connections, for another process."""
        if self._given is not None:
            raise TypeError("a judge with a client of its caller's cannot be pickled")
        shown = {"_parameters": public_value(self._parameters), "_address": self.base_url}
        keyless: dict[str, Any] = {"_api_key": None, "_clients": {}, "_pickled": True}
        return {**vars(self), **shown, **keyless}

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    @property
    def identity(self) -> str:
        """Model, endpoint and parameters: what may change an answer."""
        return self._identity

    @cached_property
    def _identity(self) -> str:
        given = public_text(str(self._given.base_url)) if self._given else "default"
        parameters = json.dumps(public_value(self._parameters), sort_keys=True, default=str)
        return f"openai {self.model} at {self.base_url or given} with {parameters}"

    @property
    def durable_identity(self) -> str | None:
        """`identity` with the endpoint that holds now, which may come from the environment."""
        given = str(self._given.base_url) if self._given else None
        where = self._address or given or os.environ.get("OPENAI_BASE_URL") or _DEFAULT_URL
        return durable_name(f"openai {self.model} at {public_address(where)}", self._parameters)

    @asynccontextmanager
    async def session(self) -> AsyncIterator[Connection]:
        """Keep connections open while inside; one client per event loop, shared.

        Raises JudgeSetupError when there is no API key for an endpoint that needs one.
        """
        loop = anyio.lowlevel.current_token()
        client, users = self._clients.get(loop) or (self._connect(), 0)
        self._clients[loop] = client, users + 1
        try:
            if self._given is not None and not client.owned:
                await _transport().disconnect_with_the_loop(self._given._client)
            yield client
        finally:
            client, users = self._clients[loop]
            if users > 1:
                self._clients[loop] = client, users - 1
            else:
                del self._clients[loop]
                if client.owned:
                    with anyio.CancelScope(shield=True):
                        await client.api.close()

    def _connect(self) -> Connection:
        openai, _ = libraries()
        reader = BodyReader(self.max_bytes)
        if self._given is not None:
            api, owned = _transport().of_this_loop(self._given, reader)
            return Connection(api, self._poster(openai, api, None), owned=owned)
        http, direct = _transport().http_client(reader, connect_timeout=_CONNECT_TIMEOUT)
        api = self._new_client(openai, http)
        return Connection(api, self._poster(openai, api, direct), owned=True)

    def _poster(
        self, openai: ModuleType, api: AsyncOpenAI, direct: AiohttpTransport | None
    ) -> Post:
        """What sends questions; with a `direct` way past the HTTP layer of the client."""
        if direct is None:
            return poster(openai, api, _PATH)
        from dagengine.judges.wire.direct import DirectPost  # it needs the libraries above

        return DirectPost(api, direct, _PATH)

    def _new_client(self, openai: ModuleType, http: httpx2.AsyncClient) -> AsyncOpenAI:
        address = self._address or os.environ.get("OPENAI_BASE_URL")
        options: dict[str, Any] = {"timeout": openai.Timeout(None, connect=_CONNECT_TIMEOUT)}
        endpoint = endpoint_of(address) if address else None
        if endpoint is not None:
            options["base_url"] = endpoint.url
            options["default_headers"] = endpoint.headers
            options["default_query"] = endpoint.query
        needless = (self._address and not self._pickled) or (endpoint and endpoint.headers)
        options["api_key"] = self._api_key or (_NO_KEY if needless else None)
        options["http_client"] = http
        try:
            return cast("AsyncOpenAI", openai.AsyncOpenAI(**options))
        except openai.OpenAIError as error:
            lost = "; keys are not pickled" if self._pickled else ""
            raise JudgeSetupError(
                f"no key for the model {self.model!r}: set OPENAI_API_KEY, or pass base_url= "
                f"(--base-url) for a server that needs none ({error}){lost}"
            ) from None

    def _hidden(self, error: JudgeError) -> JudgeError:
        """An error without secrets of this judge, and without what it was found in.

        Errors stay in results; their tracebacks and causes would keep whole responses there.
        """
        secrets = self._secrets()
        error.__cause__ = error.__context__ = None
        error.__traceback__ = None
        error.args = tuple(shortened(public_text(str(part), secrets)) for part in error.args)
        if isinstance(error, UnparseableError):
            error.raw = public_text(error.raw[:LONGEST], secrets)
        return error

    def _secrets(self) -> list[str]:
        found = [self._api_key or "", *secrets_in(self._parameters), *secrets_of_environment()]
        for address in (self._address, os.environ.get("OPENAI_BASE_URL")):
            found += secrets_of_address(address) if address else []
        if self._given is not None:
            headers = {str(k): str(v) for k, v in self._given._custom_headers.items()}
            found += [str(self._given.api_key), *secrets_in({"headers": headers})]
            found += secrets_of_address(str(self._given.base_url))
        return found

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

    async def answer(self, question: Question[T]) -> Answer[T]:
        """One attempt; raises JudgeError. Capabilities a server lacks are dropped for good."""
        openai, _ = libraries()
        async with self.session() as client:
            while True:
                demands = self._demands()
                try:
                    return await self._ask(client, question)
                except (JudgeError, openai.OpenAIError) as error:
                    failure = self._failure(openai, error, demands)
                # Outside of the handler: what is raised inside keeps the other error with it.
                if failure is not None:
                    raise self._hidden(failure)

    def _demands(self) -> tuple[int, bool, bool]:
        return self._mode, self._logprobs, self._temperature

    def _lower_demands(self, error: Any, demands: tuple[int, bool, bool]) -> bool:
        """Ask for less when the server says that it does not know what was asked for.

        `demands` are those of the rejected request: others may have lowered them meanwhile.
        """
        text = error_message(error).lower()
        if getattr(error, "code", None) == "context_length_exceeded" or "context length" in text:
            return False  # such messages count the tokens of the schema
        if demands != self._demands():
            return True
        if self._temperature and "temperature" in text:
            self._temperature = False
            return True
        if self._logprobs and "logprobs" in text:
            self._logprobs = False
            return True
        structured = ("response_format", "json_schema", "tool_choice", "tools", "json_object")
        if self._mode + 1 < len(MODES) and any(word in text for word in structured):
            self._mode += 1
            return True
        return False

    async def _ask(self, client: Connection, question: Question[T]) -> Answer[T]:
        mode = MODES[self._mode] if question.parser is None else None
        form = self._form(client, mode, question)
        completion = await client.post(form, question)
        if mode is None:
            return await self._read(question, completion, "text", None)
        value = _parsed(client.handlers[mode], form.shape, completion)
        return await self._read(question, completion, mode.lower(), value)

    def _form(self, client: Connection, mode: str | None, question: Question[T]) -> RequestForm:
        """How questions of this kind are asked in a mode of instructor's, or for plain text."""
        options, shape = question.options, question.answer_type
        # Everything that `_body` looks at; 0 and 0.0 are written differently.
        asked = (options.temperature, type(options.temperature), options.seed, options.max_tokens)
        key = (shape, mode, asked, options.top_logprobs, self._temperature, self._logprobs)
        return client.form(key, lambda: self._new_form(client, mode, options, shape))

    def _new_form(
        self, client: Connection, mode: str | None, options: Options, shape: type[BaseModel]
    ) -> RequestForm:
        own = self._body(options)
        if mode is None:
            return RequestForm(lambda messages: {**own, "messages": messages})
        wire, prepare = wire_type(shape), client.handlers[mode].request_handler

        def write(messages: list[Message]) -> Body:
            _, body = prepare(response_model=wire, kwargs={**own, "messages": messages})
            make_strict(body, client.base_url)
            return cast("Body", body)

        read_by, _ = prepare(response_model=wire, kwargs={**own, "messages": []})
        return RequestForm(write, read_by)

    def _body(self, options: Options) -> dict[str, Any]:
        body: dict[str, Any] = {"model": self.model}
        if options.temperature is not None and self._temperature:
            body["temperature"] = options.temperature
        if options.seed is not None:
            body["seed"] = options.seed
        if options.max_tokens is not None:
            body["max_tokens"] = options.max_tokens
        if options.top_logprobs and self._logprobs:
            body |= {"logprobs": True, "top_logprobs": options.top_logprobs}
        return {**body, **self._parameters}

    async def _read(
        self, question: Question[T], completion: Completion, mode: str, value: T | None
    ) -> Answer[T]:
        """The answer in a completion; raises RefusedError or UnparseableError."""
        choice = completion.choices[0]
        raw, usage = answer_text(choice.message), usage_of(completion)
        tokens = (usage.input_tokens, usage.output_tokens)
        if choice.message.refusal:
            raise RefusedError(f"the model refused: {choice.message.refusal}", tokens)
        if choice.finish_reason == "content_filter":
            raise RefusedError("the provider's content filter stopped the answer", tokens)
        asked_for = question.parser is not None and question.options.max_tokens is not None
        if choice.finish_reason == "length" and not asked_for:
            hint = "raise max_tokens or ask for less"
            raise UnparseableError(
                f"the answer was cut off at the token limit; {hint}", raw, tokens
            )
        try:
            if value is None:
                value = await read_aside(question, raw)
            else:
                require_single_keys(raw)
        except UnparseableError as error:
            raise UnparseableError(str(error), error.raw, tokens) from None
        except DoubledKeyError as error:
            raise UnparseableError(str(error), raw, tokens) from None
        return Answer(value, raw, tokens_of(completion, question, raw), usage, mode)

    def _failure(
        self, openai: ModuleType, error: Any, demands: tuple[int, bool, bool]
    ) -> JudgeError | None:
        """A provider's error as a JudgeError; None where the judge asks for less from now on."""
        where = self.base_url or "the provider"
        for found in (error, error.__cause__):
            if isinstance(found, JudgeError):
                return found
        if isinstance(error, openai.APIConnectionError):
            cause = _told_by(error)
            if self._given is not None and _transport().is_of_another_loop(cause):
                return ProviderError(_transport().ANOTHER_LOOP, transient=False)
            return ProviderError(
                f"no answer from {where}: {cause}; is the server running and the address right?",
                transient=True,
            )
        if isinstance(error, openai.APIStatusError):
            lowered = error.status_code in _REJECTED and self._lower_demands(error, demands)
            return None if lowered else status_error(error)
        return ProviderError(f"{type(error).__name__}: {error}", transient=False)


def _told_by(error: BaseException) -> str:
    """What the first cause of an error says that says anything: the client's own words do not."""
    cause = error.__cause__ or error.__context__
    while cause is not None and not str(cause):
        cause = cause.__cause__ or cause.__context__
    return str(cause or error)


def _parsed(handlers: Any, shape: Any, completion: Completion) -> Any:
    """The answer in a completion; None where it does not parse as it is, or is read aside."""
    from instructor.core.exceptions import IncompleteOutputException, ResponseParsingError

    if is_long(answer_text(completion.choices[0].message)):
        return None  # read in a thread, which stops no other call
    try:
        value = handlers.response_parser(
            response=completion, response_model=shape, validation_context=None, strict=False
        )
    except (IncompleteOutputException, ResponseParsingError, ValidationError, ValueError):
        return None
    # Answers are remembered for the whole run; the completion must not be kept with them.
    vars(value).pop("_raw_response", None)
    return value


def _transport() -> ModuleType:
    """How requests travel; it needs the libraries above."""
    from dagengine.judges.wire import transport

    return transport
