"""Every shape of the semantics: scores, what runs, and that nothing else matters."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import anyio
import pytest
from graphs.shapes import SHAPES, Shape
from programs.hash_seeds import printed

from dagengine.judges import ScriptedJudge
from dagengine.metrics import DAGMetric
from dagengine.question import Question
from dagengine.test_case import LLMTestCase

CASE = LLMTestCase(input="a question", actual_output="an answer")
ONE_BY_ONE = [
    pytest.param(shape, number, id=f"{name}, outcome {number}")
    for name, shape in SHAPES.items()
    for number in range(len(shape.outcomes))
]


def scripted(verdicts: dict[str, Any], asked: Counter[str]) -> ScriptedJudge:
    """Verdicts by node name; tasks answer with their name."""

    def answer(question: Question[Any]) -> Any:
        asked[question.name] += 1
        return verdicts.get(question.name, f"output of {question.name}")

    return ScriptedJudge(answer)


@pytest.mark.parametrize(("shape", "number"), ONE_BY_ONE)
def test_a_shape_gives_its_score_and_runs_only_what_is_live(shape: Shape, number: int) -> None:
    verdicts, score, dead = shape.outcomes[number]
    asked: Counter[str] = Counter()
    dag = shape.build()
    metric = DAGMetric("shape", dag, model=scripted(verdicts, asked))

    assert metric.measure(CASE) == score
    assert set(asked) == {node.title for node in dag.nodes()} - dead
    assert set(asked.values()) == {1}


@pytest.mark.anyio
@pytest.mark.parametrize(("shape", "number"), ONE_BY_ONE)
async def test_a_shape_gives_the_same_score_inside_an_event_loop(shape: Shape, number: int) -> None:
    verdicts, score, _ = shape.outcomes[number]
    metric = DAGMetric("shape", shape.build(), model=scripted(verdicts, Counter()))

    assert await metric.a_measure(CASE) == score
    assert metric.measure(CASE) == score  # the sync door, while this loop runs


def fingerprint(backend: str) -> list[Any]:
    """Scores, results and prompts of every shape and outcome, as JSON-ready data."""
    found: list[Any] = []
    for shape in SHAPES.values():
        for verdicts, _, _ in shape.outcomes:
            prompts: dict[str, str] = {}

            def answer(question: Question[Any], v: Any = verdicts, p: Any = prompts) -> Any:
                p[question.name] = question.canonical.decode()
                return v.get(question.name, f"output of {question.name}")

            metric = DAGMetric("shape", shape.build(), model=ScriptedJudge(answer))
            anyio.run(metric.a_measure, CASE, backend=backend)
            assert metric.result is not None
            found.append([metric.result.as_dict(), sorted(prompts.items())])
    return found


def test_prompts_and_results_are_the_same_bytes_for_every_hash_seed_and_event_loop() -> None:
    code = (
        "import json, test_shapes; "
        "print(json.dumps([test_shapes.fingerprint(b) for b in ('asyncio', 'trio')]))"
    )
    outputs = set(printed(code, Path(__file__).parent))
    assert len(outputs) == 1
    on_asyncio, on_trio = json.loads(outputs.pop())
    assert on_asyncio == on_trio
    assert len(on_asyncio) == len(ONE_BY_ONE)


def test_a_chain_longer_than_the_stack_of_python_runs() -> None:
    from graphs.shapes import deep_chain

    length = sys.getrecursionlimit() + 100
    verdicts = {f"j{number}": True for number in range(length)}
    metric = DAGMetric("chain", deep_chain(length), model=scripted(verdicts, Counter()))
    assert metric.measure(CASE) == 1.0
    assert metric.result is not None
    assert len(metric.result.steps) == length
