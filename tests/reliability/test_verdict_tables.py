"""Verdicts that were collected elsewhere come in as a table, and give a card."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from graphs.trees import yes_no_metric

from dagengine.errors import InputError
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode, NonBinaryJudgementNode, RatingNode
from dagengine.reliability import Observations
from dagengine.reliability.card import make_card
from dagengine.reliability.card.differences import between_cards
from dagengine.reliability.card.sentences import answers, corrected_said, headline
from dagengine.reliability.card.types import JudgeCard, MetricCard
from dagengine.test_case import LLMTestCase

CASES = [LLMTestCase(name=name, input=name) for name in ("one", "two")]
TABLE = """case,run,node,verdict,score
one,0,good,true,1
one,1,good,false,0
two,0,good,true,1
two,1,good,,
"""


def flips(seen: Observations) -> float | None:
    card = make_card(seen, [yes_no_metric()], CASES, ["collected elsewhere"])
    found = card.metrics[0].figure("flip-rate")
    assert found is not None
    return found.value


def test_a_table_of_verdicts_gives_a_card(tmp_path: Path) -> None:
    (tmp_path / "seen.csv").write_text(TABLE)
    seen = Observations.load(tmp_path / "seen.csv", CASES, metric="worth")
    assert seen.table("worth", "good") == [[True, False], [True, None]]
    assert seen.table("worth") == [[1.0, 0.0], [1.0, None]]
    card = make_card(seen, [yes_no_metric()], CASES, ["collected elsewhere"])
    missing = card.metrics[0].figure("unscored")
    assert missing is not None
    assert (flips(seen), missing.value) == (1.0, 0.25)
    assert headline(card) == "2 cases, 2 runs of each"


def test_a_card_says_of_how_many_cases_it_is() -> None:
    seen = Observations.load([{"case": "one", "verdict": True}], CASES, metric="worth")
    assert (
        headline(make_card(seen, [yes_no_metric()], CASES, ["it"])) == "1 of 2 cases, 1 run of each"
    )


# As somebody has them who knows nothing of nodes: rows of a case are its runs.
ROWS: list[dict[str, Any]] = [
    {"case": "one", "verdict": True, "comment": "fine"},
    {"case": "one", "verdict": False, "comment": "not so"},
    {"case": "two", "verdict": True, "comment": ""},
    {"case": "two", "verdict": True, "comment": ""},
]


@pytest.mark.parametrize("form", ["list", "frame", "jsonl", "json", "csv"])
def test_verdicts_alone_are_enough_in_every_form(form: str, tmp_path: Path) -> None:
    path = tmp_path / f"seen.{form}"
    if form == "frame":
        source: Any = pytest.importorskip("pandas").DataFrame(ROWS)
    elif form == "list":
        source = ROWS
    else:
        lines = "".join(f"{json.dumps(row)}\n" for row in ROWS)
        rows = "".join(f"{row['case']},{row['verdict']}\n" for row in ROWS)
        path.write_text(
            {"jsonl": lines, "json": json.dumps(ROWS), "csv": f"case,verdict\n{rows}"}[form]
        )
        source = path
    seen = Observations.load(source, CASES, metric="worth")
    assert flips(seen) == 0.5


def test_ratings_come_on_a_scale_of_their_own() -> None:
    rows = [{"case": "one", "score": score} for score in (1, 3, 5)]
    seen = Observations.load(rows, CASES, metric="worth", scale=(1, 5))
    assert seen.table("worth") == [[0.0, 0.5, 1.0]]
    with pytest.raises(InputError, match="scale"):
        Observations.load(rows, CASES, metric="worth", scale=(5, 1))


def test_what_was_saved_is_read_back_and_not_taken_for_a_table(tmp_path: Path) -> None:
    seen = Observations.load(ROWS, CASES, metric="worth")
    seen.save(tmp_path / "kept.jsonl")
    assert Observations.load(tmp_path / "kept.jsonl") == seen


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ("onne,0,good,true,1", "line 2 is not a verdict or score: .*did you mean 'one'"),
        ("7,0,good,true,1", "no case has the name or the place '7'"),
        ("one,0,good,true,5", "score 5 is not between 0 and 1"),
        ("one,,good,true,1\none,1,good,true,1", "`run` is empty"),
        ("one,0.5,good,true,1", "whole number"),
        (",0,good,true,1", "`case` is empty"),
        ("one,0,good,true,high", "`score` is 'high', but must be a number"),
        ("one,first,good,true,1", "`run` is 'first', but must be a number"),
        ("one,0,good,true,1\none,0,good,true,1", "line 3: run 0 of case 0 has node 'good' twice"),
    ],
)
def test_a_row_that_is_none_says_where_and_what(tmp_path: Path, row: str, says: str) -> None:
    (tmp_path / "seen.csv").write_text(f"case,run,node,verdict,score\n{row}\n")
    with pytest.raises(InputError, match=says):
        Observations.load(tmp_path / "seen.csv", CASES)


def test_a_name_that_several_cases_have_joins_no_row() -> None:
    with pytest.raises(InputError, match=r"row 1 .* called 'one': write a place \(0, 2\)"):
        Observations.load([{"case": place, "verdict": True} for place in ("two", "one")],
                          [*CASES, CASES[0]])  # fmt: skip


def test_an_empty_table_is_refused() -> None:
    with pytest.raises(InputError, match="no rows"):
        Observations.load([], CASES)


def test_a_node_that_the_metric_does_not_have_is_refused() -> None:
    rows = [{"case": "one", "node": node, "verdict": True} for node in ("good", "goood")]
    with pytest.raises(
        InputError, match=r"a node 'goood', but .*'worth' has .*did you mean 'good'"
    ):
        flips(Observations.load(rows, CASES, metric="worth"))


def test_cases_may_have_run_more_or_less_often() -> None:
    rows = [{"case": case, "verdict": run != 1} for case in ("one", "two") for run in range(3)]
    seen = Observations.load([*rows, {"case": "two", "verdict": True}], CASES, metric="worth")
    card = make_card(seen, [yes_no_metric()], CASES, ["it"])
    assert headline(card) == "2 cases, 3 to 4 runs of each"
    assert flips(seen) == pytest.approx((2 / 3 + 1 / 2) / 2)
    agreement = card.metrics[0].figure("total-agreement")
    assert agreement is not None
    assert agreement.note == "cases have 3 to 4 runs; equal numbers are needed"


def test_a_table_without_verdicts_names_its_columns() -> None:
    with pytest.raises(
        InputError, match="no column `verdict`, `passed` or `score`; it has case, said"
    ):
        Observations.load([{"case": "one", "said": "yes"}], CASES)


@pytest.mark.parametrize(
    ("yes", "no"), [("yes", "no"), ("Pass", "fail"), ("1", "0"), (1, 0), (1.0, 0.0), ("Y", "N")]
)
def test_other_words_for_yes_and_no_are_understood(yes: Any, no: Any) -> None:
    rows = [{**row, "verdict": yes if row["verdict"] else no} for row in ROWS]
    assert flips(Observations.load(rows, CASES)) == 0.5


@pytest.mark.parametrize("column", ["passed", "success", "Passed"])
@pytest.mark.parametrize(("yes", "no"), [(True, False), ("1.0", "0.0"), (1, 0), ("pass", "FAIL")])
def test_whether_a_case_passed_wins_over_its_score(column: str, yes: Any, no: Any) -> None:
    """The score would pass by the metric's own threshold."""
    rows = [{"case": case, column: yes if case == "one" else no, "score": 0.9}
            for case in ("one", "two")]  # fmt: skip
    seen = Observations.load(rows, CASES, metric="worth")
    card = make_card(seen, [yes_no_metric()], CASES, ["it"])
    rate = card.metrics[0].figure("pass-rate")
    assert rate is not None
    assert rate.value == 0.5


