"""Links, pipes and folders where files are due: nobody follows, waits or ends in a traceback."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from folders.runs import record
from typer.testing import CliRunner

from dagengine.cli import app
from dagengine.errors import InputError
from dagengine.judges.batches.batch_jobs import BatchJournal
from dagengine.record import load_run
from dagengine.record.label_file import LABELS, Label, LabelFile
from dagengine.record.reader import Run, RunFiles, make_columns
from dagengine.store.database import connect, connect_to_read
from dagengine.synthesis.passages import read_documents
from dagengine.synthesis.synthesis_types import Document, Unreadable
from dagengine.testing.recordings import Recording

PRECIOUS = b"alias ls=ls\n"
LABEL = Label(
    id="0", who="Ana", when="now", case="c", index=0, name="n", metric="m", node="Tone",
    definition="d", answer="rude",
)  # fmt: skip


def link(path: Path) -> None:
    precious = path.parent.parent / "precious"
    precious.write_bytes(PRECIOUS)
    path.symlink_to(precious)


def nowhere(path: Path) -> None:
    path.symlink_to(path.parent.parent / "new")


KINDS: dict[str, Callable[[Path], None]] = {
    "a link": link,
    "a link to nowhere": nowhere,
    "a folder": Path.mkdir,
    "a pipe": lambda path: os.mkfifo(path),
}


def everything(run: Run) -> None:
    """All that is read of a run."""
    list(run.rows())
    list(run.cases())
    list(run.timed_rows())
    with RunFiles(run) as files:
        for place in range(len(files)):
            files.timed_row(place)
            files.fields(place)
    LabelFile(run.folder / LABELS).labels()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return record(tmp_path / "run", over=2)


def replaced(path: Path, kind: str) -> None:
    path.unlink(missing_ok=True)
    KINDS[kind](path)


def untouched(base: Path) -> bool:
    """Whether what links led to is as it was."""
    precious = base / "precious"
    return not (base / "new").exists() and (
        not precious.exists() or precious.read_bytes() == PRECIOUS
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "name",
    ["run.json", "results.jsonl", "cases.jsonl", "times.jsonl", "labels.jsonl",
     "results.jsonl.early", "cases.jsonl.early"],
)  # fmt: skip
def test_what_is_no_file_of_a_run_is_not_read(folder: Path, name: str, kind: str) -> None:
    replaced(folder / name, kind)
    with pytest.raises(InputError, match=f"{name} is {kind[:6]}"):
        everything(load_run(folder))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "name",
    ["results.jsonl", "cases.jsonl", "times.jsonl", "report.html", "columns.parquet",
     "columns.parquet.new"],
)  # fmt: skip
def test_a_run_writes_through_no_link(tmp_path: Path, folder: Path, name: str, kind: str) -> None:
    replaced(folder / name, kind)
    if name == "results.jsonl" or kind == "a folder":
        with pytest.raises(InputError, match=name):
            record(folder, over=2)
    else:  # what an earlier run left is removed, whatever it is
        record(folder, over=2)
        everything(load_run(folder))
    assert untouched(tmp_path)


def test_what_is_written_as_a_whole_takes_the_place_of_a_link(tmp_path: Path, folder: Path) -> None:
    for name in ("run.json", "summary.json"):
        replaced(folder / name, "a link")
    record(folder, over=2)
    assert load_run(folder).finished
    assert untouched(tmp_path)


@pytest.mark.parametrize("kind", KINDS)
def test_a_label_is_written_through_no_link(tmp_path: Path, folder: Path, kind: str) -> None:
    KINDS[kind](folder / LABELS)
    with pytest.raises(InputError, match=f"is {kind[:6]}"):
        LabelFile(folder / LABELS).add([LABEL])
    assert untouched(tmp_path)


@pytest.mark.parametrize("kind", KINDS)
def test_stores_and_recordings_are_files(tmp_path: Path, kind: str) -> None:
    place = tmp_path / "inside"
    place.mkdir()
    KINDS[kind](place / "of")
    openers: list[Callable[[], Any]] = [
        lambda: connect(place / "of", 1.0),
        lambda: connect_to_read(place / "of", 1.0),
        lambda: Recording.read(place / "of"),
        lambda: BatchJournal(place / "of", "judge").in_progress(),
    ]
    for opened in openers:
        with pytest.raises(InputError, match=f"is {kind[:6]}"):
            opened()
    assert untouched(tmp_path)


@pytest.mark.parametrize("command", ["show {0}", "diff {0} {0}", "merge {0} --out merged"])
def test_a_pipe_in_a_foreign_folder_keeps_no_command_waiting(
    folder: Path, command: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    replaced(folder / "run.json", "a pipe")
    done = CliRunner().invoke(app, command.format(folder).split())
    assert isinstance(done.exception, InputError)
    assert "is a pipe" in str(done.exception)


def test_a_link_among_documents_is_reported_and_not_read(tmp_path: Path) -> None:
    place = tmp_path / "documents"
    (place / "chapter.md").mkdir(parents=True)
    (place / "one.md").write_text("Text.")
    link(place / "two.md")
    os.mkfifo(place / "three.md")
    found = read_documents([place])
    assert [type(one) for one in found] == [Document, Unreadable, Unreadable]
    said = [one.message for one in found if isinstance(one, Unreadable)]
    assert ["is a pipe" in said[0], "is a link" in said[1]] == [True, True]
    assert isinstance(read_documents([place / "two.md"])[0], Document)  # the user named it


EDITS: dict[str, Callable[[bytes], bytes]] = {
    "blank lines": lambda data: b"\n" + data.replace(b"\n", b"\n \t\n\r\n") + b"\n",
    "a vertical tab alone": lambda data: data.replace(b"\n", b"\n\v\n", 1),
    "the ends of Windows": lambda data: data.replace(b"\n", b"\r\n"),
    "no end of the last line": lambda data: data[:-1],
    "a mark of the byte order": lambda data: b"\xef\xbb\xbf" + data,
    "a line less": lambda data: data[data.index(b"\n") + 1 :],
    "a line twice": lambda data: data[: data.index(b"\n") + 1] + data,
}


@pytest.mark.parametrize("finished", [True, False])
@pytest.mark.parametrize("name", ["results.jsonl", "cases.jsonl", "times.jsonl"])
@pytest.mark.parametrize("edit", EDITS)
def test_lines_that_people_edited_are_the_same_in_order_and_by_place(
    folder: Path, edit: str, name: str, finished: bool
) -> None:
    path, manifest = folder / name, folder / "run.json"
    path.write_bytes(EDITS[edit](path.read_bytes()))
    if not finished:
        manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"ended": None}))
    run = load_run(folder)
    in_order = [(row, row.seconds, case and case["input"]) for row, case in run.with_cases()]
    assert in_order
    assert all(text in (None, f"question {row.index}") for row, _, text in in_order)
    for _ in range(1 + make_columns(run)):  # from the lines, and from their columns
        with RunFiles(run) as files:
            by_place = [
                (files.row(place), files.timed_row(place).seconds, texts and texts["input"])
                for place in range(len(files))
                for texts in [files.fields(place)]
            ]
        assert by_place == in_order


def test_a_damaged_line_behind_a_blank_one_has_the_number_that_an_editor_shows(
    folder: Path,
) -> None:
    path = folder / "results.jsonl"
    first, second, *_ = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(first + b"\n" + second[:40] + b"\n")
    with RunFiles(load_run(folder)) as files:
        assert files.row(0).index == 0
        with pytest.raises(InputError, match=r"results\.jsonl line 3: "):
            files.row(1)
