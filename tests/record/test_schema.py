"""The JSON schema of a run folder: everything that runs write follows it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from folders.recorded_runs import CASES, SCHEMA, judge, polite, validator
from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError
from servers.decision_server import DecisionServer

from dagengine import evaluate
from dagengine.judges import DecisionJudge, LexicalJudge
from dagengine.metrics import (
    AnswerRelevancyMetric,
    DAGMetric,
    ExactMatchMetric,
    FaithfulnessMetric,
)
from dagengine.metrics.dag import DAG, BinaryJudgementNode
from dagengine.record import load_run
from dagengine.record.values import Manifest
from dagengine.test_case import ConversationalTestCase, LLMTestCase, Turn


def decided() -> DAGMetric:
    kind = BinaryJudgementNode(
        "Is it kind?", evaluation_params=["actual_output"], then={True: 10, False: 0}, name="Kind"
    )
    return DAGMetric("Manners", DAG(kind))


def lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_the_schema_is_one_and_that_of_the_code() -> None:
    Draft202012Validator.check_schema(SCHEMA)
    made = Manifest.model_json_schema(mode="serialization")
    made_defs = made.pop("$defs")
    assert SCHEMA["$defs"]["Manifest"] == made
    assert {name: SCHEMA["$defs"][name] for name in made_defs} == made_defs


def test_what_runs_write_follows_the_schema(tmp_path: Path) -> None:
    talk = ConversationalTestCase(turns=[Turn(role="user", content="rude")], name="talk")
    evaluate(
        [*CASES, talk], [polite()], model=judge(), show=False, out=tmp_path / "a",
        redact=["input"],
    )  # fmt: skip
    context = ["Paris is the capital of France."]
    case = LLMTestCase(input="Capital?", actual_output="Paris.", retrieval_context=context)
    metrics = [FaithfulnessMetric(), AnswerRelevancyMetric()]
    evaluate([case], metrics, model=LexicalJudge(), show=False, out=tmp_path / "b")
    for folder in ("a", "b"):
        validator("Manifest").validate(json.loads((tmp_path / folder / "run.json").read_text()))
        for row in lines(tmp_path / folder / "results.jsonl"):
            validator("Row").validate(row)
        for line in lines(tmp_path / folder / "cases.jsonl"):
            validator("Case").validate(line)
        for line in lines(tmp_path / folder / "times.jsonl"):
            validator("Times").validate(line)
    assert len(lines(tmp_path / "a" / "cases.jsonl")) == 4
    (row,) = lines(tmp_path / "b" / "results.jsonl")
    assert {result["judge"] for result in row["metrics"]} == {"lexical 2"}


def test_a_row_names_the_judge_of_a_metric_that_asks_one(tmp_path: Path) -> None:
    case = LLMTestCase(input="Hi", actual_output="Hi", expected_output="Hi")
    metrics = [decided(), ExactMatchMetric()]
    done = evaluate([case], metrics, model=judge(), show=False, out=tmp_path / "run")
    manners, exact = done.test_results[0].metrics_data
    assert (manners.evaluation_model, exact.evaluation_model) == ("script", None)
    assert next(iter(load_run(tmp_path / "run").rows())).metrics[0].judge == "script"


def test_a_row_with_odds_follows_it_too(tmp_path: Path) -> None:
    with DecisionServer() as server:
        judge = DecisionJudge(base_url=server.base_url)
        evaluate(CASES[:1], [decided()], model=judge, show=False, out=tmp_path, page=False)
    (row,) = lines(tmp_path / "results.jsonl")
    validator("Row").validate(row)
    assert row["metrics"][0]["odds"]["paths"]


@pytest.mark.parametrize("change", [{"hash": "x"}, {"more": 1}, {"index": -1}, {"metrics": None}])
def test_a_row_that_is_none_does_not_follow_it(change: dict[str, Any]) -> None:
    row = {"index": 0, "case": "a", "hash": None, "metrics": []}
    validator("Row").validate(row)
    with pytest.raises(ValidationError):
        validator("Row").validate(row | change)
