"""Runs that are ended in the middle of things, and started again until they are done."""

from __future__ import annotations

import json
import os
import signal
import threading
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from programs.commands import Started, start_command
from servers.openai_server import OpenAIServer, Reply
from typer.testing import CliRunner

from dagengine.cli import app
from dagengine.store.maintenance import open_to_look, records

METRICS = """
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode, TaskNode

words = TaskNode("List the words", "words", evaluation_params=["input"], name="words")
kind = BinaryJudgementNode("Kind?", inputs=[words], then={True: 10, False: 4}, name="kind")
metric = DAGMetric("Kind", DAG(kind))
"""
# As real as any, and started in a fraction of the time.
JUDGE = """
import json
import os

import aiohttp

from dagengine.judges import ScriptedJudge

async def answer(question):
    body = {"messages": question.messages, "user": question.name}
    async with aiohttp.ClientSession() as session:
        async with session.post(os.environ["JUDGE"] + "/chat/completions", json=body) as reply:
            done = await reply.json()
    return json.loads(done["choices"][0]["message"]["content"])

judge = ScriptedJudge(answer, name="remote")
"""
# Interrupts the command once an answer is stored, and then holds its event loop for good.
BLOCKING = """
import os, signal, time

from dagengine.judges import ScriptedJudge

def answer(question):
    if question.name == "kind":
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(300)
    return "none"

judge = ScriptedJudge(answer, name="blocking")
"""
CASES, IN_FLIGHT = 60, 8
LONG = 300.0
QUESTIONS = 2 * CASES
# Calls under way: each holds its place until its answer is in the file.
UNSTORED = IN_FLIGHT

# What was stored at a kill, and the answers given before it.
Kept = tuple[set[str], Counter[str]]

pytestmark = pytest.mark.skipif(os.name == "nt", reason="there is no SIGKILL")


class Judge:
    """Counts the answers to each prompt, and ends the runs with a signal at a chosen one.

    What arrives after that one waits for its answer until those who asked are no more.
    """

    def __init__(self) -> None:
        self.given: Counter[str] = Counter()
        self.runs: list[Started] = []
        self.starting = threading.Lock()
        self.moment = 0
        self.signal = signal.SIGKILL

    def __call__(self, body: dict[str, Any]) -> Reply:
        total = self.given.total()
        if total == self.moment and total:
            return Reply(delay=LONG)
        prompt = prompt_of(body["messages"])
        self.given[prompt] += 1
        if total + 1 == self.moment:
            with self.starting:
                for run in self.runs:
                    run.send_signal(self.signal)
        mark = zlib.crc32(prompt.encode())
        if body["user"] == "words":
            return Reply(json.dumps({"output": f"words {mark}"}))
        return Reply(json.dumps({"reason": f"Mark {mark}.", "verdict": mark % 2 == 0}))


def prompt_of(messages: Any) -> str:
    return json.dumps(messages, sort_keys=True)


def command(folder: Path, number: int = 0) -> list[str]:
    return [
        "run", str(folder / "metrics.py"), "--data", str(folder / "cases.jsonl"),
        "--judge", str(folder / "judge.py"), "--max-in-flight", str(IN_FLIGHT),
        "--out", str(folder / f"out{number}"), "--store", str(folder / "answers.db"),
    ]  # fmt: skip


def start(folder: Path, server: OpenAIServer, count: int) -> list[Started]:
    environment = {**os.environ, "JUDGE": server.base_url}
    return [
        start_command(folder, *command(folder, number), environment=environment)
        for number in range(count)
    ]


def ended(run: Started) -> tuple[int, str]:
    done = run.ended()
    return done.returncode, done.stderr


def stored(folder: Path) -> set[str]:
    with open_to_look(folder / "answers.db") as db:
        return {prompt_of(record.question.messages) for record in records(db)}


