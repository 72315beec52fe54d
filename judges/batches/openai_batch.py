"""A judge behind OpenAI's batch API: half the price, answers within a day.

https://platform.openai.com/docs/guides/batch
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from dagengine.errors import ProviderError
from dagengine.judges.batches.batch_journal import BatchJournal, Begun
from dagengine.judges.batches.collecting import BatchApi, Batches, BatchLimits
from dagengine.judges.openai import OpenAIJudge
from dagengine.judges.wire.completions import Completion, prompt_of, read_completion
from dagengine.judges.wire.connection import Connection
from dagengine.judges.wire.dialects.failures import parse_body, response_error
from dagengine.judges.wire.requests import RequestForm
from dagengine.question import Capabilities, Question

if TYPE_CHECKING:
    from openai import AsyncOpenAI

_ENDPOINT: Final = "/v1/chat/completions"
BODY: Final = b', "body": '
"""What is between a question's name and the question in such a line."""
_NOT_ASKED: Final = frozenset({"batch_expired", "batch_cancelled"})
_ENDED = frozenset({"completed", "failed", "expired", "cancelled"})
# The client's own retries: a batch is not given up because one look at it failed.
_RETRIES = 8
_TOKEN = "dagengine"
# Bytes of results that are read; they are those of a whole batch.
_RESULTS = 2_000_000_000


class _BatchConnection(Connection):
    batches: Batches

    async def post(self, form: RequestForm, question: Question[Any]) -> Completion:
        line = await self.batches.answer_to(json.dumps(form.body(question)))
        body = _completion(line, prompt_of(question.messages))
        return read_completion(json.dumps(body).encode(), question.messages)


class OpenAIBatchJudge(OpenAIJudge):
    """Answers through OpenAI's batch API: half the price, answers within a day.

    Questions are collected until no new one has come for `quiet` seconds, there are `size` of them,
    or their file would exceed `file_bytes`. The provider's limits are 50,000 questions and 200 MB.
    Later questions go into another batch. Every batch is checked every `poll` seconds. Questions
    that expired or came back damaged are asked again in another batch.

    `journal` is a file that lists the batches in progress. After a kill, a run with the same
    journal collects them: nothing is paid twice.

    A graph that is three questions deep needs three batches, one after the other, and each may take
    up to a day. Use a `max_in_flight` of thousands, because it limits the size of a batch.
    Everything else is as for `OpenAIJudge`; the two share stored answers.
    """

    capabilities = Capabilities(logprobs=True, elastic=True, batched=True)

    def __init__(
        self,
        model: str = "gpt-4o",
        *,
        size: int = 50_000,
        file_bytes: int = 200_000_000,
        quiet: float = 2.0,
        poll: float = 30.0,
        journal: str | os.PathLike[str] | None = None,
        max_bytes: int = _RESULTS,
        **settings: Any,
    ) -> None:
        super().__init__(model, max_bytes=max_bytes, **settings)
        self._limits = BatchLimits(size, file_bytes, quiet, poll)
        self.journal = journal

    async def _close(self, client: Connection, *, whole: bool) -> None:
        await super()._close(client, whole=whole)
        if whole and isinstance(client, _BatchConnection):  # the answers are kept
            client.batches.forget()

    def _connection(self, api: AsyncOpenAI, direct: Any, *, owned: bool) -> Connection:
        journal = BatchJournal(self.journal, f"openai batches at {self.base_url or 'default'}")
        connection = _BatchConnection(api, owned=owned)
        connection.batches = Batches(self._batch_api(api), self._limits, journal)
        return connection

    def _batch_api(self, api: AsyncOpenAI) -> BatchApi:
        """The API that batches go to."""
        return _OpenAIBatches(api)


class _OpenAIBatches:
    """OpenAI's batches."""

    def __init__(self, api: AsyncOpenAI) -> None:
        import openai

        self.failures: tuple[type[Exception], ...] = (openai.OpenAIError,)
        self._api = api.with_options(max_retries=_RETRIES)

    def line(self, name: str, body: str) -> bytes:
        return request_line(name, body)

    async def start(self, lines: Sequence[bytes], token: str) -> str:
        file = await self._api.files.create(file=("batch.jsonl", b"".join(lines)), purpose="batch")
        batch = await self._api.batches.create(
            input_file_id=file.id, endpoint=_ENDPOINT, completion_window="24h",
            metadata={_TOKEN: token},
        )  # fmt: skip
        return batch.id

    async def find(self, begun: Begun, others: Collection[str]) -> str | None:
        async for batch in self._api.batches.list(limit=100):
            if (batch.metadata or {}).get(_TOKEN) == begun.token:
                return batch.id
            if batch.created_at < begun.at - 3600:  # they come from the newest on
                return None
        return None

    async def results(self, name: str) -> Iterable[str] | None:
        batch = await self._api.batches.retrieve(name)
        if batch.status not in _ENDED:
            return None
        if batch.output_file_id is None and batch.error_file_id is None:
            errors = batch.errors.data if batch.errors else None
            why = "; ".join(str(error.message) for error in errors or ()) or "no reason given"
            late = batch.status == "expired"  # it may have been begun too late for anything
            raise ProviderError(f"batch {name} {batch.status}: {why}", transient=late)
        lines: list[str] = []
        for file in filter(None, (batch.error_file_id, batch.output_file_id)):
            lines += (await self._api.files.content(file)).text.split("\n")
        return lines


def request_line(name: str, body: str) -> bytes:
    """A request, given as JSON, as a line of a file of questions."""
    head = json.dumps({"custom_id": name, "method": "POST", "url": _ENDPOINT})
    return head[:-1].encode() + BODY + f"{body}}}\n".encode()


def _completion(line: dict[str, Any], prompt: str) -> Any:
    """The body of a successful answer; raises JudgeError for any other line."""
    response, error = line.get("response"), line.get("error")
    status, body = 200 if response else 400, response
    if isinstance(response, dict) and "body" in response:
        status, body = response.get("status_code") or status, response["body"]
    if status == 200 and not error:
        return parse_body(body.encode()) if isinstance(body, str) else body
    if isinstance(error, dict) and error.get("code") in _NOT_ASKED:
        # The provider did not come to it in time; it is asked again.
        raise ProviderError(f"in the batch: {error.get('message')}", transient=True)
    failure = response_error(max(status, 400), error or body, prompt=prompt)
    failure.args = (f"in the batch: {failure}",)
    raise failure
