"""What the page about data promises: its snippets and commands run as they stand there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from places import ROOT
from typer.testing import CliRunner

from dagengine.cli import app
from dagengine.data.result_rows import read_rows

PAGE = ROOT / "docs" / "data.md"
METRICS = "from dagengine.metrics import ExactMatchMetric\nmetric = ExactMatchMetric()\n"
CASES = """question,answer,truth,context,notes
a,b,b,one;two,checked
c,d,e,three,
"""

# An installed copy is tested without the documents.
pytestmark = pytest.mark.skipif(not PAGE.exists(), reason="there are no documents here")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "cases.csv").write_text(CASES, encoding="utf-8")
    (tmp_path / "metrics.py").write_text(METRICS, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_python_snippets_run_in_order() -> None:
    first, second = blocks("python")
    names: dict[str, Any] = {}
    exec(compile(first, "data.md", "exec"), names)
    assert names["result"].scores("Exact Match") == [1.0, 0.0]
    exec(compile(second, "data.md", "exec"), names)
    assert names["result"].scores("Exact Match") == [1.0]


def test_the_command_reads_the_file_that_the_snippet_reads(folder: Path) -> None:
    (command,) = blocks("console")
    program, *arguments = shlex.split(command.replace("\\\n", ""))
    assert program == "dagengine"
    done = CliRunner().invoke(app, [*arguments, "--results", "rows.jsonl"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert [row.metrics[0].score for row in read_rows(folder / "rows.jsonl")] == [1.0, 0.0]
