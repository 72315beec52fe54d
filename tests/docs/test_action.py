"""The action for pull requests: its parts fit together, and its scripts run as they are."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from programs.commands import output_of

ROOT = Path(__file__).resolve().parents[2]
YAML: Any = importlib.import_module("yaml")  # it has no types
ACTION: dict[str, Any] = YAML.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
STEPS: dict[str, dict[str, Any]] = {step["id"]: step for step in ACTION["runs"]["steps"]}
EXAMPLE = ROOT / "examples" / "meeting_summary"
GH = """#!/bin/sh
echo "$@" >> "$CALLS"
case "$*" in *--paginate*) printf '%s' "$EARLIER";; esac
"""


def test_every_input_is_declared_and_used_and_no_script_has_an_expression() -> None:
    assert ACTION["runs"]["using"] == "composite"
    used = set(re.findall(r"inputs\.([\w-]+)", str(ACTION["runs"])))
    assert used == ACTION["inputs"].keys()
    for name, declared in ACTION["inputs"].items():
        assert declared["description"].endswith(".")
        assert declared.get("required") or "default" in declared, name
    for step in STEPS.values():
        assert step["shell"] == "bash"
        assert "${{" not in step["run"]  # what a pull request says would be run as code
        names = set(re.findall(r"\$\{?([A-Z][A-Z_]+)", step["run"]))
        assert names <= step["env"].keys() | {"RUNNER_TEMP", "GITHUB_OUTPUT"}
        for option in re.findall(r"\((--[\w-]+)", step["run"]):
            command = "diff" if step["id"] == "compare" else "run"
            assert option in output_of(command, "--help-all")
        for output in re.findall(r"steps\.(\w+)\.outputs", str(step["env"])):
            assert output in STEPS


def run(step: str, folder: Path, values: dict[str, str], *, fails: bool = False) -> str:
    """What a step prints; its environment is that of a runner, with a stand-in for `gh`."""
    tools = folder / "tools"
    tools.mkdir(exist_ok=True)
    (tools / "gh").write_text(GH)
    (tools / "gh").chmod(0o755)
    path = f"{tools}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    runner = {"PATH": path, "RUNNER_TEMP": str(folder), "GITHUB_OUTPUT": f"{folder}/output",
              "CALLS": f"{folder}/calls", "HOME": str(folder)}  # fmt: skip
    empty = dict.fromkeys(STEPS[step]["env"], "")
    script = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", STEPS[step]["run"]]
    done = subprocess.run(script, cwd=folder, env={**empty, **runner, **values, "COLUMNS": "110"},
                          capture_output=True, text=True, check=False)  # fmt: skip
    assert bool(done.returncode) == fails, done.stderr
    return done.stdout


@pytest.mark.skipif(os.name == "nt", reason="the action's shell is bash")
def test_the_scripts_run_compare_comment_once_and_end_as_the_run_did(tmp_path: Path) -> None:
    judged = {"METRICS": f"{EXAMPLE}/metrics.py", "DATA": f"{EXAMPLE}/cases.jsonl"}
    judged |= {"JUDGE": f"{EXAMPLE}/judge.py:judge", "STORE": "a.db"}
    run("run", tmp_path, {"OUT": "before", **judged})
    conditions = "pass-rate<0.01\n\npass-rate<0.9\n"
    judged |= {"REPLAY": "true", "FAIL_IF": conditions, "OUT": "now"}
    printed = run("run", tmp_path, judged)
    assert "0 judge calls" in printed
    assert "fails: pass-rate<0.9" in printed
    assert (tmp_path / "output").read_text() == "exit-code=0\nexit-code=1\n"
    compared = run("compare", tmp_path, {"BASELINE": "before", "OUT": "now"})
    assert "The two runs agree on all 36 cases" in compared
    said = {"REPOSITORY": "o/r", "NUMBER": "7", "CODE": "1", "MARK": "<!-- dagengine m -->"}
    for earlier in ("", "12"):
        run("comment", tmp_path, {"EARLIER": earlier, "METRICS": "m", **said})
    calls = (tmp_path / "calls").read_text().splitlines()
    assert "PATCH" not in calls[1]
    assert "--method PATCH repos/o/r/issues/comments/12" in calls[3]
    comment = (tmp_path / "comment.md").read_text()
    assert comment.startswith("<!-- dagengine m -->\n### dagengine: `m` ended with 1\n")
    assert "The two runs agree on all 36 cases" in comment
    assert "fails: pass-rate<0.9" in comment
    run("gate", tmp_path, {"CODE": "1"}, fails=True)
