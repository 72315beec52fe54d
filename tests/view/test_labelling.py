"""Labelling a recorded run: answers go to the file, the judge's show when the case is done."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from folders.runs import but, record, support_metric, usual

from dagengine.errors import InputError
from dagengine.record.label_file import LABELS
from dagengine.view.compared_runs import OpenRun
from dagengine.view.labelling import At, Labelling, MovedError

ANA = At("Ana", "Support quality", 1)
Open = Callable[[Path], Labelling]
NOW = datetime(2026, 11, 22, 4, tzinfo=UTC)


@pytest.fixture
def labelling() -> Iterator[Open]:
    with ExitStack() as stack:
        yield lambda folder: Labelling(stack.enter_context(OpenRun(folder)), lambda: NOW)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    said = but(("Tone", "answer 1", "rude"), ("Next step", "answer 3", False))
    return record(tmp_path / "run", said, over=6)


def written(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / LABELS).read_text("utf-8").splitlines()]


def test_one_walk_labels_every_node_on_its_path_and_the_case(folder: Path, labelling: Open) -> None:
    before = {path: path.read_bytes() for path in folder.iterdir()}
    labels = labelling(folder)
    assert labels.position(ANA)["asked"]["node"] == "Kind"
    assert labels.answer(ANA, "Kind", 1)["asked"]["node"] == "Next step"
    assert labels.answer(ANA, "Next step", 1, "a clear one")["asked"]["node"] == "Tone"
    end = labels.answer(ANA, "Tone", 1)
    assert (end["done"], end["score"], end["success"]) == (True, 1.0, True)
    rows = written(folder)
    assert [(row["node"], row["answer"]) for row in rows] == [
        ("Kind", "help"), ("Next step", True), ("Tone", "warm"), ("", None)
    ]  # fmt: skip
    assert rows[1]["note"] == "a clear one"
    assert rows[3]["outcome"] == "pass"
    assert {row["when"] for row in rows} == {"2026-11-22T04:00:00+00:00"}
    assert all(path.read_bytes() == content for path, content in before.items())


def test_the_judge_is_silent_until_the_case_is_done(folder: Path, labelling: Open) -> None:
    labels = labelling(folder)
    for node, choice in (("Kind", 1), ("Next step", 1)):
        found = labels.answer(ANA, node, choice)
        assert found["judge"] is None
        assert "rude" not in json.dumps({**found, "asked": None})
    judge = labels.answer(ANA, "Tone", 1)["judge"]
    assert [(one["node"], one["you"], one["judge"], one["same"]) for one in judge["nodes"]] == [
        ("Kind", "help", "help", True),
        ("Next step", "True", "True", True),
        ("Tone", "warm", "rude", False),
    ]
    assert (judge["score"], judge["success"]) == (0.0, False)


def test_undo_takes_the_last_answer_back_by_adding_lines(folder: Path, labelling: Open) -> None:
    labels = labelling(folder)
    for node, choice in (("Kind", 1), ("Next step", 2)):
        labels.answer(ANA, node, choice)
    whole = (folder / LABELS).read_bytes()
    assert labels.undo(ANA)["asked"]["node"] == "Next step"
    assert (folder / LABELS).read_bytes().startswith(whole)
    assert labels.undo(ANA)["asked"]["node"] == "Kind"
    assert labels.undo(ANA)["asked"]["node"] == "Kind"
    labels.answer(ANA, "Kind", 2)
    done = labels.answer(ANA, "Tone", 2)
    assert (done["done"], done["success"]) == (True, False)
    assert labels.undo(ANA, "Kind")["asked"]["node"] == "Kind"


def test_two_tabs_do_not_answer_one_question_twice(folder: Path, labelling: Open) -> None:
    one, other = labelling(folder), labelling(folder)
    one.answer(ANA, "Kind", 1)
    with pytest.raises(MovedError):
        other.answer(ANA, "Kind", 2)
    assert other.position(ANA)["asked"]["node"] == "Next step"
    ben = At("Ben", ANA.metric, ANA.place)
    assert other.answer(ben, "Kind", 2)["asked"]["node"] == "Tone"


def test_cannot_tell_ends_the_case_without_an_outcome(folder: Path, labelling: Open) -> None:
    found = labelling(folder).answer(ANA, "Kind", 0)
    assert (found["done"], found["success"], found["why"]) == (True, None, "cannot tell at Kind")
    assert [row["answer"] for row in written(folder)] == [None]


def test_queues_hold_what_they_say(folder: Path, labelling: Open) -> None:
    labels = labelling(folder)
    name = "Support quality"
    assert sorted(labels.queue(name, "failed", 9, "s")) == [1, 3]
    assert labels.queue(name, "unsure", 9, "s") == []
    assert labels.queue(name, "random", 3, "s") == labels.queue(name, "random", 6, "s")[:3]
    for bad in ("newest", ""):
        with pytest.raises(InputError, match="a queue is one of"):
            labels.queue(name, bad, 1, "s")
    with pytest.raises(InputError, match="no metric 'Tone'"):
        labels.queue("Tone", "random", 1, "s")


def test_an_answer_to_a_question_that_was_changed_since_is_asked_again(
    folder: Path, tmp_path: Path, labelling: Open
) -> None:
    labels = labelling(folder)
    for node in ("Kind", "Next step"):
        labels.answer(ANA, node, 1)
    assert labels.position(ANA)["asked"]["node"] == "Tone"
    later = record(tmp_path / "later", usual, 6, support_metric("Is there a concrete one?"))
    (later / LABELS).write_bytes((folder / LABELS).read_bytes())
    assert labelling(later).position(ANA)["asked"]["node"] == "Next step"
