"""What stands between a case and the gateway: recorded answers."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, Literal, TypeVar

from pydantic import BaseModel

from dagengine.errors import JUDGE_FAILURES, JudgeFailure, RecordingMissError
from dagengine.gateway.gateway import Asks, Gateway
from dagengine.gateway.request import Request
from dagengine.question import Answer, Judge, Question, durable_identity
from dagengine.redaction import forms_of, secrets_of_environment
from dagengine.store.entries import entry_of, failure_entry, failure_of, key_of, revive
from dagengine.testing.recorded.recordings import Recording

T = TypeVar("T", bound=BaseModel)
Mode = Literal["live", "record", "refresh", "replay"]
"""`live` asks the judge and records nothing; `record` asks what is not recorded yet; `refresh`
asks everything again; `replay` makes no judge calls."""


class Recorder:
    """Takes answers from a recording, and puts into it what it asks.

    `missed` are the messages of questions that a replay has no answer to. `replayed` counts the
    answers that it gave, `lacking` the questions without an answer. `unrecorded` says what could
    not be recorded, and why.
    """

    def __init__(self, asks: Asks, recording: Recording, mode: Mode) -> None:
        self._asks = asks
        self.recording = recording
        self.mode = mode
        self.replayed = 0
        self.lacking = 0
        self.missed: set[str] = set()
        self.unrecorded: dict[str, None] = {}

    @property
    def run(self) -> Gateway:
        return self._asks.run

    @property
    def replays(self) -> bool:
        return self.mode == "replay"

    async def answer(self, request: Request) -> Answer[Any]:
        """The recorded answer, or the judge's; raises JudgeError."""
        judge, question = request.judge, request.question
        name = durable_identity(judge)
        if self.mode != "refresh" and name is not None:
            fields = self.recording.find(name, question)
            if fields is not None:
                failure, answer = failure_of(fields), revive(question, fields, "replayed")
                self.replayed += failure is not None or answer is not None
                if failure is not None:
                    raise failure
                if answer is not None:
                    return answer
        if self.mode == "replay":
            if name is None:
                why = (
                    f"the judge {judge.identity!r} has no durable identity, so its answers are not "
                    "recorded; give it a name"
                )
            elif self.recording.find(name, question) is not None:
                why = "the recorded answer no longer fits the question; run --evals=record"
            else:
                why = self.recording.why_missing(name, question)
            miss = RecordingMissError(f"no recorded answer; {why}")
            self.missed.add(str(miss))
            self.lacking += 1
            raise miss
        try:
            answer = await self._asks.answer(request)
        except JUDGE_FAILURES as error:
            self._note(judge, question, error)
            raise
        self._note(judge, question, answer)
        return answer

    def _note(
        self, judge: Judge, question: Question[Any], outcome: Answer[Any] | JudgeFailure
    ) -> None:
        """Record an answer or a failure, unless it cannot or must not be written down."""
        name = durable_identity(judge)
        if name is None:
            self.unrecorded[f"the judge {judge.identity!r} has no stable name"] = None
            return
        key = key_of(name, question)
        if isinstance(outcome, Answer):
            if not question.options.top_logprobs:  # no score used them
                outcome = replace(outcome, tokens=None)
            entry = entry_of(key, name, question, outcome)
        else:
            entry = failure_entry(key, name, question, outcome)
        if entry is None:
            self.unrecorded[f"an answer to {question.name!r} has no JSON form"] = None
        elif any(
            form in entry.answer for secret in secrets_of_environment() for form in forms_of(secret)
        ):
            self.unrecorded[f"an answer to {question.name!r} holds a secret"] = None
        else:
            fields = json.loads(entry.answer)
            fields["usage"][2] = 0  # what a provider had in its cache depends on the timing
            self.recording.add(name, question, fields)
