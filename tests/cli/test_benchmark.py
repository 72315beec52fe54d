"""`dagengine benchmark` as people use it: files in, a card and an exit code out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from programs.commands import run_command
from typer.testing import CliRunner, Result

from dagengine.cli import app
from dagengine.errors import InputError

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
kept = ScriptedJudge(answer, name="kept")
other = ScriptedJudge(lambda question: True)
other.identity = "sure"
"""

# The question about the second case is answered by Ctrl-C, once the first is in the store.
INTERRUPTS = """
import os
import signal

import anyio
from dagengine.judges import ScriptedJudge

async def answer(question):
    if "maybe 1" in question.messages[-1]["content"] and question.options.sample == 1:
        os.kill(os.getpid(), signal.SIGINT)
        await anyio.sleep_forever()
    return True

judge = ScriptedJudge(answer, name="interrupting")
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


def test_second_answers_are_asked_unless_left_out(folder: Path) -> None:
    done = benchmark(*MINE, "--times", "2")  # the wavering half goes on once
    assert done.exit_code == 0, done.output
    assert (folder / "asked").read_text().count("\n") == 16 + 12 + 4
    (folder / "asked").unlink()
    less = benchmark(*MINE, "--times", "2", "--no-second-answers")
    assert "repeat a node" not in less.output.partition("Would I")[0]
    assert (folder / "asked").read_text().count("\n") == 16 + 12


def test_one_run_of_each_case_has_a_card(folder: Path) -> None:
    done = benchmark(*MINE, "--times", "1", "--labels", "additional_metadata.good")
    assert done.exit_code == 0, done.output
    assert json.loads((folder / "benchmark/card.json").read_text())["times"] == 1


def test_a_benchmark_prints_its_plan_first_and_leaves_a_card(folder: Path) -> None:
    done = benchmark(*MINE, "--times", "4", "--labels", "additional_metadata.good", "--verbose")
    assert done.exit_code == 0, done.output
    assert (folder / "asked").read_text().count("\n") == 32 + 24  # half of them go on half the time
    output = " ".join(done.output.split())
    assert output.index("at most 64") < output.index("next: ")
    # Half of the runs lead to the second node: in 4 of 16 it is one run of four.
    assert "about 2 (+4 %), at most 16 of these repeat a node" in output
    # Every other answer is the same: runs that alternate are no repeats, and nothing is to blame.
    assert "These runs cannot answer" in output
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
    assert "there is no measure 'flips'" in str(done.exception)
    near = benchmark(*MINE, "--fail-if", "flip-rte>0.05")
    assert str(near.exception).endswith("no measure 'flip-rte'; did you mean 'flip-rate'?")
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
    assert "flip rate manners manners (sure) -33.3 %" in output
    assert "(wavering)" in output  # the cell below "manners"
    benchmark(*MINE, "--times", "4", "--out", "again")
    same = benchmark("--compare", "one/card.json", "again/card.json")
    assert "made from the same" in same.output
    assert "manners (one)  manners" in same.output


def test_several_judges_are_measured_apart_and_against_each_other(folder: Path) -> None:
    done = benchmark(*MINE, "--judge", "judge.py:other", "--times", "4")
    assert done.exit_code == 0, done.output
    card = json.loads((folder / "benchmark/card.json").read_text())
    assert card["binding"]["judges"] == ["wavering", "sure"]
    across = {one["name"]: one["value"] for one in card["metrics"][0]["across"]}
    assert across["judge-flip-rate"] == pytest.approx(0.25)  # half of the runs on half the cases
    flips = [under["again"][0]["value"] for under in card["metrics"][0]["settings"]]
    assert flips == [pytest.approx(1 / 3), 0]  # never pooled


def test_a_judge_without_a_name_is_called_as_it_was_given(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "160")  # no cell of the plan is broken
    with (folder / "judge.py").open("a") as file:
        file.write("plain = ScriptedJudge(answer)\n")
    done = benchmark(*MINE[:-1], "judge.py:plain", "--judge", "judge.py:kept", "--times", "2")
    assert done.exit_code == 0, done.output
    assert "judge.py:plain and scripted kept: 8 cases" in " ".join(done.output.split())
    assert " scripted  " in done.output  # in the plan, without the number of the object
    changed = benchmark(*MINE[:-1], "judge.py:plain", "--check", "benchmark/card.json")
    assert "judge: judge.py:plain and scripted kept → judge.py:plain" in changed.output


def test_verdicts_from_elsewhere_give_a_card_and_nothing_is_asked(folder: Path) -> None:
    rows = (f"case {n},{judge},{'no' if n == run else 'yes'}"
            for n in range(8) for judge in ("x", "y") for run in range(3))  # fmt: skip
    (folder / "seen.csv").write_text("\n".join(["case,judge,verdict", *rows]))
    single = (folder / "metrics.py").read_text().replace("DAG(kind)", "DAG(short)")
    (folder / "single.py").write_text(single)
    mine = ("single.py", "--data", "cases.jsonl", "--verdicts", "seen.csv")
    done = benchmark(*mine, "--labels", "additional_metadata.good", "--fail-if", "flip-rate>0.2")
    assert done.exit_code == 1, done.output
    assert "fails: flip-rate>0.2: manners: x: 25.0 %" in " ".join(done.output.split())
    assert "x and y: 8 cases, 3 runs of each under each of 2 settings" in done.output
    assert not (folder / "asked").exists()
    assert benchmark(*mine, "--check", "benchmark/card.json").exit_code == 0
    assert benchmark(*MINE, "--scale", "1,5").exit_code == 2
    assert isinstance(benchmark(*mine, "--scale", "1-5").exception, InputError)


@pytest.mark.parametrize("instead", ["--verdicts seen.csv", "--compare one.json two.json"])
@pytest.mark.parametrize(
    "option",
    ["--judge judge.py:judge", "--times 20", "--orders given,swapped", "--no-second-answers"],
)
def test_options_about_calls_are_refused_where_none_is_made(
    folder: Path, instead: str, option: str
) -> None:
    for name in ("seen.csv", "one.json", "two.json"):
        (folder / name).touch()
    refused = benchmark(*MINE[:-2], *instead.split(), *option.split())
    assert refused.exit_code == 2
    said = " ".join(word for word in refused.output.split() if word != "│")
    mode, name = instead.split()[0], option.split()[0]
    assert f"{mode} makes no judge calls: leave out {name}" in said


def test_every_temperature_is_a_setting_of_its_own(folder: Path) -> None:
    done = benchmark(*MINE, "--times", "2", "--temperatures", "0,1")
    assert done.exit_code == 0, done.output
    assert "4 runs of this" in " ".join(done.output.split())
    card = json.loads((folder / "benchmark/card.json").read_text())
    assert [one["name"] for one in card["settings"]] == ["temperature 0.0", "temperature 1.0"]
    measures = {one["name"]: one["value"] for one in card["metrics"][0]["across"]}
    assert measures["temperature-flip-rate"] == pytest.approx(0.25)
    assert "takes numbers" in str(benchmark(*MINE, "--temperatures", "hot").exception)


def test_seeds_and_other_words_are_settings_of_their_own(folder: Path) -> None:
    (folder / "words.json").write_text('{"plain": {"kind": "Nothing rude?"}}')
    done = benchmark(*MINE, "--times", "2", "--seeds", "1,2", "--paraphrases", "words.json")
    assert done.exit_code == 0, done.output
    assert "8 runs of this" in " ".join(done.output.split())
    card = json.loads((folder / "benchmark/card.json").read_text())
    assert [one["name"] for one in card["settings"]] == [
        "seed 1, wording as given",
        "seed 1, wording plain",
        "seed 2, wording as given",
        "seed 2, wording plain",
    ]
    measures = {one["name"]: one["value"] for one in card["metrics"][0]["across"]}
    assert measures["seed-flip-rate"] == pytest.approx(0.25)
    assert measures["paraphrase-flip-rate"] == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "words.json: No such file"),
        ("{", 'write JSON, for instance {"short": {"name of a node": "other words"}}'),
        ('{"plain": "Nothing rude?"}', "plain"),
        ('{"plain": {"rude": "Nothing rude?"}}', "no node is called 'rude'; use 'kind', 'short'"),
    ],
)
def test_words_for_nobody_are_found_before_anything_is_asked(
    folder: Path, text: str | None, says: str
) -> None:
    if text is not None:
        (folder / "words.json").write_text(text)
    done = benchmark(*MINE, "--times", "2", "--paraphrases", "words.json")
    assert done.exit_code != 0
    assert says in str(done.exception)
    assert not (folder / "asked").exists()


def test_metrics_and_data_are_needed_for_a_benchmark(folder: Path) -> None:
    assert benchmark().exit_code == 2


def test_a_benchmark_without_a_case_is_refused_before_it_writes_a_card(folder: Path) -> None:
    (folder / "cases.jsonl").write_text("")
    result = benchmark(*MINE)
    assert isinstance(result.exception, InputError)
    assert "cases.jsonl has no test cases" in str(result.exception)
    assert not list(folder.glob("**/card.json"))


KEPT = (*MINE[:-1], "judge.py:kept", "--store", "answers.db")


def test_a_second_run_from_the_store_makes_no_call_and_the_same_card(folder: Path) -> None:
    assert benchmark(*KEPT, "--times", "4", "--out", "one").exit_code == 0
    (folder / "asked").unlink()
    again = benchmark(*KEPT, "--times", "4", "--out", "two", "--max-calls", "0")
    assert again.exit_code == 0, again.output
    assert not (folder / "asked").exists()
    for name in ("card.json", "card.html", "card.md"):
        assert (folder / "one" / name).read_bytes() == (folder / "two" / name).read_bytes()


def test_a_longer_run_asks_only_what_the_store_lacks_and_needs_that_many_calls(
    folder: Path,
) -> None:
    benchmark(*KEPT, "--times", "4")  # 56 answers
    (folder / "asked").unlink()
    refused = benchmark(*KEPT, "--times", "5", "--max-calls", "23")
    assert "up to 24 calls may be needed (56 answers are in the store)" in str(refused.exception)
    assert not (folder / "asked").exists()
    assert benchmark(*KEPT, "--times", "5", "--max-calls", "24").exit_code == 0
    assert (folder / "asked").read_text().count("\n") == 16  # the fifth sample is even: all kind


def test_an_interrupted_benchmark_says_how_to_go_on(folder: Path) -> None:
    (folder / "judge.py").write_text(INTERRUPTS, encoding="utf-8")
    done = run_command(folder, "benchmark", *MINE, "--times", "2", "--store", "answers.db")
    assert done.returncode == 130, done.stderr
    assert "run the same command to continue: the answers so far are in answers.db" in done.stderr
    assert "of 8 cases" in done.stderr
    assert "Traceback" not in done.stderr


def test_labels_that_no_case_has_are_found_before_anything_is_asked(folder: Path) -> None:
    done = benchmark(*MINE, "--labels", "additional_metadata.none")
    assert "no case has a label" in str(done.exception)
    assert not (folder / "asked").exists()


def test_two_fields_are_swapped_and_the_verdicts_compared(folder: Path) -> None:
    swapped = ("--orders", "given,swapped", "--swap", "input,actual_output", "--times", "2")
    done = benchmark(*MINE, *swapped)
    assert done.exit_code == 0, done.output
    card = json.loads((folder / "benchmark/card.json").read_text())
    more = {one["name"]: one["value"] for one in card["metrics"][0]["across"]}
    # Swapped the judge reads "a", which is kind: it differs where it wavered and said no.
    assert more["position-consistency"] == 1.0  # of runs that one node ended
    assert "--swap takes two fields" in str(benchmark(*MINE, "--swap", "input").exception)


def test_stated_probabilities_are_on_the_card_when_they_are_asked_for(folder: Path) -> None:
    (folder / "judge.py").write_text(
        "from dagengine.judges import Noise, SimulatedJudge\n"
        "judge = SimulatedJudge({'kind': True, 'short': True}, Noise(flip=0.2), seed=1,"
        " probabilities=True)\n"
    )
    for option, plots in (("--probabilities", 1), (None, 0)):
        done = benchmark(*MINE, "--times", "6", *([option] if option else []))
        assert done.exit_code == 0, done.output
        (metric,) = json.loads((folder / "benchmark/card.json").read_text())["metrics"]
        (metric,) = metric["settings"]
        assert len(metric["calibration"]) == plots
        assert ("repeat-brier" in {one["name"] for one in metric["more"]}) == bool(plots)


def test_one_run_of_each_case_gives_a_card_of_what_one_run_can_tell(folder: Path) -> None:
    done = benchmark(*MINE, "--times", "1", "--labels", "additional_metadata.good", "--verbose")
    assert done.exit_code == 0, done.output
    output = " ".join(done.output.split())
    assert "every case ran once" in output
    assert "Does the judge agree with people? In 50.0 %" in output
    assert "8 cases with 1 run each can detect a difference of about" in output


def test_labels_come_from_a_file_and_no_question_is_asked_for_labels_that_cannot_come_out(
    folder: Path,
) -> None:
    rows = "".join(f"case {n},{'Y' if n % 2 else 'N'}\n" for n in range(8))
    (folder / "labels.csv").write_text(f"case,label\n{rows}")
    done = benchmark(*MINE, "--times", "1", "--labels", "labels.csv")
    assert done.exit_code == 0, done.output
    (metric,) = json.loads((folder / "benchmark/card.json").read_text())["metrics"]
    assert {one["label"]: one["means"] for one in metric["labels"]} == {"Y": "pass", "N": "fail"}
    (folder / "asked").unlink()
    (folder / "labels.csv").write_text("case,label\n0,splendid\n")
    refused = benchmark(*MINE, "--labels", "labels.csv")
    assert "the labels are 'splendid', but it ends with pass or fail" in str(refused.exception)
    assert not (folder / "asked").exists()


def test_a_worse_card_fails_a_comparison_when_it_is_no_chance(folder: Path) -> None:
    wrong = "other = ScriptedJudge(lambda question: False)\nother.identity = 'no'\n"
    (folder / "no.py").write_text(f"from dagengine.judges import ScriptedJudge\n{wrong}")
    (folder / "cases.jsonl").write_text(CASES.replace("false", "true"))
    labels = ("--times", "2", "--labels", "additional_metadata.good")
    benchmark(*MINE[:-1], "judge.py:other", *labels, "--out", "one")
    benchmark(*MINE[:-1], "no.py:other", *labels, "--out", "two")
    cards = ("one/card.json", "two/card.json")
    done = benchmark("--compare", *cards, "--fail-if", "accuracy<0")
    assert done.exit_code == 1, done.output
    assert (
        "fails: accuracy<0: manners (no): accuracy of the majority of runs -100.0 %" in done.output
    )
    assert benchmark("--compare", *cards[::-1], "--fail-if", "accuracy<0").exit_code == 0


def test_cases_of_one_document_are_grouped(folder: Path) -> None:
    done = benchmark(*MINE, "--times", "2", "--groups", "additional_metadata.good")
    assert done.exit_code == 0, done.output
    card = json.loads((folder / "benchmark/card.json").read_text())
    assert {one["group"] for one in card["cases"]} == {"group of case 0", "group of case 4"}
    assert "no case has a value" in str(benchmark(*MINE, "--groups", "tags").exception)
