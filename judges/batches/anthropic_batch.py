"""A judge behind Anthropic's Message Batches API: half the price, answers within a day.

https://platform.claude.com/docs/en/build-with-claude/batch-processing
"""

from __future__ import annotations

import datetime
import json
import os
import random
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import anyio
import anyio.lowlevel
from pydantic import BaseModel

from dagengine.errors import JudgeError, JudgeSetupError, ProviderError, UnparseableError
from dagengine.judges.batches.batch_jobs import Batches, BatchJournal, BatchLimits, Entry
from dagengine.judges.identity import SharedJudge, digest_mark, durable_name
from dagengine.judges.wire.completions import completion_in, message_usage, prompt_of, wire_type
from dagengine.judges.wire.connection import libraries
from dagengine.judges.wire.dialects.error_responses import parse_body, response_error
from dagengine.judges.wire.refusals_and_loops import read_reply
from dagengine.judges.wire.requests import Endpoint, endpoint_of, with_cache_mark
from dagengine.judges.wire.response_bodies import BodyReader
from dagengine.judges.wire.server_facts import root_of
from dagengine.prompts.answer_bounds import bounds_of
from dagengine.prompts.parsing import without_surrogates
from dagengine.question import Answer, Capabilities, Question
from dagengine.redaction import (
    public_text,
    public_value,
    secrets_in,
    secrets_of_address,
    secrets_of_environment,
)

if TYPE_CHECKING:
    import httpx2

T = TypeVar("T", bound=BaseModel)

_ADDRESS: Final = "https://api.anthropic.com"
_PATH: Final = "/v1/messages/batches"
_VERSION: Final = "2023-06-01"
_RESULTS = 2_000_000_000  # bytes of one batch's results that are read
# Looks at a batch that may fail in a row: it is paid for, and continues without us.
_LOOKS = 8


class _Client(NamedTuple):
    batches: Batches
    http: httpx2.AsyncClient


class AnthropicBatchJudge(SharedJudge[_Client]):
    """Answers with a model of Anthropic through its batch API: half the price, within a day.

    Collects questions like `OpenAIBatchJudge`, up to the provider's limits of 100,000 questions and
    256 MB. `journal` is a file that lists the batches in progress, to continue after a kill.
    Structured answers are requested as the input of a tool, as in `ProviderJudge`. `max_tokens`
    limits an answer if the question has no limit, because this API requires one. `parameters` are
    added to every request.

    Stored answers are shared with `ProviderJudge`. Without `api_key` and `base_url`, the variables
    ANTHROPIC_API_KEY and ANTHROPIC_BASE_URL apply.
    """

    capabilities = Capabilities(elastic=True, batched=True)

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        parameters: dict[str, Any] | None = None,
        max_tokens: int = 4096,
        size: int = 100_000,
        file_bytes: int = 256_000_000,
        quiet: float = 2.0,
        poll: float = 30.0,
        journal: str | os.PathLike[str] | None = None,
    ) -> None:
        self.model = f"anthropic/{model}"
        self.journal = journal
        if base_url:
            endpoint_of(base_url)  # the caller hears of a wrong address at once
        self._address, self._api_key = base_url, api_key
        self._parameters, self._max_tokens = dict(parameters or {}), max_tokens
        self._limits = BatchLimits(size, file_bytes, quiet, poll)
        self._clients = {}

    def _public_state(self) -> dict[str, Any]:
        address = self._address and public_text(self._address)
        parameters = public_value(self._parameters)
        return {"_parameters": parameters, "_api_key": None, "_address": address}

    @property
    def identity(self) -> str:
        """The model, the endpoint and the parameters."""
        parameters = sorted(public_value(self._parameters).items())
        name = f"{self.model}{digest_mark(self._endpoint)}"
        return f"{name} at {self._public_endpoint} with {parameters!r}"

    @property
    def durable_identity(self) -> str | None:
        """As of a `ProviderJudge` of the same model, where the endpoint is Anthropic's own."""
        options = dict(self._parameters)
        if self._public_endpoint != _ADDRESS:
            options.setdefault("base_url", self._public_endpoint)
        return durable_name(f"{self.model}{digest_mark(self._endpoint)}", options)

    @property
    def _endpoint(self) -> str:
        """The address that holds now."""
        return self._address or os.environ.get("ANTHROPIC_BASE_URL") or _ADDRESS

    @property
    def _public_endpoint(self) -> str:
        return public_text(self._endpoint.rstrip("/"))

    @property
    def secrets(self) -> list[str]:
        own = [self._api_key or "", *secrets_in(self._parameters), *secrets_of_environment()]
        return [*own, *secrets_of_address(self._endpoint)]

    async def _close(self, client: _Client, *, whole: bool) -> None:
        await client.http.aclose()
        if whole:  # the answers are kept
            client.batches.forget()

    def _connect(self) -> _Client:
        libraries()
        from dagengine.judges.wire.transport import http_client  # it needs the libraries

        key = self._api_key or os.environ.get("ANTHROPIC_API_KEY")
        if not key:
            raise JudgeSetupError(
                f"no key for the model {self.model!r}: set ANTHROPIC_API_KEY, or pass api_key="
            )
        http, _ = http_client(BodyReader(_RESULTS))
        endpoint = endpoint_of(
            self._endpoint, "base_url" if self._address else "ANTHROPIC_BASE_URL"
        )
        api = _MessageBatches(http, endpoint, key)
        journal = BatchJournal(self.journal, f"anthropic batches at {self._public_endpoint}")
        return _Client(Batches(api, self._limits, journal), http)

    async def answer(self, question: Question[T]) -> Answer[T]:
        """One attempt; raises JudgeError."""
        async with self.session() as client:
            try:
                body = json.dumps(without_surrogates(self._body(question)))
                return await _answer(question, await client.batches.answer_to(body))
            except JudgeError as error:
                failure = self._hidden(error)
        raise failure

    def _body(self, question: Question[Any]) -> dict[str, Any]:
        """The parameters of a message; instructor words what is asked for."""
        _, instructor = libraries()
        options = question.options
        most = question.token_limit or self._max_tokens
        own: dict[str, Any] = {"model": self.model.partition("/")[2], "max_tokens": most}
        if options.temperature is not None:
            own["temperature"] = options.temperature
        own |= {**self._parameters, "messages": with_cache_mark(question)}
        mode, shape = instructor.Mode.JSON, None
        if question.parser is None:
            answer_type: Any = question.answer_type
            mode, shape = instructor.Mode.TOOLS, wire_type(answer_type, bounds_of(question))
        handlers = instructor.v2.mode_registry.get_handlers(instructor.Provider.ANTHROPIC, mode)
        body: dict[str, Any] = handlers.request_handler(response_model=shape, kwargs=own)[1]
        return body


