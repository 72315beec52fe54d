"""`dagengine diff` as people use it: two folders in, a page of text and an exit code out."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from folders.runs import but, cases, record, support_metric, usual
from typer.testing import CliRunner, Result

from dagengine.cli import app
from dagengine.errors import InputError
from dagengine.judges import ScriptedJudge
from dagengine.question import Question
from dagengine.reliability import repeat
from dagengine.reliability.card import make_card, write_card


def dagengine(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, list(map(str, arguments)), env={"COLUMNS": "120"})


@pytest.fixture
def runs(tmp_path: Path) -> tuple[Path, Path]:
    said = but(("Tone", "answer 1", "rude"), ("Next step", "answer 2", False))
    return record(tmp_path / "a", over=12), record(tmp_path / "b", said, over=12)


def test_a_run_against_itself_says_that_nothing_differs(runs: tuple[Path, Path]) -> None:
    found = dagengine("diff", runs[0], runs[0], "--fail-if", "flips>=1")
    assert found.exit_code == 0
    assert "The two runs agree on all 12 cases" in found.output
    assert "First node" not in found.output


def test_flips_are_named_by_node_and_cause(runs: tuple[Path, Path]) -> None:
    found = dagengine("diff", *runs)
    assert found.exit_code == 0
    for said in (
        "4 of 12 cases flipped: 4 worse, 0 better",
        "3 first differ at Tone, 1 first differ at Next step",
        "tree 0 · data 0 · judge 0 · same question answered differently 4",
        "could be chance (paired, McNemar mid-p, p = 0.12)",
        "Tone: warm → rude",
    ):
        assert said in found.output


def test_json_and_csv_hold_every_change(runs: tuple[Path, Path]) -> None:
    report = json.loads(dagengine("diff", *runs, "--format", "json").output)
    (metric,) = report["metrics"]
    assert (metric["flips"], metric["causes"]["same"]) == (4, 4)
    rows = list(csv.DictReader(io.StringIO(dagengine("diff", *runs, "--format", "csv").output)))
    assert [row["case"] for row in rows] == [change["case"] for change in metric["changes"]]
    assert {row["node"] for row in rows} == {"Tone", "Next step"}


def test_lost_scores_are_a_line_of_their_own_and_the_rest_is_over_the_same_cases(
    tmp_path: Path,
) -> None:
    def losing(name: str, text: str) -> Any:
        if name == "Tone" and "answer 1" in text:
            raise ValueError("no answer")
        return usual(name, text)

    old, new = record(tmp_path / "a", over=12), record(tmp_path / "b", losing, over=12)
    (metric,) = json.loads(dagengine("diff", old, new, "--format", "json").output)["metrics"]
    lost, left = metric["lost"], metric["scored"]
    assert (metric["flips"], lost + left) == (0, 12)
    assert lost > 1
    scores = f"{lost} of 12 cases lost their score (code error at Tone)"
    assert metric["headline"] == f"{scores}; of the {left} with both scores none flipped"
    assert metric["passed"][0] == metric["passed"][1]
    assert metric["mean"][0] == metric["mean"][1]
    assert metric["test"] is None
    shown = " ".join(dagengine("diff", old, new).output.split())
    for words in (metric["headline"], scores, *metric["result"]):
        assert words in shown
    assert "p = " not in shown
    (back,) = json.loads(dagengine("diff", new, old, "--format", "json").output)["metrics"]
    assert back["scores"] == f"{lost} of 12 cases won a score"


def test_a_test_stands_beside_what_it_tests(runs: tuple[Path, Path]) -> None:
    (metric,) = json.loads(dagengine("diff", *runs, "--format", "json").output)["metrics"]
    passed, test, mean = metric["result"]
    assert (passed[-6:], test[:15], mean[:4]) == ("passed", "could be chance", "mean")


@pytest.mark.parametrize(
    ("condition", "code"),
    [
        ("worse>3", 1), ("worse>4", 0), ("Support quality.same-question>=4", 1), ("better>0", 0),
        ("worse>0.5", 1), ("worse<5", 1), ("worse<=3", 0), ("worst>0", 2), ("worse", 2),
        ("worse.low>0", 2), ("No metric.worse>0", 2),
    ],
)  # fmt: skip
def test_conditions_decide_on_the_exit_code(
    runs: tuple[Path, Path], condition: str, code: int
) -> None:
    found = dagengine("diff", *runs, "--fail-if", condition)
    if code == 2:  # `main` turns it into a message and this code
        assert isinstance(found.exception, InputError)
    else:
        assert found.exit_code == code, found.output


def test_what_is_no_run_is_refused_in_words(runs: tuple[Path, Path], tmp_path: Path) -> None:
    for given, said in ((tmp_path, "has no run.json"), (tmp_path / "none", "does not exist")):
        found = dagengine("diff", runs[0], given)
        assert found.exit_code != 0
        assert said in str(found.exception) + found.output
    found = dagengine("diff", *runs, "--metric", "Suport quality")
    assert "did you mean 'Support quality'" in str(found.exception) + found.output


def test_answers_that_moved_as_a_whole_are_said_to_be_a_shift(tmp_path: Path) -> None:
    """All flips go one way at the same questions: no noise that a card measures does that."""
    rude = but(*(("Tone", f"answer {start}", "rude") for start in (1, 2, 3, 4)))
    runs = record(tmp_path / "a", over=12), record(tmp_path / "b", rude, over=12)
    metric = support_metric()
    seen = repeat(cases(12), [metric], model=ScriptedJudge(wavering), times=4)
    write_card(make_card(seen, [metric], cases(12), ["scripted"]), tmp_path / "card.json")
    shown = dagengine("diff", *runs, "--card", tmp_path / "card.json", "--format", "json")
    (changes,) = json.loads(shown.output)["metrics"]
    assert changes["test"]["shift"] == [6, 0]
    flat = " ".join(dagengine("diff", *runs, "--card", tmp_path / "card.json").output.split())
    for words in (*changes["test"]["words"], changes["noise"]["words"]):
        assert " ".join(words.split()) in flat
    assert "p = 0.031" in flat
    assert "(6 worse, 0 better): perhaps one of the runs was judged otherwise as a whole" in flat
    assert "could give as many flips, but not in one direction" in flat


def wavering(question: Question[Any]) -> Any:
    """The usual answers, but a tone that changes with every other time of asking."""
    if question.name == "Tone" and question.options.sample % 2:
        return "rude"
    return usual(question.name, question.messages[-1]["content"])


@pytest.mark.parametrize("question", [None, "Does Steps name a concrete next step?"])
def test_a_card_says_how_many_flips_asking_again_would_give(
    runs: tuple[Path, Path], tmp_path: Path, question: str | None
) -> None:
    metric = support_metric() if question is None else support_metric(question)
    seen = repeat(cases(12), [metric], model=ScriptedJudge(wavering), times=4)
    write_card(make_card(seen, [metric], cases(12), ["scripted"]), tmp_path / "card.json")
    found = dagengine("diff", *runs, "--card", tmp_path / "card.json")
    assert "not more flips than asking again alone would give" in found.output
    assert "66.7 % of cases flip" in found.output
    flat = " ".join(found.output.split())
    assert ("changed since" in flat) == (question is not None)