@pytest.mark.parametrize(
    "cells", [{"passed": "maybe"}, {"passed": True, "success": False},
              {"verdict": "fail", "passed": 1}],
)  # fmt: skip
def test_results_that_contradict_each_other_are_refused(cells: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"row 0 .*write yes or no, and the same"):
        Observations.load([{"case": "one", **cells}], CASES)


def test_a_verdict_that_no_node_has_is_refused() -> None:
    rows = [{"case": "two", "verdict": "fine"}]
    with pytest.raises(InputError, match="case 1, run 0: 'good' has no verdict 'fine'; it has"):
        flips(Observations.load(rows, CASES))


def test_observations_of_another_metric_are_refused() -> None:
    seen = Observations.load(ROWS, CASES, metric="wroth")
    with pytest.raises(InputError, match="are about 'wroth', but the metrics are called 'worth'"):
        flips(seen)


def test_scores_of_a_metric_with_one_node_are_what_the_node_said() -> None:
    node = RatingNode("Rate.", name="rating", evaluation_params=["input"], scale=(1, 5))
    rows = [{"case": case, "score": one} for case in ("one", "two") for one in (2, 4, 5)]
    seen = Observations.load(rows, CASES, scale=(1, 5))
    card = make_card(seen, [DAGMetric("worth", DAG(node))], CASES, ["collected elsewhere"])
    (found,) = card.metrics[0].settings[0].nodes
    assert (found.node, found.share.value, found.flip_rate.value) == ("rating", 1.0, 1.0)