async def _answer(question: Question[T], line: dict[str, Any]) -> Answer[T]:
    """The answer in a line of results; raises JudgeError."""
    result = line.get("result") or {}
    kind = str(result.get("type"))
    if kind == "errored":
        error = {"error": result.get("error") or "no reason given"}
        failure = response_error(200, error, prompt=prompt_of(question.messages))
        failure.args = (f"in the batch: {failure}",)
        raise failure
    if kind != "succeeded":
        # Expired and cancelled questions were never put to the model: they are asked again.
        raise ProviderError(f"in the batch: {kind}", transient=kind in ("expired", "canceled"))
    message = result.get("message") or {}
    completion = completion_in(message)
    if completion is None:
        raise UnparseableError("the message holds no answer", json.dumps(message))
    usage = message_usage(message.get("usage") or {})
    return await read_reply(question, completion, "batch", question.token_limit, usage)


class _MessageBatches:
    """Anthropic's batches."""

    failures: tuple[type[Exception], ...] = ()

    def __init__(self, http: httpx2.AsyncClient, endpoint: Endpoint, key: str) -> None:
        self._http = http
        self._query: dict[str, Any] = endpoint.query
        self._address = root_of(endpoint.url).rstrip("/")
        self._headers = {
            **endpoint.headers,
            "x-api-key": key,
            "anthropic-version": _VERSION,
            "content-type": "application/json",
        }

    def line(self, name: str, body: str) -> bytes:
        return f'{{"custom_id": "{name}", "params": {body}}}'.encode()

    async def start(self, lines: Sequence[bytes], token: str) -> str:
        content = b'{"requests": [' + b",".join(lines) + b"]}"
        # Not tried again: the provider may have taken it all the same.
        return str(json.loads(await self._request("POST", _PATH, content))["id"])

    async def find(self, entry: Entry, others: Collection[str]) -> str | None:
        """There are no marks: the first other batch after the attempt with as many questions.

        Should it be another one, its results have other names, and the questions are asked again.
        """
        batches = json.loads(await self._look(_PATH, limit=100))["data"]
        for batch in reversed(batches):  # the newest comes first
            name: str = batch["id"]
            created = datetime.datetime.fromisoformat(batch["created_at"]).timestamp()
            as_many = sum(batch["request_counts"].values()) == len(entry.questions)
            if name not in others and created >= entry.at - 60 and as_many:
                return name
        return None

    async def results(self, name: str) -> Iterable[str] | None:
        batch = json.loads(await self._look(f"{_PATH}/{name}"))
        if batch["processing_status"] != "ended":
            return None
        if not batch.get("results_url"):
            raise ProviderError(f"batch {name} ended without results", transient=True)
        # At our own address: the results' own one may be elsewhere, and gets no key of ours.
        text = await self._look(f"{_PATH}/{name}/results")
        return text.decode(errors="replace").split("\n")

    async def _look(self, path: str, **query: Any) -> bytes:
        for attempt in range(1, _LOOKS):
            try:
                return await self._request("GET", path, b"", **query)
            except ProviderError as error:
                if not error.transient:
                    raise
            await anyio.sleep(random.uniform(0, min(0.25 * 2**attempt, 30)))
        return await self._request("GET", path, b"", **query)

    async def _request(self, method: str, path: str, content: bytes, **query: Any) -> bytes:
        """The body of an answer; raises ProviderError."""
        import httpx2

        try:
            response = await self._http.request(
                method,
                self._address + path,
                content=content,
                headers=self._headers,
                params={**self._query, **query},
            )
        except (OSError, httpx2.HTTPError) as error:
            message = f"no answer from {public_text(self._address)}: {error}"
            raise ProviderError(message, transient=True) from None
        if response.status_code == 200:
            return response.content
        raise response_error(response.status_code, parse_body(response.content))
