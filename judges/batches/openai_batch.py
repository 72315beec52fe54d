"""Judges behind lines of OpenAI's batch API: sent to it, or written to files for an offline engine.

The API costs half the price and answers within a day: https://platform.openai.com/docs/guides/batch
`vllm run-batch` reads and writes such lines, too:
https://docs.vllm.ai/en/latest/examples/offline_inference/openai_batch.html
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dagengine.errors import InputError, JudgeSetupError, ProviderError
from dagengine.judges.batches.batch_jobs import BatchApi, Batches, BatchJournal, BatchLimits, Entry
from dagengine.judges.openai import OpenAIJudge
from dagengine.judges.wire.client import Provider
from dagengine.judges.wire.completions import Completion, prompt_of, read_completion
from dagengine.judges.wire.connection import Connection
from dagengine.judges.wire.dialects.error_responses import parse_body, response_error
from dagengine.judges.wire.requests import RequestForm
from dagengine.question import NO_FACTS, Capabilities, Question, ServerFacts
from dagengine.system.safe_files import is_there, open_to_read, write_whole
from dagengine.system.terminal_text import counted

if TYPE_CHECKING:
    from openai import AsyncOpenAI


_ENDPOINT: Final = "/v1/chat/completions"
_BODY: Final = b', "body": '
"""What is between a question's name and the question in such a line."""
_NOT_ASKED: Final = frozenset({"batch_expired", "batch_cancelled"})
_ENDED = frozenset({"completed", "failed", "expired", "cancelled"})
# The client's own retries: a batch is not given up because one look at it failed.
_RETRIES = 8
_TOKEN_KEY = "dagengine"
# Bytes of results that are read; they are those of a whole batch.
_RESULTS = 2_000_000_000
_TOKEN_LENGTH = 8  # characters of a batch's token in the names of its files
_QUESTIONS, _ANSWERS = "questions-{}.jsonl", "answers-{}.jsonl"


def _request_line(name: str, body: str) -> bytes:
    """A request, given as JSON, as a line of a file of questions."""
    head = json.dumps({"custom_id": name, "method": "POST", "url": _ENDPOINT})
    return head[:-1].encode() + _BODY + f"{body}}}\n".encode()


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

    def _connect(self) -> Connection:
        plain = super()._connect()
        journal = BatchJournal(self.journal, f"openai batches at {self.base_url or 'default'}")
        connection = _BatchConnection(plain.api, owned=plain.owned)
        connection.batches = Batches(self._batch_api(plain.api), self._limits, journal)
        return connection

    def _batch_api(self, api: AsyncOpenAI) -> BatchApi:
        """The API that batches go to."""
        return _OpenAIBatches(api)


class _OpenAIBatches:
    """OpenAI's batches."""

    line = staticmethod(_request_line)

    def __init__(self, api: AsyncOpenAI) -> None:
        import openai

        self.failures: tuple[type[Exception], ...] = (openai.OpenAIError,)
        self._api = api.with_options(max_retries=_RETRIES)

    async def start(self, lines: Sequence[bytes], token: str) -> str:
        file = await self._api.files.create(file=("batch.jsonl", b"".join(lines)), purpose="batch")
        batch = await self._api.batches.create(
            input_file_id=file.id, endpoint=_ENDPOINT, completion_window="24h",
            metadata={_TOKEN_KEY: token},
        )  # fmt: skip
        return batch.id

    async def find(self, entry: Entry, others: Collection[str]) -> str | None:
        async for batch in self._api.batches.list(limit=100):
            if (batch.metadata or {}).get(_TOKEN_KEY) == entry.token:
                return batch.id
            if batch.created_at < entry.at - 3600:  # they come from the newest on
                return None
        return None

    async def results(self, name: str) -> Iterable[str] | None:
        batch = await self._api.batches.retrieve(name)
        if batch.status not in _ENDED:
            return None
        if batch.output_file_id is None and batch.error_file_id is None:
            errors = getattr(batch.errors, "data", None) or ()
            why = "; ".join(str(error.message) for error in errors) or "no reason given"
            late = batch.status == "expired"  # it may have been begun too late for anything
            raise ProviderError(f"batch {name} {batch.status}: {why}", transient=late)
        lines: list[str] = []
        for file in filter(None, (batch.error_file_id, batch.output_file_id)):
            lines += (await self._api.files.content(file)).text.split("\n")
        return lines


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


