"""A judge behind OpenAI's batch API: half the price, answers within a day.

https://platform.openai.com/docs/guides/batch
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import anyio
from pydantic import ValidationError

from dagengine.errors import InputError, JudgeError, ProviderError
from dagengine.judges.openai import OpenAIJudge
from dagengine.judges.wire.completions import TRANSIENT, Completion
from dagengine.judges.wire.connection import Post
from dagengine.judges.wire.requests import RequestForm
from dagengine.question import Capabilities, Question

if TYPE_CHECKING:
    from openai import AsyncOpenAI

_ENDPOINT: Final = "/v1/chat/completions"
# Bytes of a line around the request itself, at most.
_AROUND = 120
_ENDED = frozenset({"completed", "failed", "expired", "cancelled"})
# The client's own retries: a batch is not given up because one look at it failed.
_RETRIES = 8


class OpenAIBatchJudge(OpenAIJudge):
    """Answers through batches of questions instead of single calls.

    Questions are collected until none has come for `quiet` seconds, there are `size` of
    them, or their file would have more than `file_bytes` (the provider takes 50,000 and 200 MB
    at most); the next ones go into another batch beside it. Every batch is looked at every
    `poll` seconds. What expired, or came back damaged, is asked again in another batch.

    A graph that is three questions deep needs three batches one after the other, each of which
    may take up to a day: run it with a `max_in_flight` of thousands, which is what one batch
    can hold. Everything else is as for `OpenAIJudge`; answers are stored and found under the
    same name.
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
        **settings: Any,
    ) -> None:
        if size < 1:
            raise InputError(f"size must be at least 1, got {size}")
        if file_bytes < 1:
            raise InputError(f"file_bytes must be at least 1, got {file_bytes}")
        super().__init__(model, **settings)
        self.size, self.file_bytes, self.quiet, self.poll = size, file_bytes, quiet, poll

    def _poster(self, openai: Any, api: AsyncOpenAI, direct: object) -> Post:
        patient = api.with_options(max_retries=_RETRIES)
        collecting: list[_Batch] = []

        async def post(form: RequestForm, question: Question[Any]) -> Completion:
            body = json.dumps(form.body(question))
            if not collecting or not collecting[0].has_room(body):
                collecting[:] = [_Batch(patient, self, (openai.OpenAIError, JudgeError))]
            batch = collecting[0]
            found = await batch.answer_to(batch.add(body))
            try:
                return Completion.read(json.dumps(found).encode())
            except ValidationError:
                message = f"the batch holds no chat completion: {found!r:.120}"
                raise ProviderError(message, transient=False) from None

        return post


class _Batch:
    """Requests sent together. One of those who wait does the work for all.

    When the one who works is cancelled the next one goes on where it stopped.
    """

    def __init__(
        self, api: AsyncOpenAI, judge: OpenAIBatchJudge, failures: tuple[type[Exception], ...]
    ) -> None:
        self._api, self._judge, self._failures = api, judge, failures
        self._file: list[bytes] = []
        self._bytes = 0
        self._full = anyio.Event()
        self._changed = anyio.Event()
        self._busy = False
        self._id: str | None = None
        self._lines: dict[str, dict[str, Any]] | None = None
        self._error: Exception | None = None

    @property
    def closed(self) -> bool:
        """Whether nothing can be added any more."""
        return self._full.is_set()

    def has_room(self, body: str) -> bool:
        """Whether a request fits; one that does not closes the batch, so that it leaves."""
        fits = self._bytes + len(body) + _AROUND <= self._judge.file_bytes
        if self._file and not fits:
            self._full.set()
        return not self.closed

    def add(self, body: str) -> str:
        """Put a request, as JSON, in; returns its name in the batch."""
        name = f"q{len(self._file)}"
        head = json.dumps({"custom_id": name, "method": "POST", "url": _ENDPOINT})
        self._file.append(f'{head[:-1]}, "body": {body}}}\n'.encode())
        self._bytes += len(self._file[-1])
        if len(self._file) >= self._judge.size:
            self._full.set()
        return name

    async def answer_to(self, name: str) -> dict[str, Any]:
        """The completion's fields; raises JudgeError, or what the client raises."""
        while self._lines is None and self._error is None:
            if self._busy:
                await self._changed.wait()
            else:
                await self._work()
        if self._error is not None:
            raise self._error
        assert self._lines is not None
        return _completion(self._lines.get(name))

    async def _work(self) -> None:
        self._busy = True
        try:
            await self._collect()
            self._lines = await self._fetch(await self._finished(await self._sent()))
        except self._failures as error:
            self._error = error  # every question of the batch gets it
        finally:
            self._busy = False
            self._changed.set()
            self._changed = anyio.Event()

    async def _collect(self) -> None:
        """Wait until the batch is full, or nothing more comes."""
        while not self.closed:
            count = len(self._file)
            with anyio.move_on_after(self._judge.quiet):
                await self._full.wait()
            if len(self._file) == count:
                self._full.set()

    async def _sent(self) -> str:
        """Upload and start the batch, unless that was done."""
        # From here on it is paid for: a cancellation waits until its id is known.
        with anyio.CancelScope(shield=True):
            self._id = self._id or await self._start()
        assert self._id is not None
        return self._id

    async def _start(self) -> str:
        text = b"".join(self._file)
        file = await self._api.files.create(file=("batch.jsonl", text), purpose="batch")
        batch = await self._api.batches.create(
            input_file_id=file.id, endpoint=_ENDPOINT, completion_window="24h"
        )
        return batch.id

    async def _finished(self, name: str) -> Any:
        while (batch := await self._api.batches.retrieve(name)).status not in _ENDED:
            await anyio.sleep(self._judge.poll)
        if batch.output_file_id is None and batch.error_file_id is None:
            found = batch.errors.data if batch.errors else None
            why = "; ".join(str(error.message) for error in found or ()) or "no reason given"
            late = batch.status == "expired"  # it may have been begun too late for anything
            raise ProviderError(f"batch {name} {batch.status}: {why}", transient=late)
        return batch

    async def _fetch(self, batch: Any) -> dict[str, dict[str, Any]]:
        lines: dict[str, dict[str, Any]] = {}
        for file in filter(None, (batch.error_file_id, batch.output_file_id)):
            content = await self._api.files.content(file)
            for line in filter(str.strip, content.text.splitlines()):
                with suppress(ValueError, LookupError, TypeError):  # damaged: it is asked again
                    found = json.loads(line)
                    lines[found["custom_id"]] = found
        return lines


def _completion(line: dict[str, Any] | None) -> dict[str, Any]:
    """The body of a successful answer; raises ProviderError for any other line."""
    if line is None:
        raise ProviderError("the batch ended without an answer to this question", transient=True)
    response, error = line.get("response") or {}, line.get("error") or {}
    status, body = response.get("status_code"), response.get("body") or {}
    if status == 200:
        return dict(body)
    error = error or body.get("error") or {}
    code, text = str(error.get("code") or ""), error.get("message") or "no message"
    raise _failure(status, code, text)


def _failure(status: int | None, code: str, text: str) -> JudgeError:
    passing = code == "batch_expired" or (
        status is not None and (status in TRANSIENT or status >= 500)
    )
    where = f"HTTP {status}" if status else code or "error"
    return ProviderError(f"in the batch: {where}: {text}", transient=passing, status=status)
