"""Cases that a server's window is too small for are named before anything is asked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from servers.cutting_server import text
from servers.local_servers import LLAMA, TellingServer
from servers.openai_server import OpenAIServer
from typer.testing import CliRunner

from dagengine.cli.commands import app

METRICS = """
from dagengine.metrics.dag import DAG, BinaryJudgementNode, DAGMetric
node = BinaryJudgementNode(
    "Is it polite?", evaluation_params=["actual_output"], then={True: 10, False: 0}, name="Tone"
)
metric = DAGMetric("Manners", DAG(node))
"""
WARNING = (
    "warning: 2 of 5 cases need more than the 4,096 tokens that the server of m reads; the longest "
    "is case 3 at Tone with about "
)


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "metrics.py").write_text(METRICS, encoding="utf-8")
    lengths = (100, 30_000, 2_000, 70_000, 300)
    rows = [{"input": "q", "actual_output": text("english", length)} for length in lengths]
    lines = "\n".join(map(json.dumps, rows))
    (tmp_path / "cases.jsonl").write_text(lines, encoding="utf-8")


def invoke(command: str, server: OpenAIServer, *more: str) -> Any:
    words = (command, "metrics.py", "--data", "cases.jsonl", "--judge", "m")
    return CliRunner().invoke(app, [*words, "--base-url", server.base_url, *more])


@pytest.mark.usefixtures("files")
def test_a_plan_names_the_cases_that_do_not_fit_and_asks_nothing() -> None:
    with TellingServer(LLAMA) as server:
        done = invoke("plan", server)
        assert not server.requests
    assert done.exit_code == 0
    assert WARNING in done.stderr
    assert ": llama-server --ctx-size" in done.stderr
    with TellingServer(LLAMA) as server:
        (long,) = json.loads(invoke("plan", server, "--json").stdout)["too_long"]
    assert (long["cases"], long["looked_at"], long["longest"]) == (2, 5, 3)
    assert 15_000 < long["tokens"] < 25_000


@pytest.mark.usefixtures("files")
def test_a_run_says_so_before_the_first_call_and_judges_those_that_fit() -> None:
    with TellingServer(LLAMA) as server:
        done = invoke("run", server, "--out", "out")
    assert done.exit_code == 3
    assert WARNING in done.stderr
    lines = Path("out/results.jsonl").read_text(encoding="utf-8").splitlines()
    scores = [json.loads(line)["metrics"][0]["score"] for line in lines]
    assert [score is None for score in scores] == [False, True, False, True, False]


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("command", ["plan", "run"])
def test_only_a_server_that_gets_a_question_is_asked_for_its_window(
    command: str, own: bool
) -> None:
    if own:
        judge = "from dagengine.judges import ScriptedJudge\n" + METRICS.replace(
            "DAG(node))", "DAG(node), model=ScriptedJudge(lambda question: True))"
        )
        Path("metrics.py").write_text(judge, encoding="utf-8")
    with TellingServer(LLAMA) as server:
        invoke(command, server)
    assert bool(server.told) is not own


@pytest.mark.usefixtures("files")
def test_nothing_is_said_of_a_server_whose_window_is_not_known() -> None:
    with OpenAIServer() as server:
        assert "more than the" not in invoke("plan", server).stderr
