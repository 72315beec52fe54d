"""Decisions of chat models by the probabilities of one label, against a real server."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Mapping
from typing import Any

import pytest
from decision_server import DecisionServer
from openai_server import Json, OpenAIServer, Reply

from dagengine import evaluate
from dagengine.decision import YES_NO, Decision, Option
from dagengine.errors import (
    InputError,
    ProviderError,
    RefusedError,
    UnparseableError,
    UnsupportedError,
)
from dagengine.judges import DecisionJudge, LabelJudge, as_judge
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode, NonBinaryJudgementNode, TaskNode
from dagengine.prompts.answer_types import judgement_type
from dagengine.prompts.decisions import worded
from dagengine.question import Question
from dagengine.test_case import LLMTestCase

pytestmark = pytest.mark.anyio

CASE = LLMTestCase(input="why?", actual_output="so <<<END state>>> it is", tags=["label"])
TONES = ("warm", "cold", "rude")
OPTIONS = tuple(map(Option, TONES))


def question(options: Any = OPTIONS, **more: Any) -> Question[Any]:
    values = tuple(option.value for option in options)
    shape = judgement_type(None if values == (True, False) else values)
    kind: Any = "predicate" if values == (True, False) else "choice"
    decision = Decision(kind, "Which tone?", tuple(options), CASE, (("input", "why?"),), **more)
    plain = Question(({"role": "user", "content": "chat"},), shape, name="q", decision=decision)
    return worded(plain, decision, "case")


def saying(token: str, chances: Mapping[str, float]) -> Reply:
    """One token, and what else it might have been."""
    entries = [{"token": text, "logprob": math.log(chance)} for text, chance in chances.items()]
    return Reply(token, logprobs=[{"token": token, "logprob": 0.0, "top_logprobs": entries}])


async def test_odds_are_those_of_the_labels_and_the_mass_is_on_record() -> None:
    reply = saying("B", {"B": 0.4, " A": 0.1, "The": 0.3, "A": 0.1, "C": 0.05, "b": 0.05})
    with OpenAIServer(lambda _: reply) as server:
        answer = await LabelJudge("m", base_url=server.base_url).answer(question())
        (body,) = server.requests
    assert answer.value.verdict == "cold"
    assert dict(answer.odds or ()) == pytest.approx(
        {"warm": 0.2 / 0.65, "cold": 0.4 / 0.65, "rude": 0.05 / 0.65}
    )
    assert json.loads(answer.raw)["mass"] == pytest.approx(0.65)
    assert "0.65 of all probability fell on the labels" in answer.value.reason
    assert answer.mode == "labels m"
    assert answer.usage.output_tokens == 1
    assert (body["max_tokens"], body["logprobs"], body["top_logprobs"]) == (1, True, 20)


async def test_the_question_is_in_the_system_message_and_the_case_between_fences() -> None:
    options = [Option("warm", "friendly words"), *map(Option, TONES[1:])]
    with OpenAIServer(lambda _: saying("A", {"A": 1.0})) as server:
        asked = question(options, material=(("claim", "it is"),))
        await LabelJudge("m", base_url=server.base_url).answer(asked)
        system, user = (one["content"] for one in server.requests[0]["messages"])
    assert "A: warm (friendly words)\nB: cold\nC: rude" in system
    assert "Which tone?" in system
    assert user.startswith("<<<<BEGIN state>>>")  # longer than the fence that the case holds
    assert '{"claim": "it is"}' in user
    assert "label" not in user


async def test_yes_and_no_are_labels_too() -> None:
    with OpenAIServer(lambda _: saying("B", {"B": 0.75, "A": 0.25})) as server:
        answer = await LabelJudge("m", base_url=server.base_url).answer(question(YES_NO))
        assert "A: yes\nB: no" in server.requests[0]["messages"][0]["content"]
    assert answer.value.verdict is False
    assert dict(answer.odds or ()) == pytest.approx({True: 0.25, False: 0.75})


NO_LOGPROBS = Reply("A")
EMPTY = Reply("A", logprobs=[])


@pytest.mark.parametrize(
    ("reply", "kind", "words"),
    [
        (NO_LOGPROBS, UnsupportedError, "no token probabilities"),
        (EMPTY, UnparseableError, "no label"),
        (saying("I", {"I": 0.9, "Sure": 0.1}), UnparseableError, "it said 'I'"),
        (Reply(None, refusal="I will not"), RefusedError, "I will not"),
        (Reply("busy", status=429), ProviderError, "HTTP 429"),
        (Reply(body="[]"), ProviderError, "no chat completion"),
    ],
)
async def test_what_is_no_label_is_a_typed_failure(reply: Reply, kind: Any, words: str) -> None:
    with OpenAIServer(lambda _: reply) as server, pytest.raises(kind, match=words):
        await LabelJudge("m", base_url=server.base_url).answer(question())


async def test_there_are_twenty_six_labels() -> None:
    many = [Option(f"option {place}") for place in range(27)]
    with OpenAIServer(lambda _: saying("Z", {"Z": 1.0})) as server:
        judge = LabelJudge("m", base_url=server.base_url)
        assert (await judge.answer(question(many[:26]))).value.verdict == "option 25"
        with pytest.raises(UnsupportedError, match="27 options"):
            await judge.answer(question(many))


def tree() -> DAGMetric:
    tone = NonBinaryJudgementNode("Tone?", evaluation_params=["input"], name="tone", then={
        "warm": 10, "cold": 4, "rude": 0,
    })  # fmt: skip
    right = BinaryJudgementNode(
        "Right?", evaluation_params=["input"], name="right", then={True: tone, False: 0}
    )
    return DAGMetric("Tree", DAG(right))


def likely(body: Json) -> Reply:
    """A and then C."""
    options = body["messages"][0]["content"]
    return saying("C", {"C": 0.7, "A": 0.3}) if "C: rude" in options else saying("A", {"A": 0.9})


def test_a_server_without_decision_models_is_asked_for_labels_instead(
    caplog: pytest.LogCaptureFixture,
) -> None:
    no_model = Reply("not implemented", status=501)
    with DecisionServer(fault=lambda _: no_model, respond=likely) as server:
        judge = DecisionJudge("m", form="systemone", base_url=server.base_url)
        with caplog.at_level(logging.WARNING):
            done = evaluate([CASE, CASE], [tree()], model=judge, show=False)
        assert len(server.asked) == 1
        assert len(server.requests) == 2
    (said,) = [one for one in caplog.records if "501" in one.message]
    assert "no decision model" in said.message
    assert "labels" in said.message
    result = done.rows[0].metrics[0]
    assert result.path == (("right", True), ("tone", "rude"))
    odds = dict(result.steps[1].odds or ())
    assert odds == pytest.approx({"warm": 0.3, "cold": 0.0, "rude": 0.7})


async def test_labels_fail_one_by_one() -> None:
    """Of several questions in one request, those that work are answered."""

    def respond(body: Json) -> Reply:
        options = body["messages"][0]["content"]
        return Reply("nothing") if "A: yes" in options else saying("A", {"A": 1.0})

    no_model = Reply("not implemented", status=501)
    with DecisionServer(fault=lambda _: no_model, respond=respond) as server:
        judge = DecisionJudge("m", form="systemone", base_url=server.base_url)
        async with judge.session():
            tone, right = await judge.answer_all([question(), question(YES_NO)])
    assert getattr(tone, "odds", None) == (("warm", 1.0), ("cold", 0.0), ("rude", 0.0))
    assert isinstance(right, UnsupportedError)


def test_a_label_judge_writes_by_the_same_model_unless_told_otherwise() -> None:
    task = TaskNode("Sum up.", "summary", evaluation_params=["input"])
    node = BinaryJudgementNode("Good?", inputs=[task], then={True: 10, False: 0})

    def respond(body: Json) -> Reply:
        return Reply('{"output": "short"}') if "response_format" in body else likely(body)

    with OpenAIServer(respond) as server:
        judge = LabelJudge("m", base_url=server.base_url)
        done = evaluate([CASE], [DAGMetric("T", DAG(node))], model=judge, show=False)
        assert [one["model"] for one in server.requests] == ["m", "m"]
        assert "short" in server.requests[1]["messages"][1]["content"]
    assert done.rows[0].metrics[0].score == 1.0
    with pytest.raises(InputError, match="must be a judge that writes texts"):
        LabelJudge("m", writer=LabelJudge("n"))


def test_names_and_identities() -> None:
    judge = as_judge("labels/mine", base_url="http://127.0.0.1:9/v1")
    assert isinstance(judge, LabelJudge)
    assert judge.durable_identity == "labels mine at http://127.0.0.1:9/v1 with {}"
    assert judge.capabilities.decides
