"""Hidden fields: in no file of the folder, also where a judge quotes them."""

from __future__ import annotations

import base64
import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest
from folders.recorded_runs import polite
from hypothesis import given
from hypothesis import strategies as st

from dagengine import evaluate
from dagengine.errors import InputError
from dagengine.judges import ScriptedJudge
from dagengine.record import load_run
from dagengine.record.hidden_fields import Hiding
from dagengine.results import CaseResult, Failure, MetricResult, OutcomeKind, Step
from dagengine.test_case import ConversationalTestCase, LLMTestCase, Turn

SECRET = "alice.miller@example.com"
STORY = "My order 4711 never came, and I live in Elm Street 7."
CASE = LLMTestCase(
    input=STORY,
    actual_output=f"Dear {SECRET}, we are sorry",
    name="Alice's complaint",
    tags=["de"],
    additional_metadata={"email": SECRET, "team": "north"},
)


def quoting(question: Any) -> Any:
    if question.name == "words":
        return f"{SECRET.upper()} wrote: the ORDER 4711\nnever  came, and so on"
    return {"verdict": False, "reason": f"it shows {SECRET} and “live in Elm Street”"}


def written(folder: Path) -> str:
    """All that a folder holds, the compressed parts of the page included."""
    binary = (".db", ".parquet")
    files = "\n".join(path.read_text() for path in folder.iterdir() if path.suffix not in binary)
    blocks = re.findall(r'<script type="text/plain" id="[^"]*">(.*?)</script>', files, re.DOTALL)
    assert len(blocks) >= 2  # the index and the texts
    opened = [gzip.decompress(base64.b64decode(block)).decode(errors="replace") for block in blocks]
    columns = load_run(folder).columns()
    assert columns is not None
    return "\n".join([files, *opened, *map(repr, columns.lines())]).casefold()


def test_a_hidden_field_is_in_no_file_whoever_quotes_it(tmp_path: Path) -> None:
    fields = ["additional_metadata.email", "input"]
    store = tmp_path / "answers.db"
    judge = ScriptedJudge(quoting, name="quoting")
    metrics = [polite()]
    evaluate([CASE], metrics, model=judge, show=False, out=tmp_path, redact=fields, store=store)
    text = written(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} >= {
        "run.json", "results.jsonl", "cases.jsonl", "summary.json", "report.html", "answers.db",
    }  # fmt: skip
    (row,) = load_run(tmp_path).rows()
    assert all(step.asked for step in row.metrics[0].steps)  # the store has what was asked
    for part in ("alice.miller", "4711 never", "order 4711", "live in elm", SECRET):
        assert part not in text
    run = load_run(tmp_path)
    assert run.manifest.redacted == tuple(fields)
    (case,) = run.cases()
    assert case["input"] == "[hidden by --redact input]"
    assert case["additional_metadata"]["email"] == "[hidden by --redact additional_metadata.email]"
    assert (case["additional_metadata"]["team"], case["tags"]) == ("north", ["de"])
    assert case["actual_output"].endswith(", we are sorry")
    (row,) = run.rows()
    assert row.hash == case["hash"] != CASE.content_hash()


def test_what_a_path_of_turns_names_is_hidden_in_every_turn() -> None:
    turns = [Turn(role="user", content="call me Bo"), Turn(role="assistant", content="hello Bo")]
    case = ConversationalTestCase(turns=turns, scenario="somebody says call me Bo")
    row, line = Hiding(("turns.content",)).hide(CaseResult(0, "case 0", (), case))
    mark = "[hidden by --redact turns.content]"
    assert [turn["content"] for turn in line["turns"]] == [mark, mark]
    assert line["scenario"] == f"somebody says {mark}"
    assert row.test_case.scenario == line["scenario"]


def test_a_name_that_is_hidden_is_hidden_in_the_row() -> None:
    row, _ = Hiding(("name",)).hide(CaseResult(0, str(CASE.name), (), CASE))
    assert row.case == "[hidden by --redact name]"


def test_hidden_tags_are_a_list_as_readers_of_a_run_want(tmp_path: Path) -> None:
    judge = ScriptedJudge(quoting)
    result = evaluate([CASE], [polite()], model=judge, show=False, out=tmp_path, redact=["tags"])
    assert len(result) == 1
    mark = "[hidden by --redact tags]"
    assert [case["tags"] for case in load_run(tmp_path).cases()] == [[mark]]
    assert list(json.loads((tmp_path / "summary.json").read_text())["tags"]) == [mark]


def test_of_a_row_that_was_no_test_case_the_message_is_hidden() -> None:
    failure = Failure(OutcomeKind.INVALID_CASE, "data set", f"line 7: {SECRET} is not a list")
    row = CaseResult(0, "line 7", (MetricResult("m", None, None, None, failure=failure),))
    shown, _ = Hiding(("input",)).hide(row)
    assert SECRET not in json.dumps(shown.as_dict())


words = st.text(st.characters(categories=["Ll", "Lu", "Nd", "Zs", "Po", "Lo"]), min_size=1)


@given(words, words, words)
def test_no_literal_copy_is_left_of_any_text(hidden: str, before: str, after: str) -> None:
    case = LLMTestCase(input=hidden, actual_output=before + hidden + after)
    step = Step("n", "task", OutcomeKind.OK, output=[{"a": f"{before} {hidden} {after}"}])
    result = MetricResult("m", 1.0, True, f"{before} {hidden}", steps=(step,))
    row, line = Hiding(("input",)).hide(CaseResult(0, "case", (result,), case))
    shown = row.as_dict()["metrics"][0]
    if len(hidden.strip()) >= 4:
        parts = [line["actual_output"], shown["reason"], shown["steps"][0]["output"][0]["a"]]
        for part in parts:
            left = part.replace("[hidden by --redact input]", "\0")
            assert hidden not in left


@pytest.mark.parametrize("field", ["email", "inptu", ""])
def test_a_field_that_no_case_has_is_refused(tmp_path: Path, field: str) -> None:
    with pytest.raises(InputError, match="unknown field"):
        evaluate([CASE], [polite()], show=False, out=tmp_path, redact=[field])
    assert list(tmp_path.iterdir()) == []
