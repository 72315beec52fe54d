"""`dagengine benchmark` as people use it: files in, a card and an exit code out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from dagengine.cli import app

METRICS = """
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode

short = BinaryJudgementNode(
    "Is it short?", then={True: 10, False: 0}, name="short", evaluation_params=["actual_output"]
)
kind = BinaryJudgementNode(
    "Is it kind?", then={True: short, False: 0}, name="kind", evaluation_params=["actual_output"]
)
manners = DAGMetric("manners", DAG(kind))
"""

# Kindness flips with every other sample on half of the cases; the length never does.
JUDGE = """
from pathlib import Path
from dagengine.judges import ScriptedJudge

def answer(question):
    with Path("asked").open("a") as file:
        file.write(question.name + "\\n")
    wavering = "maybe" in question.messages[-1]["content"]
    return question.name == "short" or not wavering or question.options.sample % 2 == 0

judge = ScriptedJudge(answer)
judge.identity = "wavering"
other = ScriptedJudge(lambda question: True)
other.identity = "sure"
"""

CASES = "".join(
    json.dumps(
        {
            "name": f"case {number}",
            "input": "a",
            "actual_output": f"{word} {number}",
            "additional_metadata": {"good": number < 4},
        }
    )
    + "\n"
    for number, word in enumerate(["yes", "maybe"] * 4)
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in (("metrics.py", METRICS), ("judge.py", JUDGE), ("cases.jsonl", CASES)):
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


MINE = ("metrics.py", "--data", "cases.jsonl", "--judge", "judge.py:judge")


def benchmark(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["benchmark", *arguments])


def test_a_benchmark_prints_its_plan_first_and_leaves_a_card(folder: Path) -> None:
    done = benchmark(*MINE, "--times", "4", "--labels", "additional_metadata.good")
    assert done.exit_code == 0, done.output
    assert (folder / "asked").read_text().count("\n") == 32 + 24  # half of them go on half the time
    output = " ".join(done.output.split())
    assert output.index("at most 64") < output.index("Would I get this score again?")
    assert "“kind” causes 100.0 %" in output
    card = json.loads((folder / "benchmark/card.json").read_text())
    assert card["times"] == 4
    assert card["binding"]["judges"] == ["wavering"]
    assert "Which node is to blame?" in (folder / "benchmark/card.html").read_text()
    assert (folder / "benchmark/card.md").read_text().startswith("# Judge card")


def test_a_condition_that_holds_fails_the_benchmark_and_says_which(folder: Path) -> None:
    done = benchmark(
        *MINE, "--times", "4", "--fail-if", "flip-rate>0.05", "--fail-if", "unscored>0"
    )
    assert done.exit_code == 1
    assert "fails: flip-rate>0.05: manners: 33.3 %" in done.output
    assert "fails: unscored" not in done.output


def test_nothing_is_asked_when_more_calls_may_be_needed_than_are_allowed(folder: Path) -> None:
    done = benchmark(*MINE, "--times", "4", "--max-calls", "63")
    assert done.exit_code != 0
    assert "63" in str(done.exception)
    assert not (folder / "asked").exists()


def test_a_condition_that_means_nothing_is_found_before_anything_is_asked(folder: Path) -> None:
    done = benchmark(*MINE, "--fail-if", "flips>0.05")
    assert "no measure is called 'flips'" in str(done.exception)
    assert not (folder / "asked").exists()


def test_a_card_is_checked_without_asking_anything(folder: Path) -> None:
    benchmark(*MINE, "--times", "2")
    (folder / "asked").unlink()
    check = ("--check", "benchmark/card.json")
    assert benchmark(*MINE, *check).exit_code == 0
    failing = benchmark(*MINE, *check, "--fail-if", "flip-rate>0.05")
    assert (failing.exit_code, "fails: flip-rate" in failing.output) == (1, True)
    (folder / "metrics.py").write_text(METRICS.replace("Is it kind?", "Is it polite?"))
    stale = benchmark(*MINE, *check)
    assert stale.exit_code == 1
    assert "metric 'manners': node 'kind' changed" in stale.output
    other = benchmark(*MINE[:-1], "judge.py:other", *check)
    assert "judge: wavering → sure" in other.output
    assert not (folder / "asked").exists()


def test_two_cards_are_compared_and_what_differs_is_named(folder: Path) -> None:
    benchmark(*MINE, "--times", "4", "--out", "one")
    benchmark(*MINE[:-1], "judge.py:other", "--times", "4", "--out", "two")
    done = benchmark("--compare", "one/card.json", "two/card.json")
    assert done.exit_code == 0, done.output
    output = " ".join(done.output.split())
    assert "33.3 %" in output
    assert "judge: wavering → sure" in output
    same = benchmark("--compare", "one/card.json", "one/card.json")
    assert "made of the same" in same.output


def test_several_judges_are_measured_apart_and_against_each_other(folder: Path) -> None:
    done = benchmark(*MINE, "--judge", "judge.py:other", "--times", "4")
    assert done.exit_code == 0, done.output
    card = json.loads((folder / "benchmark/card.json").read_text())
    assert card["binding"]["judges"] == ["wavering", "sure"]
    measures = {one["name"]: one["value"] for one in card["metrics"][0]["again"]}
    assert measures["judge-flip-rate"] == pytest.approx(0.25)  # half of the runs on half the cases
    assert measures["flip-rate"] == pytest.approx(1 / 6)


def test_every_temperature_is_a_setting_of_its_own(folder: Path) -> None:
    done = benchmark(*MINE, "--times", "2", "--temperatures", "0,1")
    assert done.exit_code == 0, done.output
    assert "4 runs of this" in " ".join(done.output.split())
    card = json.loads((folder / "benchmark/card.json").read_text())
    assert [setting.rpartition(" ")[2] for setting in card["settings"]] == ["0.0", "1.0"]
    measures = {one["name"]: one["value"] for one in card["metrics"][0]["again"]}
    assert measures["temperature-flip-rate"] == pytest.approx(0.25)
    assert "list of numbers" in str(benchmark(*MINE, "--temperatures", "hot").exception)


def test_metrics_and_data_are_needed_for_a_benchmark(folder: Path) -> None:
    assert benchmark().exit_code == 2
