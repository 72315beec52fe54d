"""A small metric, its cases and a judge, for tests of what a run leaves behind."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from importlib.resources import files
from typing import Any

from jsonschema import Draft202012Validator

from dagengine.errors import ProviderError, UnparseableError
from dagengine.judges import ScriptedJudge
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import (
    DAG,
    BinaryJudgementNode,
    NonBinaryJudgementNode,
    TaskNode,
    VerdictNode,
)
from dagengine.question import Answer, Question, Usage
from dagengine.results import CaseResult
from dagengine.test_case import LLMTestCase


def polite() -> DAGMetric:
    """Two questions; the second only for what is kind."""
    words = TaskNode("List the words", "words", evaluation_params=["input"], name="words")
    tone = NonBinaryJudgementNode(
        "Which tone?",
        inputs=[words],
        children=[VerdictNode("warm", score=10), VerdictNode("cold", score=3)],
        name="Tone",
    )
    kind = BinaryJudgementNode(
        "Is it kind?",
        evaluation_params=["actual_output"],
        then={True: tone, False: 0},
        name="Kind",
    )
    return DAGMetric("Manners", DAG(kind))


def answers(question: Question[Any]) -> Any:
    text = question.messages[-1]["content"]
    if "broken" in text:
        raise ProviderError("down for today", transient=False)
    if question.name == "words":
        return "some words"
    if question.name == "Tone":
        return {"verdict": "warm", "reason": "it smiles"}
    return {"verdict": "rude" not in text, "reason": f"because {len(text)}"}


class Counting(ScriptedJudge):
    """Uses 110 tokens for every answer."""

    async def answer(self, question: Question[Any]) -> Answer[Any]:
        return replace(await super().answer(question), usage=Usage(100, 10))


def judge() -> ScriptedJudge:
    return Counting(answers, name="script")


def hesitant() -> ScriptedJudge:
    """Is overloaded at first, then unreadable, then as others."""
    tried: list[str] = []

    def answer(question: Question[Any]) -> Any:
        tried.append(question.name)
        if question.name == "Kind" and tried.count("Kind") == 1:
            raise ProviderError("overloaded by dear you", transient=True, status=503)
        if question.name == "Kind" and tried.count("Kind") == 2:
            raise UnparseableError("kind of is not true or false", "kind of", (100, 10))
        return answers(question)

    return ScriptedJudge(answer, name="hesitant")


CASES = [
    LLMTestCase(input="hello", actual_output="dear you", name="kind one"),
    LLMTestCase(input="hello", actual_output="rude", tags=["de"]),
    LLMTestCase(input="hello", actual_output="broken"),
]

SCHEMA: dict[str, Any] = json.loads(
    files("dagengine.record").joinpath("record.schema.json").read_text(encoding="utf-8")
)


def validator(part: str) -> Draft202012Validator:
    """What says whether plain data has the form of a part of a run folder."""
    return Draft202012Validator({**SCHEMA, "$ref": f"#/$defs/{part}"})


def dicts(rows: Iterable[CaseResult]) -> list[dict[str, Any]]:
    """Rows as they are written: the raw answers of the judge are not."""
    return [row.as_dict() for row in rows]
