"""Two run folders against each other, through real runs and a real store."""

from __future__ import annotations

import json
import random
import sqlite3
import zlib
from collections import Counter
from contextlib import closing
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest
from folders.runs import but, cases, judge_of, record, support_metric, usual
from hypothesis import given
from hypothesis import strategies as st

from dagengine import evaluate
from dagengine.errors import InputError
from dagengine.metrics import BaseMetric
from dagengine.record import load_run
from dagengine.record.changes.case_pairs import Alignment, compare_runs, pairs_of_keys
from dagengine.record.changes.flip_causes import MetricComparison, RunComparison
from dagengine.test_case import LLMTestCase


def compared(old: Path, new: Path, **more: Any) -> RunComparison:
    return compare_runs(load_run(old), load_run(new), **more)


def only(found: RunComparison) -> MetricComparison:
    (metric,) = found.metrics
    return metric


def firsts(found: RunComparison) -> list[tuple[str, str, str, str]]:
    return [(one.case, one.kind, one.first.node, one.first.cause) for one in only(found).changes]


def test_a_run_and_itself_agree(tmp_path: Path) -> None:
    run = record(tmp_path / "a", but(("Tone", "answer 2", "rude")))
    found = compared(run, run)
    assert found.agrees
    assert (found.cases, only(found).same, firsts(found)) == (4, 4, [])


def test_a_mean_is_rounded_alike_in_every_python(tmp_path: Path) -> None:
    class Tenth(BaseMetric):
        def measure(self, test_case: LLMTestCase) -> float:
            return 0.1

    evaluate([LLMTestCase(input="a")] * 10, [Tenth()], show=False, out=tmp_path / "a")
    assert only(compared(tmp_path / "a", tmp_path / "a")).means() == (0.1, 0.1)


def change_stored(store: Path, node: str, text: str, old: str, new: str) -> None:
    """Change one stored answer: that of a node about a text."""
    changed = 0
    with closing(sqlite3.connect(store)) as db, db:
        rows = db.execute(
            "SELECT answers.id, question, answer FROM answers JOIN nodes ON nodes.id = node"
            " WHERE nodes.name = ?",
            (node,),
        ).fetchall()
        for number, question, answer in rows:
            said = zlib.decompress(answer).decode()
            if text in zlib.decompress(question).decode() and old in said:
                packed = zlib.compress(said.replace(old, new).encode())
                db.execute("UPDATE answers SET answer = ? WHERE id = ?", (packed, number))
                changed += 1
    assert changed == 1


def test_one_answer_changed_in_the_store_shows_that_case_and_that_node(tmp_path: Path) -> None:
    store = tmp_path / "answers.db"
    old = record(tmp_path / "a", store=store)
    change_stored(store, "Tone", "answer 2", "warm", "rude")
    found = compared(old, record(tmp_path / "b", store=store))
    assert firsts(found) == [("ticket 2", "worse", "Tone", "same")]
    assert only(found).by_cause() == {"definition": 0, "evidence": 0, "judge": 0, "same": 1}
    assert only(found).same == 3


def test_shuffled_and_doubled_data_is_paired_by_content(tmp_path: Path) -> None:
    given = [*cases(6), *cases(2)]
    mixed = given.copy()
    random.Random(1).shuffle(mixed)
    found = compared(record(tmp_path / "a", over=given), record(tmp_path / "b", over=mixed))
    assert found.agrees
    assert (found.same_cases, found.counts.total()) == (8, 0)


def test_renamed_cases_are_the_same_and_others_are_new_or_missing(tmp_path: Path) -> None:
    old, new = cases(4), cases(5)[1:]
    new[0] = new[0].model_copy(update={"name": "another name"})
    found = compared(record(tmp_path / "a", over=old), record(tmp_path / "b", over=new))
    assert (found.same_cases, found.renamed, found.changed) == (2, 1, 0)
    assert (found.new_cases, found.missing_cases) == (["ticket 4"], ["ticket 0"])
    assert only(found).agrees
    assert not found.agrees


@pytest.mark.parametrize("named", [True, False])
def test_another_output_for_the_same_input_is_changed_evidence(tmp_path: Path, named: bool) -> None:
    old = [one if named else one.model_copy(update={"name": None}) for one in cases(3)]
    new = list(old)
    new[1] = old[1].model_copy(update={"actual_output": "something rude"})
    said = but(("Tone", "something", "rude"))
    found = compared(record(tmp_path / "a", said, over=old), record(tmp_path / "b", said, over=new))
    assert (found.same_cases, found.changed) == (2, 1)
    (change,) = only(found).changes
    assert (change.first.node, change.first.cause) == ("Tone", "evidence")
    assert change.first.detail == "actual_output changed"


