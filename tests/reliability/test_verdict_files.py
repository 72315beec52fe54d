"""Verdicts of any judge: result files of other tools become cards without metrics of ours."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("scipy")

from dagengine import evaluate
from dagengine.errors import InputError
from dagengine.metrics import ExactMatchMetric
from dagengine.reliability.card import make_card
from dagengine.reliability.labels import labels_of
from dagengine.reliability.verdict_files import Collected, collected
from dagengine.test_case import LLMTestCase


def written(path: Path, data: Any) -> Path:
    path.write_text(data if isinstance(data, str) else json.dumps(data))
    return path


def runs_of(made: Collected) -> list[tuple[int, int, object]]:
    return [
        (row.case, row.condition.sample, row.path[0][1] if row.path else row.score)
        for row in made.observations
    ]


PROMPTFOO = {
    "results": {
        "results": [
            {"success": good, "testIdx": test, "promptIdx": 0, "provider": {"id": "openai:x"},
             "response": {"output": "text"}}
            for test, good in ((0, True), (0, True), (1, False))
        ]
    }
}  # fmt: skip
DEEPEVAL = {
    "testRunData": {
        "testCases": [
            {"name": "a", "actualOutput": "t", "metricsData": [
                {"name": "Correct", "success": True, "evaluationModel": "gpt"},
                {"name": "Polite", "success": False, "evaluationModel": "gpt"}]},
        ]
    }
}  # fmt: skip
INSPECT = {
    "samples": [
        {"id": 1, "epoch": epoch, "output": {"completion": "t"},
         "scores": {"grader": {"value": value}}}
        for epoch, value in ((1, "C"), (2, "I"))
    ]
}  # fmt: skip
MLFLOW = {"columns": ["inputs", "outputs", "good/v1/score"], "data": [["q", "a", 4], ["r", "b", 2]]}


def test_results_of_promptfoo_repeat_a_test(tmp_path: Path) -> None:
    made = collected(written(tmp_path / "results.json", PROMPTFOO))
    assert runs_of(made) == [(0, 0, True), (0, 1, True), (1, 0, False)]


def test_repeats_of_promptfoo_are_runs_and_failed_judges_give_no_verdict(tmp_path: Path) -> None:
    # As `promptfoo eval --repeat 2` writes it: repeats are further tests with the same variables,
    # and the result of an assertion whose judge failed does not name the assertion.
    asserted = [{"type": "llm-rubric", "metric": "polite"}, {"type": "contains"}]

    def result(test: int, word: str, polite: dict[str, Any]) -> dict[str, Any]:
        parts = [polite, {"pass": True, "assertion": asserted[1]}]
        return {
            "success": polite["pass"], "testIdx": test, "promptIdx": 0, "provider": {"id": "echo"},
            "vars": {"word": word}, "testCase": {"assert": asserted},
            "gradingResult": {"pass": polite["pass"], "componentResults": parts},
        }  # fmt: skip

    yes, failed = {"pass": True, "assertion": asserted[0]}, {"pass": False, "reason": "no JSON"}
    results = [result(0, "a", yes), result(1, "a", failed), result(2, "b", yes)]
    path = written(tmp_path / "results.json", {"results": {"results": results}})
    assert runs_of(collected(path, metric="polite")) == [(0, 0, True), (0, 1, None), (1, 0, True)]
    with pytest.raises(InputError, match="the others: 'contains', 'promptfoo'"):
        collected(path)


def test_a_run_of_ours_is_read_by_its_folder_or_the_file_of_its_rows(tmp_path: Path) -> None:
    # Two cases have the same name, and one has no score.
    cases = [
        LLMTestCase(input=text, actual_output=text, expected_output="a", name=name)
        for text, name in (("a", "first"), ("b", "twin"), ("a", "twin"))
    ]
    cases.append(LLMTestCase(input="c", name="lost"))
    for folder in ("monday", "tuesday"):
        evaluate(cases, [ExactMatchMetric()], out=tmp_path / folder, page=False, show=False)
    (tmp_path / "monday" / "labels.csv").write_text("case,label\nfirst,1\n1,0\n2,0\n")
    seen = [(0, 0, True), (1, 0, False), (2, 0, True), (3, 0, None)]
    for place in ("monday", "monday/results.jsonl"):
        made = collected(tmp_path / place)
        assert sorted(runs_of(made)) == seen
        assert [case.name for case in made.cases] == ["first", "case 1", "case 2", "lost"]
        texts = [getattr(case, "actual_output", None) for case in made.cases]
        assert texts == ["a", "b", "a", None]
    labels = labels_of(made.cases, tmp_path / "monday" / "labels.csv")
    named = written(tmp_path / "monday" / "named.csv", "name,label\nfirst,1\n1,0\n2,0\n")
    assert labels == labels_of(made.cases, named) == {0: ("1",), 1: ("0",), 2: ("0",)}
    twice = [*seen, *((case, 1, verdict) for case, _, verdict in seen)]
    assert sorted(runs_of(collected(tmp_path))) == sorted(twice)
    with pytest.raises(InputError, match="read from runs, from results of"):
        collected(tmp_path / "monday" / "cases.jsonl")


def test_files_of_a_folder_are_runs(tmp_path: Path) -> None:
    for run in range(2):
        written(tmp_path / f"test_run_{run}.json", DEEPEVAL)
    assert runs_of(collected(tmp_path, metric="Correct")) == [(0, 0, True), (0, 1, True)]


def test_ids_of_inspect_are_names_and_letters_with_partial_credit_are_scores(
    tmp_path: Path,
) -> None:
    samples = [
        {"id": number, "epoch": 1, "scores": {"grader": {"value": value}, "both": {"value": {
            "polite": "C", "length": 2}}}}
        for number, value in ((2, "C"), (0, "P"), (1, "N"))
    ]  # fmt: skip
    broken = {"id": 2, "epoch": 2, "scores": {}, "error": {"message": "timeout"}}
    path = written(tmp_path / "log.json", {"samples": [broken, *samples]})
    made = collected(path, metric="grader")
    assert [case.name for case in made.cases] == ["2", "0", "1"]
    assert runs_of(made) == [(0, 0, 1.0), (1, 0, 0.5), (2, 0, 0.0), (0, 1, None)]
    assert runs_of(collected(path, metric="both/polite"))[0] == (0, 0, True)


def test_assessments_of_people_are_labels_in_mlflow(tmp_path: Path) -> None:
    def row(request: str, judge: str, person: str) -> dict[str, Any]:
        return {"request": {"q": request}, "response": "a", "trace_id": request, "assessments": [
            {"assessment_name": "good", "source": {"source_type": "LLM_JUDGE", "source_id": "j"},
             "feedback": {"value": judge}},
            {"assessment_name": "good", "source": {"source_type": "HUMAN"},
             "feedback": {"value": person}},
            {"assessment_name": "answer", "expectation": {"value": "e"}},
        ]}  # fmt: skip

    path = written(tmp_path / "results.json", [row("x", "yes", "no"), row("y", "no", "no")])
    made = collected(path)
    assert runs_of(made) == [(0, 0, True), (1, 0, False)]
    assert made.labels == {0: "no", 1: "no"}


def test_a_metric_of_deepeval_is_chosen(tmp_path: Path) -> None:
    path = written(tmp_path / "run.json", DEEPEVAL)
    assert runs_of(collected(path, metric="Polite")) == [(0, 0, False)]
    with pytest.raises(InputError, match="--metric 'Correct'"):
        collected(path)
    with pytest.raises(InputError, match="no metric 'Kind'"):
        collected(path, metric="Kind")


def test_epochs_of_inspect_are_runs_in_both_of_its_formats(tmp_path: Path) -> None:
    log = written(tmp_path / "log.json", INSPECT)
    with zipfile.ZipFile(tmp_path / "log.eval", "w") as archive:
        for sample in INSPECT["samples"]:
            archive.writestr(f"samples/1_epoch_{sample['epoch']}.json", json.dumps(sample))
    for path in (log, tmp_path / "log.eval"):
        assert runs_of(collected(path)) == [(0, 0, True), (0, 1, False)]


def test_scores_of_mlflow_need_their_range(tmp_path: Path) -> None:
    path = written(tmp_path / "table.json", MLFLOW)
    made = collected(path, scale=(1, 5), threshold=3)
    assert runs_of(made) == [(0, 0, 0.75), (1, 0, 0.25)]
    with pytest.raises(InputError, match="--scale"):
        collected(path)


def test_a_table_becomes_a_card_with_its_own_labels(tmp_path: Path) -> None:
    lines = ["case,verdict,label"]
    lines += [f"{case},{'pass' if case % 2 else 'fail'},{'pass' if case % 2 else 'fail'}"
              for case in range(40) for _ in range(2)]  # fmt: skip
    made = collected(written(tmp_path / "v.csv", "\n".join(lines)))
    card = make_card(made.observations, [made.metric], made.cases, ["x"], labels=made.labels)
    accuracy = card.metrics[0].figure("accuracy")
    assert accuracy is not None
    assert accuracy.value == 1


def test_what_has_another_shape_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no column `case`"):
        collected(written(tmp_path / "v.csv", "x,y\n1,2\n"))
    with pytest.raises(InputError, match="not a log of inspect"):
        collected(written(tmp_path / "x.eval", "no archive"))
