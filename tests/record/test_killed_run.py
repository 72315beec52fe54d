"""A run folder at any moment: every finished row is there with its case, for every reader."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from folders.recorded_runs import judge, polite
from hypothesis import given
from hypothesis import strategies as st

from dagengine.compiler.execution_plan import compile_metrics
from dagengine.execution.cases_and_rows import OnRow, RowsInOrder
from dagengine.record.reader import RunFiles, load_run
from dagengine.record.run_json import judges_of, metrics_of
from dagengine.record.run_json_types import Manifest
from dagengine.record.writer import RunWriter
from dagengine.results import CaseResult, MetricResult, Totals
from dagengine.test_case import LLMTestCase

PLAN = compile_metrics([polite()])
MANIFEST = Manifest.model_validate(
    {
        "dagengine": "test",
        "python": "3",
        "started": "2026-01-01T00:00:00Z",
        "metrics": [one.model_dump() for one in metrics_of(PLAN)],
        "judges": [one.model_dump() for one in judges_of(PLAN, [judge()], {})],
    }
)


def row(index: int) -> CaseResult:
    case = LLMTestCase(input=f"input {index}", actual_output="x")
    result = MetricResult("Manners", 1.0, True, "so")
    return CaseResult(index, f"case {index}", (result,), case, seconds=float(index))


def writer(folder: Path, results: Path | None = None) -> RunWriter:
    return RunWriter(folder, MANIFEST, lambda: (Totals(), ()), results)


@given(order=st.permutations(range(6)), killed=st.integers(0, 6))
def test_what_is_finished_can_be_read_with_its_case_at_any_moment(
    tmp_path_factory: pytest.TempPathFactory, order: list[int], killed: int
) -> None:
    folder = tmp_path_factory.mktemp("runs") / "run"
    with writer(folder) as written:

        def take(one: CaseResult) -> None:
            written.add(one)

        rows = RowsInOrder(OnRow(take, written.keep))
        for number, index in enumerate(order, 1):
            rows.add(row(index))
            if number == killed:  # what a process would leave that ended here
                run, done = load_run(folder), sorted(order[:number])
                assert not run.finished
                assert [one.index for one in run.rows()] == done
                assert [one["input"] for one in run.cases()] == [f"input {n}" for n in done]
                assert [one.seconds for one in run.timed_rows()] == done
                with RunFiles(run) as files:
                    places = range(len(files))
                    assert [files.row(place).index for place in places] == done
                    assert [files.timed_row(place).seconds for place in places] == done
                    fields = [files.fields(place) or {} for place in places]
                    assert [one["input"] for one in fields] == [f"input {n}" for n in done]
    assert [one["index"] for one in load_run(folder).cases()] == list(range(6))
    assert not any(name.endswith(".early") for name in os.listdir(folder))


def test_a_case_whose_row_was_not_written_any_more_is_given_to_no_other_row(
    tmp_path: Path,
) -> None:
    with writer(tmp_path) as written:
        written.add(row(0))
        written.keep(row(3))
        with (tmp_path / "cases.jsonl").open("ab") as file:  # the kill came before its row
            file.write(b'{"index": 1, "hash": null, "type": "LLMTestCase", "input": "input 1"}\n')
        with RunFiles(load_run(tmp_path)) as files:
            assert [files.row(place).index for place in range(len(files))] == [0, 3]
            assert (files.fields(1) or {})["input"] == "input 3"


def test_a_run_without_texts_keeps_none_that_wait(tmp_path: Path) -> None:
    manifest = MANIFEST.model_copy(update={"texts": False})
    with RunWriter(tmp_path, manifest, lambda: (Totals(), ())) as written:
        written.keep(row(3))
        assert not any(name.startswith("cases") for name in os.listdir(tmp_path))
        assert list(load_run(tmp_path).cases()) == []


def test_a_new_run_takes_away_what_waited_in_the_one_before(tmp_path: Path) -> None:
    with writer(tmp_path) as written:
        written.keep(row(3))
    assert [one["index"] for one in load_run(tmp_path).cases()] == [3]
    with writer(tmp_path) as written:
        written.add(row(0))
    assert [one["index"] for one in load_run(tmp_path).cases()] == [0]


def test_rows_of_a_parquet_file_are_reached_by_their_place(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    with writer(tmp_path, tmp_path / "results.parquet") as written:
        for index in range(5):
            written.add(row(index))
    with RunFiles(load_run(tmp_path)) as files:
        assert [files.row(place) for place in (4, 0, 2)] == [row(4), row(0), row(2)]
        assert (files.fields(4) or {})["input"] == "input 4"
