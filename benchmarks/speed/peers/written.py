"""Writes down the requests that dagengine sends for one case, in rounds.

    PYTHONPATH=benchmarks/speed python benchmarks/speed/peers/written.py "decision tree"

A round is what can be asked before any answer of it is there; as many rounds as there are, so
many times the latency a case takes at least.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import anyio
from answers import MARK, instance
from anyio.lowlevel import checkpoint
from job import MODEL, label
from pydantic import BaseModel
from with_dagengine import metrics_of, test_cases

from dagengine import a_evaluate
from dagengine.judges import ScriptedJudge
from dagengine.prompts.answer_bounds import backstop, bounds_of, schema_for
from dagengine.question import Question, schema_of

Call = dict[str, Any]


async def rounds_of(workload: str) -> list[list[Call]]:
    """The rounds of case 0."""
    found: list[list[Call]] = []
    waiting: list[tuple[Question[Any], anyio.Event]] = []

    async def answer(question: Question[Any]) -> Any:
        turn = anyio.Event()
        waiting.append((question, turn))
        await turn.wait()
        return given(question)

    async def answer_in_rounds() -> None:
        while True:
            await anyio.wait_all_tasks_blocked()
            asked = waiting.copy()
            waiting.clear()
            if asked:
                found.append([request(question) for question, _ in asked])
            for _, turn in asked:
                turn.set()
            await checkpoint()

    async with anyio.create_task_group() as group:
        group.start_soon(answer_in_rounds)
        metrics = metrics_of(workload)
        await a_evaluate(test_cases(0, 1), metrics, model=ScriptedJudge(answer), show=False)
        group.cancel_scope.cancel()
    return found


def given(question: Question[BaseModel]) -> Any:
    """An answer as the server gives it; one about the case bears the label of the case."""
    schema = schema_of(question.answer_type)
    text = json.dumps(instance(schema, schema))
    about_the_case = any(label(0) in message["content"] for message in question.messages)
    return json.loads(text.replace(MARK, label(0)) if about_the_case else text)


def request(question: Question[BaseModel]) -> Call:
    """The body of a question, as `OpenAIJudge` sends it."""
    named = {"name": question.answer_type.__name__, "schema": schema_for(question)}
    count = question.options.top_logprobs
    return {
        "model": MODEL,
        "temperature": 0.0,
        "max_tokens": backstop(question, bounds_of(question)),
        **({"logprobs": True, "top_logprobs": count} if count else {}),
        "messages": list(question.messages),
        "response_format": {"type": "json_schema", "json_schema": named},
    }


if __name__ == "__main__":
    print(json.dumps(anyio.run(rounds_of, sys.argv[1])))
