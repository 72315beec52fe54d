"""Several candidates of a case, several scores of each: which one is the best, and is it right?"""

from __future__ import annotations

import csv
import json
import math
import random
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from dagengine import evaluate
from dagengine.cli import app
from dagengine.errors import InputError
from dagengine.judges import ScriptedJudge
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, RatingNode
from dagengine.question import Question
from dagengine.reliability.card.best_of_n import Ties, contest_card
from dagengine.reliability.card.card_formats import read_card
from dagengine.reliability.card.sentences import bought, scores_needed
from dagengine.reliability.card.types import Contest, JudgeCard
from dagengine.reliability.statistics.majority_votes import best_of
from dagengine.reliability.verdict_cases import read_verdicts
from dagengine.test_case import LLMTestCase

SCALE = (1.0, 10.0)
Row = dict[str, Any]
scores = st.lists(
    st.lists(st.lists(st.none() | st.integers(1, 4), min_size=2, max_size=2), min_size=3,
             max_size=3), min_size=1, max_size=4,
)  # fmt: skip


def written(path: Path, rows: list[Row]) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(dict.fromkeys(name for row in rows for name in row)))
        writer.writeheader()
        writer.writerows(rows)
    return path


def drawn(cases: int = 60, runs: int = 4, seed: int = 0, **more: Any) -> Iterator[Row]:
    """Scores of three candidates, of which "c0" is better; single scores tie often."""
    draw = random.Random(seed)
    for case in range(cases):
        for candidate in range(3):
            level = draw.gauss(5.4 if candidate == 0 else 4.5, 0.7)
            for run in range(runs):
                score = min(max(round(draw.gauss(level, 1)), 1), 10)
                yield {"case": f"q{case}", "candidate": f"c{candidate}", "run": run,
                       "score": score, **more}  # fmt: skip


def card_of(path: Path, ties: Ties = "share", within: float = 0.01, **more: Any) -> JudgeCard:
    made = read_verdicts(path, scale=SCALE)
    assert made.contests is not None
    settings: dict[str, Any] = {"ties": ties, "within": within, "labels": made.labels or None}
    return contest_card(made.contests, made.metric, made.cases, ["judge"], **settings | more)


def contest_of(card: JudgeCard, setting: int = 0) -> Contest:
    contest = card.metrics[0].settings[setting].contest
    assert contest is not None
    return contest


@given(scores)
def test_the_best_candidate_is_that_with_the_highest_mean(table: list[Any]) -> None:
    picks = best_of(np.array(table, dtype=float), np.zeros(len(table), int))
    for case, rows in enumerate(table):
        filled = [[score for score in row if score is not None] for row in rows]
        if not all(filled):
            assert math.isnan(picks.share[case])
            assert picks.picked[case] == -2
            continue
        means = [Fraction(sum(row), len(row)) for row in filled]
        best = [place for place, mean in enumerate(means) if mean == max(means)]
        assert picks.tied[case] == (len(best) > 1)
        assert picks.wrong[case] == (best == [0])
        assert picks.share[case] == ((0 in best) / len(best))
        assert picks.picked[case] == (best[0] if len(best) == 1 else -1)
        ranked = sorted(means)
        assert picks.margin[case] == pytest.approx(float(ranked[-1] - ranked[-2]))


def test_candidates_of_a_table_make_a_curve_by_both_rules(tmp_path: Path) -> None:
    path = written(tmp_path / "t.csv", [{**row, "label": "c0"} for row in drawn()])
    contest = contest_of(card_of(path))
    array = next(iter(read_verdicts(path, scale=SCALE).contests.scores.values()))  # type: ignore[union-attr]
    for row in contest.curve:
        picks = best_of(array[:, :, : row.scores], np.zeros(60, int))
        assert row.wrong.value == pytest.approx(picks.wrong.mean())
        assert row.share.value == pytest.approx(picks.share.mean())
        assert row.ties.value == pytest.approx(picks.tied.mean())
    first, last = contest.curve[0], contest.curve[-1]
    assert first.ties.value > last.ties.value  # type: ignore[operator]
    gain = last.wrong.value - first.wrong.value  # type: ignore[operator]
    assert contest.gain.value == pytest.approx(gain)
    assert contest.gain.value == pytest.approx(contest.noise.value + contest.unties.value)  # type: ignore[operator]
    assert contest.curve[0].short.value == pytest.approx(last.share.value - first.share.value)  # type: ignore[operator]


