"""Traces on the command line: shown before a run, judged, and their scores sent."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from servers.score_server import ScoreServer
from typer.testing import CliRunner

from dagengine.cli import app
from dagengine.errors import InputError

METRICS = """
from dagengine.metrics.dag import DAG, BinaryJudgementNode
from dagengine.metrics import DAGMetric

ends = {True: 10, False: 0}
ok = BinaryJudgementNode("ok?", evaluation_params=["actual_output"], then=ends, name="ok")
metric = DAGMetric("Good", DAG(root_node=ok))
"""
JUDGE = """
from dagengine.judges import ScriptedJudge

judge = ScriptedJudge({"ok": True})
"""


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """Metrics, a judge and two files of traces: one with a text, one without."""
    (tmp_path / "metrics.py").write_text(METRICS)
    (tmp_path / "judge.py").write_text(JUDGE)
    for number in (1, 2):
        texts = {"input.value": "Who?", "output.value": "I."} if number == 1 else {}
        span = {
            "traceId": f"{number:032x}",
            "spanId": f"{number:016x}",
            "name": "ask",
            "attributes": [
                {"key": key, "value": {"stringValue": text}} for key, text in texts.items()
            ],
        }
        line = {"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}
        (tmp_path / f"{number}.jsonl").write_text(json.dumps(line))
    data = [part for number in (1, 2) for part in ("--data", str(tmp_path / f"{number}.jsonl"))]
    return [str(tmp_path / "metrics.py"), *data, "--map", "otel"]


def said(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, arguments)
    if isinstance(done.exception, InputError):  # the entry point prints it, and exits with 2
        return 2, str(done.exception)
    return done.exit_code, done.output


def test_check_shows_how_a_trace_becomes_a_case(files: list[str]) -> None:
    code, output = said("check", *files)
    assert code == 0
    assert "'Who?'  ← span 'ask' [0000000000000001]" in output
    assert "retrieval_context absent" in output
    assert "1 of the first 2 are skipped: ask 00000002: no texts captured" in output


def test_a_run_sends_its_scores_and_send_has_nothing_left(files: list[str], tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    judge = ["--judge", str(tmp_path / "judge.py:judge"), "--out", out, "--no-page"]
    with ScoreServer() as server:
        to = ["--to", f"phoenix={server.url}"]
        code, output = said("run", *files, *judge, *to)
        assert code == 3, output  # the trace without texts has no score, and that is said
        assert "3 scores written" in output
        assert said("send", out, *to) == (
            0,
            f"phoenix {server.url}: 0 scores written, 3 were there\n",
        )
    lines = (tmp_path / "out" / "results.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    assert [row["metrics"][0]["outcome"] for row in rows] == ["ok", "skipped"]
    assert rows[1]["trace"] == {"trace_id": f"{2:032x}", "span_id": f"{2:016x}"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--map", "otel", "--map", "a=input"], "has no columns"),
        (["--unit", "session"], "are for traces"),
        (["--map", "otel", "--unit", "day"], "the unit is trace, session or span:KIND"),
        (["--map", "otel", "--to", "grafana"], "--to takes otlp"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    files: list[str], options: list[str], message: str
) -> None:
    code, output = said("run", *files[:3], *options)
    assert code == 2
    assert message in " ".join(output.split())
