"""Several processes on one store: each question is asked by one of them."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import anyio
import pytest
from programs.commands import Started, start_program

from dagengine import Store
from dagengine.judges import ScriptedJudge
from dagengine.prompts import Evidence, messages_for
from dagengine.prompts.answer_types import judgement_type
from dagengine.question import Answer, Question
from dagengine.store.claims import Claims
from dagengine.store.database import key_of

pytestmark = pytest.mark.skipif(os.name == "nt", reason="Windows has no locks of this kind")

SHAPE = judgement_type(None)
QUESTION: Question[Any] = Question(messages_for("ok?", [Evidence("text", "a")]), SHAPE, name="node")
JUDGE = ScriptedJudge({}, name="x")
KEY = key_of("ScriptedJudge x", QUESTION)

EVALUATING = """
import sys
import anyio
from dagengine import evaluate
from dagengine.judges import ScriptedJudge
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode
from dagengine.test_case import LLMTestCase

async def answer(question):
    await anyio.sleep(0.005)
    return True

kind = BinaryJudgementNode("Kind?", evaluation_params=["input"], then={True: 10, False: 4})
cases = [LLMTestCase(input=f"case {number}") for number in range(300)]
judge = ScriptedJudge(answer, name="slow")
print("ready", flush=True)
sys.stdin.readline()
done = evaluate(cases, [DAGMetric("m", DAG(kind))], model=judge, store=sys.argv[1], show=False)
print(done.totals.calls, len(done.rows))
"""

# Claims a question and keeps it until it is killed.
HOLDING = """
import sys
from pathlib import Path
from dagengine.store.claims import Claims

with Claims(Path(sys.argv[1])).of(bytes.fromhex(sys.argv[2])) as mine:
    print(mine, flush=True)
    sys.stdin.readline()
"""


def started(code: str, *arguments: object) -> Started:
    return start_program(code, *map(str, arguments), asks=True)


def test_runs_that_start_on_one_store_at_the_same_time_ask_everything_once(tmp_path: Path) -> None:
    runs = [started(EVALUATING, tmp_path / "answers.db") for _ in range(2)]
    assert [run.line() for run in runs] == ["ready", "ready"]
    for run in runs:
        run.type("go\n")
    said = [run.ended().stdout.splitlines()[1].split() for run in runs]
    assert [rows for _, rows in said] == ["300", "300"]
    assert sum(int(calls) for calls, _ in said) == 300
    assert not (tmp_path / "answers.db-asking").exists()


@pytest.mark.anyio
async def test_a_question_whose_asker_is_killed_is_asked_by_those_who_waited(
    tmp_path: Path,
) -> None:
    path, asked = tmp_path / "answers.db", anyio.Event()

    async def ask() -> Answer[Any]:
        asked.set()
        return Answer(SHAPE.model_validate({"reason": "r", "verdict": True}), "{}")

    async with Store(path).open() as answers:
        with Claims(path).of(KEY) as mine:
            assert mine
        other = started(HOLDING, path, key_of(JUDGE.durable_identity or "", QUESTION).hex())
        assert await anyio.to_thread.run_sync(other.line) == "True"
        async with anyio.create_task_group() as group:
            group.start_soon(answers.get, JUDGE, QUESTION, ask)
            await anyio.wait_all_tasks_blocked()
            assert not asked.is_set()
            other.send_signal(signal.SIGKILL)
    assert asked.is_set()
    other.ended()


@pytest.mark.anyio
async def test_a_question_whose_asker_says_nothing_is_asked_when_patience_ends(
    tmp_path: Path,
) -> None:
    path, given = tmp_path / "answers.db", {"reason": "r", "verdict": True}

    async def ask() -> Answer[Any]:
        return Answer(SHAPE.model_validate(given), json.dumps(given))

    other = started(HOLDING, path, key_of(JUDGE.durable_identity or "", QUESTION).hex())
    assert await anyio.to_thread.run_sync(other.line) == "True"
    async with Store(path, patience=0.05).open() as answers:
        found = await answers.get(JUDGE, QUESTION, ask)
    assert found.value.model_dump() == given
    other.ended()


def test_a_claim_is_given_back_and_holds_between_processes_only(tmp_path: Path) -> None:
    path = tmp_path / "answers.db"
    claims = Claims(path)
    with claims.of(KEY) as mine, claims.of(KEY) as again:
        assert mine
        assert again
        other = started(HOLDING, path, KEY.hex())
        assert other.line() == "False"
        other.ended()
    other = started(HOLDING, path, KEY.hex())
    assert other.line() == "True"
    other.ended()
    claims.close()
    assert list(tmp_path.iterdir()) == []


def test_where_there_is_no_place_for_claims_everybody_asks(tmp_path: Path) -> None:
    claims = Claims(tmp_path / "no" / "such" / "folder.db")
    with claims.of(KEY) as mine:
        assert mine
    claims.close()
