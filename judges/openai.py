"""A judge behind the OpenAI chat protocol: OpenAI, Azure, and every compatible server.

Structured answers go through instructor. Nothing is imported or read from the
environment before the first question.
"""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar, cast

from pydantic import BaseModel, ValidationError

from dagengine.errors import JudgeError, ProviderError, RefusedError, UnparseableError
from dagengine.judges.wire.client import EndpointJudge
from dagengine.judges.wire.completions import (
    Completion,
    answer_text,
    error_message,
    make_strict,
    usage_of,
    wire_type,
)
from dagengine.judges.wire.connection import CHAT, MODES, ChatConnection, libraries, poster
from dagengine.judges.wire.probabilities import tokens_of
from dagengine.judges.wire.requests import Body, RequestForm
from dagengine.prompts.json_values import DoubledKeyError, require_single_keys
from dagengine.prompts.parsing import is_long, read_aside
from dagengine.question import Answer, Capabilities, Message, Options, Question

if TYPE_CHECKING:
    from openai import AsyncOpenAI

    from dagengine.judges.wire.connection import Post
    from dagengine.judges.wire.transport import AiohttpTransport

T = TypeVar("T", bound=BaseModel)

_REJECTED = frozenset({400, 403, 422})  # statuses of a request that asks for too much
_BROKEN_OFF = frozenset({"error", "abort"})  # what came so far may look like a whole answer


class OpenAIJudge(EndpointJudge[ChatConnection]):
    """Answers with a model behind the OpenAI chat completions protocol.

    `base_url` is the URL of a compatible server (Ollama, vLLM, LM Studio, llama.cpp). `client` is a
    ready `AsyncOpenAI` or `AsyncAzureOpenAI` to use instead. Its `http_client` is used as well, and
    serves one event loop at a time. `parameters` are added to every request body. Without these
    arguments, the environment variables of the OpenAI client apply; they are read at the first
    question.

    A user and a password in `base_url` are sent as basic authentication, instead of the key. Its
    query is sent with every request. Credentials, keys and parameters with a secret name are never
    shown, written or pickled. An unpickled judge reads the key from the environment.

    A response is read up to `max_bytes` (4 MB; log-probabilities of a long answer take several MB),
    also with your own `client`. Redirects are followed only within the same origin.
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
        super().__init__(
            model,
            base_url=base_url,
            api_key=api_key,
            client=client,
            parameters=parameters,
            max_bytes=max_bytes,
        )
        self._mode = 0
        self._logprobs = True
        self._temperature = True

    def _connection(
        self,
        openai: ModuleType,
        api: AsyncOpenAI,
        direct: AiohttpTransport | None,
        *,
        owned: bool,
    ) -> ChatConnection:
        return ChatConnection(api, self._poster(openai, api, direct), owned=owned)

    def _poster(
        self, openai: ModuleType, api: AsyncOpenAI, direct: AiohttpTransport | None
    ) -> Post:
        """What sends questions; with a `direct` way past the HTTP layer of the client."""
        if direct is None:
            return poster(openai, api, CHAT)
        from dagengine.judges.wire.direct import DirectPost  # it needs the libraries above

        return DirectPost(api, direct, CHAT)

    async def answer(self, question: Question[T]) -> Answer[T]:
        """One attempt; raises JudgeError. Capabilities a server lacks are dropped for good."""
        openai, _ = libraries()
        async with self.session() as client:
            while True:
                demands = self._demands()
                try:
                    return await self._ask(client, question)
                except (JudgeError, openai.OpenAIError) as error:
                    failure = self._told(openai, error, demands)
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

    async def _ask(self, client: ChatConnection, question: Question[T]) -> Answer[T]:
        mode = MODES[self._mode] if question.parser is None else None
        form = self._form(client, mode, question)
        completion = await client.post(form, question)
        if mode is None:
            return await self._read(question, completion, "text", None)
        value = _parsed(client.handlers[mode], form.shape, completion)
        return await self._read(question, completion, mode.lower(), value)

    def _form(self, client: ChatConnection, mode: str | None, question: Question[T]) -> RequestForm:
        """How questions of this kind are asked in a mode of instructor's, or for plain text."""
        options, shape = question.options, question.answer_type
        # Everything that `_body` looks at; 0 and 0.0 are written differently.
        asked = (options.temperature, type(options.temperature), options.seed, options.max_tokens)
        key = (shape, mode, asked, options.top_logprobs, self._temperature, self._logprobs)
        return client.form(key, lambda: self._new_form(client, mode, options, shape))

    def _new_form(
        self, client: ChatConnection, mode: str | None, options: Options, shape: type[BaseModel]
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
        if choice.finish_reason in _BROKEN_OFF:
            raise ProviderError(
                f"the server broke off the answer (finish_reason {choice.finish_reason!r})",
                transient=True,
            )
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

    def _told(
        self, openai: ModuleType, error: Any, demands: tuple[int, bool, bool]
    ) -> JudgeError | None:
        """A provider's error as a JudgeError; None if the judge asks for less from now on."""
        rejected = isinstance(error, openai.APIStatusError) and error.status_code in _REJECTED
        lowered = rejected and self._lower_demands(error, demands)
        return None if lowered else self._failure(openai, error)


def _parsed(handlers: Any, shape: Any, completion: Completion) -> Any:
    """The answer in a completion; None if it does not parse as it is, or is read aside."""
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
