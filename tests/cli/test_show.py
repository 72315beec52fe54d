"""`dagengine show`: the cases that one asks for, and nothing else."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from folders.recorded_runs import CASES, hesitant, judge, polite
from programs.commands import output_of
from typer.testing import CliRunner

from dagengine import evaluate
from dagengine.cli import app
from dagengine.data import read_cases
from dagengine.errors import InputError
from dagengine.gateway import Limits
from dagengine.system.terminal_text import plain
from dagengine.test_case import LLMTestCase

HOSTILE = "\x1b[2J\u202e [bold]x[/bold] \x07 rude"
MORE = LLMTestCase(input="Straße 7", actual_output=HOSTILE, name=HOSTILE)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    evaluate([*CASES, MORE], [polite()], model=judge(), show=False, out=folder)
    return folder


def shown(folder: Path, *options: str) -> str:
    return output_of("show", str(folder), *options)


def chosen(folder: Path, *options: str) -> list[int]:
    rows: list[Any] = json.loads(shown(folder, *options, "--format", "json"))
    return [row["index"] for row in rows]


@pytest.mark.parametrize(
    ("options", "indexes"),
    [
        (["--failed"], [1, 3]),
        (["--no-score"], [2]),
        (["--failed", "--no-score"], [1, 2, 3]),
        (["--metric", "Manners"], [0, 1, 2, 3]),
        (["--case", "kind one"], [0]),
        (["--case", "2"], [2]),
        (["--case", HOSTILE], [3]),
        (["--at", "Kind"], [0, 1, 2, 3]),
        (["--at", "Tone=warm"], [0]),
        (["--at", "Kind=True", "--at", "Tone=warm"], [0]),
        (["--at", "Kind=False"], [1, 3]),
        (["--at", "Kind=provider_error"], [2]),
        (["--at", "Kind=False", "--at", "Tone=warm"], []),
        (["--not-at", "Kind=False"], [0, 2]),
        (["--at", "Kind", "--not-at", "Tone=warm"], [1, 2, 3]),
        (["--text", "SMILES"], [0]),
        (["--text", "strasse"], [3]),
        (["--text", "DEAR"], [0]),
        (["--text", "actual_output"], []),
        (["--text", "\x07"], [3]),
        (["--worst", "2"], [1, 3]),
        (["--worst", "3"], [1, 3, 2]),
    ],
)
def test_options_choose_exactly_the_cases_that_fit_them(
    folder: Path, options: list[str], indexes: list[int]
) -> None:
    assert chosen(folder, *options) == indexes


@pytest.mark.parametrize("form", ["table", "json", "csv"])
def test_a_case_that_does_not_exist_is_an_error_with_names(folder: Path, form: str) -> None:
    words = r"has no case 'kind on' \(an index is 0 to 3\); did you mean 'kind one'\?"
    with pytest.raises(InputError, match=words):
        shown(folder, "--case", "kind on", "--format", form)
    with pytest.raises(InputError, match="names are such as kind one"):
        shown(folder, "--case", "99", "--format", form)
    assert chosen(folder, "--case", "0", "--failed") == []


def test_a_table_names_case_score_end_and_reason_and_obeys_no_text(folder: Path) -> None:
    text = shown(folder, "--failed")
    assert "2 of 4 cases" in text
    assert "Kind → False" in text
    assert plain(text) == text
    assert r"\x1b[2J" in text


def test_without_options_the_summary_is_shown(folder: Path) -> None:
    text = shown(folder)
    assert text.startswith("2 of 4 cases failed; 1 has no score")
    assert "6 questions" in text
    assert "no price known" in text


def test_one_case_is_shown_with_its_texts_and_all_steps(folder: Path) -> None:
    text = shown(folder, "--case", "kind one")
    assert "actual_output: dear you" in text
    assert "it smiles" in text
    assert plain(shown(folder, "--case", "3")) == shown(folder, "--case", "3")


def test_a_case_says_what_happened_on_the_way_to_its_answers(tmp_path: Path) -> None:
    evaluate(
        CASES[:1], [polite()], model=hesitant(), show=False, out=tmp_path,
        limits=Limits(backoff=0.0, max_backoff=0.0),
    )  # fmt: skip
    text = shown(tmp_path, "--case", "kind one")
    assert "3 calls: 1 retry, 1 re-ask" in text
    assert "provider_error: overloaded by dear you" in text
    assert "unparseable: kind of is not true or false" in text


def test_csv_has_a_line_per_case_and_metric(folder: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(shown(folder, "--failed", "--format", "csv"))))
    assert [(row["index"], row["score"], row["node"], row["answer"]) for row in rows] == [
        ("1", "0.0", "Kind", "False"),
        ("3", "0.0", "Kind", "False"),
    ]


def test_csv_has_the_texts_where_they_are_asked_for(folder: Path, tmp_path: Path) -> None:
    options = ("--worst", "2", "--texts", "--format")
    lines = list(csv.DictReader(io.StringIO(shown(folder, *options, "csv"))))
    kept = [case.model_dump(mode="json", exclude_none=True) for case in (CASES[1], MORE)]
    assert [
        {name: line[name] for name in case} for line, case in zip(lines, kept, strict=True)
    ] == [
        {
            name: v if isinstance(v, str) else json.dumps(v, ensure_ascii=False)
            for name, v in case.items()
        }
        for case in kept
    ]
    assert [line["index"] for line in lines] == ["1", "3"]
    assert "input" not in shown(folder, "--format", "csv").splitlines()[0].split(",")
    with pytest.raises(InputError, match="--texts is for --format csv"):
        shown(folder, "--texts")
    evaluate(CASES[:1], [polite()], model=judge(), show=False, out=tmp_path, texts=False)
    with pytest.raises(InputError, match="the run kept no texts"):
        shown(tmp_path, "--texts", "--format", "csv")


def test_times_are_shown_where_they_are_asked_for(folder: Path) -> None:
    assert "time" in shown(folder, "--failed", "--times")
    assert "time" not in shown(folder, "--failed")
    assert re.search(r"Tone \(judgement, \d+ ms\)", shown(folder, "--case", "kind one", "--times"))
    (row,) = json.loads(shown(folder, "--case", "kind one", "--format", "json"))
    assert set(row["times"]["steps"]["Manners"]) == {"Kind", "words", "Tone"}
    (line,) = csv.DictReader(io.StringIO(shown(folder, "--case", "kind one", "--format", "csv")))
    assert float(line["seconds"]) >= 0


def test_chosen_cases_become_a_data_set_that_is_read_again(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "deep" / "failed.jsonl"
    assert "2 cases" in shown(folder, "--failed", "--as-cases", str(path))
    assert list(read_cases(path)) == [CASES[1], MORE]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--metric", "Maners"], "did you mean 'Manners'"),
        (["--at", "Tone of voice"], "no node 'Tone of voice'"),
        (["--at", "Tne=warm"], "did you mean 'Tone'"),
        (["--at", "Tone=warmer"], "'Tone' has no answer 'warmer'; did you mean 'warm'"),
        (["--at", "Kind=perhaps"], "its answers are True, False"),
    ],
)
def test_a_name_that_the_run_does_not_have_is_an_error(
    folder: Path, options: list[str], words: str
) -> None:
    done = CliRunner().invoke(app, ["show", str(folder), *options])
    assert done.exit_code != 0
    assert words in str(done.exception)


def test_an_unfinished_run_is_shown_and_says_so(tmp_path: Path) -> None:
    evaluate(CASES, [polite()], model=judge(), show=False, out=tmp_path)
    manifest = json.loads((tmp_path / "run.json").read_text())
    killed = manifest | {"ended": None, "exit": None, "totals": None, "counts": None}
    (tmp_path / "run.json").write_text(json.dumps(killed))
    text = shown(tmp_path, "--failed")
    assert text.startswith("not finished: the run is in progress, or was killed\n1 case")


def test_a_run_that_was_refused_says_why_and_has_nothing_to_compare(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"Limits\(prices=\{'\*': .*--price IN,OUT"):
        evaluate(
            CASES, [polite()], model=judge(), show=False, out=tmp_path / "refused",
            limits=Limits(budget=1.0),
        )  # fmt: skip
    evaluate(CASES, [polite()], model=judge(), show=False, out=tmp_path / "run")
    assert shown(tmp_path / "refused").startswith("not finished: error: a budget of $1 needs")
    for folders in (("refused", "run"), ("run", "refused")):
        done = CliRunner().invoke(app, ["diff", *(str(tmp_path / name) for name in folders)])
        assert "refused has no rows to compare (it ended with: a budget of" in str(done.exception)


def test_a_run_without_texts_has_no_cases_to_write(tmp_path: Path) -> None:
    evaluate(CASES, [polite()], model=judge(), show=False, out=tmp_path / "run", texts=False)
    command = ["show", str(tmp_path / "run"), "--as-cases", str(tmp_path / "cases.jsonl")]
    done = CliRunner().invoke(app, command)
    assert "the run kept no texts" in str(done.exception)
    assert not (tmp_path / "cases.jsonl").exists()


def test_what_a_check_finds_is_printed_for_machines(tmp_path: Path) -> None:
    metrics, data = tmp_path / "metrics.py", tmp_path / "cases.jsonl"
    metrics.write_text(
        "from dagengine.metrics import DAGMetric\n"
        "from dagengine.metrics.dag import DAG, BinaryJudgementNode\n"
        "kind = BinaryJudgementNode('Kind?', evaluation_params=['expected_output'],\n"
        "    then={True: 10, False: 0}, name='kind')\n"
        "metric = DAGMetric('Kind', DAG(kind))\n"
    )
    data.write_text('{"input": "a", "actual_output": "b"}\n')
    command = ["check", str(metrics), "--data", str(data), "--format"]
    done = CliRunner().invoke(app, [*command, "json"])
    assert done.exit_code == 0
    found, order = json.loads(done.output)
    assert (order["severity"], order["code"]) == ("note", "reading-order")
    assert (found["severity"], found["code"]) == ("warning", "missing-field")
    assert found["message"] == "1 of 1 cases have no `expected_output` (first: case 0)"
    lines = csv.DictReader(io.StringIO(CliRunner().invoke(app, [*command, "csv"]).output))
    assert list(lines) == [found, order]


_ARGUMENTS = {
    "improve": ["--labels", "l.csv", "--data", "d.csv"],
    **{name: ["--data", "d.csv"] for name in ("run", "benchmark", "attack")},
}


def test_a_command_that_is_interrupted_says_so(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("dagengine.record.reader.load_run", interrupted)
    done = CliRunner().invoke(app, ["show", str(folder)])
    assert (done.exit_code, done.stderr) == (130, "interrupted\n")


@pytest.mark.parametrize("name", ["run", "benchmark", "attack", "improve", "synthesize"])
def test_a_command_with_a_store_says_at_any_moment_that_it_can_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("dagengine.cli.common.commands_and_help.guard", interrupted)
    store, done = tmp_path / "s.db", list[str]()
    for _ in range(2):
        ended = CliRunner().invoke(
            app, [name, "a.py", "--store", str(store), *_ARGUMENTS.get(name, [])]
        )
        done.append(ended.stderr)
        store.touch()
    left = f"run the same command to continue: the answers so far are in {store}"
    assert done == ["interrupted\n", f"interrupted; {left}\n"]
