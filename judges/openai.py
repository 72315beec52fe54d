"""A judge behind the OpenAI chat protocol: OpenAI, Azure, and every compatible server.

Structured answers go through instructor. Nothing is imported or read from the
environment before the first question.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar, cast

from pydantic import BaseModel

from dagengine.errors import JudgeError, UnparseableError
from dagengine.judges.wire.client import EndpointJudge
from dagengine.judges.wire.completions import is_hosted, make_strict, usage_of, wire_type
from dagengine.judges.wire.connection import Connection, Post, libraries
from dagengine.judges.wire.dialects.fallback_attempts import Attempt, ask_lawfully
from dagengine.judges.wire.dialects.feature_fallback import CACHE_KEY, MODES, TOKEN_LIMITS, Demands
from dagengine.judges.wire.dialects.response_shapes import with_system_in_front
from dagengine.judges.wire.logprobs import CONTINUING, alternatives, open_start
from dagengine.judges.wire.refusals_and_loops import read_reply
from dagengine.judges.wire.requests import TEXT, Body, RequestForm
from dagengine.judges.wire.server_facts import OLLAMA, OllamaPost, loaded_window, root_of
from dagengine.prompts.answer_bounds import Bounds, backstop, bounds_of
from dagengine.prompts.parsing import read_aside
from dagengine.question import Answer, Capabilities, Message, Options, Question, Usage, Warmth

T = TypeVar("T", bound=BaseModel)


class OpenAIJudge(EndpointJudge):
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

    async def answer(self, question: Question[T]) -> Answer[T]:
        """One attempt; raises JudgeError. What a server lacks is asked for no more."""
        async with self.session() as client:

            def attempt(demands: Demands) -> Attempt[T]:
                form = self._form(client, question, demands)
                limit, own = form.limit, question.token_limit
                return Attempt(
                    demands,
                    form.fields,
                    send=partial(self._try, client, question, form),
                    limit=limit if limit != own else None,
                    alternatives=question.options.top_logprobs or 0,
                    # One token is asked for where nobody reads the answer.
                    room=limit is not None and not demands.thoughts and own != 1,
                    explores=not self.capabilities.batched,  # a try would take a batch, so a day
                )

            outcome = await ask_lawfully(self.hypotheses, question, client.exploring, attempt)
        if isinstance(outcome, Answer):
            return outcome
        # Outside of all handlers: what is raised inside keeps the other error with it.
        raise self._hidden(outcome)

    async def _try(
        self, client: Connection, question: Question[T], form: RequestForm
    ) -> Answer[T] | JudgeError:
        """The answer to one request, or why there is none."""
        openai, _ = libraries()
        post: Post = client.post
        if self._facts is not None and self._facts.server == OLLAMA:
            # Ollama's interface in the form of OpenAI's takes no window, and cuts what is longer.
            # Its own takes one with each request.
            if client.own_door is None:
                send = client.sender(f"{root_of(client.base_url)}api/chat")
                loaded = partial(loaded_window, client.api, self.model)
                client.own_door = OllamaPost(send, self._facts.window, loaded)
            post = client.own_door
        try:
            completion = await post(form, question)
            self.answered_as = completion.model
            limit = next(filter(None, map(self._parameters.get, TOKEN_LIMITS)), form.limit)
            answer = await read_reply(question, completion, form.mode.lower(), limit)
            if form.mode == MODES[0]:
                answer = await self._read_on(client, question, answer, form.demands)
            return answer
        except (JudgeError, openai.OpenAIError) as error:
            failure = self.failure(error, question)
        if isinstance(failure, UnparseableError) and failure.complaint and failure.raw:
            # The server discards what its own check rejects, which may be a usable answer.
            with suppress(UnparseableError):
                value = await read_aside(question, failure.raw)
                return Answer(value, failure.raw, mode=form.mode.lower())
        return failure

    async def _read_on(
        self, client: Connection, question: Question[T], answer: Answer[T], demands: Demands
    ) -> Answer[T]:
        """The answer, with what its server says of a number that it might have begun."""
        tokens = answer.tokens
        if not tokens or (await self.facts()).server not in CONTINUING:
            return answer
        start = open_start(answer.raw, tokens, question.answer_type)
        if start is None:
            return answer
        openai, _ = libraries()
        own, route = self._body(question.options, None, demands), partial(self._route, demands)
        form = RequestForm(lambda messages: start.body(own, messages), route=route)
        try:
            completion = await client.post(form, question)
            following = alternatives(completion, range(len(completion.token_texts[:1])))
        except (JudgeError, openai.OpenAIError, ValueError):
            return answer  # it is a good answer all the same
        resolved = start.resolve(tokens, following.get(0, ()))
        # The prompt is in the server's cache, and it is the prompt of the answer that is counted.
        continuation = Usage(output_tokens=usage_of(completion).output_tokens)
        return replace(answer, tokens=resolved, usage=answer.usage + continuation)

    def _form(self, client: Connection, question: Question[Any], demands: Demands) -> RequestForm:
        """The form of requests for questions of this kind with such demands."""
        # OpenAI's strict schemas know no lengths, and its models end by themselves.
        bounds = None if is_hosted(client.base_url) else bounds_of(question)
        mode = MODES[demands.mode] if question.parser is None else TEXT
        limit = self._token_limit(question, bounds, demands)
        options, shape = question.options, cast("type[BaseModel]", question.answer_type)
        # Everything that `_body` looks at; 0 and 0.0 are written differently.
        settings = (options.temperature, type(options.temperature), options.seed, limit)
        key = (shape, bounds, mode, settings, options.top_logprobs, demands)

        def form() -> RequestForm:
            own = self._body(options, limit, demands)
            wire = None if mode == TEXT else wire_type(shape, bounds, keywords=demands.keywords)

            def write(messages: list[Message]) -> Body:
                body: Body = {**own, "messages": messages}
                if wire is not None:
                    prepare = client.handlers[mode].request_handler
                    _, body = prepare(response_model=wire, kwargs=body)
                    make_strict(body, client.base_url)
                return body if demands.system else with_system_in_front(body)

            names = self._demand_names(own, mode, demands)
            return RequestForm(write, partial(self._route, demands), mode, limit, demands, names)

        # It is made once for all questions of a kind, and not with every call.
        return client.form(key, form)

    def _token_limit(
        self, question: Question[Any], bounds: Bounds | None, demands: Demands
    ) -> int | None:
        """The most tokens of an answer that a request names; None: it names none.

        What somebody set is always sent. Nothing else is without `bounds`.
        """
        if not self._parameters.keys().isdisjoint(TOKEN_LIMITS):
            return None
        own = most = question.token_limit
        if own is None and bounds is not None:
            most = backstop(question, bounds)
        if most is None:
            return None
        most += demands.thoughts
        return most if most < demands.too_many else own

    def _demand_names(self, own: Body, mode: str, demands: Demands) -> frozenset[str]:
        """The demands of a request, by their fields; none that the caller set, which stays."""
        ours = own.keys() - self._parameters.keys()
        names = {
            "system": demands.system,
            "mode": mode != TEXT,
            "keywords": mode != TEXT and demands.keywords,
            "logprobs": "top_logprobs" in ours,
            "alternatives": "top_logprobs" in ours,
            "temperature": "temperature" in ours,
            "seed": "seed" in ours,
            "cache_key": demands.cache_key and self.hosted,
            "limit": not own.keys().isdisjoint(TOKEN_LIMITS),
        }
        return frozenset(filter(names.get, names))

    def _route(self, demands: Demands, warmth: Warmth) -> Body:
        """Fields that send a question to where its beginning is warm; the caller's stay."""
        if warmth.slot is not None:
            return {} if "id_slot" in self._parameters else {"id_slot": warmth.slot}
        keyed = demands.cache_key and self.hosted and CACHE_KEY not in self._parameters
        return {CACHE_KEY: warmth.key} if keyed else {}

    @property
    def hosted(self) -> bool:
        """True if it asks OpenAI's own servers, or Azure's, which keep beginnings of prompts."""
        return is_hosted(self._endpoint)

    def _body(self, options: Options, limit: int | None, demands: Demands) -> dict[str, Any]:
        body: dict[str, Any] = {"model": self.model}
        if options.temperature is not None and demands.temperature:
            body["temperature"] = options.temperature
        if options.seed is not None and demands.seed:
            body["seed"] = options.seed
        if limit is not None:
            body["max_tokens"] = limit
        if options.top_logprobs and demands.logprobs:
            most = int(min(options.top_logprobs, demands.alternatives))
            body |= {"logprobs": True, "top_logprobs": most}
        body |= self._parameters
        name = demands.limit_name
        if name not in body and TOKEN_LIMITS[0] in body:
            body[name] = body.pop(TOKEN_LIMITS[0])
        return body
