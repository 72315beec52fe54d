"""Answers that the processes of one run share without a store."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import anyio
import pytest
from programs.commands import Started, start_program

from dagengine.judges import ScriptedJudge
from dagengine.prompts import Evidence, messages_for
from dagengine.prompts.answer_types import judgement_type
from dagengine.question import Answer, Question
from dagengine.store.claims import SharedAnswers

pytestmark = pytest.mark.skipif(os.name == "nt", reason="Windows has no locks of this kind")

SHAPE = judgement_type(None)
QUESTION: Question[Any] = Question(messages_for("ok?", [Evidence("text", "a")]), SHAPE, name="node")
JUDGE = ScriptedJudge({}, name="x")

# Asks the same question, says so, and answers when it is told to.
ASKING = f"""
import sys
from pathlib import Path
import anyio
sys.path.insert(0, {os.path.dirname(__file__)!r})
import test_shared

async def main():
    async def ask():
        print("asking", flush=True)
        sys.stdin.readline()
        return test_shared.answer("theirs")
    shared = test_shared.SharedAnswers(Path(sys.argv[1]))
    await shared.get(test_shared.JUDGE, test_shared.QUESTION, ask)
    print("answered", flush=True)
    sys.stdin.readline()

anyio.run(main)
"""


def answer(reason: str) -> Answer[Any]:
    value = SHAPE.model_validate({"reason": reason, "verdict": True})
    return Answer(value, value.model_dump_json())


async def mine() -> Answer[Any]:
    return answer("mine")


@pytest.fixture
def other(tmp_path: Path) -> Started:
    """Another process that asks already."""
    process = start_program(ASKING, str(tmp_path), asks=True)
    assert process.line() == "asking"
    return process


@pytest.mark.anyio
async def test_an_answer_comes_from_the_process_that_asks_already(
    tmp_path: Path, other: Started
) -> None:
    found: list[Answer[Any]] = []
    shared = SharedAnswers(tmp_path)

    async def get() -> None:
        found.append(await shared.get(JUDGE, QUESTION, mine))

    async with anyio.create_task_group() as group:
        group.start_soon(get)
        await anyio.wait_all_tasks_blocked()
        assert found == []
        other.type("\n")
    assert found == [answer("theirs")]
    assert other.line(1) == "answered"
    other.ended()
    # What a process answered is there when it has ended.
    assert await shared.get(JUDGE, QUESTION, mine) == answer("theirs")


@pytest.mark.anyio
async def test_a_question_of_a_killed_process_is_asked_here(tmp_path: Path, other: Started) -> None:
    shared = SharedAnswers(tmp_path)
    other.kill()
    other.ended()
    assert await shared.get(JUDGE, QUESTION, mine) == answer("mine")


@pytest.mark.anyio
async def test_a_question_that_failed_is_free_for_others(tmp_path: Path) -> None:
    shared = SharedAnswers(tmp_path)

    async def fails() -> Answer[Any]:
        raise RuntimeError("no answer")

    with pytest.raises(RuntimeError):
        await shared.get(JUDGE, QUESTION, fails)
    assert await shared.get(JUDGE, QUESTION, mine) == answer("mine")
    # In the table, not in the memory of this process.
    assert await shared.get(JUDGE, QUESTION, fails) == answer("mine")
