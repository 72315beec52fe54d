"""Labels on the disk: appended, taken back by appending, whole after a kill."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from programs.commands import start_program

from dagengine.errors import InputError
from dagengine.record.label_file import Label, LabelFile, Retraction, is_label_file


def label(number: int | str = 0, who: str = "Ana") -> Label:
    return Label(
        id=f"{number}", who=who, when="2026-11-22T04:00:00+00:00", case="c" * 64, index=0,
        name="ticket", metric="m", node="Tone", definition="d", answer="rude",
    )  # fmt: skip


def taken_back(number: int) -> Retraction:
    return Retraction(who="Ana", when="2026-11-22T04:00:01+00:00", retracts=f"{number}")


def test_labels_come_back_but_for_those_taken_back(tmp_path: Path) -> None:
    file = LabelFile(tmp_path / "labels.jsonl")
    assert file.labels() == []
    file.add([label(0), label(1)])
    before = file.path.read_bytes()
    file.add([taken_back(0)])
    assert file.labels() == [label(1)]
    assert file.path.read_bytes().startswith(before)
    assert is_label_file(file.path)


def test_a_line_that_a_kill_cut_off_costs_no_other_line(tmp_path: Path) -> None:
    file = LabelFile(tmp_path / "labels.jsonl")
    file.add([label(0)])
    whole = file.path.read_bytes()
    for end in range(len(whole) - 1, 0, -17):
        file.path.write_bytes(whole + whole[:end])
        file.add([label(2)])
        assert file.labels() == [label(0), label(2)]


@pytest.mark.parametrize(
    ("line", "said"),
    [('{"who": "Ana", "when": "now"}', "line 1: no label"), ("{'who': 1}", "line 1: no label"),
     ("[1, 2]", "line 1: no label")],
)  # fmt: skip
def test_a_line_that_is_no_label_is_named(tmp_path: Path, line: str, said: str) -> None:
    (tmp_path / "l.jsonl").write_text(f"{line}}}\n" if line == "[1, 2]" else f"{line}\n")
    with pytest.raises(InputError, match=said):
        LabelFile(tmp_path / "l.jsonl").labels()


ADDS = """
import sys
from dagengine.record.label_file import Label, LabelFile
path, who = sys.argv[1:]
for number in range(50):
    LabelFile(path).add([
        Label(id=f"{who} {number}", who=who, when="now", case="c", index=0, name="a", metric="m",
              node="Tone", definition="d", answer="rude")
    ])
"""


def test_two_processes_add_to_one_file(tmp_path: Path) -> None:
    path = tmp_path / "labels.jsonl"
    others = [start_program(ADDS, str(path), who) for who in ("Ana", "Ben")]
    assert [one.ended().returncode for one in others] == [0, 0]
    assert len(LabelFile(path).labels()) == 100
    for line in path.read_text("utf-8").splitlines():
        json.loads(line)
