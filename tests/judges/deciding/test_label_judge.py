"""Decisions of chat models by the probabilities of one label, against a real server."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from graphs.trees import evaluated, tone_metric
from servers.decision_server import DecisionServer
from servers.openai_server import Json, OpenAIServer, Reply

from dagengine import a_evaluate, evaluate
from dagengine.errors import (
    InputError,
    ProviderError,
    RefusedError,
    UnparseableError,
    UnsupportedError,
)
from dagengine.judges import DecisionJudge, LabelJudge, as_judge
from dagengine.metrics import ContextualRecallMetric, DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode, RatingNode, TaskNode
from dagengine.prompts.answer_types import judgement_type
from dagengine.prompts.decisions import decision_question
from dagengine.prompts.evidence import split_evidence
from dagengine.prompts.probabilities.options import unknown_of
from dagengine.question import YES_NO, Decision, Option, Question
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
    return decision_question(plain, decision, "case")


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


async def test_below_half_of_the_mass_the_likeliest_label_is_the_verdict_without_odds() -> None:
    reply = saying("The", {"The": 0.7, "A": 0.02, "B": 0.1, "C": 0.01, "4": 0.17})
    with OpenAIServer(lambda _: reply) as server:
        answer = await LabelJudge("m", base_url=server.base_url).answer(question())
    assert answer.value.verdict == "cold"
    assert (answer.odds, answer.chances) == (None, ())
    assert answer.mass == pytest.approx(0.13)
    assert json.loads(answer.raw)["odds"] is None
    said = "the likeliest label; 0.13 of all probability fell on the labels: its odds are unknown"
    assert answer.value.reason == said


async def test_a_label_that_is_not_told_is_not_impossible() -> None:
    reply = saying("A", {"A": 0.8, "The": 0.1, "It": 0.05})
    with OpenAIServer(lambda _: reply) as server:
        answer = await LabelJudge("m", base_url=server.base_url).answer(question(YES_NO))
    assert answer.value.verdict is True
    # B has at most 0.05: the least that was told, and all that is left.
    assert dict(answer.odds or ()) == pytest.approx({True: 0.8 / 0.85, False: 0.0})
    assert unknown_of(answer.odds or ()) == pytest.approx(0.05 / 0.85)


async def test_the_case_stands_between_fences_and_the_question_after_them() -> None:
    options = [Option("warm", "friendly words"), *map(Option, TONES[1:])]
    with OpenAIServer(lambda _: saying("A", {"A": 1.0})) as server:
        asked = question(options, material=(("claim", "it is"),))
        await LabelJudge("m", base_url=server.base_url).answer(asked)
        system, user = (one["content"] for one in server.requests[0]["messages"])
    assert user.startswith("<<<<BEGIN state>>>")  # longer than the fence that the case holds
    evidence, step = split_evidence(user)
    assert [piece.label for piece in evidence] == ["state", "material"]
    assert evidence[1].text == '{"claim": "it is"}'
    assert not any("label" in piece.text for piece in evidence)
    assert "A: warm (friendly words)\nB: cold\nC: rude" in step
    assert "Which tone?" in step
    assert "Which tone?" not in system


async def test_yes_and_no_are_labels_too() -> None:
    with OpenAIServer(lambda _: saying("B", {"B": 0.75, "A": 0.25})) as server:
        answer = await LabelJudge("m", base_url=server.base_url).answer(question(YES_NO))
        assert "A: yes\nB: no" in server.requests[0]["messages"][1]["content"]
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


def likely(body: Json) -> Reply:
    """A and then C."""
    options = body["messages"][1]["content"]
    return saying("C", {"C": 0.7, "A": 0.3}) if "C: rude" in options else saying("A", {"A": 0.9})


def vague(body: Json) -> Reply:
    """A model that would rather write a sentence, except about the tone."""
    tone = "C: rude" in body["messages"][1]["content"]
    return saying("C", {"C": 0.7, "A": 0.3}) if tone else saying("A", {"The": 0.9, "A": 0.1})


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_what_is_not_known_of_a_verdict_is_not_known_of_a_path(backend: str) -> None:
    with OpenAIServer(vague) as server:
        judge = LabelJudge("m", base_url=server.base_url)
        metric = tone_metric()
        metric.expected = True
        run = partial(a_evaluate, [CASE], [metric], model=judge, show=False)
        done = anyio.run(run, backend=backend)
    result = done.rows[0].metrics[0]
    right, tone = result.steps
    assert (right.verdict, right.odds, right.confidence) == (True, None, None)
    assert right.mass == pytest.approx(0.1)
    assert dict(tone.odds or ()) == pytest.approx({"warm": 0.3, "cold": 0.0, "rude": 0.7})
    assert (tone.confidence, tone.mass) == pytest.approx((0.7, 1.0))
    assert result.odds is not None
    assert (result.odds.paths, result.odds.unknown) == ((), 1.0)
    assert result.odds.pass_bounds == (0.0, 1.0)
    assert result.mode == "likeliest (1 of the probability is unknown)"
    first, second = json.loads(json.dumps(done.rows[0].as_dict()))["metrics"][0]["steps"]
    assert "odds" not in first
    assert (first["mass"], second["mass"]) == pytest.approx((0.1, 1.0))


def test_a_rating_by_labels_is_not_weighted_below_half_of_the_mass() -> None:
    node = RatingNode("How good?", ["input"], scale=(1, 3), name="good")
    with OpenAIServer(lambda _: saying("C", {"The": 0.6, "C": 0.3, "A": 0.1})) as server:
        judge = LabelJudge("m", base_url=server.base_url)
        done = evaluate([CASE], [DAGMetric("R", DAG(node))], model=judge, show=False)
    result = done.rows[0].metrics[0]
    assert (result.score, result.mode) == (
        1.0, "raw (only 40 % of the probability is on the ratings)"
    )  # fmt: skip
    assert result.steps[0].odds is None
    assert result.steps[0].mass == pytest.approx(0.4)


def test_answers_without_odds_are_stored_and_replayed_as_they_were(tmp_path: Path) -> None:
    store = tmp_path / "answers.db"
    with OpenAIServer(vague) as server:
        url = server.base_url
        runs = [
            evaluated(CASE, tone_metric(), LabelJudge("m", base_url=url), store=store)
            for _ in range(2)
        ]
        assert len(server.requests) == 2
    first, second = (run.rows[0].metrics[0] for run in runs)
    assert first.odds == second.odds
    assert [step.mass for step in first.steps] == [step.mass for step in second.steps]


def test_a_list_with_an_item_of_unknown_odds_has_no_known_share() -> None:
    def respond(body: Json) -> Reply:
        known = "One." in str(body["messages"][1]["content"]).partition("BEGIN material")[2]
        return saying("A", {"A": 0.75, "B": 0.25} if known else {"The": 0.9, "A": 0.1})

    case = LLMTestCase(
        input="a", actual_output="b", expected_output="One. Two.", retrieval_context=["c"]
    )
    with OpenAIServer(respond) as server:
        judge = LabelJudge("m", base_url=server.base_url)
        done = evaluate([case], [ContextualRecallMetric()], model=judge, show=False)
    result = done.rows[0].metrics[0]
    (step,) = [one for one in result.steps if one.item_odds]
    assert step.item_odds == ((("yes", 0.75), ("no", 0.25)), None)
    assert step.mass == pytest.approx((1.0 + 0.1) / 2)  # of a list, the mean over its items
    assert result.score == 1.0
    assert result.odds is not None
    assert result.odds.expected_bounds == (0.0, 1.0)


def test_a_server_without_decision_models_is_asked_for_labels_instead(
    caplog: pytest.LogCaptureFixture,
) -> None:
    no_model = Reply("not implemented", status=501)
    with DecisionServer(fault=lambda _: no_model, respond=likely) as server:
        judge = DecisionJudge("m", form="systemone", base_url=server.base_url)
        with caplog.at_level(logging.WARNING):
            done = evaluate([CASE, CASE], [tone_metric()], model=judge, show=False)
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
        options = body["messages"][1]["content"]
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
