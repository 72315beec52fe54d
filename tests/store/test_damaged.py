"""Stores that are damaged: a row gives way to a new answer, a file is named with what to do."""

from __future__ import annotations

import json
import random
import sqlite3
import zlib
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from graphs.trees import yes_no_metric
from typer.testing import CliRunner

from dagengine import Store, evaluate
from dagengine.cli import app
from dagengine.errors import InputError
from dagengine.judges import ScriptedJudge
from dagengine.question import Question
from dagengine.results import EvaluationResult
from dagengine.results.usage_totals import cost_line
from dagengine.store.database import DamagedError, answer_fields, connect, connect_to_read
from dagengine.test_case import LLMTestCase

CASES = [LLMTestCase(name=f"c{n}", input=f"number {n}") for n in range(8)]
GOOD = {"raw": '{"reason": "r", "verdict": true}', "mode": "m", "usage": [1, 2, 0]}


def packed(value: Any) -> bytes:
    return zlib.compress(json.dumps(value).encode())


DAMAGES: dict[str, Any] = {
    "nothing": None,
    "no bytes": b"",
    "random bytes": random.Random(0).randbytes(80),
    "a text": "text",
    "a number": 7,
    "truncated": packed(GOOD)[:-9],
    "truncated JSON": zlib.compress(json.dumps(GOOD).encode()[:-5]),
    "deep JSON": zlib.compress(b"[" * 100_000),
    "no UTF-8": zlib.compress(b"\xff\xfe"),
    "a list": packed([GOOD]),
    "no raw": packed({"mode": "m", "usage": [1, 2, 0]}),
    "raw of another type": packed({**GOOD, "raw": 3}),
    "usage of another type": packed({**GOOD, "usage": ["1", 2, 3]}),
    "short usage": packed({**GOOD, "usage": [1]}),
    "tokens of another type": packed({**GOOD, "tokens": [["a", [["b", "x"]]]]}),
}


class Counting:
    """A judge that counts what it is asked."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.judge = ScriptedJudge(self._answer, name="counting")

    def _answer(self, question: Question[Any]) -> dict[str, Any]:
        self.asked[question.messages[1]["content"]] += 1
        return {"reason": "said", "verdict": True}


def run(store: Path | Store, judge: ScriptedJudge) -> EvaluationResult:
    metric = yes_no_metric("Kind", "kind")
    return evaluate(CASES, [metric], model=judge, store=store, show=False)


def rows(result: EvaluationResult) -> list[dict[str, Any]]:
    return [row.as_dict() for row in result]


def damage(path: Path, value: Any, number: int = 3) -> None:
    """Put something else in the place of the first answers."""
    with closing(sqlite3.connect(path)) as db, db:
        if value is None:  # which the column does not take
            db.execute("PRAGMA writable_schema = ON")
            db.execute(
                "UPDATE sqlite_master SET sql = replace(sql, 'answer BLOB NOT NULL', 'answer BLOB')"
            )
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE answers SET answer = ? WHERE id <= ?", (value, number))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "answers.db"


@pytest.mark.parametrize("what", DAMAGES)
def test_a_damaged_row_is_asked_anew_replaced_and_counted(path: Path, what: str) -> None:
    first = run(path, Counting().judge)
    damage(path, DAMAGES[what])
    again, later = Counting(), Counting()
    second = run(path, again.judge)
    assert again.asked.total() == second.totals.damaged == second.totals.calls == 3
    assert "3 damaged in the store and asked again" in cost_line(second.totals)
    third = run(path, later.judge)
    assert later.asked.total() == third.totals.damaged == 0
    assert "damaged" not in cost_line(third.totals)
    assert rows(first) == rows(second) == rows(third)


@pytest.mark.parametrize("what", DAMAGES)
def test_a_replay_fails_the_cases_of_damaged_rows_only_and_says_what_to_do(
    path: Path, what: str
) -> None:
    run(path, Counting().judge)
    damage(path, DAMAGES[what])
    replayed = run(Store(path, replay=True), Counting().judge)
    failed = [row.metrics[0].failure for row in replayed]
    assert [failure is None for failure in failed] == [False] * 3 + [True] * 5
    assert "run once without replay, and it is asked for again" in str(failed[0])


def test_damaged_questions_do_not_end_a_replay_that_looks_for_them(path: Path) -> None:
    run(path, Counting().judge)
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE answers SET question = x'00', key = randomblob(32)")
    replayed = run(Store(path, replay=True), Counting().judge)
    assert [row.metrics[0].outcome for row in replayed] == ["provider_error"] * len(CASES)


def test_the_store_commands_say_which_row_is_damaged(path: Path) -> None:
    run(path, Counting().judge)
    damage(path, b"x", number=1)
    with pytest.raises(InputError, match=r"answers\.db: an answer for the node 'kind' is damaged"):
        CliRunner().invoke(app, ["store", "export", str(path)], catch_exceptions=False)


@pytest.mark.parametrize("command", [["show"], ["show", "--limit", "99"], ["export"]])
@pytest.mark.parametrize("when", ["text", 2**62, b"bytes"], ids=["text", "too late", "bytes"])
def test_the_store_commands_name_a_damaged_time(path: Path, command: list[str], when: Any) -> None:
    run(path, Counting().judge)
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE answers SET created = ? WHERE id = 3", (when,))
    name, *options = command
    with pytest.raises(InputError, match="time of an answer is damaged"):
        CliRunner().invoke(app, ["store", name, str(path), *options], catch_exceptions=False)


@pytest.mark.parametrize("seed", range(60))
def test_a_damaged_file_is_used_or_named_with_what_to_do(path: Path, seed: int) -> None:
    first, pick = run(path, Counting().judge), random.Random(seed)
    data = bytearray(path.read_bytes())
    for _ in range(pick.choice([1, 5, 50])):
        start = pick.randrange(len(data))
        data[start : start + pick.choice([1, 40, 500])] = pick.randbytes(pick.choice([1, 40]))
    path.write_bytes(data[: pick.choice([len(data), len(data) // 2, 4096, 100])])
    try:
        found = run(path, Counting().judge)
    except InputError as error:
        message = str(error)
        assert str(path) in message
        assert any(
            hint in message for hint in ("another file", "start a new one", "not a store of")
        )
    else:
        assert [row.metrics[0].score for row in found] == [row.metrics[0].score for row in first]


ENDLESS = """CREATE VIEW answers AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)
    SELECT i AS id, 1 AS judge, 1 AS node, i AS created, x'' AS key, '' AS answer, '' AS question
    FROM n"""


@pytest.mark.parametrize(
    "change",
    [f"DROP TABLE answers; {ENDLESS}",
     "CREATE TRIGGER t AFTER INSERT ON answers BEGIN DELETE FROM answers; END",
     "CREATE VIRTUAL TABLE t USING fts5(x)"],
)  # fmt: skip
def test_a_store_is_made_of_tables_alone(tmp_path: Path, change: str) -> None:
    path = tmp_path / "answers.db"
    connect(path, 1.0).close()
    with closing(sqlite3.connect(path)) as db:
        db.executescript(change)
    for opened in (connect, connect_to_read):
        with pytest.raises(InputError, match="holds views or triggers"):
            opened(path, 1.0)


def test_an_answer_that_unpacks_to_too_much_is_damaged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dagengine.store.database._LONGEST", 1000)
    long = {**GOOD, "raw": "x" * 2000}
    with pytest.raises(DamagedError, match="longer than 1,000 bytes"):
        answer_fields(packed(long))
    assert answer_fields(packed(GOOD)) == GOOD
