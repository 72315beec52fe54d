"""The JSON schema of a run folder: everything that runs write follows it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from folders.recorded_runs import CASES, SCHEMA, judge, polite, validator
from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError
from programs.commands import output_of
from servers.decision_server import DecisionServer

from dagengine import evaluate
from dagengine.errors import InputError
from dagengine.improvement.folder import PatchFolder
from dagengine.judges import DecisionJudge, LexicalJudge
from dagengine.metrics import AnswerRelevancyMetric, DAGMetric, ExactMatchMetric, FaithfulnessMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode
from dagengine.record import load_run
from dagengine.record.label_file import Label, LabelFile, Retraction
from dagengine.record.reader import case_of, rows_at
from dagengine.record.run_json_types import Manifest
from dagengine.reliability.card.card_formats import read_card
from dagengine.test_case import ConversationalTestCase, LLMTestCase, Turn

ROOT = Path(__file__).resolve().parents[2]


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


def test_what_commands_leave_follows_the_schemas_that_are_printed(tmp_path: Path) -> None:
    """The example, its tree file, a label of it and its judge card."""
    here, example = tmp_path / "out", ROOT / "examples" / "meeting_summary"
    asked = [f"{example}/metrics.py", "--data", f"{example}/cases.jsonl", "--judge",
             f"{example}/judge.py:judge"]  # fmt: skip
    output_of("run", *asked, "--out", str(here), "--no-page", code=0)
    output_of("benchmark", *asked, "--times", "2", "--out", str(tmp_path))
    row = lines(here / "results.jsonl")[0]
    label = Label(id="a", who="b", when="c", case=row["hash"], index=0, name=row["case"],
                  metric="m", node="", definition=None, answer=None, outcome="pass")  # fmt: skip
    LabelFile(here / "labels.jsonl").add([label, Retraction(who="b", when="d", retracts="a")])
    whole = {
        "run": [json.loads((here / "run.json").read_text())],
        "card": [json.loads((tmp_path / "card.json").read_text())],
        "tree": [json.loads(output_of("show", str(here), "--tree"))],
        "rows": lines(here / "results.jsonl"),
        **{name: lines(here / f"{name}.jsonl") for name in ("cases", "times", "labels")},
    }
    for name, documents in whole.items():
        schema = json.loads(output_of("schema", name))
        Draft202012Validator.check_schema(schema)
        assert re.fullmatch(rf"urn:dagengine:{name}:\d", schema["$id"])
        assert documents
        for document in documents:
            Draft202012Validator(schema).validate(document)


def test_every_reader_refuses_a_greater_format_in_words(tmp_path: Path) -> None:
    evaluate(CASES[:1], [decided()], model=judge(), show=False, out=tmp_path / "run", page=False)
    row, case = (lines(tmp_path / "run" / f"{name}.jsonl")[0] for name in ("results", "cases"))
    files: dict[str, tuple[Any, Callable[[Path], object]]] = {
        "run.json": (json.loads((tmp_path / "run" / "run.json").read_text()), load_run),
        "results.jsonl": (row, lambda path: [*rows_at(path)]),
        "labels.jsonl": ({"id": "a"}, lambda path: LabelFile(path).labels()),
        "card.json": ({}, read_card),
        "improve.json": (
            {"sealed_part": {}},
            lambda path: PatchFolder(path.parent).looks("0"),
        ),
    }
    for name, (document, read) in files.items():
        path = tmp_path / name.partition(".")[0] / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps({**document, "format": 9}) + "\n")
        with pytest.raises(InputError, match="has the format 9, and this dagengine reads up to"):
            read(path.parent if name == "run.json" else path)
    with pytest.raises(InputError, match="has the format 9"):
        case_of({**case, "format": 9}, "cases.jsonl line 1")


@pytest.mark.parametrize("change", [{"hash": "x"}, {"more": 1}, {"index": -1}, {"metrics": None}])
def test_a_row_that_is_none_does_not_follow_it(change: dict[str, Any]) -> None:
    row = {"index": 0, "case": "a", "hash": None, "metrics": []}
    validator("Row").validate(row)
    with pytest.raises(ValidationError):
        validator("Row").validate(row | change)
