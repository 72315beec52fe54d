"""Answers kept beside the tests: the text file of each test file, and what asks it first.

The first line names the format and the judges. Every other line is one answer. Lines are sorted by
node and key, so that the answers to one criterion are together::

    {"format": 1, "judges": {"9c1f2b": "gpt-4o …"}}
    {"node": "Tone is rude", "key": "…", "judge": "9c1f2b", "sample": 0, "prompt": "…", …}

Of a question it holds digests only: what was judged may be private. There are no dates and
durations in it, so equal answers make equal bytes.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from operator import itemgetter
from pathlib import Path
from typing import Any, Literal

import pytest

from dagengine.data.written_lines import line_of
from dagengine.errors import InputError, JudgeFailure, RecordingMissError, did_you_mean
from dagengine.gateway.gateway import Asks, Gateway, Resampled
from dagengine.gateway.request import Request
from dagengine.prompts.instructions import parts_of
from dagengine.prompts.json_in_text import shallow_value
from dagengine.question import Answer, Judge, Question, durable_identity
from dagengine.redaction import forms_of, secrets_of_environment
from dagengine.store.database import entry_of, failure_entry, failure_of, key_of, revive
from dagengine.system.file_locks import one_writer
from dagengine.system.safe_files import is_there, read_whole, write_whole
from dagengine.system.terminal_text import free_name, text_if

FOLDER = "recordings"
Mode = Literal["live", "record", "refresh", "replay"]
"""`live` asks the judge and records nothing; `record` asks what is not recorded yet; `refresh`
asks everything again; `replay` makes no judge calls."""
FORMAT = 1
_PART = 16  # characters of the digest of a part
_NAMES = {
    "instructions": "instructions",
    "evidence": "evidence",
    "shape": "answer form",
    "options": "options",
}
_QUESTION = ("node", "key", "judge", "sample", "prompt", "parts")
_ANSWER = ("raw", "usage", "mode", "tokens", "odds", "mass", "value", "failure")
Row = dict[str, Any]
"""One answer: who asked, which judge answered, digests of the question, and the answer.

