"""Verdicts that were collected elsewhere come in as a table, and give a card."""

from __future__ import annotations

from pathlib import Path

import pytest

from dagengine.errors import InputError
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode
from dagengine.reliability import load_table
from dagengine.reliability.card import make_card
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


def test_a_table_of_verdicts_gives_a_card(tmp_path: Path) -> None:
    (tmp_path / "seen.csv").write_text(TABLE)
    seen = load_table(tmp_path / "seen.csv", CASES, metric="worth")
    assert seen.table("worth", "good") == [[True, False], [True, None]]
    assert seen.table("worth") == [[1.0, 0.0], [1.0, None]]
    card = make_card(seen, [metric()], CASES, ["collected elsewhere"])
    flips, missing = (card.metrics[0].figure(name) for name in ("flip-rate", "unscored"))
    assert flips is not None
    assert missing is not None
    assert (flips.value, missing.value) == (1.0, 0.25)


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ("three,0,good,true,1", "line 2 is no verdict or score: invalid literal"),
        ("one,0,good,true,5", "score 5 is not between 0 and 1"),
        ("one,,good,true,1", "there is no column 'run'"),
    ],
)
def test_a_row_that_is_none_says_where_and_what(tmp_path: Path, row: str, says: str) -> None:
    (tmp_path / "seen.csv").write_text(f"case,run,node,verdict,score\n{row}\n")
    with pytest.raises(InputError, match=says):
        load_table(tmp_path / "seen.csv", CASES)