def test_the_rule_for_ties_decides_what_agreement_is(tmp_path: Path) -> None:
    path = written(tmp_path / "t.csv", [{**row, "label": "c0"} for row in drawn()])
    for rule in ("wrong", "share"):
        card = card_of(path, rule)
        first = card.metrics[0].settings[0].voted[0]
        assert first.agreement == getattr(contest_of(card).curve[0], rule)
        chance = 1 / 3
        assert first.kappa.value == pytest.approx((first.agreement.value - chance) / (1 - chance))  # type: ignore[operator]


def test_a_label_names_the_right_candidate_or_says_yes_and_no(tmp_path: Path) -> None:
    named = [{**row, "label": "c0"} for row in drawn()]
    said = [{**row, "label": "yes" if row["candidate"] == "c0" else "no"} for row in drawn()]
    first, second = (read_verdicts(written(tmp_path / f"{k}.csv", rows), scale=SCALE)
                     for k, rows in enumerate((named, said)))  # fmt: skip
    assert first.labels == second.labels == {case: ["c0"] for case in range(60)}
    two = [{**row, "label": "yes"} for row in drawn(1)]
    with pytest.raises(InputError, match="the case 'q0' name 3 right candidates"):
        read_verdicts(written(tmp_path / "two.csv", two), scale=SCALE)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"candidate": ""}, "`candidate` is empty"),
        ({"score": 11}, "not between 1 and 10"),
        ({"score": "much"}, "`score` is 'much', but must be a number"),
        ({"run": 1}, "a second verdict on the case 'q0'"),
    ],
)
def test_a_row_that_cannot_be_read_is_named(tmp_path: Path, change: Row, message: str) -> None:
    rows = list(drawn(2))
    rows[0] |= change
    with pytest.raises(InputError, match=message) as error:
        read_verdicts(written(tmp_path / "t.csv", rows), scale=SCALE)
    assert "t.csv line" in str(error.value)


def test_a_case_with_one_candidate_and_a_label_of_none_are_errors(tmp_path: Path) -> None:
    alone = [row for row in drawn(3) if row["case"] != "q1" or row["candidate"] == "c1"]
    with pytest.raises(InputError, match="the case 'q1' has one candidate"):
        read_verdicts(written(tmp_path / "alone.csv", alone), scale=SCALE)
    path = written(tmp_path / "t.csv", list(drawn(3)))
    with pytest.raises(InputError, match="'c9' of the case 'q2' is none of its candidates"):
        card_of(path, labels={2: "c9"})


def test_settings_are_never_pooled_but_seeds_that_asked_once_are_repeats(tmp_path: Path) -> None:
    hot = [row for degree in (0, 0.7) for row in drawn(seed=int(10 * degree), temperature=degree)]
    card = card_of(written(tmp_path / "hot.csv", hot), labels=dict.fromkeys(range(60), "c0"))
    assert [setting.name for setting in card.settings] == ["temperature 0.0", "temperature 0.7"]
    assert [len(contest_of(card, place).curve) for place in (0, 1)] == [4, 4]
    assert card.metrics[0].between[0].difference.name == "best-share"
    seeds = [{**row, "run": 0, "seed": row["run"]} for row in drawn()]
    made = read_verdicts(written(tmp_path / "seeds.csv", seeds), scale=SCALE)
    assert [array.shape for array in made.contests.scores.values()] == [(60, 3, 4)]  # type: ignore[union-attr]


def test_cases_may_have_different_numbers_of_candidates_and_scores(tmp_path: Path) -> None:
    rows = [row for row in drawn(20) if row["case"] != "q3" or row["candidate"] != "c2"]
    rows = [row for row in rows if (row["case"], row["candidate"], row["run"]) != ("q4", "c1", 0)]
    contest = contest_of(card_of(written(tmp_path / "t.csv", rows),
                                 labels=dict.fromkeys(range(20), "c0")))  # fmt: skip
    # Without its first score, a candidate cannot be compared by one score, but by two.
    assert [row.share.items for row in contest.curve] == [19, 20, 20, 20]