The answer has the fields of a store: `raw`, `usage`, `mode`, and what else brings it back.
"""


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
        except JudgeFailure as error:
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
        recorders = map(itemgetter(1), self._asks.values())
        return list(dict.fromkeys(filter(None, recorders)))

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


def recorded_row(judge: str, question: Question[Any], fields: Mapping[str, Any]) -> Row:
    """The row of an answer, whose `fields` are those of a store."""
    row = {
        "node": question.name,
        "key": key_of(judge, question).hex(),
        "judge": judge,
        "sample": question.options.sample,
        "prompt": _prompt(question),
        "parts": _parts(question),
    }
    return row | {name: fields[name] for name in _ANSWER if name in fields}


def _read_row(row: Mapping[str, Any], judges: Mapping[str, str]) -> Row:
    """The row in a line of the file; raises KeyError or TypeError for anything else."""
    question = {name: row[name] for name in _QUESTION}
    if not isinstance(row["raw"], str) or not isinstance(row["mode"], str):
        raise TypeError("an answer is text, and its mode as well")
    question["judge"] = judges[row["judge"]]
    return question | {name: row[name] for name in _ANSWER if name in row}


@dataclass(slots=True)
class Recording:
    """The answers of one test file; `new` are those that this session adds to it.

    `used` are the keys of those that were asked for.
    """

    path: Path
    answers: dict[str, Row] = field(default_factory=dict[str, Row])
    new: dict[str, Row] = field(default_factory=dict[str, Row])
    used: set[str] = field(default_factory=set[str])

    @classmethod
    def read(cls, path: Path) -> Recording:
        """From its file, which may not be there yet; raises InputError, naming the line."""
        if not is_there(path):
            return cls(path)
        answers: dict[str, Row] = {}
        judges: Mapping[str, str] = {}
        for number, line in enumerate(read_whole(path).split(b"\n"), 1):
            if not line.strip():
                continue
            try:
                row = shallow_value(line.decode(errors="surrogatepass"))  # as older versions wrote
                if number == 1:
                    if row["format"] != FORMAT:
                        raise InputError(
                            f"the recording {path} has format {row['format']!r}, and this version "
                            f"of dagengine reads {FORMAT}: use the version that wrote it, or run "
                            "--evals=refresh"
                        )
                    judges = row["judges"]  # by their letters
                else:
                    answers[row["key"]] = _read_row(row, judges)
            except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
                raise InputError(
                    f"line {number} of the recording {path} is not a recorded answer ({error}): "
                    "repair it, or delete the file and run --evals=record"
                ) from None
        return cls(path, answers)

    def find(self, judge: str, question: Question[Any]) -> Mapping[str, Any] | None:
        """The fields of the answer to a question, or None."""
        key = key_of(judge, question).hex()
        self.used.add(key)
        return self.new.get(key) or self.answers.get(key)

    def add(self, judge: str, question: Question[Any], fields: Mapping[str, Any]) -> None:
        """Note an answer."""
        row = recorded_row(judge, question, fields)
        self.used.add(row["key"])
        if row != self.answers.get(row["key"]):
            self.new[row["key"]] = row

    def save(self, *, only_used: bool) -> bool:
        """Write the file unless nothing changed, all or nothing; returns whether it was written.

        `only_used` leaves out what nobody asked for.
        """
        if not self.new and (not only_used or not is_there(self.path)):
            return False
        with one_writer(self.path, wait=True):
            # Another session may have recorded answers since this one read the file.
            for key, answer in Recording.read(self.path).answers.items():
                if self.answers.get(key) != answer:
                    self.answers[key] = answer
                    self.used.add(key)
            answers = self.answers | self.new
            if only_used:
                answers = {key: answer for key, answer in answers.items() if key in self.used}
            lines = sorted(answers.values(), key=itemgetter("node", "key"))
            names = {name: _digest(name)[:6] for name in sorted({row["judge"] for row in lines})}
            judges = {short: name for name, short in names.items()}
            rows = [{"format": FORMAT, "judges": judges}]
            rows += (row | {"judge": names[row["judge"]]} for row in lines)
            text = b"".join(map(line_of, rows))
            if is_there(self.path) and read_whole(self.path) == text:
                return False
            write_whole(self.path, text)
        return True

    def add_new(self, other: Recording) -> None:
        """Add what another process recorded; of two answers to one question the first stays."""
        self.new = {**other.new, **self.new}
        self.used |= other.used

    def why_missing(self, judge: str, question: Question[Any]) -> str:
        """Why there is no answer, against the nearest question that has one."""
        if not self.answers:
            return f"there is no recording {self.path}; run --evals=record"
        prompt, parts = _prompt(question), _parts(question)
        for answer in self.answers.values():
            before = answer["judge"]
            if (answer["prompt"], answer["parts"]) == (prompt, parts) and before != judge:
                return (
                    f"it was recorded with the judge {before!r}, and is asked of {judge!r}: "
                    "a recording is for one judge. Run --evals=record with the new judge"
                )
        same = [answer for answer in self.answers.values() if answer["node"] == question.name]
        if not same:
            near = did_you_mean(question.name, set(map(itemgetter("node"), self.answers.values())))
            return f"nothing is recorded for this node{text_if(near, f'; {near}')}"
        nearest = max(
            same, key=lambda own: (_similarity(own["parts"], parts), own["judge"] == judge)
        )
        differences, equal = list[str](), list[str]()
        for name, word in _NAMES.items():
            if change := _change(name, nearest["parts"], parts):
                differences.append(change)
            else:
                equal.append(word)
        if nearest["judge"] != judge:
            differences.insert(0, f"another judge ({nearest['judge']!r} in place of {judge!r})")
        listed = " and ".join(", ".join(equal).rsplit(", ", 1))  # a, b and c
        rest = text_if(equal, f"; {listed} equal")
        return f"against the nearest: {', '.join(differences)}{rest}. Run --evals=record"


def _digest(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def _prompt(question: Question[Any]) -> str:
    return _digest(list(question.messages))


def _parts(question: Question[Any]) -> dict[str, Any]:
    """Digests of what a question is made of."""
    _, shape, options = question.canonical.decode(errors="surrogatepass").split("\n", 2)
    try:
        step, pieces = parts_of(question.messages)
        evidence = dict[str, str]()
        for piece in pieces:
            name = free_name(piece.label, evidence, " #")
            evidence[name] = _digest(piece.text)[:_PART]
    except ValueError:  # a prompt of the caller's own
        *before, last = (message["content"] for message in question.messages)
        step, evidence = "\n\n".join(before), {"prompt": _digest(last)[:_PART]}
    return {
        "instructions": _digest(step)[:_PART],
        "evidence": evidence,
        "shape": _digest(shape)[:_PART],
        "options": options,
    }


def _similarity(first: Mapping[str, Any], second: Mapping[str, Any]) -> float:
    """Similarity of two questions: parts that are equal, and the share of equal evidence."""
    equal: int = sum(first[name] == second[name] for name in _NAMES)
    pieces = set(first["evidence"].items()), set(second["evidence"].items())
    # Less than 1: evidence only decides between questions with as many equal parts.
    return equal + len(pieces[0] & pieces[1]) / (1 + len(pieces[0] | pieces[1]))


def _change(name: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """Describe the change of one part in a few words; empty without one."""
    if old[name] == new[name]:
        return ""
    if name == "options":
        return f"options changed from {old[name]} to {new[name]}"
    if name != "evidence":
        return f"{_NAMES[name]} changed"
    before, after = old[name], new[name]
    labels = [label for label in {**before, **after} if before.get(label) != after.get(label)]
    return f"evidence changed ({', '.join(labels)})"