def test_a_changed_question_a_moved_threshold_and_another_judge_are_said(tmp_path: Path) -> None:
    old = record(tmp_path / "a")
    said = but(("Next step", "answer 1", False))
    asked = support_metric("Does Steps name a concrete next step?")
    new = record(tmp_path / "b", said, metric=asked)
    found = compared(old, new)
    assert firsts(found) == [("ticket 1", "worse", "Next step", "definition")]
    assert [(one.kind, one.node, one.new) for one in only(found).trees.changes()] == [
        ("definition", "Next step", "Does Steps name a concrete next step?")
    ]
    moved = record(tmp_path / "c", but(("Empathy", "", 8), ("Tone", "", "apologetic")))
    strict = record(
        tmp_path / "d", but(("Empathy", "", 8), ("Tone", "", "apologetic")),
        metric=support_metric(threshold=0.9),
    )  # fmt: skip
    assert {one.first.detail for one in only(compared(moved, strict)).changes} == {
        "threshold 0.5 → 0.9"
    }
    other = record(tmp_path / "e", said, judge="somebody else")
    assert firsts(compared(old, other)) == [("ticket 1", "worse", "Next step", "judge")]


def test_metrics_that_only_one_run_has_are_said_and_none_in_common_is_refused(
    tmp_path: Path,
) -> None:
    one, other = support_metric(), support_metric()
    other.name = "Another"
    for name, metrics in (("a", [one]), ("b", [one, other]), ("c", [other])):
        evaluate(cases(1), metrics, model=judge_of(usual), out=tmp_path / name, show=False)
    found = compared(tmp_path / "a", tmp_path / "b")
    assert (found.added, found.removed) == (["Another"], [])
    with pytest.raises(InputError, match="no metric in common: Support quality in"):
        compared(tmp_path / "a", tmp_path / "c")
    with pytest.raises(InputError, match="did you mean 'Another'"):
        compared(tmp_path / "a", tmp_path / "b", metric="Anothr")


def test_an_unfinished_run_is_compared_as_far_as_it_goes(tmp_path: Path) -> None:
    old, new = record(tmp_path / "a"), record(tmp_path / "b")
    manifest = json.loads((new / "run.json").read_text("utf-8"))
    (new / "run.json").write_text(json.dumps({**manifest, "ended": None, "exit": None}), "utf-8")
    rows = (new / "results.jsonl").read_bytes()
    (new / "results.jsonl").write_bytes(rows[:-20])
    found = compared(old, new)
    assert (found.cases, found.missing_cases) == (3, ["ticket 3"])


def test_without_texts_other_content_under_one_name_is_still_found(tmp_path: Path) -> None:
    old, new = cases(2), cases(2)
    new[1] = new[1].model_copy(update={"input": "another question"})
    said = but(("Kind", "another", "other"), ("Tone", "answer 1", "rude"))
    runs = [
        record(tmp_path / name, said if name == "b" else usual, over=given, texts=False)
        for name, given in (("a", old), ("b", new))
    ]
    (change,) = only(compared(*runs)).changes
    assert (change.first.node, change.first.cause) == ("Kind", "evidence")


KEYS = st.lists(st.sampled_from("abcd"), max_size=8)


def aligned(old: list[str], new: list[str]) -> tuple[list[tuple[int, int]], Alignment]:
    alignment, found = Alignment(), []
    for place, (one, other) in enumerate(zip_longest(old, new)):
        pairs = (
            None if one is None else alignment.offer(0, place, one),
            None if other is None else alignment.offer(1, place, other),
        )
        found += [pair for pair in pairs if pair is not None]
    return found, alignment


@given(KEYS, KEYS)
def test_equal_keys_are_paired_and_the_rest_is_left(old: list[str], new: list[str]) -> None:
    pairs, alignment = aligned(old, new)
    assert all(old[one] == new[other] for one, other in pairs)
    common = Counter(old) & Counter(new)
    assert Counter(old[one] for one, _ in pairs) == common
    assert len({one for one, _ in pairs}) == len({other for _, other in pairs}) == len(pairs)
    assert Counter(old[place] for place in alignment.left(0)) == Counter(old) - common
    assert Counter(new[place] for place in alignment.left(1)) == Counter(new) - common


def test_copies_of_a_case_are_paired_in_their_order() -> None:
    pairs, _ = aligned(["a", "b", "a"], ["a", "a", "b"])
    assert sorted(pairs) == [(0, 0), (1, 2), (2, 1)]


def test_only_what_is_alone_in_both_runs_is_paired_by_what_is_left() -> None:
    old = {0: "a", 1: "b", 2: "b", 3: None}
    new = {5: "b", 6: "a", 7: None}
    assert list(pairs_of_keys(old, new)) == [(0, 6)]
