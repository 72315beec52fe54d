"""A file of recommended metrics: it loads and has no problem, whatever was answered."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from dagengine.cli.commands import app
from dagengine.cli.recommend import QUESTIONS, Needs, program, suggestions
from dagengine.loading import load_metrics

NEEDS = [
    Needs(),
    Needs(retrieves=True, reference=True, own_rules=True),
    Needs(conversation=True),
    Needs(**{name: True for name, _ in QUESTIONS}),
]


@pytest.mark.parametrize("needs", NEEDS)
def test_the_file_has_what_is_recommended_and_no_problem(needs: Needs, tmp_path: Path) -> None:
    path = tmp_path / "metrics.py"
    path.write_text(program(needs), encoding="utf-8")
    kinds = {type(metric).__qualname__ for metric in load_metrics(str(path))}
    assert kinds == {one.metric for one in suggestions(needs)}
    done = CliRunner().invoke(app, ["check", str(path)])
    assert done.exit_code == 0, done.output


def test_the_command_writes_the_file_once(tmp_path: Path) -> None:
    path = tmp_path / "metrics.py"
    words = ["recommend", "metrics", "--write", str(path)]
    done = CliRunner().invoke(app, words, input="n\n" * len(QUESTIONS))
    assert done.exit_code == 0, done.output
    assert f"dagengine check {path}" in done.output
    assert path.read_text(encoding="utf-8") == program(Needs())
    again = CliRunner().invoke(app, words, input="n\n" * len(QUESTIONS))
    assert again.exit_code == 2
    assert "already exists" in " ".join(again.output.replace("│", " ").split())