class FileBatchJudge(OpenAIBatchJudge):
    """Answers through files in `folder`, for engines that have no server: no network is used.

    Questions are collected as by `OpenAIBatchJudge` and written to `questions-N-….jsonl`, in an
    order in which equal beginnings of prompts are next to each other. An engine with a cache of
    prefixes then reads each once. The judge waits, and looks every `poll` seconds, until
    `answers-N-….jsonl` of the same folder has a line for every question. An empty file
    `answers-N-….jsonl.done` says that no more lines come; what has none is asked again in another
    file. `announce` gets a sentence about each file that is written.

    After a kill, a run with the same folder takes up its files: nothing is asked twice. Only one
    process at a time may use a folder.

    Judges in two folders share no answer within a run. Stored answers are found by the model, in
    any folder. `engine`, a name of what answers there, is a part of what they are found by. In a
    run with a store, judges of one model in two folders need two.
    """

    store_hint = "name what answers in each of them: FileBatchJudge(…, engine=…)"
    """What tells two of them apart in a store."""
    provider = Provider("batch files", "", "", "http://batch-files.invalid")

    def __init__(
        self,
        model: str,
        folder: str | os.PathLike[str],
        *,
        size: int = 100_000,
        quiet: float = 2.0,
        poll: float = 2.0,
        announce: Callable[[str], None] | None = None,
        parameters: dict[str, Any] | None = None,
        engine: str | None = None,
    ) -> None:
        """Raises InputError for a folder that is a file."""
        self.folder = Path(folder)
        if self.folder.exists() and not self.folder.is_dir():
            raise InputError(f"{self.folder} is a file; name a folder for questions and answers")
        self._announce = announce
        self._engine = engine
        super().__init__(
            model,
            size=size,
            file_bytes=1 << 62,  # files have no limit
            quiet=quiet,
            poll=poll,
            journal=self.folder / "journal",
            parameters=parameters,
            api_key="none",
        )

    @property
    def _name(self) -> str:
        return super()._name if self._engine is None else f"{super()._name} by {self._engine}"

    @property
    def _process_name(self) -> str:
        folder = hashlib.sha256(os.fsencode(self.folder.resolve())).hexdigest()[:16]
        return f"{self._name} (folder {folder})"

    def _public_state(self) -> dict[str, Any]:
        return {**super()._public_state(), "_announce": None}

    def _batch_api(self, api: AsyncOpenAI) -> BatchApi:
        return _FileBatches(self.folder, self.model, self._announce or (lambda sentence: None))

    async def facts(self) -> ServerFacts:
        """Nothing is known of an engine that reads files."""
        return NO_FACTS


class _FileBatches:
    """Batches as pairs of files."""

    failures: tuple[type[Exception], ...] = ()
    line = staticmethod(_request_line)

    def __init__(self, folder: Path, model: str, announce: Callable[[str], None]) -> None:
        self._folder, self._model, self._announce = folder, model, announce
        self._announced = set[str]()
        self._counts, self._sizes = dict[str, int](), dict[str, int]()

    async def start(self, lines: Sequence[bytes], token: str) -> str:
        number = len(list(self._folder.glob(_QUESTIONS.format("*")))) + 1
        name = f"{number:04}-{token[:_TOKEN_LENGTH]}"
        ordered = sorted(lines, key=lambda line: line.partition(_BODY)[2])
        path = self._folder / _QUESTIONS.format(name)
        try:
            write_whole(path, b"".join(ordered))
        except OSError as error:
            why = error.strerror or error
            raise JudgeSetupError(f"cannot write {path}: {why}") from None
        return name

    async def find(self, entry: Entry, others: Collection[str]) -> str | None:
        pattern = _QUESTIONS.format(f"*-{entry.token[:_TOKEN_LENGTH]}")
        for path in self._folder.glob(pattern):
            return path.stem.removeprefix("questions-")
        return None

    async def results(self, name: str) -> Iterable[str] | None:
        answers = self._folder / _ANSWERS.format(name)
        questions = self._folder / _QUESTIONS.format(name)
        if name not in self._announced:
            self._announced.add(name)
            self._counts[name] = _lines_of(questions)
            self._announce(
                f"{counted(self._counts[name], 'question')} in {questions}; the answers go to "
                f"{answers}, for instance by: vllm run-batch -i {questions} -o {answers} "
                f"--model {self._model}"
            )
        complete = is_there(answers.with_name(f"{answers.name}.done"))
        if not complete and is_there(answers):
            # A file that grows is not read: its lines are counted when its size stays the same.
            size, former_size = answers.stat().st_size, self._sizes.get(name)
            self._sizes[name] = size
            complete = size == former_size and _lines_of(answers) >= self._counts[name]
        if not complete:
            return None
        return _texts_of(answers) if is_there(answers) else ()


def _texts_of(path: Path) -> Iterator[str]:
    with open_to_read(path) as file:
        for line in file:  # which breaks at "\n" alone: texts may have other ends of lines
            yield line.decode("utf-8", "replace")


def _lines_of(path: Path) -> int:
    """The lines of a file; the last one may lack its end if it is whole JSON."""
    with open_to_read(path) as file:
        return sum(line.endswith((b"\n", b"}")) for line in file)