def two_questions() -> DAGMetric:
    kind = BinaryJudgementNode("Kind?", name="kind", then={True: 10, False: 2})
    good = BinaryJudgementNode(
        "Good?", name="good", evaluation_params=["input"], then={True: kind, False: 0}
    )
    return DAGMetric("worth", DAG(good), threshold=0.5)


def test_a_metric_of_several_nodes_passes_or_fails_where_its_nodes_are_not_known() -> None:
    rows = [
        {"case": "one", "verdict": "yes"},
        {"case": "one", "verdict": "no"},
        {"case": "two", "verdict": "fail"},
        {"case": "two", "verdict": False},
    ]
    seen = Observations.load(rows, CASES, metric="worth")
    card = make_card(seen, [two_questions()], CASES, ["it"], labels={0: "pass", 1: "fail"})
    found = {name: card.metrics[0].figure(name) for name in ("flip-rate", "single-run-accuracy")}
    assert {name: one and one.value for name, one in found.items()} == {
        "flip-rate": 0.5,
        "single-run-accuracy": 0.75,
    }


def test_a_verdict_of_no_node_that_does_not_say_whether_the_metric_passes_is_refused() -> None:
    seen = Observations.load([{"case": "one", "verdict": "tie"}], CASES, metric="worth")
    with pytest.raises(InputError, match=r"'tie'\. If it is the verdict of a node, name"):
        make_card(seen, [two_questions()], CASES, ["it"])


def test_verdicts_that_lead_to_no_score_say_so_and_count_in_no_votes() -> None:
    """The rows of the node that a yes leads to are missing."""
    rows = [
        {"case": place, "node": "good", "verdict": place + run > 5}
        for place in range(12)
        for run in range(4)
    ]
    cases = [LLMTestCase(name=str(place), input=str(place)) for place in range(12)]
    seen = Observations.load(rows, cases, metric="worth")
    card = make_card(seen, [two_questions()], cases, ["it"])
    under = card.metrics[0].settings[0]
    assert "30 of 48 runs have no score: 30 with verdicts that lead to no score." in under.notes
    good = next(node for node in under.nodes if node.node == "good")
    assert good.flip_rate.value == 0
    assert good.votes is not None
    assert good.votes.kind == "not known"


def test_scores_without_answers_of_nodes_blame_nobody() -> None:
    rows = [
        {"case": place, "score": (place + run) % 3 / 2} for place in range(12) for run in range(4)
    ]
    cases = [LLMTestCase(input=str(place)) for place in range(12)]
    seen = Observations.load(rows, cases, metric="worth")
    for one in (yes_no_metric(), two_questions()):
        under = make_card(seen, [one], cases, ["it"]).metrics[0].settings[0]
        assert answers(under)[1].text.endswith(": no answer of a node is known.")
        assert under.notes == ()


