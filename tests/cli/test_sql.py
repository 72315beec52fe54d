"""`dagengine sql`: the same figures as the rows read in Python, and nothing but the runs."""

from __future__ import annotations

import csv
import io
import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from dagengine import evaluate
from dagengine.cli import app
from dagengine.data.result_files import RowWriter
from dagengine.errors import InputError
from dagengine.judges import ScriptedJudge
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode, NonBinaryJudgementNode
from dagengine.question import Question
from dagengine.record.parquet_columns import COLUMNS
from dagengine.record.reader import load_run
from dagengine.results import CaseResult
from dagengine.results.evaluation_result import flat
from dagengine.test_case import LLMTestCase

HOSTILE = "\x1b[2J\u202e '; DROP TABLE runs; --"
CASES = [
    LLMTestCase(name="one", input="a", actual_output="true"),
    LLMTestCase(name=HOSTILE, input="b", actual_output="é"),
    LLMTestCase(name="lone \ud800 surrogate", input="c", actual_output="x\ud83d"),
    LLMTestCase(name="without output", input="d"),
    LLMTestCase(name="wordy", input="e", actual_output="words"),
]


def answer(question: Question[Any]) -> Any:
    if question.name == "Kind":
        return "é" not in question.messages[-1]["content"]
    return "true"  # a verdict that is a text, not a truth value


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    pytest.importorskip("duckdb")
    base = tmp_path_factory.mktemp("it's")
    reads = ["actual_output"]
    form = NonBinaryJudgementNode("Form?", then={"true": 10, "false": 0}, name="Form")
    kind = BinaryJudgementNode(
        "Kind?", evaluation_params=reads, then={True: form, False: 2}, name="Kind"
    )
    metric = DAGMetric("Manners", DAG(kind))
    judge = ScriptedJudge(answer, name="stand-in")
    evaluate(CASES, [metric], model=judge, out=base / "lines", show=False)
    evaluate(CASES[:1], [metric], model=judge, out=base / "plain", texts=False, show=False)
    _in_parquet(base / "lines", base / "parquet")
    return [base / "lines", base / "parquet", base / "plain"]


def _in_parquet(folder: Path, other: Path) -> None:
    """The same run with its rows in another format."""
    shutil.copytree(folder, other)
    rows = rows_of(other)
    (other / "results.jsonl").unlink()
    manifest = json.loads((other / "run.json").read_text("utf-8"))
    changed = json.dumps({**manifest, "results": "rows.parquet"})
    (other / "run.json").write_text(changed, "utf-8")
    with RowWriter(other / "rows.parquet") as writer:
        for row in rows:
            writer.add(row)


