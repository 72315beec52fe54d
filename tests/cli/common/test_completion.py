"""What shells offer when Tab is pressed, asked as they ask it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dagengine.cli.common.options import judge_names

PROGRAM = f"#!{sys.executable}\nfrom dagengine.cli import main\n\nmain()\n"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home without settings, with the program in it."""
    program = tmp_path / "dagengine"
    program.write_text(PROGRAM, encoding="utf-8")
    program.chmod(0o755)
    return tmp_path


def ran(home: Path, *command: str, **settings: str) -> str:
    """What a command printed whose home is there, and where the program is found first."""
    own = {"HOME": str(home), "PATH": f"{home}{os.pathsep}{os.environ['PATH']}"}
    # No shell started this.
    own["_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION"] = "1"
    done = subprocess.run(
        command, env={**os.environ, **own, **settings}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("shell", "words", "wanted"),
    [
        ("zsh", "dagengine be", "benchmark"),
        ("fish", "dagengine plan --judge anthropic/claude-3-o", "anthropic/claude-3-opus"),
        ("zsh", "dagengine run --max-ca", "Stop after this number of judge calls."),
    ],
)
def test_a_shell_is_offered_what_goes_on_as_typed(
    home: Path, shell: str, words: str, wanted: str
) -> None:
    asked = {"_DAGENGINE_COMPLETE": f"complete_{shell}", "_TYPER_COMPLETE_ARGS": words}
    asked["_TYPER_COMPLETE_FISH_ACTION"] = "get-args"
    assert wanted in ran(home, str(home / "dagengine"), **asked)


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_bash_completes_once_its_script_is_installed(home: Path) -> None:
    ran(home, str(home / "dagengine"), "--install-completion", "bash")
    typed = "COMP_WORDS=(dagengine run --max-in); COMP_CWORD=2; _dagengine_completion dagengine"
    offered = f'. ~/.bashrc; {typed}; echo "${{COMPREPLY[*]}}"'
    assert ran(home, "bash", "--norc", "-c", offered) == "--max-in-flight\n"


def test_judges_are_offered_by_provider_and_files_are_left_to_the_shell() -> None:
    assert {"lexical", "anthropic/", "ollama/"} <= set(judge_names(""))
    assert "gpt-4o" in judge_names("gpt-4")
    assert all(name.startswith("mistral/") for name in judge_names("mistral/"))
    assert judge_names("judge.p") == []
