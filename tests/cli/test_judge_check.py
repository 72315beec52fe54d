"""`dagengine judge check`: the table, the JSON, the exit codes, and what it saves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from programs.commands import output_of
from servers.checked_model import CheckedModel
from servers.local_servers import LLAMA, TellingServer
from servers.openai_server import OpenAIServer, Reply
from typer.testing import CliRunner

from dagengine.cli.commands import app
from dagengine.judges.default import Tuning, default_judge

METRICS = """
from dagengine.metrics import GEval
metric = GEval(name="x", criteria="c", evaluation_params=["input", "actual_output"])
"""
YES_OR_NO = """
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode
asked = BinaryJudgementNode("Is it?", evaluation_params=["input"], then={True: 10, False: 5})
metric = DAGMetric("x", DAG(asked))
"""


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("COLUMNS", "200")


def data(path: str, *texts: str) -> str:
    lines = [json.dumps({"input": "q", "actual_output": text}) for text in texts]
    Path(path).write_text("\n".join(lines), encoding="utf-8")
    return path


def test_a_usable_judge_gets_a_table_and_exit_code_0() -> None:
    with TellingServer(LLAMA, CheckedModel()) as server:
        text = output_of("judge", "check", "--judge", "m", "--base-url", server.base_url)
    for part in ("answers", "model", "server", "window", "places", "schema", "thinking",
                 "probability", "speed", "repeats", "reading", "knows"):  # fmt: skip
        assert f"\n {part} " in text
    assert text.index("knows") < text.index("schema")
    assert "20 of 20 easy questions right" in text
    assert "Recommended: --max-in-flight 4." in text
    assert text.rstrip().endswith("It can be used.")


def test_the_table_fits_into_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with TellingServer(LLAMA, CheckedModel(schema=False)) as server:
        text = output_of("judge", "check", "--judge", "m", "--base-url", server.base_url, code=1)
    assert max(map(len, text.splitlines())) <= 80


def test_a_judge_that_guesses_is_called_a_guess_with_exit_code_1() -> None:
    with OpenAIServer(CheckedModel(always=True)) as server:
        words = ("judge", "check", "--judge", "test-model", "--base-url", server.base_url)
        text = output_of(*words, code=1)
    assert "10 of 20 easy questions right: no better than guessing; it always says yes" in text
    assert "by guessing one gets 10 or more with probability 0.59" in text
    assert "It cannot be used" in text
    assert "Recommended" not in text
    assert "can be used." not in text


def test_a_window_that_is_too_small_is_named_beside_a_judge_that_cannot_be_used() -> None:
    with OpenAIServer(CheckedModel(cut=700)) as server:
        words = ("judge", "check", "--judge", "test-model", "--base-url", server.base_url)
        text = output_of(*words, "--data", data("cases.jsonl", "word " * 4_000), code=1)
    assert "Recommended" not in text
    assert "A window of" in text


def test_a_judge_that_does_not_answer_has_exit_code_2() -> None:
    text = output_of(
        "judge", "check", "--judge", "m", "--base-url", "http://127.0.0.1:9/v1", code=2
    )
    assert "nothing answers at http://127.0.0.1:9/v1" in text


def test_a_wrong_name_is_answered_with_the_names_that_the_server_has() -> None:
    def missing(body: dict[str, Any]) -> Reply:
        return Reply("no such model", status=404)

    with OpenAIServer(missing) as server:
        words = ("judge", "check", "--judge", "test-mdel", "--base-url", server.base_url)
        text = output_of(*words, code=2)
    assert "The server has test-model; did you mean 'test-model'?" in text


def test_json_is_one_object_with_everything_that_was_measured() -> None:
    with OpenAIServer(CheckedModel()) as server:
        words = ("judge", "check", "--judge", "test-model", "--base-url", server.base_url)
        found = json.loads(output_of(*words, "--json"))
    assert found["usable"] is True
    assert found["easy"]["right"] == 20
    assert found["structure"]["mode"] == "json_schema"
    assert found["advice"]["odds"] is True


def test_the_longest_case_of_the_data_is_what_is_read() -> None:
    with OpenAIServer(CheckedModel(cut=700)) as server:
        cases = data("cases.jsonl", "short", "word " * 4_000)
        words = ("judge", "check", "--judge", "test-model", "--base-url", server.base_url)
        text = output_of(*words, "--data", cases, code=1)
    assert "the longest test case, 20,0" in text
    assert "CUT" in text


def test_invalid_data_is_refused_before_any_question() -> None:
    with OpenAIServer(CheckedModel()) as server:
        Path("cases.jsonl").write_text('{"wrong": 1}\n', encoding="utf-8")
        words = ("judge", "check", "--judge", "test-model", "--base-url", server.base_url)
        done = CliRunner().invoke(app, [*words, "--data", "cases.jsonl"])
    assert done.exit_code != 0
    assert server.requests == []


def test_the_judge_of_metrics_is_checked() -> None:
    with OpenAIServer(CheckedModel()) as server:
        output_of("judge", "set", "test-model", "--base-url", server.base_url)
        Path("metrics.py").write_text(METRICS, encoding="utf-8")
        assert "It can be used." in output_of("judge", "check", "metrics.py")


def test_what_is_saved_is_the_judge_and_what_was_measured_and_a_plan_counts_with_it() -> None:
    with TellingServer(LLAMA, CheckedModel()) as server:
        words = ("judge", "check", "--judge", "m", "--base-url", server.base_url, "--save")
        output_of(*words)
        chosen = default_judge()
        assert (chosen.model, chosen.base_url) == ("m", server.base_url)
        assert chosen.tuning.max_in_flight == 4
        assert chosen.tuning.write_speed is not None
        assert "max in flight: 4" in output_of("judge", "show")
        Path("metrics.py").write_text(METRICS, encoding="utf-8")
        plan = ("plan", "metrics.py", "--data", data("cases.jsonl", "a", "b"))
        assert "as `judge check` measured" in output_of(*plan)
        assert "A call takes 2 s" in output_of(*plan, "--judge", "gpt-4o")
        assert "A call takes 7 s" in output_of(*plan, "--latency", "7")


def test_a_saved_limit_holds_for_runs_that_name_no_judge() -> None:
    with TellingServer(LLAMA, CheckedModel()) as server:
        Path(".dagengine.env").write_text(
            f"DAGENGINE_JUDGE=m\nDAGENGINE_BASE_URL={server.base_url}\n"
            "DAGENGINE_MAX_IN_FLIGHT=3\nDAGENGINE_CALL_TIMEOUT=77\n",
            encoding="utf-8",
        )
        Path("metrics.py").write_text(YES_OR_NO, encoding="utf-8")
        output_of("run", "metrics.py", "--data", data("cases.jsonl", "a"))
    limits = json.loads(Path("out/run.json").read_text(encoding="utf-8"))["limits"]
    assert (limits["max_in_flight"], limits["call_timeout"]) == (3, 77)


def test_a_judge_that_does_not_answer_is_not_saved() -> None:
    words = ("judge", "check", "--judge", "m", "--base-url", "http://127.0.0.1:9/v1", "--save")
    output_of(*words, code=2)
    assert default_judge().tuning == Tuning()
    assert not Path(".dagengine.env").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--judge", "judge.py:judge", "--save"), "cannot be saved"),
        (("--judge", "m", "--base-url", "http://u:pass@h/v1", "--save"), "would write down"),
        (("metrics.py", "--save"), "--save needs a judge by name"),
        (("--judge", "m", "--user"), "it needs --save"),
    ],
)
def test_what_cannot_be_saved_is_refused_before_any_question(
    words: tuple[str, ...], message: str
) -> None:
    Path("metrics.py").write_text(METRICS, encoding="utf-8")
    Path("judge.py").write_text("judge = None", encoding="utf-8")
    assert message in " ".join(output_of("judge", "check", *words, code=2).split())
