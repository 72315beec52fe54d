"""A judge behind the OpenAI chat protocol: OpenAI, Azure, and every compatible server.

Structured answers go through instructor. Nothing is imported or read from the
environment before the first question.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from pydantic import BaseModel, ValidationError

from dagengine.errors import (
    JudgeError,
    ProviderError,
    RefusedError,
    RunawayError,
    UnparseableError,
)
from dagengine.judges.wire.client import EndpointJudge
from dagengine.judges.wire.completions import (
    TOKEN_LIMITS,
    Completion,
    answer_text,
    error_message,
    is_hosted,
    make_strict,
    usage_of,
    whole_body,
    wire_type,
)
from dagengine.judges.wire.connection import (
    CHAT,
    MODES,
    ChatConnection,
    libraries,
    poster,
    sender,
)
from dagengine.judges.wire.ollama import OllamaPost
from dagengine.judges.wire.probabilities import alternatives, tokens_of
from dagengine.judges.wire.read_on import CONTINUING, open_start
from dagengine.judges.wire.requests import Body, RequestForm
from dagengine.judges.wire.runaways import is_complete, runaway
from dagengine.judges.wire.servers import OLLAMA, loaded_window, root_of
from dagengine.prompts.bounds import Bounds, backstop, bounds_of
from dagengine.prompts.json_values import DoubledKeyError, require_single_keys
from dagengine.prompts.lengths.window import overflow_in
from dagengine.prompts.loops import loop_in
from dagengine.prompts.parsing import LONGEST, is_long, read_aside
from dagengine.question import (
    NO_USAGE,
    Answer,
    Capabilities,
    Message,
    Options,
    Question,
    Usage,
    Warmth,
)

if TYPE_CHECKING:
    from openai import AsyncOpenAI

    from dagengine.judges.wire.connection import Post
    from dagengine.judges.wire.transport import AiohttpTransport

_CACHE_KEY = "prompt_cache_key"
T = TypeVar("T", bound=BaseModel)

_REJECTED = frozenset({400, 403, 422})  # statuses of a request that asks for too much
_BROKEN_OFF = frozenset({"error", "abort"})  # what came so far may look like a whole answer
_ROOM = 16_384  # tokens for thoughts, beside those of the answer
# How servers call a limit of tokens that does not fit into their window, or their own limit.
_TOO_MANY = (*TOKEN_LIMITS, "max_new_tokens", "in the completion")
# How they call what makes answers structured.
_STRUCTURED = ("response_format", "json_schema", "tool_choice", "tools", "json_object")


class _Demands(NamedTuple):
    """What a judge asks a server for; what turns out to be too much is not asked again.

    `limit_name` is what requests call the most tokens of an answer. From `too_many` of them on none
    are named. `thoughts` are tokens beside those of the answer. `cache_key`: whether requests name
    the beginning of their prompt.
    """

    mode: int = 0
    logprobs: bool = True
    temperature: bool = True
    cache_key: bool = True
    limit_name: str = TOKEN_LIMITS[0]
    too_many: float = math.inf
    thoughts: int = 0

    def with_fitting_limit(
        self, text: str, rejected: _Demands, limit: int | None, own: int | None
    ) -> _Demands | None:
        """The demands after a message on the limit of tokens; None if it is about anything else.

        `limit` is that of the `rejected` request, and `own` what somebody set, which stays.
        """
        unknown = "instead" in text or "unsupported" in text or "not supported" in text
        if unknown and TOKEN_LIMITS[1] in text and rejected.limit_name != TOKEN_LIMITS[1]:
            return self._replace(limit_name=TOKEN_LIMITS[1])
        if limit is not None and limit != own and any(name in text for name in _TOO_MANY):
            return self._replace(too_many=min(self.too_many, limit))
        return None

    def without_what(self, text: str) -> _Demands | None:
        """The demands without the one that a message names; None if it names none."""
        if self.cache_key and _CACHE_KEY in text:
            return self._replace(cache_key=False)
        if self.temperature and "temperature" in text:
            return self._replace(temperature=False)
        if self.logprobs and "logprobs" in text:
            return self._replace(logprobs=False)
        if self.mode + 1 < len(MODES) and any(name in text for name in _STRUCTURED):
            return self._replace(mode=self.mode + 1)
        return None


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
    chats = True
    sizes_window = True

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
        self._demands = _Demands()
        self._limited = not self._parameters.keys().isdisjoint(TOKEN_LIMITS)

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
        spent = NO_USAGE  # on thoughts that left no room for an answer
        async with self.session() as client:
            # OpenAI's strict schemas know no lengths, and its models end by themselves.
            bounds = None if is_hosted(client.base_url) else bounds_of(question)
            # Every rejection lowers a demand, so that this ends.
            while True:
                demands = self._demands
                limit = self._token_limit(question, bounds)
                try:
                    answer = await self._ask(client, question, bounds, limit)
                    if spent is NO_USAGE:
                        return answer
                    return replace(answer, usage=answer.usage + spent)
                except (JudgeError, openai.OpenAIError) as error:
                    failure = self._explained(openai, error, demands, question, limit)
                    if failure is None and isinstance(error, RunawayError):
                        spent += Usage(*error.tokens)
                # Outside of the handler: what is raised inside keeps the other error with it.
                if failure is not None:
                    used = Usage(*failure.tokens) + spent
                    failure.tokens = (used.input_tokens, used.output_tokens)
                    raise self._hidden(failure)

    def _token_limit(self, question: Question[Any], bounds: Bounds | None) -> int | None:
        """The most tokens of an answer that a request names; None: it names none.

        What somebody set is always sent. Nothing else is without `bounds`.
        """
        if self._limited:
            return None
        own, most = question.token_limit, question.token_limit
        if own is None and bounds is not None:
            most = backstop(question, bounds)
        if most is None:
            return None
        most += self._demands.thoughts
        return most if most < self._demands.too_many else own

    async def _ask(
        self,
        client: ChatConnection,
        question: Question[T],
        bounds: Bounds | None,
        limit: int | None,
    ) -> Answer[T]:
        mode = MODES[self._demands.mode] if question.parser is None else None
        form = self._form(client, mode, question, bounds, limit)
        post = client.post
        if self._facts is not None and self._facts.server == OLLAMA:
            # Ollama's interface in the form of OpenAI's takes no window, and cuts what is longer.
            # Its own takes one with each request.
            if client.own_door is None:
                openai, _ = libraries()
                send = sender(openai, client.api, f"{root_of(client.base_url)}api/chat")
                loaded = partial(loaded_window, client.api, self.model)
                client.own_door = OllamaPost(send, self._facts.window, loaded)
            post = client.own_door
        completion = await post(form, question)
        if mode is None:
            return await self._read(question, completion, "text", None, limit)
        value = _parsed(client.handlers[mode], form.shape, completion)
        answer = await self._read(question, completion, mode.lower(), value, limit)
        return await self._read_on(client, question, answer) if mode == MODES[0] else answer

    async def _read_on(
        self, client: ChatConnection, question: Question[T], answer: Answer[T]
    ) -> Answer[T]:
        """The answer, with what its server says of a number that it might have begun."""
        tokens = answer.tokens
        start = open_start(answer.raw, tokens, question.answer_type) if tokens else None
        if tokens is None or start is None or (await self.facts()).server not in CONTINUING:
            return answer
        import openai

        own = self._body(question.options, None)
        form = RequestForm(lambda messages: start.body(own, messages), route=self._route)
        try:
            completion = await client.post(form, question)
            following = alternatives(completion, range(len(completion.token_texts[:1])))
        except (JudgeError, openai.OpenAIError, ValueError):
            return answer  # it is a good answer all the same
        resolved = start.resolved(tokens, following.get(0, ()))
        # The prompt is in the server's cache, and it is the prompt of the answer that is counted.
        more = Usage(output_tokens=usage_of(completion).output_tokens)
        return replace(answer, tokens=resolved, usage=answer.usage + more)

    def _form(
        self,
        client: ChatConnection,
        mode: str | None,
        question: Question[T],
        bounds: Bounds | None,
        limit: int | None,
    ) -> RequestForm:
        """How questions of this kind are asked in a mode of instructor's, or for plain text."""
        options, shape = question.options, question.answer_type
        # Everything that `_body` looks at; 0 and 0.0 are written differently.
        asked = (options.temperature, type(options.temperature), options.seed, limit)
        key = (shape, bounds, mode, asked, options.top_logprobs, self._demands)

        def form() -> RequestForm:
            own = self._body(options, limit)
            if mode is None:
                return RequestForm(
                    lambda messages: {**own, "messages": messages}, route=self._route
                )
            wire, prepare = wire_type(shape, bounds), client.handlers[mode].request_handler

            def write(messages: list[Message]) -> Body:
                _, body = prepare(response_model=wire, kwargs={**own, "messages": messages})
                make_strict(body, client.base_url)
                return cast("Body", body)

            read_by, _ = prepare(response_model=wire, kwargs={**own, "messages": []})
            return RequestForm(write, read_by, self._route)

        # It is made once for all questions of a kind, and not with every call.
        return client.form(key, form)

    def _route(self, warmth: Warmth) -> Body:
        """What sends a question to where its beginning is warm; what the caller set stays."""
        if warmth.place is not None:
            return {} if "id_slot" in self._parameters else {"id_slot": warmth.place}
        keyed = self._demands.cache_key and self.hosted and _CACHE_KEY not in self._parameters
        return {_CACHE_KEY: warmth.key} if keyed else {}

    @property
    def hosted(self) -> bool:
        """Whether it asks OpenAI's own servers, or Azure's, which keep beginnings of prompts."""
        return is_hosted(self._where)

    def _body(self, options: Options, limit: int | None) -> dict[str, Any]:
        body: dict[str, Any] = {"model": self.model}
        if options.temperature is not None and self._demands.temperature:
            body["temperature"] = options.temperature
        if options.seed is not None:
            body["seed"] = options.seed
        if limit is not None:
            body["max_tokens"] = limit
        if options.top_logprobs and self._demands.logprobs:
            body |= {"logprobs": True, "top_logprobs": options.top_logprobs}
        body |= self._parameters
        name = self._demands.limit_name
        if name not in body and TOKEN_LIMITS[0] in body:
            body[name] = body.pop(TOKEN_LIMITS[0])
        return body

    async def _read(
        self,
        question: Question[T],
        completion: Completion,
        mode: str,
        value: T | None,
        limit: int | None,
    ) -> Answer[T]:
        """The answer in a completion; raises RefusedError or UnparseableError.

        `limit` is what was asked for as the most tokens of the answer.
        """
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
        thoughts = choice.message.thoughts if choice.finish_reason == "length" else ""
        cut = choice.finish_reason == "length" and not asked_for
        if thoughts or (cut and not is_complete(question, raw)):
            limit = next(filter(None, map(self._parameters.get, TOKEN_LIMITS)), limit)
            raise runaway(raw, thoughts, tokens, limit)
        try:
            if value is None:
                value = await read_aside(question, raw)
            else:
                require_single_keys(raw)
        except UnparseableError as error:
            if len(raw) <= LONGEST and loop_in(raw) is not None:
                raise runaway(raw, "", tokens, limit, cut=False) from None
            raise UnparseableError(str(error), error.raw, tokens) from None
        except DoubledKeyError as error:
            raise UnparseableError(str(error), raw, tokens) from None
        return Answer(value, raw, tokens_of(completion, question, raw), usage, mode)

    def _explained(
        self,
        openai: ModuleType,
        error: Any,
        demands: _Demands,
        question: Question[Any],
        limit: int | None,
    ) -> JudgeError | None:
        """A provider's error as a JudgeError; None if the judge asks otherwise from now on.

        `demands` are those of the rejected request: others may have lowered them meanwhile.
        `limit` is what it named as the most tokens of its answer.
        """
        # One token is asked for where nobody reads the answer.
        wanted = question.token_limit != 1
        if isinstance(error, RunawayError):
            thinking = wanted and error.cause == "thinking"
            if not thinking or limit is None or demands.thoughts:
                return self._failure(openai, error)
            self._demands = self._demands._replace(thoughts=_ROOM)
            return None
        if not isinstance(error, openai.APIStatusError) or error.status_code not in _REJECTED:
            return self._failure(openai, error)
        text = error_message(error).lower()
        overflow = overflow_in(text, whole_body(error))
        if overflow is not None and overflow.is_of_prompt:
            return self._failure(openai, error)  # asking for less makes no prompt shorter
        now = self._demands
        lowered = now.with_fitting_limit(text, demands, limit, question.token_limit)
        if lowered is None and overflow is None:  # such messages count the tokens of the schema
            lowered = now if demands != now else now.without_what(text)
        if lowered is None:
            return self._failure(openai, error)
        self._demands = lowered
        return None


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
