"""The commands for a store, and the options of a run that use one."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from dagengine import Store, evaluate
from dagengine.cli import app
from dagengine.errors import DagengineError, InputError
from dagengine.judges import ScriptedJudge
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode
from dagengine.question import Question
from dagengine.store.database import connect
from dagengine.store.maintenance import groups, open_to_look
from dagengine.test_case import LLMTestCase

DAY = 24 * 60 * 60
METRICS = """
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode

kind = BinaryJudgementNode(
    "Kind?", evaluation_params=["actual_output"], then={True: 10, False: 4}, name="kind"
)
metric = DAGMetric("Manners", DAG(kind))
"""
JUDGE = """
from pathlib import Path
from dagengine.judges import ScriptedJudge

def answer(question):
    with Path("asked.txt").open("a") as file:
        file.write(".")
    return True

judge = ScriptedJudge(answer, name="counting")
"""


def fill(
    store: Path | Store, judge: str = "one", texts: tuple[str, ...] = ("a", "b", "\ud800\x1b")
) -> None:
    def answer(question: Question[Any]) -> Any:
        return {"reason": f"{judge} says \ud800\x1b[31m", "verdict": True}

    first = BinaryJudgementNode(
        "Kind?", evaluation_params=["input"], then={True: 10, False: 4}, name="kind"
    )
    then = {True: first, False: 0}
    second = BinaryJudgementNode("Short?", evaluation_params=["input"], then=then, name="short")
    cases = [LLMTestCase(input=text) for text in texts]
    metric, model = DAGMetric("Manners", DAG(second)), ScriptedJudge(answer, name=judge)
    assert evaluate(cases, [metric], model=model, store=store, show=False).success


def invoke(*arguments: object) -> Result:
    return CliRunner(env={"COLUMNS": "200"}).invoke(app, ["store", *map(str, arguments)])


def output(*arguments: object) -> str:
    done = invoke(*arguments)
    assert done.exit_code == 0, done.output
    return done.output


def counts(path: Path) -> dict[tuple[str, str], int]:
    with open_to_look(path) as db:
        return {(group.judge, group.node): group.answers for group in groups(db)}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "answers.db"
    fill(found)
    fill(found, "two", ("a",))
    return found


def test_show_says_what_a_store_holds(path: Path) -> None:
    shown = output("show", path)
    assert "8 answers" in shown
    assert "[answer" not in shown
    table = [line.split("│")[1:4] for line in shown.splitlines() if "scripted" in line]
    assert [[cell.strip() for cell in row] for row in table] == [
        ["scripted one", "kind", "3"],
        ["scripted one", "short", "3"],
        ["scripted two", "kind", "1"],
        ["scripted two", "short", "1"],
    ]


def test_show_lists_the_latest_questions_and_answers_safely(path: Path) -> None:
    shown = output("show", path, "--limit", 3, "--judge", "*one", "--node", "kind")
    assert shown.count("--- kind") == shown.count("[answer, direct]") == 3
    assert shown.count("Criterion: Kind?") == 3
    assert "BEGIN input" in shown
    assert "\x1b" not in shown
    assert r"\ud800\x1b" in shown
    assert output("show", path, "--node", "short").count("--- short") == 4


def test_prune_removes_what_was_meant_and_nothing_else(path: Path) -> None:
    before = counts(path)
    assert "3 answers would be removed" in output(
        "prune", path, "--node", "kind", "--judge", "scripted one", "--dry-run"
    )
    assert counts(path) == before
    assert "3 answers removed" in output("prune", path, "--node", "kind", "--judge", "*one")
    assert counts(path) == {key: n for key, n in before.items() if key != ("scripted one", "kind")}
    size = path.stat().st_size
    assert "3 answers removed" in output("prune", path, "--judge", "scripted one", "--compact")
    assert path.stat().st_size < size
    with open_to_look(path) as db:
        assert db.execute("SELECT name FROM judges").fetchall() == [("scripted two",)]


def test_prune_by_age(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE answers SET created = created - ? WHERE judge = 1", (10 * DAY,))
    assert "0 answers" in output("prune", path, "--older-than", 11)
    assert "6 answers" in output("prune", path, "--older-than", 9.5)
    assert set(counts(path)) == {("scripted two", "kind"), ("scripted two", "short")}


def test_prune_of_everything_has_to_be_said(path: Path) -> None:
    done = invoke("prune", path)
    assert done.exit_code == 2
    assert "select the answers" in done.output


@pytest.mark.parametrize("command", [("show",), ("prune",), ("prune", "--dry-run")])
def test_a_name_that_matches_nothing_is_an_error_that_lists_the_others(
    path: Path, command: tuple[str, ...]
) -> None:
    done = invoke(command[0], path, "--node", "knd", *command[1:])
    assert isinstance(done.exception, InputError)
    assert "no node in the store is called 'knd'; there are: 'short', 'kind'" in str(done.exception)


def test_export_writes_every_answer_as_json(path: Path, tmp_path: Path) -> None:
    out = tmp_path / "answers.jsonl"
    assert str(out) in output("export", path, "--out", out)
    rows = [json.loads(line) for line in out.read_bytes().decode().split("\n") if line]
    assert invoke("export", path).stdout_bytes == out.read_bytes()
    assert len(rows) == len({row["key"] for row in rows}) == 8
    (row,) = [
        row
        for row in rows
        if (row["node"], row["judge"]) == ("kind", "scripted one")
        and row["question"]["messages"][1]["content"].startswith(
            "<<<BEGIN input>>>\n\ud800\x1b\n<<<END"
        )
    ]
    assert json.loads(row["raw"]) == {"reason": "one says \ud800\x1b[31m", "verdict": True}
    assert (row["node"], row["judge"], row["usage"]) == ("kind", "scripted one", [0, 0, 0])


def test_merge_adds_what_is_not_there_and_keeps_what_is(path: Path, tmp_path: Path) -> None:
    other, new = tmp_path / "other.db", tmp_path / "folder" / "new.db"
    fill(other, "three", ("x",))
    fill(other, "one", ("a", "c"))
    assert "4 answers of" in output("merge", path, other)
    assert counts(path)["scripted three", "kind"] == 1
    assert counts(path)["scripted one", "short"] == 4
    assert "0 answers of" in output("merge", path, other)
    shown = output("merge", new, path, other)
    assert [line.split()[0] for line in shown.splitlines()] == ["12", "0"]
    assert counts(new) == counts(path)
    fill(Store(new, replay=True), "three", ("x",))


def test_commands_name_a_store_that_is_not_there_or_is_none(path: Path, tmp_path: Path) -> None:
    none, text = tmp_path / "none.db", tmp_path / "text.db"
    text.write_text("no store " * 100)
    commands: list[tuple[object, ...]] = [
        *(("show", none), ("export", none), ("prune", none, "--node", "a")),
        *(("show", text), ("export", text), ("prune", text, "--node", "a")),
        *(("merge", path, none), ("merge", path, text), ("merge", path, path)),
    ]
    for command in commands:
        done = invoke(*command)
        assert isinstance(done.exception, DagengineError), done.output
    assert not none.exists()
    assert text.read_text() == "no store " * 100


def test_a_store_of_another_version_is_not_merged(path: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    connect(other, 1.0).close()
    with closing(sqlite3.connect(other)) as db:
        db.execute("PRAGMA user_version = 99")
    assert "has format 99" in str(invoke("merge", path, other).exception)


def test_a_run_asks_once_and_replays_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("metrics.py").write_text(METRICS)
    Path("judge.py").write_text(JUDGE)
    case = {"input": "a", "actual_output": "fine"}
    Path("cases.jsonl").write_text(json.dumps(case) + "\n")
    command = ["run", "metrics.py", "--data", "cases.jsonl", "--judge", "judge.py:judge"]
    results = []
    for more in (["--store", "s.db"], ["--store", "s.db"], ["--store", "s.db", "--replay"]):
        done = CliRunner().invoke(app, [*command, *more])
        assert done.exit_code == 0, done.output
        results.append(Path("out/results.jsonl").read_bytes())
    assert "0 judge calls, 1 from the store (100%)" in done.output
    assert Path("asked.txt").read_text() == "."
    assert len(set(results)) == 1
    without = CliRunner().invoke(app, [*command, "--replay"])
    assert without.exit_code == 2
    assert "--replay needs --store" in without.output


def test_a_replay_of_the_command_line_needs_no_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    connect(Path("s.db"), 1.0).close()
    Path("metrics.py").write_text(METRICS)
    Path("cases.jsonl").write_text(json.dumps({"input": "a", "actual_output": "fine"}) + "\n")
    command = ["run", "metrics.py", "--data", "cases.jsonl", "--store", "s.db", "--replay"]
    done = CliRunner().invoke(app, [*command, "--base-url", "http://127.0.0.1:9/v1"])
    assert done.exit_code == 3, done.output  # the case has no score, and nobody was asked
    row = json.loads(Path("out/results.jsonl").read_text())
    assert "s.db has no answer" in row["metrics"][0]["failure"]["message"]
