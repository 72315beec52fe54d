"""Rows that are finished before an earlier one: safe at once, and in order in the end."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from programs.commands import start_command

from dagengine.data.result_files import RowWriter, read_rows
from dagengine.data.written_lines import beside
from dagengine.execution.cases_and_rows import OnRow, RowsInOrder
from dagengine.results import CaseResult, MetricResult


def row(index: int) -> CaseResult:
    return CaseResult(index, f"case {index}", (MetricResult("m", 1.0, True, f"\ud800 {index}"),))


def lines(path: Path) -> list[int]:
    return [json.loads(line)["index"] for line in path.read_text(encoding="utf-8").splitlines()]


@given(order=st.permutations(range(8)), killed=st.integers(0, 8))
def test_at_any_moment_every_finished_row_can_be_read_and_in_the_end_all_are_in_order(
    tmp_path_factory: pytest.TempPathFactory, order: list[int], killed: int
) -> None:
    path = tmp_path_factory.mktemp("rows") / "results.jsonl"
    with RowWriter(path) as writer:
        rows = RowsInOrder(OnRow(writer.add, writer.keep))
        for number, index in enumerate(order, 1):
            rows.add(row(index))
            if number == killed:  # what a process would leave that ended here
                assert list(read_rows(path)) == [row(one) for one in sorted(order[:number])]
                assert lines(path) == list(range(rows.next))
    assert lines(path) == list(range(8))
    assert os.listdir(path.parent) == ["results.jsonl"]


def test_what_waited_in_an_earlier_run_goes_with_its_results(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    with RowWriter(path) as writer:
        writer.add(row(0))
        writer.keep(row(2))
    assert [one.index for one in read_rows(path)] == [0, 2]
    with RowWriter(path):
        pass
    assert [one.index for one in read_rows(path)] == [0, 2]  # the next run had no row
    with RowWriter(path) as writer:
        writer.keep(row(7))
    assert [one.index for one in read_rows(path)] == [7]


def test_half_a_line_at_the_end_of_what_waits_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    with RowWriter(path) as writer:
        writer.add(row(0))
        writer.keep(row(3))
        writer.keep(row(2))
    with beside(path).open("ab") as file:
        file.write(b'{"index": 4, "case": "ca')
    assert [one.index for one in read_rows(path)] == [0, 2, 3]


def test_in_parquet_nothing_waits(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    path = tmp_path / "results.parquet"
    with RowWriter(path) as writer:
        writer.keep(row(1))
        writer.add(row(0))
        writer.add(row(1))
    assert [one.index for one in read_rows(path)] == [0, 1]
    assert os.listdir(tmp_path) == ["results.parquet"]


JUDGE = """
import anyio
from dagengine.judges import ScriptedJudge

async def answer(question):
    if "case 0." in question.messages[-1]["content"]:
        await anyio.sleep_forever()
    return True

judge = ScriptedJudge(answer)
"""
METRICS = """
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode
metric = DAGMetric(
    "m", DAG(BinaryJudgementNode("A?", evaluation_params=["input"], then={True: 10, False: 0}))
)
"""


@pytest.mark.skipif(os.name == "nt", reason="there is no SIGKILL")
def test_a_killed_run_without_a_store_loses_no_row_that_was_finished(tmp_path: Path) -> None:
    (tmp_path / "judge.py").write_text(JUDGE)
    (tmp_path / "metrics.py").write_text(METRICS)
    cases = [json.dumps({"input": f"case {number}."}) for number in range(200)]
    (tmp_path / "cases.jsonl").write_text("\n".join(cases))
    command = ["run", "metrics.py", "--data", "cases.jsonl", "--judge", "judge.py", "--out", "out"]
    process = start_command(tmp_path, *command)
    waiting = beside(tmp_path / "out" / "results.jsonl")
    while process.poll() is None:
        if waiting.exists() and waiting.read_bytes().count(b"\n") == 199:
            process.kill()
            break
        time.sleep(0.001)
    assert process.ended().returncode == -signal.SIGKILL
    found = read_rows(tmp_path / "out" / "results.jsonl")
    assert [one.index for one in found] == list(range(1, 200))
