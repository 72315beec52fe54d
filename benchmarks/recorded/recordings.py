"""Recorded calls of other projects: where they are, and how they are read.

A folder holds the items of one source and what a judge wrote about each.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dagengine.judges import Recording
from dagengine.prompts.evidence import as_text
from dagengine.question import FirstMatch, Question, TokenChoice
from dagengine.test_case import ArenaTestCase, LLMTestCase

Json = dict[str, Any]

DATA_VARIABLE = "DAGENGINE_RECORDED"

WHOLE_TEXT = FirstMatch(((r"([\s\S]*)", None),), field="output")
"""Takes an answer as it stands."""


# Where the recordings are, and what is in them.


def data_directory() -> Path:
    """Where the recorded data is, or would be."""
    beside_the_project = Path(__file__).resolve().parents[3] / "shared" / "data" / "recorded"
    return Path(os.environ.get(DATA_VARIABLE) or beside_the_project)


def how_to_get(directory: Path) -> str:
    """What to say when the data is not there."""
    return f"no recorded data in {directory}; set {DATA_VARIABLE} to the directory that holds it"


def expected_figures(directory: Path) -> dict[str, float]:
    """The figures to be met, of all sources."""
    return {name: stored["value"] for name, stored in read(directory / "EXPECTED.json").items()}


def read(path: Path) -> Any:
    """What a JSON file holds."""
    return json.loads(path.read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Folder:
    """Items and judgements of one source."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def is_there(self) -> bool:
        """Whether the folder holds recorded calls."""
        return (self.path / "judgements.jsonl").is_file()

    def items(self) -> dict[str, Json]:
        """Items by id, each with what it inherits."""
        rows = {row["id"]: row for row in self.rows("items")}
        return {name: _inherited(row, rows) for name, row in rows.items()}

    def judgements(self, *protocols: str) -> list[Json]:
        """Judgements of the named protocols, or all."""
        rows = self.rows("judgements")
        return [row for row in rows if not protocols or row["protocol"] in protocols]

    def rows(self, kind: str) -> list[Json]:
        """The rows of one kind as they are stored."""
        # Not splitlines(): JSON allows other line separators inside a text.
        text = (self.path / f"{kind}.jsonl").read_text(encoding="utf-8")
        return [json.loads(line) for line in text.split("\n") if line]


def _inherited(row: Json, rows: Mapping[str, Json]) -> Json:
    """An item with the fields of its parent, and the answers of both."""
    parent = rows.get(row.get("parent", ""), {})
    answers = {**parent.get("responses", {}), **row.get("responses", {})}
    return {**parent, **row, "responses": answers}


def contest(name: str, instruction: str, answers: Mapping[str, str]) -> ArenaTestCase:
    """Several answers to one instruction as a case."""
    contestants = {
        contestant: LLMTestCase(input=instruction, actual_output=text)
        for contestant, text in answers.items()
    }
    return ArenaTestCase(name=name, contestants=contestants)


def arena_case(item: Json) -> ArenaTestCase:
    """An item's answers against each other."""
    # One answer in PandaLM's data is the JSON value true.
    answers = {name: as_text(answer["text"]) for name, answer in item["responses"].items()}
    return contest(item["id"], as_text(item["input"]), answers)


def answer_case(item: Json) -> LLMTestCase:
    """An item's first answer, with the context if there is one."""
    context = [item["context"]] if item.get("context") else None
    answer = item["responses"]["A"]["text"]
    return LLMTestCase(
        name=item["id"], input=item["input"], actual_output=answer, retrieval_context=context
    )


# Recorded calls, and what they are found by.


def first_token(text: str, token: str, alternatives: Mapping[str, float]) -> Recording:
    """A text whose first token has alternatives, given by their natural log-probabilities."""
    first = TokenChoice(token, tuple(alternatives.items()))
    return Recording(text, (first, TokenChoice(text.removeprefix(token), ())))


def likeliest(probabilities: Mapping[str, float], text: str | None = None) -> Recording:
    """A call known by the probabilities of its first token, and by its text if that was kept."""
    written = max(probabilities, key=probabilities.__getitem__) if text is None else text
    token = max(filter(written.startswith, probabilities), key=len)
    return first_token(written, token, {name: _log(p) for name, p in probabilities.items()})


def rating(probabilities: Mapping[str, float]) -> Recording:
    """A rating as JSON, known by the probabilities of its token."""
    stated = max(probabilities, key=probabilities.__getitem__)
    before, after = '{"reason": "recorded", "score": ', "}"
    odds = tuple((name, _log(p)) for name, p in probabilities.items())
    tokens = (TokenChoice(before, ()), TokenChoice(stated, odds), TokenChoice(after, ()))
    return Recording(f"{before}{stated}{after}", tokens)


def _log(share: float) -> float:
    return math.log(share) if share > 0 else -math.inf


def key(prompt: str, sample: int = 0) -> str:
    """What a recording is found by."""
    return f"{prompt}#{sample}"


def key_of(question: Question[Any]) -> str:
    """The key of the recording that answers a question."""
    return key(question.messages[-1]["content"], question.options.sample)