def test_enough_is_the_least_number_from_which_all_are_surely_near(tmp_path: Path) -> None:
    path = written(tmp_path / "t.csv", [{**row, "label": "c0"} for row in drawn(200, 6)])
    for within in (0.0, 0.02, 0.05, 0.5):
        contest = contest_of(card_of(path, within=within))
        near = [row.scores for row in contest.curve[:-1] if row.short.high <= within]  # type: ignore[operator]
        expected = next((k for k in range(1, 7) if all(n in near for n in range(k, 6))), 6)
        assert contest.enough == expected
    assert contest.enough == 1
    assert "1 score is enough: surely at most 50 points short of 6" in scores_needed(contest)
    assert "less noise" in " ".join(bought(contest))


def test_a_judge_with_one_score_says_that_more_were_not_seen(tmp_path: Path) -> None:
    path = written(tmp_path / "t.csv", [{**row, "label": "c0"} for row in drawn(runs=1)])
    contest = contest_of(card_of(path))
    assert scores_needed(contest) == "One score was seen; what more of them buy is not known."
    assert list(bought(contest)) == []


def test_runs_of_ratings_are_contests_if_their_cases_name_candidates(tmp_path: Path) -> None:
    cases = [
        LLMTestCase(input=f"q{case}", actual_output=name, additional_metadata={
            "candidate": name, "label": "good"})
        for case in range(3) for name in ("good", "bad")
    ]  # fmt: skip

    def rated(question: Question[Any]) -> Row:
        good = "\ngood" in question.messages[-1]["content"]
        return {"reason": "I looked.", "score": 9 if good else 3}

    rating = RatingNode("How good is it?", ["actual_output"], name="Good")
    judge = ScriptedJudge(rated, name="stand-in")
    for turn in range(2):
        evaluate(cases, [DAGMetric("Good", DAG(rating))], model=judge, show=False,
                 out=tmp_path / f"run{turn}")  # fmt: skip
    made = read_verdicts(tmp_path)
    assert made.contests is not None
    assert [list(own) for own in made.contests.names] == [["good", "bad"]] * 3
    (array,) = made.contests.scores.values()
    assert array.shape == (3, 2, 2)
    assert made.labels == {case: ["good"] for case in range(3)}


def test_the_command_takes_a_file_of_labels_for_several_tables(tmp_path: Path) -> None:
    tables = [written(tmp_path / f"{name}.csv", list(drawn(cases, subset="hard")))
              for name, cases in (("small", 30), ("large", 60))]  # fmt: skip
    labels = [{"case": f"q{case}", "label": "c0"} for case in range(60)]
    written(tmp_path / "labels.csv", labels)
    for table, said in zip(tables, ("30 labels of", ""), strict=True):
        done = CliRunner().invoke(
            app, ["benchmark", "--verdicts", str(table), "--labels", str(tmp_path / "labels.csv"),
                  "--scale", "1,10", "--ties", "wrong", "--out", str(tmp_path / table.stem)],
        )  # fmt: skip
        assert done.exit_code == 0, done.output
        assert "best of 3 by the mean of k scores" in done.output
        assert ("left out: no such case here" in done.output) is bool(said)
        assert said in done.output
    card = read_card(tmp_path / "small" / "card.json")
    assert contest_of(card).rule == "wrong"
    assert "| k | a tie is wrong |" in (tmp_path / "small" / "card.md").read_text()
    assert "best of 3" in (tmp_path / "small" / "card.html").read_text()


def test_columns_without_a_meaning_make_segments(tmp_path: Path) -> None:
    def label(row: Row) -> str:
        return "c0" if int(row["case"][1:]) % 2 else "c1"  # mostly wrong in half of the cases

    rows = [{**row, "label": label(row), "subset": "odd" if label(row) == "c0" else "even",
             "score_id": random.random()} for row in drawn(80)]  # fmt: skip
    card = card_of(written(tmp_path / "t.csv", rows))
    assert [part.name for part in card.metrics[0].settings[0].segments] == ["subset even"]


def test_a_card_without_candidates_has_no_contest_in_its_file(tmp_path: Path) -> None:
    rows = [{"case": case, "verdict": "pass", "label": "pass"} for case in range(10)]
    done = CliRunner().invoke(
        app, ["benchmark", "--verdicts", str(written(tmp_path / "t.csv", rows)), "--out",
              str(tmp_path / "card")],
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    saved = json.loads((tmp_path / "card" / "card.json").read_text())
    assert "contest" not in saved["metrics"][0]["settings"][0]
