"""What stands between a test and the gateway: the recorder of its file."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest

from dagengine.errors import JUDGE_FAILURES, JudgeFailure, RecordingMissError
from dagengine.gateway.gateway import Asks, Gateway, Resampled
from dagengine.gateway.request import Request
from dagengine.question import Answer, Judge, Question, durable_identity
from dagengine.redaction import forms_of, secrets_of_environment
from dagengine.store.entries import entry_of, failure_entry, failure_of, key_of, revive
from dagengine.testing.recorded.recordings import Recording

FOLDER = "recordings"
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
        name, fields = durable_identity(judge), None
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
            elif fields is not None:
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


def recording_of(test_file: Path) -> Path:
    """Path of the recording of a test file: in a folder beside it."""
    return test_file.parent / FOLDER / f"{test_file.stem}.jsonl"


class TestFiles:
    """The recordings of one session, each read when the first of its tests asks.

    `mode` is what the user asked for; without one, recordings are replayed where CI is set.
    """

    __test__ = False

    def __init__(self, config: pytest.Config) -> None:
        self._mode: Mode | None = config.getoption("evals", None)
        self._recordings: dict[Path, Recording] = {}
        self._asks: dict[Any, tuple[Asks, Recorder | None]] = {}

    @property
    def recorders(self) -> list[Recorder]:
        """Everything that answers were taken from, or put into."""
        recorders = (recorder for _, recorder in self._asks.values())
        return list(dict.fromkeys(recorder for recorder in recorders if recorder is not None))

    def asking(
        self, gateway: Gateway, item: pytest.Item | None, attempt: int = 0
    ) -> tuple[Asks, Recorder | None]:
        """The layer that a test asks through, and its recorder; later attempts ask again."""
        path = None if item is None else recording_of(item.path)
        key = (gateway, path, attempt)
        if key not in self._asks:
            if attempt:
                before, recorder = self.asking(gateway, item)
                self._asks[key] = Resampled(before, attempt), recorder
            else:
                recorder = None
                replays = path is not None and os.environ.get("CI") and path.exists()
                mode: Mode = self._mode or ("replay" if replays else "live")
                if path is not None and mode != "live":  # an ordinary run records nothing
                    recorder = Recorder(gateway, self._recording(path), mode)
                self._asks[key] = recorder or gateway, recorder
        return self._asks[key]

    def _recording(self, path: Path) -> Recording:
        if path not in self._recordings:
            self._recordings[path] = Recording.read(path)
        return self._recordings[path]

    def new(self) -> list[Recording]:
        """Recordings with the new answers of this process alone, to be added in another one."""
        return [replace(recording, answers={}) for recording in self._recordings.values()]

    def add(self, recordings: Iterable[Recording]) -> None:
        """Add what another process recorded."""
        for recording in recordings:
            self._recording(recording.path).add_new(recording)

    def save(self, *, is_whole: bool) -> list[tuple[Path, int]]:
        """Write the recordings that changed; returns their paths, and how many answers changed.

        Only where the whole file ran (`is_whole`) a refreshed one loses what nobody asked for.
        """
        if self._mode not in ("record", "refresh"):
            return []
        return [
            (path, len(recording.new))
            for path, recording in sorted(self._recordings.items())
            if recording.save(only_used=self._mode == "refresh" and is_whole)
        ]
