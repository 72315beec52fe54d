"""Columns beside the lines of a run: they say the same, and are believed only of these lines."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from dagengine import evaluate
from dagengine.cli import app
from dagengine.errors import InputError, JudgeError
from dagengine.judges import ScriptedJudge
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import (
    DAG,
    BinaryJudgementNode,
    CodeNode,
    NonBinaryJudgementNode,
    RatingNode,
    TaskNode,
    VerdictListNode,
)
from dagengine.question import Question
from dagengine.record.changes.case_pairs import compare_runs
from dagengine.record.parquet_columns import COLUMNS, BlockBuilder
from dagengine.record.reader import Run, load_run, make_columns
from dagengine.report.case_selection import Selected, Selection
from dagengine.test_case import LLMTestCase

CASES = [
    LLMTestCase(
        name=f"case {n}",
        input=f"q{n}",
        actual_output=f"a{n}" if n % 7 else None,
        context=[f"part {n}", "another"],
    )
    for n in range(30)
]


def judge(turn: str) -> ScriptedJudge:
    """Answers that depend on the question, and now and then on the turn."""

    def answer(question: Question[Any]) -> Any:
        chance = sum(question.messages[-1]["content"].encode())
        chance += len(turn) * (chance % 5 == 0)
        if chance % 11 == 0:
            raise JudgeError("no answer to this")
        if question.name == "Words":
            return f"word {chance}"
        if question.name == "Each":
            firsts = [{"number": 1, "verdict": ["yes", "no"][chance % 2], "reason": "so"}]
            return {"verdicts": [*firsts, {"number": 2, "verdict": "yes", "reason": "so"}]}
        if question.name == "Grade":
            return {"score": chance % 11, "reason": "graded"}
        if question.name == "Tone":
            return {"verdict": ["warm", "rude"][chance % 2], "reason": "heard"}
        return {"verdict": chance % 3 > 0, "reason": f"seen {chance}"}

    return ScriptedJudge(answer, name="scripted")


def share(verdicts: list[Any]) -> float:
    return len([each for each in verdicts if each.verdict == "yes"]) / len(verdicts)


def metrics() -> list[DAGMetric]:
    reads = ["actual_output"]
    tone = NonBinaryJudgementNode("Tone?", name="Tone", then={"warm": 10, "rude": 2})
    words = TaskNode("Words?", "Words", evaluation_params=["input"])
    kind = BinaryJudgementNode(
        "Kind?", evaluation_params=reads, inputs=[words], name="Kind", then={True: tone, False: 0}
    )
    grade = RatingNode("How good?", evaluation_params=["input"], name="Grade")
    each = VerdictListNode("Ok?", "context", "each", verdicts=("yes", "no"), name="Each")
    score = CodeNode(share, inputs=[each], name="Share")
    return [
        DAGMetric("Manners", DAG(kind)),
        DAGMetric("Grades", DAG(grade), threshold=0.4),
        DAGMetric("Parts", DAG(score)),
    ]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    pytest.importorskip("pyarrow")
    base = tmp_path_factory.mktemp("runs")
    for name, turn in (("old", ""), ("new", "again")):
        evaluate(CASES, metrics(), model=judge(turn), out=base / name, show=False)
    return base / "old", base / "new"


@pytest.fixture
def bare(runs: tuple[Path, Path], tmp_path: Path) -> tuple[Path, Path]:
    """The same folders without columns."""
    for folder in runs:
        shutil.copytree(folder, tmp_path / folder.name, ignore=shutil.ignore_patterns(COLUMNS))
    return tmp_path / "old", tmp_path / "new"


def from_lines(run: Run) -> Iterator[tuple[Any, ...]]:
    builder = BlockBuilder(run.manifest)
    for row, case in run.with_cases():
        yield builder.line(row, case or {}, -1)


def test_a_run_makes_the_columns_that_its_lines_make(runs: tuple[Path, Path]) -> None:
    for folder in runs:
        run = load_run(folder)
        columns = run.columns()
        assert columns is not None
        assert len(columns) == len(CASES)
        lines = [(*line[:4], -1, *line[5:]) for line in columns.lines()]
        assert lines == list(from_lines(run))
        data = run.results.read_bytes()
        numbers = [data[start:].partition(b",")[0] for start in columns.starts()]
        assert numbers == [b'{"index": %d' % number for number in range(len(CASES))]


def test_columns_that_are_gone_are_made_again(
    runs: tuple[Path, Path], bare: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dagengine.cli.looking.sql._LARGE", 1)
    for whole, folder in zip(runs, bare, strict=True):
        answers: set[str] = set()
        for _ in range(2):
            words = ["sql", "SELECT count(*) FROM runs", str(folder)]
            answers.add(CliRunner().invoke(app, words, catch_exceptions=False).stdout)
        assert len(answers) == 1
        made, written = load_run(folder).columns(), load_run(whole).columns()
        assert made is not None
        assert written is not None
        assert list(made.lines()) == list(written.lines())
        assert not list(folder.glob("*.new"))


def test_no_columns_are_made_of_a_run_that_goes_on_or_is_damaged(bare: tuple[Path, Path]) -> None:
    goes_on, damaged = bare
    unfinished(goes_on)
    assert not make_columns(load_run(goes_on))
    rows = damaged / "results.jsonl"
    rows.write_bytes(rows.read_bytes() + b"{\n")
    with pytest.raises(InputError, match="line 31"):
        make_columns(load_run(damaged))
    assert not [*goes_on.glob(f"{COLUMNS}*"), *damaged.glob(f"{COLUMNS}*")]


def test_columns_that_cannot_take_their_place_leave_no_file(bare: tuple[Path, Path]) -> None:
    folder = bare[0]
    (folder / COLUMNS).mkdir()
    with pytest.raises(InputError, match="cannot write"):
        make_columns(load_run(folder))
    assert not list(folder.glob("*.new"))


def test_a_comparison_says_the_same_with_columns_and_without(
    runs: tuple[Path, Path], bare: tuple[Path, Path]
) -> None:
    seen, expected = (compare_runs(load_run(old), load_run(new)) for old, new in (runs, bare))
    assert expected.metrics[0].flips
    assert expected.metrics[1].kinds["score"]
    assert seen.same_cases == expected.same_cases == len(CASES)
    for ours, theirs in zip(seen.metrics, expected.metrics, strict=True):
        assert ours.changes == theirs.changes
        assert (ours.states, ours.kinds, ours.first) == (theirs.states, theirs.kinds, theirs.first)
        assert ours.means() == theirs.means()


def test_a_comparison_of_other_orders_says_the_same(
    runs: tuple[Path, Path], tmp_path: Path
) -> None:
    other = tmp_path / "other"
    cases = [*CASES[20:], *CASES[:15], LLMTestCase(name="new", input="n", actual_output="n")]
    evaluate(cases, metrics(), model=judge("again"), out=other, show=False)
    seen = compare_runs(load_run(runs[0]), load_run(other))
    (other / COLUMNS).unlink()
    expected = compare_runs(load_run(runs[0]), load_run(other))
    assert (seen.same_cases, seen.counts) == (expected.same_cases, expected.counts)
    assert seen.same_cases == 25
    for ours, theirs in zip(seen.metrics, expected.metrics, strict=True):
        assert ours.changes == theirs.changes
        assert ours.states == theirs.states


SELECTIONS = [
    Selection(),
    Selection(failed=True),
    Selection(no_score=True, metric="Manners"),
    Selection(at=("Tone=rude",)),
    Selection(at=("Kind",), not_at=("Kind=False",)),
    Selection(case="case 4"),
    Selection(case="7", metric="Grades"),
    Selection(text="heard"),
]


@pytest.mark.parametrize("selection", SELECTIONS)
def test_a_selection_is_the_same_with_columns_and_without(
    runs: tuple[Path, Path], bare: tuple[Path, Path], selection: Selection
) -> None:
    seen, expected = (Selected(load_run(folder), selection) for folder in (runs[0], bare[0]))
    rows = list(expected)
    assert rows
    assert list(seen) == rows
    assert seen.first(3) == expected.first(3) == (rows[:3], len(rows))
    assert seen.worst(4) == expected.worst(4)


def changed_line(folder: Path) -> None:
    data = (folder / "results.jsonl").read_bytes()
    (folder / "results.jsonl").write_bytes(data.replace(b"seen", b"Seen", 1))


def longer(folder: Path) -> None:
    with (folder / "cases.jsonl").open("ab") as file:
        file.write(b"\n")


def half(folder: Path) -> None:
    data = (folder / COLUMNS).read_bytes()
    (folder / COLUMNS).write_bytes(data[: len(data) // 2])


def of_another_run(folder: Path) -> None:
    shutil.copy2(folder.parent / "new" / COLUMNS, folder / COLUMNS)


def with_other_prices(folder: Path) -> None:
    text = (folder / "run.json").read_text("utf-8")
    (folder / "run.json").write_text(
        text.replace('"price": null', '"price": [1, 2, null]'), "utf-8"
    )


def unfinished(folder: Path) -> None:
    text = (folder / "run.json").read_text("utf-8")
    (folder / "run.json").write_text(text.replace('"exit": "failed"', '"exit": "error"'), "utf-8")


@pytest.mark.parametrize(
    "damage", [changed_line, longer, half, of_another_run, with_other_prices, unfinished]
)
def test_columns_of_other_lines_are_not_believed(
    runs: tuple[Path, Path], tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    for folder in runs:
        shutil.copytree(folder, tmp_path / folder.name, copy_function=shutil.copyfile)
    copy = tmp_path / "old"
    assert load_run(copy).columns() is not None  # a copy has other times, and the same bytes
    damage(copy)
    assert load_run(copy).columns() is None
    assert len(list(load_run(copy).rows())) == len(CASES)


def test_without_pyarrow_there_are_no_columns_and_earlier_ones_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyarrow")
    evaluate(CASES[:3], metrics(), model=judge(""), out=tmp_path, show=False)
    assert (tmp_path / COLUMNS).exists()
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    evaluate(CASES[:2], metrics(), model=judge(""), out=tmp_path, show=False)
    assert load_run(tmp_path).columns() is None
    assert not list(tmp_path.glob(f"{COLUMNS}*"))


def test_a_run_with_a_text_that_columns_cannot_hold_has_none(tmp_path: Path) -> None:
    cases = [*CASES[:2], LLMTestCase(input="lone \ud800", actual_output="x")]
    evaluate(cases, metrics(), model=judge(""), out=tmp_path, show=False)
    assert not list(tmp_path.glob(f"{COLUMNS}*"))
    assert len(list(load_run(tmp_path).rows())) == 3