def asked_again(answers: set[str], given: Counter[str], judge: Judge) -> set[str]:
    return {prompt for prompt in answers if judge.given[prompt] > given[prompt]}


def rows(folder: Path, number: int = 0) -> bytes:
    return (folder / f"out{number}" / "results.jsonl").read_bytes()


def write(folder: Path) -> Path:
    folder.mkdir()
    (folder / "metrics.py").write_text(METRICS)
    (folder / "judge.py").write_text(JUDGE)
    cases = (json.dumps({"name": f"c{n}", "input": f"number {n}"}) for n in range(CASES))
    (folder / "cases.jsonl").write_text("".join(f"{case}\n" for case in cases))
    return folder


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The rows of a run that nothing disturbs."""
    folder, judge = write(tmp_path_factory.mktemp("whole") / "run"), Judge()
    with OpenAIServer(judge) as server:
        done = CliRunner().invoke(app, command(folder), env={"JUDGE": server.base_url})
    assert done.exit_code == 0, done.output
    assert set(judge.given.values()) == {1}
    assert len(judge.given) == len(rows(folder).splitlines()) * 2 == QUESTIONS
    return rows(folder)


def finish(folder: Path, server: OpenAIServer, judge: Judge, count: int = 1) -> None:
    judge.moment = 0
    assert [ended(run)[0] for run in start(folder, server, count)] == [0] * count


@pytest.mark.parametrize(("count", "moments"), [(1, (15, 50, 90)), (2, (60,))])
def test_a_killed_run_goes_on_and_asks_nothing_again_that_was_stored(
    tmp_path: Path, undisturbed: bytes, count: int, moments: tuple[int, ...]
) -> None:
    folder, judge, kept = write(tmp_path / "run"), Judge(), list[Kept]()
    with OpenAIServer(judge) as server:
        for moment in moments:
            judge.moment = moment + judge.given.total() - len(judge.given)
            with judge.starting:
                judge.runs = start(folder, server, count)
            assert [ended(run)[0] for run in judge.runs] == [-signal.SIGKILL] * count
            kept.append((stored(folder), judge.given.copy()))
        finish(folder, server, judge, count)
    assert [rows(folder, number) for number in range(count)] == [undisturbed] * count
    assert stored(folder) == judge.given.keys()
    assert len(judge.given) == QUESTIONS
    for answers, given in kept:
        assert asked_again(answers, given, judge) == set()
        assert len(given) - len(answers) <= count * UNSTORED


def test_an_interrupted_run_ends_cleanly_and_goes_on_where_it_was(
    tmp_path: Path, undisturbed: bytes
) -> None:
    folder, judge = write(tmp_path / "run"), Judge()
    judge.moment, judge.signal = QUESTIONS // 2, signal.SIGINT
    with OpenAIServer(judge) as server:
        with judge.starting:
            judge.runs = start(folder, server, 1)
        code, errors = ended(judge.runs[0])
        answers, given = stored(folder), judge.given.copy()
        written = rows(folder).splitlines()
        finish(folder, server, judge)
    assert code == 130
    assert errors.startswith("interrupted: ")
    assert "run the same command to continue" in errors
    assert "Traceback" not in errors
    assert set(written) <= set(undisturbed.splitlines())
    assert rows(folder) == undisturbed
    assert len(given) - len(answers) <= IN_FLIGHT
    assert asked_again(answers, given, judge) == set()


@pytest.mark.parametrize("name", ["run", "benchmark"])
def test_a_command_whose_judge_blocks_ends_at_an_interrupt_and_goes_on(
    tmp_path: Path, name: str
) -> None:
    folder = write(tmp_path / "run")
    (folder / "judge.py").write_text(BLOCKING)
    run = start_command(folder, name, *command(folder)[1:])
    code, errors = ended(run)
    assert code == 130
    assert "run the same command to continue: the answers so far are in" in errors
    assert len(errors.splitlines()) == 1
    assert len(stored(folder)) >= 1
