"""Verdicts of any judge: result files of other tools become cards without metrics of ours."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("scipy")

from dagengine import evaluate
from dagengine.errors import InputError
from dagengine.metrics import ExactMatchMetric
from dagengine.reliability.card import make_card
from dagengine.reliability.counterfactual import Counterfactual
from dagengine.reliability.human_labels import HumanLabels
from dagengine.reliability.observed_runs import runs_of as runs_of_metric
from dagengine.reliability.verdict_cases import Collected, read_verdicts
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
    made = read_verdicts(written(tmp_path / "results.json", PROMPTFOO))
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
    assert runs_of(read_verdicts(path, metric="polite")) == [
        (0, 0, True),
        (0, 1, None),
        (1, 0, True),
    ]
    with pytest.raises(InputError, match="the others: 'contains', 'promptfoo'"):
        read_verdicts(path)


def test_a_run_of_ours_is_read_by_its_folder_or_the_file_of_its_rows(tmp_path: Path) -> None:
    # Two cases have the same name, and one has no score.
    cases = [
        LLMTestCase(input=text, actual_output=text, expected_output="a", name=name)
        for text, name in (("a", "first"), ("b", "twin"), ("a", "twin"))
    ]
    cases.append(LLMTestCase(input="c", name="lost"))
    for folder in ("monday", "tuesday"):
        evaluate(cases, [ExactMatchMetric()], out=tmp_path / folder, page=False, show=False)
    (tmp_path / "monday" / "labels.csv").write_text("case,label\nfirst,1\ncase 1,0\ncase 2,0\n")
    seen = [(0, 0, True), (1, 0, False), (2, 0, True), (3, 0, None)]
    for place in ("monday", "monday/results.jsonl"):
        made = read_verdicts(tmp_path / place)
        assert sorted(runs_of(made)) == seen
        assert [case.name for case in made.cases] == ["first", "case 1", "case 2", "lost"]
        texts = [getattr(case, "actual_output", None) for case in made.cases]
        assert texts == ["a", "b", "a", None]
    labels = HumanLabels(made.cases, tmp_path / "monday" / "labels.csv").by_case
    named = written(tmp_path / "monday" / "named.csv", "name,label\n0,1\n1,0\n2,0\n")
    assert labels == HumanLabels(made.cases, named).by_case == {0: ("1",), 1: ("0",), 2: ("0",)}
    twice = [*seen, *((case, 1, verdict) for case, _, verdict in seen)]
    assert sorted(runs_of(read_verdicts(tmp_path))) == sorted(twice)
    with pytest.raises(InputError, match="read from runs, from results of"):
        read_verdicts(tmp_path / "monday" / "cases.jsonl")


def test_files_of_a_folder_are_runs(tmp_path: Path) -> None:
    for run in range(2):
        written(tmp_path / f"test_run_{run}.json", DEEPEVAL)
    assert runs_of(read_verdicts(tmp_path, metric="Correct")) == [(0, 0, True), (0, 1, True)]


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
    made = read_verdicts(path, metric="grader")
    assert [case.name for case in made.cases] == ["2", "0", "1"]
    assert runs_of(made) == [(0, 0, 1.0), (1, 0, 0.5), (2, 0, 0.0), (0, 1, None)]
    assert runs_of(read_verdicts(path, metric="both/polite"))[0] == (0, 0, True)


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
    made = read_verdicts(path)
    assert runs_of(made) == [(0, 0, True), (1, 0, False)]
    assert made.labels == {0: ["no"], 1: ["no"]}


def test_a_metric_of_deepeval_is_chosen(tmp_path: Path) -> None:
    path = written(tmp_path / "run.json", DEEPEVAL)
    assert runs_of(read_verdicts(path, metric="Polite")) == [(0, 0, False)]
    with pytest.raises(InputError, match="--metric 'Correct'"):
        read_verdicts(path)
    with pytest.raises(InputError, match="no metric 'Kind'"):
        read_verdicts(path, metric="Kind")


def test_epochs_of_inspect_are_runs_in_both_of_its_formats(tmp_path: Path) -> None:
    log = written(tmp_path / "log.json", INSPECT)
    with zipfile.ZipFile(tmp_path / "log.eval", "w") as archive:
        for sample in INSPECT["samples"]:
            archive.writestr(f"samples/1_epoch_{sample['epoch']}.json", json.dumps(sample))
    for path in (log, tmp_path / "log.eval"):
        assert runs_of(read_verdicts(path)) == [(0, 0, True), (0, 1, False)]


def test_scores_of_mlflow_need_their_range(tmp_path: Path) -> None:
    path = written(tmp_path / "table.json", MLFLOW)
    made = read_verdicts(path, scale=(1, 5), threshold=3)
    assert runs_of(made) == [(0, 0, 0.75), (1, 0, 0.25)]
    with pytest.raises(InputError, match="--scale"):
        read_verdicts(path)


def test_a_table_becomes_a_card_with_its_own_labels(tmp_path: Path) -> None:
    lines = ["case,verdict,label"]
    lines += [f"{case},{'pass' if case % 2 else 'fail'},{'pass' if case % 2 else 'fail'}"
              for case in range(40) for _ in range(2)]  # fmt: skip
    made = read_verdicts(written(tmp_path / "v.csv", "\n".join(lines)))
    card = make_card(made.observations, [made.metric], made.cases, ["x"], labels=made.labels)
    accuracy = card.metrics[0].figure("accuracy")
    assert accuracy is not None
    assert accuracy.value == 1


def test_what_has_another_shape_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no column `case`"):
        read_verdicts(written(tmp_path / "v.csv", "x,y\n1,2\n"))
    with pytest.raises(InputError, match="line 3: `case` is empty"):
        read_verdicts(written(tmp_path / "v.csv", "case,verdict\na,1\n,1\n"))
    with pytest.raises(InputError, match="not a log of inspect"):
        read_verdicts(written(tmp_path / "x.eval", "no archive"))


def test_equal_metrics_of_one_test_are_several_metrics_and_no_runs(tmp_path: Path) -> None:
    graded = [{"pass": good, "assertion": {"type": "llm-rubric", "value": str(good)}}
              for good in (True, False, True)]  # fmt: skip
    result = {"success": False, "testIdx": 0, "vars": {"q": "a"}, "provider": "echo",
              "gradingResult": {"componentResults": graded}}  # fmt: skip
    path = written(tmp_path / "r.json", {"results": {"results": [result]}})
    for metric, good in (("llm-rubric", True), ("llm-rubric 2", False), ("llm-rubric 3", True)):
        assert runs_of(read_verdicts(path, metric=metric)) == [(0, 0, good)]
    twice = [{"name": "Kind", "success": good} for good in (True, False)]
    case = {"name": "a", "input": "q", "metricsData": twice}
    path = written(tmp_path / "d.json", {"testRunData": {"testCases": [case]}})
    assert runs_of(read_verdicts(path, metric="Kind 2")) == [(0, 0, False)]


def test_cases_of_one_name_with_other_texts_are_other_cases(tmp_path: Path) -> None:
    cases = [{"name": "test_it", "input": f"q{n % 2}", "actualOutput": f"a{n % 4}",
              "metricsData": [{"name": "Kind", "success": n < 4}]} for n in range(8)]  # fmt: skip
    made = read_verdicts(written(tmp_path / "d.json", {"testRunData": {"testCases": cases}}))
    # Four texts, each judged twice; two were asked the same, and are of one group.
    assert sorted(runs_of(made)) == [
        (n, run, good) for n in range(4) for run, good in ((0, True), (1, False))
    ]
    assert made.groups == "input"
    assert [getattr(case, "input", None) for case in made.cases] == ["q0", "q1", "q0", "q1"]


def test_tasks_of_inspect_are_apart_and_models_are_settings(tmp_path: Path) -> None:
    for task, model in (("add", "m1"), ("add", "m2"), ("sum", "m1")):
        samples = [
            {"id": n, "epoch": 1, "output": {"completion": f"{model} {n}"},
             "scores": {"grader": {"value": "C" if n == 1 else "I"}}} for n in (1, 2)
        ]  # fmt: skip
        log = {"eval": {"task": task, "model": model}, "samples": samples}
        written(tmp_path / f"{task}-{model}.json", log)
    made = read_verdicts(tmp_path)
    assert [case.name for case in made.cases] == ["add/1", "add/2", "sum/1", "sum/2"]
    assert {at.judge for at in made.observations.conditions} == {"m1", "m2"}
    judged = {(row.case, row.condition.judge) for row in made.observations}
    assert judged == {(0, "m1"), (1, "m1"), (0, "m2"), (1, "m2"), (2, "m1"), (3, "m1")}


def test_known_columns_of_a_table_are_read(tmp_path: Path) -> None:
    lines = [f"{case},{run},{node},0.5,{int(run == case)}"
             for case in (0, 1) for run in (0, 1) for node in ("tone", "step")]  # fmt: skip
    path = written(tmp_path / "v.csv", "\n".join(["case,run,node,temperature,passed", *lines]))
    with pytest.raises(InputError, match="verdicts of 2 metrics or nodes; choose one: --metric"):
        read_verdicts(path)
    made = read_verdicts(path, metric="tone")
    assert runs_of(made) == [(0, 0, True), (0, 1, False), (1, 0, False), (1, 1, True)]
    assert {at.temperature for at in made.observations.conditions} == {0.5}
    passed = written(tmp_path / "p.csv", "Case,Passed,score\na,no,0.9\nb,yes,0.1\n")
    assert runs_of(read_verdicts(passed)) == [(0, 0, False), (1, 0, True)]
    made = read_verdicts(written(tmp_path / "f.csv", "case,verdict\n3.0,1\n"))
    assert [case.name for case in made.cases] == ["3"]


@pytest.mark.parametrize(
    ("words", "verdicts"),
    [("ABC", ("A", "B", "C")), (("yes", "maybe", "no"), ("True", "maybe", "False"))],
)
def test_verdicts_of_a_table_may_be_letters_or_yes_no_and_more(
    tmp_path: Path, words: Sequence[str], verdicts: tuple[str, ...]
) -> None:
    lines = [f"{case},{run},{words[(case + run) % 3]}" for case in range(6) for run in range(2)]
    made = read_verdicts(written(tmp_path / "v.csv", "\n".join(["case,run,verdict", *lines])))
    runs = runs_of_metric(made.observations, Counterfactual(made.metric))
    assert [run.path[0][1] for run in runs.of(0)] == [verdicts[0], verdicts[1]]
    card = make_card(made.observations, [made.metric], made.cases, ["judge"])
    assert card.metrics[0].settings[0].nodes


def test_several_people_label_one_verdict_in_a_table(tmp_path: Path) -> None:
    rows = [f"{case},pass,{label}" for case in "ab" for label in ("pass", "pass", "fail")]
    for head, texts in (("case,verdict,label", ""), ("case,verdict,label,output", ",text")):
        path = written(tmp_path / "v.csv", "\n".join([head, *(row + texts for row in rows)]))
        made = read_verdicts(path)
        assert runs_of(made) == [(0, 0, True), (1, 0, True)]
        assert made.labels == {0: ["pass", "pass", "fail"], 1: ["pass", "pass", "fail"]}
        card = make_card(made.observations, [made.metric], made.cases, ["x"], labels=made.labels)
        accuracy = card.metrics[0].figure("accuracy")
        assert accuracy is not None
        assert accuracy.value == 1


def test_repeats_are_proved_by_a_number_or_by_all_texts(tmp_path: Path) -> None:
    path = written(tmp_path / "v.csv", "case,verdict\na,pass\na,fail\n")
    with pytest.raises(InputError, match=r"line 3: a second verdict on the case 'a'.*column `run`"):
        read_verdicts(path)
    numbered = written(tmp_path / "n.csv", "case,run,verdict\na,0,pass\na,1,fail\n")
    assert runs_of(read_verdicts(numbered)) == [(0, 0, True), (0, 1, False)]
    texts = "case,input,output,verdict\na,q,x,pass\na,q,x,fail\na,q,y,fail\n"
    made = read_verdicts(written(tmp_path / "t.csv", texts))
    assert runs_of(made) == [(0, 0, True), (0, 1, False), (1, 0, False)]
    with pytest.raises(InputError, match="line 3: `run` is empty"):
        read_verdicts(written(tmp_path / "e.csv", "case,run,verdict\na,0,pass\na,,fail\n"))
    # Files of a folder are runs; what was judged is equal where there is anything of it.
    (tmp_path / "folder").mkdir()
    for number in (0, 1):
        written(tmp_path / "folder" / f"{number}.csv", "case,verdict\na,pass\n")
    assert runs_of(read_verdicts(tmp_path / "folder")) == [(0, 0, True), (0, 1, True)]


def test_equal_texts_under_other_names_count_once(tmp_path: Path) -> None:
    rows = [f"{name}{n},q{n},a{n},{'pass' if n % 3 else 'fail'}" for n in range(20)
            for name in ("x", "y", "z")]  # fmt: skip
    path = written(tmp_path / "v.csv", "\n".join(["case,input,output,verdict", *rows]))
    made = read_verdicts(path)
    assert len(made.cases) == 60
    card = make_card(made.observations, [made.metric], made.cases, ["x"], groups=made.groups)
    rate = card.metrics[0].figure("pass-rate")
    assert rate is not None
    assert rate.items == 20