def asked(query: str, *folders: Path, form: str = "json") -> str:
    command = ["sql", query, *map(str, folders), "--format", form]
    done = CliRunner().invoke(app, command, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def lines(query: str, *folders: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(asked(query, *folders))
    return rows


def rows_of(folder: Path) -> list[CaseResult]:
    return list(load_run(folder).rows())


def test_runs_has_the_line_of_every_result_as_python_reads_it(folders: list[Path]) -> None:
    for folder in folders:
        seen = lines("SELECT * FROM runs ORDER BY index", folder)
        expected = [flat(row, result) for row in rows_of(folder) for result in row.metrics]
        for name in ("index", "metric", "score", "success", "outcome", "threshold"):
            assert [line[name] for line in seen] == [row[name] for row in expected]
        tokens = [line["input_tokens"] for line in seen]
        assert tokens == [row["input_tokens"] for row in expected]
        assert {line["run"] for line in seen} == {str(folder)}


def test_columns_and_lines_give_the_same_lines(folders: list[Path], tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    plain = folders[2]
    assert (plain / COLUMNS).exists()
    # Names with a quote, and names that are patterns of names.
    for name in ("a[12]", "b*", "a1"):
        shutil.copytree(plain, tmp_path / name)
    (tmp_path / "a1" / COLUMNS).unlink()
    names = [tmp_path / name for name in ("a[12]", "b*", "a1")]
    for table in ("runs", "steps"):
        columns, pattern, bare = (lines(f"SELECT * EXCLUDE run FROM {table}", at) for at in names)
        assert columns == pattern == bare
        assert columns
    counts = lines("SELECT run, count(*) AS n FROM runs GROUP BY 1 ORDER BY 1", *names)
    assert counts == [{"run": str(name), "n": 1} for name in sorted(names)]


def test_paths_are_written_as_everywhere_else(folders: list[Path]) -> None:
    paths = lines("SELECT path FROM runs ORDER BY index", folders[0])
    results = [result for row in rows_of(folders[0]) for result in row.metrics]
    assert [line["path"] for line in paths] == [
        ", ".join(f"{node} → {verdict}" for node, verdict in result.path) for result in results
    ]
    assert paths[0]["path"] == "Kind → True, Form → true"


def test_steps_has_every_node_that_ran_in_every_run(folders: list[Path]) -> None:
    counts = lines("SELECT node, verdict, count(*) AS n FROM steps GROUP BY ALL", *folders)
    expected = Counter(
        (step.node, None if step.verdict is None else str(step.verdict))
        for folder in folders
        for row in rows_of(folder)
        for result in row.metrics
        for step in result.steps
    )
    assert {(line["node"], line["verdict"]): line["n"] for line in counts} == expected


def test_cases_has_the_texts_and_no_line_for_runs_without_texts(folders: list[Path]) -> None:
    seen = lines('SELECT "case", input, fields FROM cases ORDER BY run, index', *folders)
    assert [line["input"] for line in seen] == ["a", "b", "c", "d", "e"] * 2
    assert seen[1]["case"] == HOSTILE
    assert lines("SELECT count(*) AS n FROM cases", folders[2]) == [{"n": 0}]


def test_a_run_that_was_killed_has_its_whole_lines(folders: list[Path], tmp_path: Path) -> None:
    manifest = json.loads((folders[0] / "run.json").read_text("utf-8"))
    (tmp_path / "run.json").write_text(json.dumps({**manifest, "ended": None}), "utf-8")
    whole = (folders[0] / "results.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "results.jsonl").write_bytes(b"".join(whole[:2]) + whole[2][:40])
    assert lines("SELECT count(*) AS n FROM runs", tmp_path) == [{"n": 2}]


def test_csv_and_tables_show_what_a_terminal_can_show(folders: list[Path]) -> None:
    query = 'SELECT "case", score FROM runs ORDER BY index'
    table = asked(query, folders[0], form="table")
    assert "\x1b[2J" not in table
    assert "without output" in table
    head, *rest = list(csv.reader(io.StringIO(asked(query, folders[0], form="csv"))))
    assert head == ["case", "score"]
    assert len(rest) == len(CASES)


def test_values_that_json_has_no_form_for_are_texts(folders: list[Path]) -> None:
    query = "SELECT DATE '2026-01-02' AS day, 0.5 AS half, [1.5] AS some, 'nan'::DOUBLE AS nothing"
    assert lines(query, folders[0]) == [
        {"day": "2026-01-02", "half": 0.5, "some": [1.5], "nothing": "nan"}
    ]


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("DROP VIEW runs", "a query is one SELECT, and this is DROP"),
        ("SELECT 1; SELECT 2", "a query is one SELECT, and this is SELECT and SELECT"),
        ("", "a query is one SELECT, and this is empty"),
        ("COPY (SELECT 1) TO 'stolen.csv'", "a query is one SELECT, and this is COPY"),
        ("SELEC 1", "syntax error"),
        ("SELECT nonsense FROM runs", "the tables are runs, steps and cases"),
        ("SELECT * FROM read_text('{own}')", "Cannot access file"),
        ("SELECT * FROM '{own}'", "Cannot access file|does not exist"),
    ],
)
def test_nothing_but_one_select_of_the_runs_is_answered(
    query: str, words: str, folders: list[Path]
) -> None:
    with pytest.raises(InputError, match=words):
        asked(query.replace("{own}", __file__), folders[0])
