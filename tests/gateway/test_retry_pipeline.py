"""The way of a question through the stages: how often it changes files until a judge has it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

import dagengine
from dagengine.execution.cases_and_rows import OnRow
from dagengine.execution.local_executor import LocalExecutor
from dagengine.judges import ScriptedJudge
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode
from dagengine.results import CaseResult
from dagengine.test_case import LLMTestCase

pytestmark = pytest.mark.anyio

PACKAGE = Path(dagengine.__file__).resolve().parent.parent
MOST = 10  # a reader follows a question through so many changes of file, and no more
# What reads a case or an answer belongs to the node and the judge, not to the way between them.
START = ("dagengine/execution/node_run.py", "__call__")
END = "answer"


def kind_metric() -> DAGMetric:
    node = BinaryJudgementNode(
        "Is it kind?", evaluation_params=["actual_output"], then={True: 10, False: 0}
    )
    return DAGMetric("kind", DAG(node))


@contextmanager
def called_files(files: list[str]) -> Iterator[None]:
    """Collect the file of every function that is called between a node and its judge."""
    names: dict[CodeType, str] = {}
    on_its_way = False

    def name_of(code: CodeType) -> str:
        path = Path(code.co_filename).resolve()
        return path.relative_to(PACKAGE).as_posix() if path.is_relative_to(PACKAGE) else ""

    def note(frame: FrameType, event: str, _: Any) -> None:
        nonlocal on_its_way
        code = frame.f_code
        if event != "call" or code.co_filename.startswith("<"):  # `<string>`: of dataclasses
            return
        if code not in names:
            names[code] = name_of(code)
        name = names[code]
        on_its_way = on_its_way or (name, code.co_name) == START
        if on_its_way and name.startswith(("dagengine/", "judges/")):
            files.append(name)
            on_its_way = not (name.startswith("judges/") and code.co_name == END)

    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(None)


async def test_a_question_changes_files_ten_times_on_its_way_from_the_node_to_the_judge() -> None:
    engine = LocalExecutor([kind_metric()], {"model": ScriptedJudge(lambda question: True)})
    rows: list[CaseResult] = []
    files: list[str] = []
    cases = [LLMTestCase(input=f"q{place}", actual_output=f"a{place}") for place in range(2)]
    async with engine.open():
        await engine.run(cases[:1], OnRow(rows.append))  # what is made once, is made
        with called_files(files):
            await engine.run(cases[1:], OnRow(rows.append))
    assert [row.metrics[0].score for row in rows] == [1, 1]
    assert (files[0], files[-1]) == (START[0], "judges/scripted.py")
    assert sum(before != after for before, after in pairwise(files)) <= MOST, files
