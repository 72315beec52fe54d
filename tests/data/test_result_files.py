"""Rows of results: written as they come, read back equal, summed up without being kept."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import fmean, median, stdev

import pytest
from folders.full_disk import on_full_device
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from typer.testing import CliRunner

from dagengine.cli import app
from dagengine.data import RowWriter, read_rows
from dagengine.errors import InputError
from dagengine.report import Tally, print_table
from dagengine.results import (
    CaseResult,
    EvaluationResult,
    Failure,
    MetricResult,
    OutcomeKind,
    Step,
    Totals,
)

QUICK = settings(max_examples=30)
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
verdicts = st.booleans() | text
steps = st.builds(
    Step,
    node=text,
    kind=st.just("judgement"),
    outcome=st.sampled_from([OutcomeKind.OK, OutcomeKind.TIMEOUT]),
    output=st.none() | text,
    verdict=st.none() | verdicts,
    score=st.none() | st.floats(0, 1),
)
scored = st.builds(
    MetricResult,
    metric=st.sampled_from(["a", "b"]),
    score=st.floats(0, 1),
    success=st.none() | st.booleans(),
    reason=st.none() | text,
    threshold=st.none() | st.floats(0, 1),
    path=st.lists(st.tuples(text, verdicts), max_size=2).map(tuple),
    steps=st.lists(steps, max_size=3).map(tuple),
)
failed = st.builds(
    MetricResult,
    metric=st.sampled_from(["a", "b"]),
    score=st.none(),
    success=st.none(),
    reason=st.none(),
    failure=st.builds(
        Failure, st.just(OutcomeKind.INVALID_CASE), node=text, message=text, raw=st.none() | text
    ),
)
metric_lists = st.lists(scored | failed, min_size=1, max_size=2, unique_by=lambda m: m.metric)
row_lists = st.lists(st.tuples(text, metric_lists), min_size=1, max_size=6).map(
    lambda rows: [CaseResult(n, case, tuple(found)) for n, (case, found) in enumerate(rows)]
)


@QUICK
@given(row_lists, st.sampled_from([".jsonl", ".parquet"]))
def test_rows_are_read_back_as_they_were_written(
    tmp_path: Path, rows: list[CaseResult], suffix: str
) -> None:
    if suffix == ".parquet":
        pytest.importorskip("pyarrow")
    with RowWriter(tmp_path / f"rows{suffix}") as kept:
        for row in rows:
            kept.add(row)
    assert list(read_rows(kept.path)) == rows


def row(index: int, score: float | None = 1.0, steps: int = 1) -> CaseResult:
    failure = None if score is not None else Failure(OutcomeKind.TIMEOUT, "node", f"late {index}")
    taken = tuple(Step("node", "judgement", OutcomeKind.OK, verdict=True) for _ in range(steps))
    success = None if score is None else score > 0.5
    result = MetricResult("m", score, success, "why", failure=failure, steps=taken)
    return CaseResult(index, f"case {index}", (result,))


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_an_exception_leaves_a_readable_file_of_what_came_before(
    tmp_path: Path, suffix: str
) -> None:
    pytest.importorskip("pyarrow")
    path = tmp_path / "deep" / f"rows{suffix}"
    with pytest.raises(KeyboardInterrupt), RowWriter(path) as kept:  # noqa: PT012
        for index in range(5000):
            kept.add(row(index))
        raise KeyboardInterrupt
    assert [r.index for r in read_rows(path)] == list(range(5000))


def test_parquet_is_flat_typed_and_in_row_groups(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    with RowWriter(tmp_path / "rows.parquet") as kept:
        for index in range(5000):
            kept.add(row(index, None if index == 7 else 0.5))
    with parquet.ParquetFile(kept.path) as file:
        assert file.num_row_groups == 3
        table = file.read()
    columns = ["index", "case", "hash", "metric", "score", "success", "outcome", "reason"]
    assert table.column_names[:8] == columns
    assert [str(table.schema.field(c).type) for c in columns[:6]] == [
        *("int64", "string", "string", "string", "double", "bool")
    ]
    assert table.column("score").null_count == 1
    assert '"message": "late 7"' in table.column("failure")[7].as_py()
    assert '"verdict": true' in table.column("steps")[7].as_py()


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_lone_surrogates_of_an_answer_do_not_end_a_run(tmp_path: Path, suffix: str) -> None:
    pytest.importorskip("pyarrow")
    with RowWriter(tmp_path / f"rows{suffix}") as kept:
        kept.add(CaseResult(0, "\ud800", row(0).metrics))
    assert "ud800" in repr(next(read_rows(kept.path)).case)


def test_an_earlier_file_is_kept_until_there_is_a_row(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("earlier")
    with RowWriter(path):
        pass
    assert path.read_text() == "earlier"


@pytest.mark.parametrize("name", ["rows.csv", "rows"])
def test_other_files_are_refused_before_the_run(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match=r"\.parquet"):
        RowWriter(tmp_path / name)


def test_rows_that_are_none_are_an_error_with_their_line(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"index": 0, "case": "a", "metrics": []}\n{"input": "a"}\n')
    with pytest.raises(InputError, match=r"rows\.jsonl line 2: no result of a run"):
        list(read_rows(path))


# -- the tally -----------------------------------------------------------------------------


@QUICK
@given(row_lists)
def test_a_tally_says_what_all_rows_together_say(rows: list[CaseResult]) -> None:
    tally, whole = Tally(rows), EvaluationResult(tuple(rows))
    assert tally.failed == whole.summary().failed
    assert tally.failed == sum(row.state == "failed" for row in whole.rows)
    for name, found in tally.metrics.items():
        results = [m for r in rows for m in r.metrics if m.metric == name]
        scores = [score for score in whole.scores(name) if score is not None]
        figures = whole.summary()[name]
        if scores:
            assert figures.mean == pytest.approx(fmean(scores), abs=1e-12)
            assert figures.median == pytest.approx(median(scores), abs=1e-4)
            assert (figures.lowest, figures.highest) == (min(scores), max(scores))
        else:
            assert (figures.mean, figures.median, figures.spread) == (None, None, None)
        assert sum(figures.distribution) == len(scores)
        if len(scores) > 1:
            assert figures.spread == pytest.approx(stdev(scores), abs=1e-9)
        assert found.unscored == sum(m.failure is not None for m in results)
        assert figures.no_score == sum(m.score is None for m in results)
        assert figures.passed == sum(m.success is True and m.score is not None for m in results)
        chosen = [s.verdict for m in results for s in m.steps if s.verdict is not None]
        assert sum(found.chose.values()) == len(chosen)
        assert found.shown is not None
        assert len(found.shown[1].steps) == max(len(m.steps) for m in results)


def test_a_tally_keeps_few_rows_and_few_ends() -> None:
    def broken(index: int) -> CaseResult:
        failure = Failure(OutcomeKind.TIMEOUT, f"node {index}", "late")
        result = MetricResult("m", None, None, None, failure=failure)
        return CaseResult(index, f"case {index}", (result,))

    tally = Tally(broken(index) for index in range(3000))
    assert tally.rows == tally.unscored == 3000
    assert len(tally.worst.rows) == 10
    assert len(tally.places.ranking()) == 1000
    assert not tally.failed


def test_a_tally_keeps_the_result_of_the_chosen_case() -> None:
    rows = [row(0, steps=2), row(1), row(2, steps=3), row(3, steps=3)]
    rows.append(replace(rows[0], index=4, case="1"))  # a name that is another case's index
    known = {None: "case 2", 1: "case 1", "case 1": "case 1", "1": "1", "3": "case 3"}
    for case, shown in known.items():
        found = Tally(rows, case).metrics["m"].shown
        assert found is not None
        assert found[0] == shown
    for unknown in ("9", "case 9", "01", 9):
        assert Tally(rows, unknown).metrics["m"].shown is None


@pytest.mark.parametrize("count", [50, 5000])
def test_a_run_of_any_size_is_a_summary_its_worst_cases_and_where_they_failed(count: int) -> None:
    console = Console(record=True, width=120, file=io.StringIO())
    rows = (row(n, None if n % 7 == 3 else n % 5 / 4) for n in range(count))
    print_table(Tally(rows), Totals(), console)
    lines = console.export_text().splitlines()
    assert len(lines) < 40
    heads = [line.split(" ")[0] for line in lines if line.startswith(("Summary", "The 10 worst"))]
    assert heads == ["Summary", "The"]


# -- a disk that takes no more -------------------------------------------------------------


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_names_the_file_and_keeps_whole_rows(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"

    def write() -> None:
        with files_of_at_most(5000), RowWriter(path) as rows:
            for index in range(1000):
                rows.add(row(index))

    with pytest.raises(InputError) as caught:
        write()
    kept = list(read_rows(path))
    said = str(caught.value)
    assert said.startswith(f"cannot write {path}: ")
    assert said.endswith(f"; rows of this run in {path}: {len(kept)}")
    assert kept == [row(index) for index in range(len(kept))]
    assert 4000 < path.stat().st_size <= 5000


def test_rows_that_wait_for_an_earlier_one_are_counted_as_kept(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"

    def write() -> None:
        with files_of_at_most(5000), RowWriter(path) as rows:
            rows.add(row(0))
            for index in range(2, 1000):
                rows.keep(row(index))

    with pytest.raises(InputError) as caught:
        write()
    kept = [one.index for one in read_rows(path, whole=False)]
    assert kept == [0, *range(2, len(kept) + 1)]
    assert str(caught.value).endswith(f": {len(kept)}")


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_a_full_disk_at_the_first_row_names_the_file(tmp_path: Path, suffix: str) -> None:
    def write() -> None:
        with files_of_at_most(3), RowWriter(tmp_path / f"rows{suffix}") as rows:
            rows.add(row(0))

    with pytest.raises(InputError, match="cannot write "):
        write()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full device")
def test_a_run_on_a_full_device_ends_with_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    on_full_device(monkeypatch, "rows.jsonl")
    Path("m.py").write_text(
        "from dagengine.metrics import ExactMatchMetric\nmetric = ExactMatchMetric()\n"
    )
    Path("a.jsonl").write_text('{"input": "a", "actual_output": "a", "expected_output": "a"}\n')
    command = ["run", "m.py", "--data", "a.jsonl", "--results", "rows.jsonl"]
    done = CliRunner().invoke(app, command)
    assert isinstance(done.exception, InputError)
    assert "cannot write rows.jsonl: No space left on device" in str(done.exception)
