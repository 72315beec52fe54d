"""What is known of a judge goes with its runs: found by `judge check`, or by a judge card."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from programs.commands import output_of
from servers.checked_model import CheckedModel
from servers.openai_server import Json, OpenAIServer, Reply

from dagengine import evaluate
from dagengine.checkup.questions import Verdict, easy_questions
from dagengine.errors import InputError
from dagengine.judges import OpenAIJudge, ScriptedJudge
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode
from dagengine.record import load_run
from dagengine.record.judge_standing import DAYS, WORDING, find_standing, is_recent, keep_standing
from dagengine.record.run_json_types import Standing
from dagengine.report.page.run_facts import run_record
from dagengine.test_case import LLMTestCase

METRICS = """
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode
asked = BinaryJudgementNode("Is it?", evaluation_params=["input"], then={True: 10, False: 5})
metric = DAGMetric("x", DAG(asked))
"""
OWN = METRICS.replace(
    "DAG(asked)", "DAG(asked), model=OpenAIJudge('test-model', base_url='URL')"
).replace("\n", "\nfrom dagengine.judges import OpenAIJudge\n", 1)
HINT = "not known whether test-model can judge; a minute tells: dagengine judge check "
TODAY = date(2026, 11, 28)


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("COLUMNS", "300")
    Path("metrics.py").write_text(METRICS, encoding="utf-8")
    Path("cases.jsonl").write_text('{"input": "q", "actual_output": "a"}\n', encoding="utf-8")


@pytest.fixture
def coin() -> Iterator[str]:
    """The address of a server whose model says yes to everything, as `test-model-8b`."""
    model = CheckedModel(always=True)

    def answer(body: Json) -> Reply:
        answered = json.loads(model(body).body or "")
        return Reply(body=json.dumps({**answered, "model": "test-model-8b"}))

    with OpenAIServer(answer) as server:
        yield server.base_url


def run(*words: str, code: int = 0) -> str:
    return output_of("run", "metrics.py", "--data", "cases.jsonl", *words, code=code)


def named(address: str) -> tuple[str, ...]:
    return ("--judge", "test-model", "--base-url", address)


def kept() -> Path:
    (path,) = Path("config/dagengine/checked").iterdir()
    return path


def change(path: Path, **values: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | values), encoding="utf-8")


def test_the_wording_of_the_easy_questions_is_that_of_the_standings() -> None:
    sent = [[*question.messages, verdict] for question, verdict in easy_questions()]
    text = json.dumps([sent, Verdict.model_json_schema()])
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == WORDING


def test_what_a_check_finds_is_said_by_terminal_json_and_page_of_later_runs(coin: str) -> None:
    assert HINT + f"--judge test-model --base-url {coin}" in run(*named(coin))
    output_of("judge", "check", *named(coin), code=1)
    line = (
        "test-model, as test-model-8b got 10 of 20 easy questions right, no better than guessing "
        f"(judge check, {datetime.now(UTC).date()}): these scores mean little"
    )
    told = run(*named(coin)).splitlines()
    assert told[told.index("The case passed") + 1] == line
    assert HINT not in "\n".join(told)
    assert line in output_of("show", "out")
    record = json.loads(Path("out/run.json").read_text())["judges"][0]["standing"]
    assert json.loads(Path("out/summary.json").read_text())["judges"][0]["standing"] == record
    assert (record["right"], record["answered"], record["asked"]) == (10, 20, 20)
    assert (record["weak"], record["model"], record["repeats"]) == (True, "test-model-8b", True)
    page = run_record(load_run("out"), 1, 1)
    assert page["standings"] == [line]


def test_a_good_judge_is_said_to_be_good_and_to_mean_something(coin: str) -> None:
    with OpenAIServer(CheckedModel()) as server:
        output_of("judge", "check", *named(server.base_url))
        assert "test-model got 20 of 20 easy questions right (judge check, " in run(
            *named(server.base_url)
        )
    assert HINT in run(*named(coin))  # another server with a model of this name


def test_the_judge_of_metrics_is_named_by_their_file_and_found_again(coin: str) -> None:
    Path("metrics.py").write_text(OWN.replace("URL", coin), encoding="utf-8")
    assert HINT + "metrics.py\n" in run()
    output_of("judge", "check", "metrics.py", code=1)
    assert "10 of 20 easy questions right" in run()


def test_the_hint_stands_once_however_many_models_are_unknown(capsys: Any, coin: str) -> None:
    asked = BinaryJudgementNode("Is it?", evaluation_params=["input"], then={True: 10, False: 5})
    models = [OpenAIJudge(name, base_url=coin) for name in ("test-model", "other")]
    metrics = [DAGMetric(m.model, DAG(asked), model=m) for m in models]
    evaluate([LLMTestCase(input="q", actual_output="a")], metrics, show="table")
    text = " ".join(capsys.readouterr().out.split())
    assert text.count("not known whether") == 1
    assert "not known whether test-model, other can judge; a minute tells: " in text


def test_judges_without_a_model_are_not_asked_about() -> None:
    Path("judge.py").write_text(
        "from dagengine.judges import ScriptedJudge\njudge = ScriptedJudge(lambda q: True)\n",
        encoding="utf-8",
    )
    assert "not known whether" not in run("--judge", "judge.py:judge")


def standing(**values: Any) -> Standing:
    judge = OpenAIJudge("m", base_url="http://127.0.0.1:9/v1")
    own = {
        "source": "judge check", "identity": judge.durable_identity, "name": "m", "date": TODAY,
        "dagengine": "0", "wording": WORDING, "says": "knows", "weak": False,
    }  # fmt: skip
    return Standing.model_validate(own | values)


def found(today: date = TODAY) -> Standing | None:
    return find_standing(OpenAIJudge("m", base_url="http://127.0.0.1:9/v1"), today)


def test_a_standing_holds_for_90_days() -> None:
    keep_standing(standing())
    assert found() == standing()
    assert found(TODAY + timedelta(DAYS)) == standing()
    assert found(TODAY + timedelta(DAYS + 1)) is None
    assert found(TODAY - timedelta(2)) is None
    assert is_recent(TODAY, TODAY - timedelta(1))


@pytest.mark.parametrize(
    "values", [{"wording": "another"}, {"identity": "another"}, {"source": "gossip"}]
)
def test_a_standing_of_another_wording_or_judge_says_nothing(values: dict[str, Any]) -> None:
    keep_standing(standing())
    change(kept(), **values)
    assert found() is None


def test_a_file_that_is_no_regular_file_or_is_damaged_says_nothing() -> None:
    keep_standing(standing())
    path = kept()
    path.rename("elsewhere.json")
    path.symlink_to(Path("elsewhere.json").absolute())
    assert found() is None
    keep_standing(standing())
    assert found() is not None
    path.write_text("{", encoding="utf-8")
    assert found() is None


def test_a_judge_that_nothing_tells_apart_has_no_standing() -> None:
    assert find_standing(ScriptedJudge(lambda question: True)) is None


def test_a_folder_that_cannot_be_written_does_not_spoil_a_check(coin: str) -> None:
    Path("config").mkdir()
    Path("config/dagengine").write_text("a file", encoding="utf-8")
    text = output_of("judge", "check", *named(coin), code=1)
    assert "It cannot be used" in text
    assert "what the judge knows is not kept for its runs" in text


@pytest.fixture
def card(coin: str) -> Path:
    lines = [json.dumps({"input": f"q{n}", "actual_output": "a"}) for n in range(6)]
    Path("many.jsonl").write_text("\n".join(lines), encoding="utf-8")
    words = ("metrics.py", "--data", "many.jsonl", "--out", "card", "--times", "2")
    output_of("benchmark", *words, *named(coin))
    return Path("card/card.json")


def test_a_card_of_this_judge_and_these_metrics_is_said_instead(card: Path, coin: str) -> None:
    output_of("judge", "check", *named(coin), code=1)
    text = run(*named(coin), "--card", str(card))
    record = json.loads(Path("out/run.json").read_text())["judges"][0]["standing"]
    assert record["source"] == "judge card"
    assert f"test-model {record['says']} (judge card, {record['date']})" in text
    assert record["says"].startswith("x: ")
    assert "easy questions" not in text


def test_a_card_that_does_not_fit_is_said_to_say_nothing(card: Path, coin: str) -> None:
    words = (*named(coin), "--card", str(card))
    Path("metrics.py").write_text(METRICS.replace("Is it?", "Is it so?"), encoding="utf-8")
    assert "says nothing of this run: it is of other metrics" in run(*words)
    Path("metrics.py").write_text(METRICS, encoding="utf-8")
    with OpenAIServer(CheckedModel()) as other:
        text = run(*named(other.base_url), "--card", str(card))
    assert "says nothing of this run: it is of other judges" in text
    old = card.stat().st_mtime - 86_400 * (DAYS + 2)
    os.utime(card, (old, old))
    assert "older than 90 days: it says nothing of this run" in run(*words)
    card.write_text("{}", encoding="utf-8")
    with pytest.raises(InputError, match="is not a judge card"):
        run(*words)
