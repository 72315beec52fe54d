"""Chat models of the LangChain shape as judges."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

import anyio
import pytest

from dagengine import evaluate
from dagengine.errors import MetricFailedError
from dagengine.judges import BaseLLM, as_judge
from dagengine.metrics import ExactMatchMetric, HallucinationMetric
from dagengine.metrics.criteria import load_evaluator
from dagengine.test_case import LLMTestCase

CASE = LLMTestCase(input="Hi", actual_output="Hello!", context=["It is polite."])
YES = '{"verdicts": [{"reason": "fine", "verdict": "yes", "number": 1}]}'


@dataclass
class Message:
    """What such models return."""

    content: Any


class Blocking:
    """A model that only blocks."""

    model_name = "blocking-1"

    def __init__(self, answer: Any = YES) -> None:
        self.answer = answer
        self.prompts: list[str] = []
        self.threads: list[int] = []

    def invoke(self, prompt: str) -> Any:
        self.prompts.append(prompt)
        self.threads.append(threading.get_ident())
        return self.answer


class Chat(Blocking):
    """A model with both doors, and a `generate` of another kind."""

    async def ainvoke(self, prompt: str) -> Any:
        await anyio.lowlevel.checkpoint()
        self.prompts.append(prompt)
        return self.answer

    def invoke(self, prompt: str) -> Any:
        raise AssertionError("it need not block")

    def generate(self, messages: list[list[Any]]) -> Any:
        raise AssertionError("it takes lists of messages")


PARTS = ["<thinking>no</thinking>", {"type": "image"}, {"type": "text", "text": YES}]


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize(
    "answer", [YES, Message(YES), Message(PARTS)], ids=["str", "text", "parts"]
)
@pytest.mark.parametrize("kind", [Chat, Blocking])
def test_a_chat_model_is_a_judge(kind: type[Blocking], answer: Any, backend: str) -> None:
    model = kind(answer)
    metric = HallucinationMetric(model=model)
    assert anyio.run(metric.a_measure, CASE, backend=backend) == 1.0
    (prompt,) = model.prompts
    assert "It is polite." in prompt
    assert '"verdicts"' in prompt  # the schema is written out
    assert threading.get_ident() not in model.threads


def test_the_judge_of_a_chat_model_tells_its_name() -> None:
    assert "blocking-1" in as_judge(Blocking()).identity
    assert "Nameless" in as_judge(type("Nameless", (), {"invoke": print})()).identity


def test_an_answer_without_text_is_unparseable() -> None:
    with pytest.raises(MetricFailedError, match=r"unparseable: the model returned Message, not"):
        HallucinationMetric(model=Chat(Message(None))).measure(CASE)


def test_a_custom_model_that_can_also_be_invoked_stays_one() -> None:
    class Mine(BaseLLM):
        def generate(self, prompt: str) -> str:
            return YES

        def invoke(self, prompt: str) -> str:
            raise AssertionError("not a chat model")

        def get_model_name(self) -> str:
            return "mine"

    assert HallucinationMetric(model=Mine()).measure(CASE) == 1.0


def test_a_chat_model_evaluates_strings_by_a_criterion() -> None:
    evaluator = load_evaluator(
        "criteria", criteria="conciseness", llm=Chat(Message('{"reason": "r", "verdict": "Y"}'))
    )
    found = evaluator.evaluate_strings(prediction="4", input="2 + 2?")
    assert found == {"reasoning": "r", "value": "Y", "score": 1}


def test_one_model_serves_a_run_of_several_metrics() -> None:
    metrics = [HallucinationMetric(), ExactMatchMetric()]
    case = CASE.model_copy(update={"expected_output": "Hello!"})
    done = evaluate([case], metrics, model=Chat(Message(YES)), show=False)
    assert [result.score for result in done.rows[0].metrics] == [1.0, 1.0]
