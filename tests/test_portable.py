"""The main ways through on a system that lacks what only Unix has."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

# What the standard library itself asks for on Unix stays.
ONLY_UNIX = ("pread", "pwrite", "preadv", "pwritev", "fork", "killpg", "setsid", "getuid")
MODULES = ("fcntl", "pwd", "grp", "resource", "termios")

PROGRAM = f"""
import asyncio, multiprocessing, os, sqlite3, subprocess, sys

import anyio, tempfile

for name in {ONLY_UNIX!r}:
    if hasattr(os, name):
        delattr(os, name)
for name in {MODULES!r}:
    sys.modules[name] = None

from dagengine import evaluate
from dagengine.judges import ScriptedJudge
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode
from dagengine.record import load_run
from dagengine.record.label_file import Label, LabelFile
from dagengine.test_case import LLMTestCase

late = anyio.Event()


async def answer(question):
    if "first" in question.messages[-1]["content"]:
        await late.wait()  # so that all others end before it
    else:
        late.set()
    return True


node = BinaryJudgementNode("Is it kind?", then={{True: 10, False: 0}},
                           evaluation_params=["actual_output"], name="kind")
cases = [LLMTestCase(input="i", actual_output=text) for text in ("first", "second", "third")]
metric = DAGMetric("Manners", DAG(node))
folder = sys.argv[1]
result = evaluate(cases, [metric], model=ScriptedJudge(answer, name="kind"), out=folder, show=False,
                  store=folder + ".db")
assert [row.index for row in load_run(folder).rows()] == [0, 1, 2]
file = LabelFile(load_run(folder).folder / "labels.jsonl")
for person in ("a", "b"):
    file.add([Label(id=person, who=person, when="2026-01-01T00:00:00Z", case=result[0].hash,
                    index=0, name="c", metric="Manners", node="kind", definition=None,
                    answer=True)])
print(len(file.labels()), "labels")
"""


def test_a_run_with_a_record_a_store_and_labels_needs_nothing_that_only_unix_has(
    tmp_path: Path,
) -> None:
    command = [sys.executable, "-W", "error", "-c", PROGRAM, str(tmp_path / "run")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("2 labels\n", 0), done.stderr
