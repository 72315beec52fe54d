"""What commands print for people fits a terminal of 80 characters."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
import typer
from graphs import misread
from typer.testing import CliRunner

from dagengine.cli.commands import app
from dagengine.system.terminal_text import wrap_lines

WIDTH = 80
NAME = "a case with a name that says at length what it is about "
ASKS = "metrics.py --data cases.jsonl --judge judge.py:judge"
LABELS = "--labels additional_metadata.label"
# In this order: later commands read what earlier ones leave.
COMMANDS = (
    "check metrics.py --data cases.jsonl",
    f"plan {ASKS}",
    f"run {ASKS} --out old",
    "run metrics.py --data cases.jsonl --judge other.py:judge --out new",
    "show new",
    "show new --failed",
    "show new --case 3",
    "diff old new",
    f"benchmark {ASKS} --times 3 {LABELS} --verbose",
    f"attack {ASKS} --families flattery,authority --defend gate",
    f"improve {ASKS} {LABELS} --times 1 --plan",
    f"improve {ASKS} {LABELS} --times 1 --out better",
    f"labels plan new {LABELS}",
    "judge check --judge judge.py:judge",
    "store show better/answers.db",
    "store prune better/answers.db --older-than 30",
    "sql 'select * from rows limit 3' new",
    "help",
    "help missing_field",
    "render metrics.py --out tree.svg",
)


def _wide(text: str) -> list[str]:
    """Lines that are too wide, but for words that cannot be folded."""
    return [
        line for line in text.splitlines()
        if len(line) > WIDTH and max(map(len, line.split())) < WIDTH - 20
    ]  # fmt: skip


def test_the_output_of_every_command_fits_80_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    names = ("Sources that an answer has to name", "Is the tone of the answer polite")
    files = {"metrics.py": misread.METRICS, "judge.py": misread.JUDGE}
    files["other.py"] = misread.JUDGE.replace('"polite=True" in case', '"quoted" in case')
    for path, text in files.items():
        for short, name in zip(("Sources", "Tone"), names, strict=True):
            text = text.replace(f'"{short}"', f'"{name}"')
        Path(path).write_text(text, encoding="utf-8")
    good = misread.labels(60, sources=True)
    with open("cases.jsonl", "w", encoding="utf-8") as file:
        for number, case in enumerate(misread.cases(60)):
            label = {"label": "pass" if good[number] else "fail"}
            row: dict[str, object] = {"name": f"{NAME}{number}", "additional_metadata": label}
            row |= {"input": case.input, "actual_output": case.actual_output}
            print(json.dumps(row), file=file)
    for command in COMMANDS:
        done = CliRunner().invoke(app, shlex.split(command))
        assert done.exit_code in (0, 1), (command, done.output, done.exception)
        assert not _wide(done.output), command


def test_every_help_fits_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    for name in typer.main.get_command(app).commands:  # type: ignore[attr-defined]
        assert not _wide(CliRunner().invoke(app, [name, "--help"]).output), name


def test_folded_lines_keep_their_words_and_their_indent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    assert wrap_lines("  node  a text that is long", 6) == "  node  a text that\n        is long"
    assert wrap_lines(f"see /{'x' * 30}\n\nend") == f"see\n/{'x' * 30}\n\nend"