def test_cases_that_all_change_alike_have_no_drift_but_one_that_is_told() -> None:
    rows = [{"case": place, "verdict": run > 0} for place in range(9) for run in range(2)]
    cases = [LLMTestCase(input=str(place)) for place in range(9)]
    card = make_card(Observations.load(rows, cases), [yes_no_metric()], cases, ["it"])
    drift = card.metrics[0].figure("drift")
    assert drift is not None
    assert drift.note == "all cases change equally from the first run to the last"


def value_of(card: MetricCard, name: str) -> float:
    found = card.figure(name)
    assert found is not None
    assert found.value is not None
    return found.value


def test_differences_of_two_cards_are_those_of_their_figures() -> None:
    """To the last digit of a score, and with runs that have none."""
    cards = []
    for shift in (0.0, 1e-9):
        rows = [
            {
                "case": place,
                "score": None if run == place % 5 else 0.5 - shift * ((run + place) % 2),
            }
            for place in range(20)
            for run in range(4)
        ]
        cases = [LLMTestCase(input=str(place)) for place in range(20)]
        node = RatingNode("Rate.", name="rating", evaluation_params=["input"])
        seen, labels = Observations.load(rows, cases), {k: k % 3 > 0 for k in range(20)}
        rated = DAGMetric("worth", DAG(node), threshold=0.5)
        cards.append(make_card(seen, [rated], cases, ["it"], labels=labels))
    for one in between_cards(cards[0], cards[1]):
        name = one.difference.name
        if name != "variance-share":
            before, after = (value_of(card.metrics[0], name) for card in cards)
            assert one.difference.value == pytest.approx(after - before), name


def rated(labels: dict[int, int], judge: int) -> JudgeCard:
    """Cases that a judge rated from 1 to 5, some of which people rated, too."""
    rows = [{"case": k, "score": 1 + (judge * k + run) % 5} for k in range(60) for run in range(3)]
    cases = [LLMTestCase(input=str(place)) for place in range(60)]
    node = RatingNode("Rate.", name="rating", evaluation_params=["input"], scale=(1, 5))
    seen = Observations.load(rows, cases, scale=(1, 5))
    return make_card(
        seen, [DAGMetric("worth", DAG(node))], cases, ["it"], labels=labels, labels_random=True,
        label_scale=(1, 5),
    )  # fmt: skip


def test_mean_scores_by_people_are_on_the_scale_of_their_labels() -> None:
    """Also where the labels of one card do not reach the end of the scale."""
    old, new = (
        rated({k: 2 + k % 3 for k in range(0, 60, 2)}, 1),
        rated(dict.fromkeys(range(0, 60, 2), 5), 2),
    )
    (found,) = old.metrics[0].settings[0].corrected
    assert corrected_said(found).startswith(
        "By the human standard, the mean score of all cases is 3.000 ("
    )
    (change,) = between_cards(old, new, ["corrected-mean-score"])
    assert change.difference.value == pytest.approx(2, abs=0.2)
    assert change.difference.high is not None
    assert change.difference.high > 2


def test_labels_that_name_verdicts_correct_no_pass_rate_and_the_card_says_so() -> None:
    node = NonBinaryJudgementNode(
        "Which?", name="which", evaluation_params=["input"], then={"good": 10, "bad": 0}
    )
    seen = Observations.load([{"case": k, "verdict": "good"} for k in range(2)], CASES)
    card = make_card(
        seen, [DAGMetric("kind", DAG(node))], CASES, ["it"], labels={0: "bad"}, labels_random=True
    )
    (found,) = card.metrics[0].settings[0].corrected
    assert corrected_said(found).endswith("labels name verdicts, not pass or fail.")


def test_the_deviations_of_cases_are_what_their_mean_on_the_card_is_of() -> None:
    rows = [{"case": place, "verdict": run <= place} for place in range(2) for run in range(3)]
    under = make_card(Observations.load(rows, CASES), [yes_no_metric()], CASES, ["it"]).metrics[0]
    spread = [case.deviation for case in under.settings[0].spread]
    assert sum(spread) / 2 == pytest.approx(value_of(under, "score-spread"))
