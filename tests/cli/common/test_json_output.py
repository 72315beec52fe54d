"""`--format json`: every command prints one JSON document, and nothing else, on standard output."""

from __future__ import annotations

import json
import os
import shlex
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
from folders.spans import write
from programs.commands import run_command, start_command
from servers.score_server import ScoreServer
from typer.testing import CliRunner

from dagengine.cli.commands import app

METRICS = """
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode

polite = BinaryJudgementNode(
    "Is it polite?", evaluation_params=["actual_output"], then={True: 10, False: 0}, name="polite"
)
metric = DAGMetric("Tone", DAG(root_node=polite))
"""
JUDGE = """
from dagengine.judges import ScriptedJudge


def answer(question):
    return "please" in question.messages[-1]["content"]


judge = ScriptedJudge(answer, name="scripted")
"""
WRITER = """
from dagengine.judges import ScriptedJudge

judge = ScriptedJudge(lambda question: "?", name="writer")
"""
TEST = """
from dagengine.testing import assert_test


def test_it_holds():
    assert True


def test_it_fails():
    assert 1 == 2, "one is not two"
"""
JUDGED = "metrics.py --data cases.jsonl --judge judge.py:judge"
COMMANDS = {
    "attack": f"attack {JUDGED} --families 'naive order' --plan",
    "benchmark": f"benchmark {JUDGED} --times 2 --out card",
    "check": "check metrics.py",
    "diff": "diff run run",
    "fit escalation": "fit escalation --small small.csv --large large.csv",
    "help": "help unparseable",
    "improve": f"improve {JUDGED} --labels labels.csv --out improve",
    "judge check": "judge check --judge judge.py:judge --seconds 1",
    "judge set": "judge set gpt-4o",
    "judge show": "judge show",
    "judge unset": "judge unset",
    "labels plan": "labels plan run",
    "merge": "merge shard-1 shard-2 --out whole",
    "migrate": "migrate old.py",
    "plan": f"plan {JUDGED}",
    "render": "render metrics.py --out tree.mmd",
    "run": f"run {JUDGED} --out again",
    "send": "send traced --to phoenix=URL",
    "show": "show run",
    "sql": "sql 'SELECT score FROM runs' run",
    "store export": "store export store.db",
    "store merge": "store merge store.db other.db",
    "store prune": "store prune store.db --judge '*' --dry-run",
    "store show": "store show store.db --limit 1",
    "synthesize": "synthesize text.md --count 2 --plan --judge writer.py:judge",
    "test run": "test run test_small.py",
    "watch": "watch metrics.py spans --judge judge.py:judge --out watched --quiet 0 --poll 0.05"
    " --until-idle",
}
"""A call of each command that ends by itself."""
KEYS = {
    "attack": {"plan"},
    "benchmark": {"card", "failing"},
    "fit escalation": {"fitted", "proof"},
    "help": {"explanations"},
    "improve": {"plan", "headline", "next"},
    "judge check": {"usable"},
    "judge show": {"judge", "source"},
    "labels plan": {"plans"},
    "merge": {"summary", "totals"},
    "migrate": {"files"},
    "plan": {"calls", "judges", "warnings"},
    "run": {"out", "summary", "totals", "failing"},
    "send": {"sent"},
    "store merge": {"added"},
    "store prune": {"answers", "dry_run"},
    "store show": {"answers", "groups", "latest"},
    "synthesize": {"calls", "judges"},
    "test run": {"tests"},
    "watch": {"alerts", "out"},
}
"""Some keys of the document of a command."""
EXITS = {"judge check": 1, "migrate": 3, "test run": 1}
OWN = {"check", "diff", "show", "sql", "store export"}
"""Commands whose document has a form of its own."""


def all_commands(group: Any, before: str = "") -> Iterator[str]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from all_commands(command, f"{before}{name} ")
        elif not command.hidden:
            yield before + name


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("json")
    for name, text in {
        "metrics.py": METRICS, "judge.py": JUDGE, "writer.py": WRITER, "test_small.py": TEST,
        "old.py": "from deepeval.metrics import BiasMetric\nbias = BiasMetric(threshold=0.5)\n",
        "text.md": "Letters are sent on Mondays. Parcels take three days.\n" * 40,
    }.items():  # fmt: skip
        (home / name).write_text(text)
    texts = [f"{'please ' * (n % 2)}answer {n}" for n in range(44)]
    rows = [{"name": f"c{n}", "input": "q", "actual_output": text} for n, text in enumerate(texts)]
    (home / "cases.jsonl").write_text("\n".join(map(json.dumps, rows)))
    labels = [f"c{n},{'pass' if n % 2 else 'fail'}" for n in range(44)]
    (home / "labels.csv").write_text("case,label\n" + "\n".join(labels))
    tables = {"small.csv": "case,verdict,confidence,label\n", "large.csv": "case,verdict\n"}
    for n in range(120):
        right = "yes" if n % 2 else "no"
        wrong = "no" if n % 2 else "yes"
        tables["small.csv"] += f"{n},{wrong if n % 5 == 0 else right},{0.5 + n % 5 / 10},{right}\n"
        tables["large.csv"] += f"{n},{right}\n"
    for name, text in tables.items():
        (home / name).write_text(text)
    write(home / "spans" / "a.jsonl", ["please"] * 3)
    run = f"run {JUDGED} --no-page"
    for more in (
        "--store store.db --out run", "--store other.db --out other",
        "--shard 1/2 --out shard-1", "--shard 2/2 --out shard-2",
    ):  # fmt: skip
        done = run_command(home, *shlex.split(f"{run} {more}"))
        assert done.returncode == 0, done.stderr
    traced = "run metrics.py --data spans/a.jsonl --map otel --judge judge.py:judge --out traced"
    assert run_command(home, *shlex.split(traced)).returncode == 0
    return home


@pytest.mark.parametrize("command", COMMANDS)
def test_the_output_is_one_document_with_exit_code_and_files(
    folder: Path, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    with ScoreServer() as server:
        words = COMMANDS[command].replace("URL", server.url)
        done = CliRunner().invoke(app, [*shlex.split(words), "--format", "json"], input="n\n" * 9)
    assert done.exit_code == EXITS.get(command, 0), done.output
    document = json.loads(done.stdout)
    if command in OWN:
        assert isinstance(document, list | dict)
        return
    assert document["command"] == command
    assert document["exit"] == done.exit_code
    assert all(map(os.path.exists, document["written"]))
    assert KEYS.get(command, set()) <= document.keys()


def test_view_prints_its_address_when_it_serves(folder: Path) -> None:
    process = start_command(folder, "view", "run", "--port", "0", "--format", "json")
    process.line(3)
    process.send_signal(signal.SIGINT)
    done = process.ended()
    assert json.loads(done.stdout)["address"].startswith("http://127.0.0.1:")


def test_the_old_spelling_means_the_same_and_an_error_leaves_standard_output_empty(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    plan = shlex.split(COMMANDS["plan"])
    spellings = (["--json"], ["--format", "json"])
    old, new = (CliRunner().invoke(app, [*plan, *words]).stdout for words in spellings)
    assert old == new
    failed = CliRunner().invoke(app, ["store", "show", "nothing.db", "--format", "json"])
    assert failed.exception is not None
    assert failed.stdout == ""


def test_every_command_is_tried() -> None:
    served = {"view", "guide", "schema"}  # a server, and what prints one file of the package
    names = set(all_commands(typer.main.get_command(app)))
    assert names - served == set(COMMANDS)
