"""Verdicts that were collected elsewhere come in as a table, and give a card."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dagengine.errors import InputError
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode, RatingNode
from dagengine.reliability import Observations
from dagengine.reliability.card import make_card
from dagengine.reliability.card.words import headline
from dagengine.test_case import LLMTestCase

CASES = [LLMTestCase(name=name, input=name) for name in ("one", "two")]
TABLE = """case,run,node,verdict,score
one,0,good,true,1
one,1,good,false,0
1,0,good,true,1
1,1,good,,
"""


def metric() -> DAGMetric:
    node = BinaryJudgementNode(
        "Good?", name="good", evaluation_params=["input"], then={True: 10, False: 0}
    )
    return DAGMetric("worth", DAG(node), threshold=0.5)


def flips(seen: Observations) -> float | None:
    card = make_card(seen, [metric()], CASES, ["collected elsewhere"])
    found = card.metrics[0].figure("flip-rate")
    assert found is not None
    return found.value


def test_a_table_of_verdicts_gives_a_card(tmp_path: Path) -> None:
    (tmp_path / "seen.csv").write_text(TABLE)
    seen = Observations.load(tmp_path / "seen.csv", CASES, metric="worth")
    assert seen.table("worth", "good") == [[True, False], [True, None]]
    assert seen.table("worth") == [[1.0, 0.0], [1.0, None]]
    card = make_card(seen, [metric()], CASES, ["collected elsewhere"])
    missing = card.metrics[0].figure("unscored")
    assert missing is not None
    assert (flips(seen), missing.value) == (1.0, 0.25)
    assert headline(card) == "2 cases, 2 runs of each"


def test_a_card_says_of_how_many_cases_it_is() -> None:
    seen = Observations.load([{"case": "one", "verdict": True}], CASES, metric="worth")
    assert headline(make_card(seen, [metric()], CASES, ["it"])) == "1 of 2 cases, 1 run of each"


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
        ("onne,0,good,true,1", "line 2 is no verdict or score: .*did you mean 'one'"),
        ("7,0,good,true,1", "no case has the name or the place '7'"),
        ("one,0,good,true,5", "score 5 is not between 0 and 1"),
        ("one,,good,true,1\none,1,good,true,1", "`run` is empty"),
        ("one,0.5,good,true,1", "whole number"),
        (",0,good,true,1", "`case` is empty"),
        ("one,0,good,true,1\none,0,good,true,1", "line 3: run 0 of case 0 has node 'good' twice"),
    ],
)
def test_a_row_that_is_none_says_where_and_what(tmp_path: Path, row: str, says: str) -> None:
    (tmp_path / "seen.csv").write_text(f"case,run,node,verdict,score\n{row}\n")
    with pytest.raises(InputError, match=says):
        Observations.load(tmp_path / "seen.csv", CASES)


def test_a_table_without_verdicts_names_its_columns() -> None:
    with pytest.raises(InputError, match="no column `verdict` or `score`; it has case, said"):
        Observations.load([{"case": "one", "said": "yes"}], CASES)


@pytest.mark.parametrize(
    ("yes", "no"), [("yes", "no"), ("Pass", "fail"), ("1", "0"), (1, 0), ("Y", "N")]
)
def test_other_words_for_yes_and_no_are_understood(yes: Any, no: Any) -> None:
    rows = [{**row, "verdict": yes if row["verdict"] else no} for row in ROWS]
    assert flips(Observations.load(rows, CASES)) == 0.5


def test_a_verdict_that_no_node_has_is_refused() -> None:
    rows = [{"case": "two", "verdict": "fine"}]
    with pytest.raises(InputError, match="case 1, run 0: 'good' has no verdict 'fine'; it has"):
        flips(Observations.load(rows, CASES))


def test_observations_of_another_metric_are_refused() -> None:
    seen = Observations.load(ROWS, CASES, metric="wroth")
    with pytest.raises(InputError, match="is about 'wroth', and the metrics are called 'worth'"):
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
    with pytest.raises(InputError, match="'tie' may be the verdict of a node: name it in a column"):
        make_card(seen, [two_questions()], CASES, ["it"])
