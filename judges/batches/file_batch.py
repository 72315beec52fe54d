"""A judge behind files: questions are written, and an offline engine writes the answers.

The lines are those of OpenAI's batch API, which `vllm run-batch` reads and writes, too
(https://docs.vllm.ai/en/latest/examples/offline_inference/openai_batch.html).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dagengine.errors import InputError, JudgeSetupError
from dagengine.judges.batches.batch_journal import Begun
from dagengine.judges.batches.collecting import BatchApi
from dagengine.judges.batches.openai_batch import BODY, OpenAIBatchJudge, request_line
from dagengine.judges.wire.client import Provider
from dagengine.question import NO_FACTS, ServerFacts
from dagengine.system.regular_files import is_there, open_to_read, write_whole
from dagengine.system.terminal import counted

if TYPE_CHECKING:
    from openai import AsyncOpenAI

_TOKEN = 8  # characters of a batch's token in the names of its files
_QUESTIONS, _ANSWERS = "questions-{}.jsonl", "answers-{}.jsonl"
_BLOCK = 1 << 20


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
    def _called(self) -> str:
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

    def __init__(self, folder: Path, model: str, announce: Callable[[str], None]) -> None:
        self._folder, self._model, self._announce = folder, model, announce
        self._announced = set[str]()
        self._counts, self._sizes = dict[str, int](), dict[str, int]()

    def line(self, name: str, body: str) -> bytes:
        return request_line(name, body)

    async def start(self, lines: Sequence[bytes], token: str) -> str:
        number = len(list(self._folder.glob(_QUESTIONS.format("*")))) + 1
        name = f"{number:04}-{token[:_TOKEN]}"
        ordered = sorted(lines, key=lambda line: line.partition(BODY)[2])
        path = self._folder / _QUESTIONS.format(name)
        try:
            write_whole(path, b"".join(ordered))
        except OSError as error:
            why = error.strerror or error
            raise JudgeSetupError(f"cannot write {path}: {why}") from None
        return name

    async def find(self, begun: Begun, others: Collection[str]) -> str | None:
        pattern = _QUESTIONS.format(f"*-{begun.token[:_TOKEN]}")
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
        lines, end = 0, b""
        while block := file.read(_BLOCK):
            lines, end = lines + block.count(b"\n"), block[-1:]
        return lines + (end == b"}")
