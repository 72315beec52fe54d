"""`dagengine fit escalation`: a threshold that is fitted on one part and proved on the other."""

from __future__ import annotations

import csv
import json
import subprocess
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from escalated import held_shares, one_judgement, planted, proved_shares
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from dagengine import evaluate, read_cases
from dagengine.cli.commands import app
from dagengine.improvement.candidates import with_escalation
from dagengine.improvement.escalation import (
    NEVER,
    SIDES,
    UNKNOWN,
    Cascade,
    TwoJudges,
    Way,
    fit_escalation,
    observe_run,
    prove_escalation,
    replay_judges,
    worse_segments,
)
from dagengine.loading import load_judge, load_metrics
from dagengine.reliability.statistics.intervals import Interval
from dagengine.reliability.statistics.paired_comparisons import Comparison

METRICS = """
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode
from dagengine.question import Options
from dagengine.voting import escalated
from judges import large

asked = Options(top_logprobs=5)
sources = BinaryJudgementNode(
    "Does it name its sources?", evaluation_params=["actual_output"],
    then={True: 10, False: 0}, name="Sources", options=asked,
)
tone = BinaryJudgementNode(
    "Is it polite?", evaluation_params=["actual_output"],
    then={True: sources, False: 0}, name="Tone", options=asked,
)
plain = DAGMetric("Manners", DAG(tone))
sure = escalated(plain, to=large, below=0.9)
"""
JUDGES = '''
from math import log
from random import Random

from dagengine.judges import RecordedJudge
from dagengine.judges.scripted import Recording
from dagengine.question import TokenChoice


class Answers(dict):
    """The small judge is as often right as it is sure; the large one nearly always."""

    def __init__(self, who):
        self.who = who

    def get(self, key, default=None):
        name, _, text = key.partition("|")
        number, polite, sourced, sure = text.partition("Answer ")[2].split()[:4]
        truth = (polite if name == "Tone" else sourced) == "yes"
        chance = float(sure) if name == "Tone" else 1.5 - float(sure)
        chance = chance if self.who == "small" else 0.97
        right = Random(f"{self.who} {name} {number}").random() < chance
        stated, contrary = ("true", "false") if truth == right else ("false", "true")
        choices = ((stated, log(chance)), (contrary, log(1 - chance)))
        tokens = (
            TokenChoice('{"reason": "r", "verdict": ', ()),
            TokenChoice(stated, choices),
            TokenChoice("}", ()),
        )
        return Recording("".join(token.token for token in tokens), tokens=tokens)


def words(question):
    return question.name + "|" + question.messages[-1]["content"]


small = RecordedJudge(Answers("small"), key=words, name="small")
large = RecordedJudge(Answers("large"), key=words, name="large")
'''
COUNT = 200


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Metrics, judges, labelled cases, and a run of each judge."""
    monkeypatch.chdir(tmp_path)
    Path("metrics.py").write_text(METRICS, encoding="utf-8")
    Path("judges.py").write_text(JUDGES, encoding="utf-8")
    random = Random(5)
    with Path("cases.jsonl").open("w", encoding="utf-8") as file:
        for number in range(COUNT):
            polite, sourced = (random.choice(["yes", "no"]) for _ in range(2))
            text = f"Answer {number} {polite} {sourced} {random.choice([0.53, 0.56, 0.94, 0.97])} ."
            label = "pass" if polite == sourced == "yes" else "fail"
            metadata = {"label": label, "language": "de" if number % 2 else "en"}
            case = {"input": "?", "actual_output": text, "additional_metadata": metadata}
            file.write(json.dumps({"name": f"c{number}", **case}) + "\n")
    (metric,) = load_metrics("metrics.py:plain")
    for side in SIDES:
        judge = load_judge(f"judges.py:{side}", None)
        evaluate("cases.jsonl", [metric], model=judge, out=side, show=False)
    return tmp_path


def run(*more: str) -> Result:
    return CliRunner().invoke(app, ["fit", "escalation", *more])


TREE = (
    "metrics.py:sure", "--small", "small", "--large", "large", "--data", "cases.jsonl",
    "--labels", "additional_metadata.label",
)  # fmt: skip


def table(path: str, rows: list[dict[str, object]]) -> None:
    with Path(path).open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def tables(count: int, *, sure: bool = True, better: bool = True) -> None:
    """Two files of verdicts: the small judge is right as often as it is sure."""
    random, small, large = Random(9), list[dict[str, object]](), list[dict[str, object]]()
    for number in range(count):
        label, sureness = random.random() < 0.5, round(random.uniform(0.3, 1), 3)
        right = random.random() < sureness, random.random() < (0.85 if better else 0.2)
        row = {"case": f"c{number}", "label": label, "kind": "odd" if number % 2 else "even"}
        confidence = sureness if sure else ""
        small.append({**row, "verdict": label == right[0], "confidence": confidence})
        large.append({**row, "verdict": label == right[1]})
    table("small.csv", small)
    table("large.csv", large)


# The law.


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from([0.2, 0.5, 0.9]), st.booleans(), st.booleans()), min_size=2),
    st.floats(0, 1),
)
def test_chance_is_a_mixture_of_both_judges_and_the_ends_are_one_of_them(
    drawn: list[tuple[float, bool, bool]], share: float
) -> None:
    cascade = Cascade([one_judgement(*case) for case in drawn])
    small, large = (np.array([case[side] for case in drawn], dtype=float) for side in (1, 2))
    assert cascade.by_chance(share) == pytest.approx((1 - share) * small + share * large)
    assert cascade.at(NEVER)[0] == pytest.approx(small)
    assert cascade.at(1.0)[0] == pytest.approx(large)
    handed = np.array([float(sure < 0.6) for sure, _, _ in drawn])
    assert cascade.at(0.6)[0] == pytest.approx(np.where(handed > 0, large, small))
    assert cascade.at(0.6)[2] == pytest.approx(handed)


def test_the_gain_over_chance_is_the_covariance_of_escalating_and_of_what_it_gains() -> None:
    random = Random(2)
    cascade = Cascade([planted("useful")(random) for _ in range(200)])
    proof = prove_escalation(cascade, 0.6)
    _, _, handed, _ = cascade.at(0.6)
    gain = np.array([case.large - case.small for case in cascade.cases], dtype=float)
    over = proof.gains["chance"]
    assert isinstance(over, Comparison)
    assert over.value == pytest.approx(np.cov(handed, gain, bias=True)[0, 1])


def test_a_verdict_without_confidence_escalates_in_a_cascade_and_by_chance() -> None:
    cases = [one_judgement(UNKNOWN, False, True), one_judgement(0.9, True, False)] * 60
    cascade = Cascade(cases)
    assert cascade.at(0.5)[0].mean() == 1
    proof = prove_escalation(cascade, 0.5)
    assert proof.share == 0.5
    over = proof.gains["chance"]
    assert isinstance(over, Comparison)
    assert over.value == 0  # chance hands over none of those that have one


def test_the_cheapest_threshold_near_the_best_is_taken_and_what_lies_around_it_is_as_good() -> None:
    # Below 0.2 the large judge mends all, from 0.2 to 0.4 one case of a hundred, then none.
    sure = [0.1] * 20 + [0.3] * 20 + [0.5] * 60
    rights = [(k >= 20 and k != 30, k < 40) for k in range(100)]
    cases = [one_judgement(each, *right) for each, right in zip(sure, rights, strict=True)]
    cheap, exact = (fit_escalation(Cascade(cases), distance=d) for d in (0.01, 0.0))
    assert (cheap.below, cheap.low, cheap.high) == (0.2, 0.2, 0.4)
    assert (exact.below, exact.low, exact.high, exact.best) == (0.4, 0.4, 0.4, 1.0)
    assert fit_escalation(Cascade(cases), distance=0.5).below == NEVER


def test_a_worse_segment_is_named_and_small_or_equal_ones_are_not() -> None:
    cases = [one_judgement(0.5, True, k % 2 == 0) for k in range(40)]
    cases += [one_judgement(0.5, True, True)] * 40
    named = {"worse": range(40), "equal": range(40, 80), "few": range(1, 30, 2)}
    assert worse_segments(cases, named) == [("worse", 40, 0.5)]


def test_a_case_that_leads_to_a_node_that_nobody_asked_is_wrong_and_counted() -> None:
    open_ended = TwoJudges(
        (Way(((0.3, False),), True), Way(((0.3, True),), False, "Sources")), True, False
    )
    cases = [open_ended] * 3 + [one_judgement(0.3, False, True)] * 20
    proof = prove_escalation(Cascade(cases), 0.5)
    assert proof.lacking == {"Sources": 3}
    right = proof.accuracy["cascade"]
    assert isinstance(right, Interval)
    assert right.value == pytest.approx(20 / 23)


@pytest.mark.parametrize("kind", ["no better", "says nothing"])
def test_a_useless_cascade_is_hardly_ever_proved_though_it_looks_better(kind: str) -> None:
    naive, opened, proved = proved_shares(kind, 200, 60)
    assert naive > 0.5
    assert opened > 0.5
    assert proved <= 3 / 60


def test_a_useful_cascade_is_proved_and_intervals_hold_what_the_population_says() -> None:
    random = Random("population")
    population = [planted("useful")(random) for _ in range(500)]
    assert proved_shares("useful", 1000, 10)[2] >= 0.9
    held = held_shares(population, 300, 60)
    assert all(share >= 0.85 for share in held.values()), held


# Replayed.


def test_the_replay_of_a_tree_is_what_the_cascade_does(folder: Path) -> None:
    (metric,) = load_metrics("metrics.py:sure")
    cases: list[Any] = list(read_cases("cases.jsonl"))
    rows = [row for side in SIDES for row in observe_run(Path(side), metric, cases, side)]
    replayed = replay_judges(metric, rows, cases, "additional_metadata.label")
    assert len(replayed.judged) == COUNT
    cascade = Cascade([replayed.judged[number] for number in range(COUNT)])
    small = load_judge("judges.py:small", None)
    exactly = lacking = 0
    for below in (0.55, 0.7, 0.99):
        done = evaluate(cases, [with_escalation(metric, below)], model=small, show=False)
        right, _, _, _ = cascade.at(below)
        # Where only the large judge was asked its answer stands for that of the cascade.
        missing = [way.lacks for (_, way), is_taken in zip(cascade.ways, cascade.taken, strict=True)
                   if is_taken and way.lacks]  # fmt: skip
        for number, row in enumerate(done.rows):
            (result,) = row.metrics
            case = replayed.judged[number]
            exact = all(sure != UNKNOWN and not way.lacks for way in case.ways
                        for sure, _ in way.turns)  # fmt: skip
            if exact:
                exactly += 1
                label = (cases[number].additional_metadata or {})["label"] == "pass"
                assert (result.success == label) == bool(right[number]), (below, number)
        lacking += len(missing)
    assert exactly > 150
    assert lacking > 0


def test_a_tree_is_fitted_and_the_threshold_is_written_as_a_patch(folder: Path) -> None:
    done = run(*TREE, "--prices", "0.001,0.02", "--segments", "additional_metadata.language")
    assert done.exit_code == 0, done.output
    assert "✓ Escalate below 0." in done.output
    assert "next     git apply escalation/metrics.patch" in done.output
    record = json.loads(Path("escalation/improve.json").read_text(encoding="utf-8"))
    below = record["fitted"]["below"]
    assert record["proved"] is True
    assert record["proof"]["price"]["small"]["value"] < record["proof"]["price"]["cascade"]["value"]
    subprocess.run(["git", "apply", "escalation/metrics.patch"], check=True)
    assert f"sure = escalated(plain, to=large, below={below})" in Path("metrics.py").read_text()
    again = run(*TREE, "--prices", "0.001,0.02")
    assert "nothing: this is the threshold that it has" in again.output
    assert "looked at" not in again.output
    second = run(*TREE, "--prices", "0.001,0.02", "--seed", "1", "--out", "other")
    assert "these labels were looked at 1 time before" in second.output


def test_a_store_has_both_judges_and_nothing_is_asked(folder: Path) -> None:
    (metric,) = load_metrics("metrics.py:plain")
    for side in SIDES:
        judge = load_judge(f"judges.py:{side}", None)
        evaluate("cases.jsonl", [metric], model=judge, store="a.db", show=False)
    judges = ("--small", "judges.py:small", "--large", "judges.py:large", "--store", "a.db")
    stored = run("metrics.py:sure", *judges, *TREE[5:])
    assert stored.exit_code == 0, stored.output
    headline = stored.output.partition("\n\n")[0]
    assert headline.splitlines()[-1] in run(*TREE, "--out", "runs").output


def test_files_of_verdicts_need_no_metric(folder: Path) -> None:
    tables(600)
    done = run("--small", "small.csv", "--large", "large.csv", "--segments", "kind")
    assert done.exit_code == 0, done.output
    assert "next     write below=0." in done.output
    assert "of the judgements escalate" in done.output
    assert "not known: --prices" in done.output


def test_a_large_judge_that_is_worse_leaves_the_sealed_part_closed(folder: Path) -> None:
    tables(300, better=False)
    done = run("--small", "small.csv", "--large", "large.csv", "--segments", "kind")
    assert done.exit_code == 0, done.output
    assert "✕ Nothing to escalate" in done.output
    assert "not opened" in done.output
    assert "the large judge is, by" in done.output
    assert json.loads(Path("escalation/improve.json").read_text())["sealed_part"]["looks"] == []


@pytest.mark.parametrize(
    ("count", "sure", "words"),
    [
        (60, True, "60 labelled cases (or groups) that both judges judged are too few: on those"),
        (200, False, "no confidence of the small judge is known, so every judgement would"),
    ],
)
def test_what_cannot_be_fitted_is_said_before(
    folder: Path, count: int, sure: bool, words: str
) -> None:
    tables(count, sure=sure)
    done = run("--small", "small.csv", "--large", "large.csv")
    assert done.exit_code != 0
    assert words in str(done.exception)
    assert not Path("escalation").exists()


@pytest.mark.parametrize(("count", "few"), [(120, True), (300, False)])
def test_few_labels_say_before_which_gain_they_can_prove(
    folder: Path, count: int, few: bool
) -> None:
    tables(count)
    done = run("--small", "small.csv", "--large", "large.csv")
    assert done.exit_code == 0, done.output
    words = f"warning: about {count * 2 // 5} sealed cases show a gain of "
    assert (words in done.output and "points in 80 of 100 draws" in done.output) == few


def test_a_confidence_that_is_no_number_and_two_settings_are_named(folder: Path) -> None:
    tables(120)
    text = Path("small.csv").read_text()
    Path("small.csv").write_text(text.replace(text.split(",")[-1].split()[0], "high", 1))
    Path("rows.csv").write_text("case,verdict,confidence,temperature\na,yes,1,0\nb,no,1,1\n")
    Path("words.csv").write_text("case,verdict,confidence\na,yes,high\nb,no,1\n")
    labels = Path("labels.csv")
    labels.write_text("case,label\na,yes\nb,no\n")
    for small, words in (
        ("rows.csv", "has verdicts under 2 settings"),
        ("words.csv", "`confidence` is 'high', but must be a number, or empty"),
    ):
        done = run("--small", small, "--large", "words.csv", "--labels", "labels.csv")
        assert words in str(done.exception)


def test_a_run_and_a_plan_say_which_share_escalates(folder: Path) -> None:
    command = ["metrics.py:sure", "--data", "cases.jsonl", "--judge", "judges.py:small"]
    assumed = CliRunner().invoke(app, ["plan", *command])
    line = "Tone: 25% of judgements escalate (assumed: --results RUN tells)"
    assert line in assumed.output
    notes = json.loads(CliRunner().invoke(app, ["plan", *command, "--json"]).stdout)["notes"]
    assert f"{line}." in notes
    done = CliRunner().invoke(app, ["run", *command, "--out", "cascade", "--no-page"])
    assert " % of the judgements escalated (" in done.output, done.output
    (figures,) = json.loads(Path("cascade/summary.json").read_text())["metrics"]
    steps = [
        step["mode"]
        for line in Path("cascade/results.jsonl").read_text().splitlines()
        for step in json.loads(line)["metrics"][0]["steps"]
        if step["kind"] != "field"
    ]
    share = steps.count("escalated") / len(steps)
    assert set(steps) == {"kept", "escalated"}
    assert figures["escalated"]["value"] == pytest.approx(share)
    for source in ("cascade", "small"):  # the cascade itself, and its first judge alone
        planned = CliRunner().invoke(app, ["plan", *command, "--results", source])
        tone = planned.output.partition("Tone: ")[2].partition("%")[0]
        assert abs(int(tone) / 100 - share) < 0.1, planned.output
