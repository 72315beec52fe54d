"""Judges without a model: one that follows a script, one that replays recordings."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import BaseModel

from dagengine.errors import JudgeError, RecordingMissError
from dagengine.prompts.parsing import read_answer, valid_answer
from dagengine.question import Answer, Capabilities, Question, TokenChoice

T = TypeVar("T", bound=BaseModel)
Script = Callable[[Question[Any]], Any]
_JSON = json.JSONEncoder(ensure_ascii=False, default=str)


class ScriptedJudge:
    """Answers from a mapping by node name, or from a function of the question.

    For tests, documentation, and judges in plain Python. An answer is a dict of the fields of the
    answer type, or only the verdict, score or output, or its only field. A JudgeError as an answer
    is raised. The function may be a coroutine function.

    Answers are stored only if there is a `name`. It identifies the script: if the script changes,
    change the name.
    """

    capabilities = Capabilities(elastic=True)

    def __init__(self, script: Mapping[str, Any] | Script, name: str | None = None) -> None:
        self._script = self.named_code = script
        # Two scripts under one name are two judges.
        self.identity = f"{name or 'scripted'} {id(self):x}"
        self.durable_identity = f"scripted {name}" if name else None

    async def answer(self, question: Question[T]) -> Answer[T]:
        """One attempt; raises RecordingMissError when the script has nothing to say."""
        if isinstance(self._script, Mapping):
            if question.name not in self._script:
                names = ", ".join(map(repr, self._script))
                raise RecordingMissError(
                    f"the script has no answer for {question.name!r}; it has {names}"
                )
            scripted = self._script[question.name]
        else:
            scripted = self._script(question)
            if inspect.isawaitable(scripted):
                scripted = await scripted
        if isinstance(scripted, JudgeError):
            raise scripted

        fields = question.answer_type.model_fields
        sole = next(iter(fields)) if len(fields) == 1 else None
        main = next((name for name in ("verdict", "score", "output") if name in fields), sole)
        if isinstance(scripted, str) and question.parser is not None:
            return Answer(read_answer(question, scripted), scripted, mode="text")
        if main is not None and not (isinstance(scripted, dict) and main in scripted):
            scripted = {main: scripted}
        if isinstance(scripted, dict) and "reason" in fields:
            scripted = {"reason": "scripted", **scripted}
        raw = _JSON.encode(scripted)
        return Answer(valid_answer(question, scripted, raw), raw)


@dataclass(frozen=True, slots=True)
class Recording:
    """A recorded output of a model, with its token alternatives if they were kept."""

    text: str
    tokens: tuple[TokenChoice, ...] | None = None


class RecordedJudge:
    """Answers from recorded texts; a question without a recording is an error.

    `recordings` maps keys to the output of a model, as text or as a `Recording`. `key` computes the
    key of a question (default: its SHA-256). Questions that ask for token probabilities get them.
    Answers are stored, and cards name the judge, only if there is a `name`, which identifies the
    recordings.
    """

    capabilities = Capabilities(repeatable=False, logprobs=True, elastic=True)

    def __init__(
        self,
        recordings: Mapping[str, str | Recording],
        *,
        key: Callable[[Question[Any]], str] = lambda question: question.key,
        name: str | None = None,
    ) -> None:
        self._recordings = self.named_code = recordings
        self._key = key
        self.identity = f"{name or 'recorded'} {id(self):x}"
        self.durable_identity = f"recorded {name}" if name else None

    async def answer(self, question: Question[T]) -> Answer[T]:
        """The recorded answer; raises RecordingMissError when there is none."""
        key = self._key(question)
        recorded = self._recordings.get(key)
        if recorded is None:
            raise RecordingMissError(
                f"nothing was recorded for this question (key {key[:16]}…): its wording, its "
                "evidence or its order differ from the recording"
            )
        recording = Recording(recorded) if isinstance(recorded, str) else recorded
        tokens = recording.tokens if question.options.top_logprobs else None
        value = read_answer(question, recording.text)
        return Answer(value, recording.text, tokens, mode="recorded")
