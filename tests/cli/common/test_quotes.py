"""`--quotes` of run, plan and benchmark, and what people see of quotes on the terminal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from programs.commands import run_command
from typer.testing import CliRunner

from dagengine.cli import app

METRICS = """
from dagengine.judges import ScriptedJudge
from dagengine.metrics import DAGMetric, ExactMatchMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode
from pathlib import Path

def answer(question):
    Path(__file__).with_name("asked").touch()
    wrong = "rude" in question.messages[1]["content"].splitlines()[1]
    text = "how very kind" if wrong else "kind"
    quotes = [{"piece": "actual_output", "text": text}]
    return {"quotes": quotes, "absent": "", "verdict": True, "reason": "So it says."}

judge = ScriptedJudge(answer, name="pupil")
kind = BinaryJudgementNode(
    "Is it kind?", evaluation_params=["actual_output"], then={True: 10, False: 4}, name="kind"
)
metric = DAGMetric("Manners", DAG(kind), model=judge)
same = ExactMatchMetric()
"""
CASES = [
    {"input": "a", "actual_output": "a kind word", "expected_output": "b"},
    {"input": "b", "actual_output": "a rude word", "expected_output": "b"},
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "metrics.py").write_text(METRICS)
    (tmp_path / "cases.jsonl").write_text("\n".join(map(json.dumps, CASES)))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def command(*arguments: str) -> tuple[int, str]:
    """Run a command on the metrics and the cases; returns its exit code and all that it prints."""
    name, *options = arguments
    done = run_command(Path.cwd(), name, "metrics.py", "--data", "cases.jsonl", *options)
    return done.returncode, " ".join(f"{done.stdout} {done.stderr}".split())


def test_a_run_with_quotes_ends_verdicts_without_support(folder: Path) -> None:
    code, printed = command("run", "--quotes", "required", "--no-page")
    assert code == 3
    assert "unsupported" in printed
    lines = (folder / "out" / "results.jsonl").read_text()
    rows = [json.loads(line) for line in lines.splitlines()]
    outcomes = [[metric["outcome"] for metric in row["metrics"]] for row in rows]
    assert outcomes == [["ok", "ok"], ["unsupported", "ok"]]
    settings = json.loads((folder / "out" / "run.json").read_text())["settings"]
    assert (settings["quotes"], settings["unsupported"]) == ("required", "fail")


def test_a_run_may_keep_them_and_shows_which_they_are(folder: Path) -> None:
    code, _ = command("run", "--quotes", "required", "--unsupported", "keep", "--no-page")
    assert code == 0
    shown = CliRunner().invoke(app, ["show", "out", "--case", "case 1"]).output
    assert "“how very kind” (NOT in actual_output)" in shown
    shown = CliRunner().invoke(app, ["show", "out", "--case", "case 0"]).output
    assert "“kind” (actual_output)" in shown


def test_the_plan_counts_the_tokens_of_quotes(folder: Path) -> None:
    tokens = []
    for options in ([], ["--quotes", "required"]):
        code, printed = command("plan", "--json", *options)
        assert code == 0, printed
        (judge,) = json.loads(printed)["judges"]
        tokens.append((judge["input_tokens"], judge["output_tokens"]))
    assert tokens[1][0] > tokens[0][0]
    assert tokens[1][1] > tokens[0][1]
    assert not (folder / "asked").exists()


@pytest.mark.parametrize("name", ["run", "plan", "benchmark"])
def test_what_is_not_known_is_refused_before_anything_is_asked(folder: Path, name: str) -> None:
    for options, message in (
        (["--quotes", "requierd"], "did you mean 'required'"),
        (["--unsupported", "keep"], "is for verdicts with --quotes"),
        (["--quotes", "if_any", "--unsupported", "drop"], "--unsupported takes 'fail' or 'keep'"),
    ):
        code, printed = command(name, *options)
        assert (code, message in printed) == (2, True), printed
    (folder / "metrics.py").write_text(METRICS.replace("metric = DAG", "del kind  # DAG"))
    code, printed = command(name, "--quotes", "required")
    assert code == 2
    assert "no metric has a verdict that could quote" in printed
    assert not (folder / "asked").exists()


def test_a_benchmark_asks_for_quotes(folder: Path) -> None:
    code, printed = command(
        "benchmark", "--times", "2", "--quotes", "required", "--unsupported", "keep"
    )
    assert code == 0, printed
    assert (folder / "asked").exists()
