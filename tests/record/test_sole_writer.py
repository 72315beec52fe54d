"""A folder, a file of results, a recording or a journal is written by one process at a time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from folders.runs import cases, judge_of, record, support_metric, usual
from typer.testing import CliRunner

from dagengine import evaluate
from dagengine.cli import app
from dagengine.errors import InputError
from dagengine.judges.batches.batch_jobs import BatchJournal
from dagengine.record import load_run
from dagengine.record.shard_merging import merge
from dagengine.record.writer import sole_writer
from dagengine.system.file_locks import one_writer
from dagengine.testing.recordings import Recording, Row

METRICS = """
from dagengine.metrics import ExactMatchMetric
metric = ExactMatchMetric()
"""
CASE = '{"input": "a", "actual_output": "a", "expected_output": "a"}\n'


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name[0] != "."}


def test_a_second_run_into_a_folder_asks_nothing_and_changes_nothing(tmp_path: Path) -> None:
    folder, asked = record(tmp_path / "run"), list[str]()
    before = content(folder)

    def said(node: str, text: str) -> Any:
        asked.append(node)
        return usual(node, text)

    with sole_writer(folder), pytest.raises(InputError, match="written by another run"):
        record(folder, said)
    assert (asked, content(folder)) == ([], before)
    record(folder, said)
    assert asked


def test_a_run_in_the_middle_of_another_is_refused(tmp_path: Path) -> None:
    refusals: list[str] = []

    def said(node: str, text: str) -> Any:
        if not refusals:
            with pytest.raises(InputError) as caught:
                evaluate(cases(1), [support_metric()], out=tmp_path / "run", show=False,
                         model=judge_of(usual))  # fmt: skip
            refusals.append(str(caught.value))
        return usual(node, text)

    record(tmp_path / "run", said)
    assert "another run" in refusals[0]
    assert len(list(load_run(tmp_path / "run").rows())) == 4


@pytest.mark.parametrize("held", ["folder", "results"])
def test_the_command_is_refused_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("m.py").write_text(METRICS)
    Path("cases.jsonl").write_text(CASE)
    command = ["run", "m.py", "--data", "cases.jsonl", "--results", "rows.jsonl", "--no-page"]
    with one_writer(Path("out" if held == "folder" else "rows.jsonl"), folder=held == "folder"):
        done = CliRunner().invoke(app, command)
    assert isinstance(done.exception, InputError)
    assert "is being written by another run" in str(done.exception)
    assert not Path("rows.jsonl").exists()
    assert CliRunner().invoke(app, command).exit_code == 0
    assert list(Path().glob("**/.*")) == []


def test_nothing_is_merged_into_a_folder_that_is_written_or_is_not_ours(tmp_path: Path) -> None:
    folder = record(tmp_path / "shard", over=1)
    record_of = json.loads((folder / "run.json").read_text())
    record_of["settings"]["shard"] = "1/1"
    (folder / "run.json").write_text(json.dumps(record_of))
    run = load_run(folder)
    with sole_writer(tmp_path / "out"), pytest.raises(InputError, match="another run"):
        merge([run], tmp_path / "out")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "cases.jsonl").write_text("my cases")
    with pytest.raises(InputError, match="would be lost"):
        merge([run], tmp_path / "data")
    merge([run], tmp_path / "out")
    assert len(list(load_run(tmp_path / "out").rows())) == 1


def recorded(key: str) -> Row:
    parts = {"instructions": "", "evidence": {}, "shape": "", "options": ""}
    question = {"node": "node", "key": key, "judge": "judge", "sample": 0, "prompt": "prompt"}
    return {**question, "parts": parts, "raw": key, "mode": "direct", "usage": [1, 1, 0]}


@pytest.mark.parametrize("only_used", [False, True])
def test_what_two_sessions_record_at_once_is_all_kept(tmp_path: Path, only_used: bool) -> None:
    path = tmp_path / "recordings" / "test_a.jsonl"
    first, second = Recording.read(path), Recording.read(path)
    for one, key in ((first, "a"), (second, "b")):
        one.new[key] = recorded(key)
        one.used.add(key)
        assert one.save(only_used=only_used)
    assert set(Recording.read(path).answers) == {"a", "b"}
    assert [one.name for one in path.parent.iterdir()] == [path.name]


def test_batches_of_a_journal_are_taken_up_by_one_process(tmp_path: Path) -> None:
    with one_writer(tmp_path / "batches"), pytest.raises(InputError, match="another run"):
        BatchJournal(tmp_path / "batches", "a judge").in_progress()
    for judge in ("a judge", "another of this process"):
        assert BatchJournal(tmp_path / "batches", judge).in_progress() == []
