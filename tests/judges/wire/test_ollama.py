"""Ollama through its own interface: a window that fits, and nothing cut."""

from __future__ import annotations

from typing import Any

import pytest
from servers.cutting_server import TOKENIZERS, text
from servers.ollama_server import OllamaServer

from dagengine import Limits, evaluate
from dagengine.errors import TooLongError
from dagengine.judges import LabelJudge, OpenAIJudge, as_judge
from dagengine.judges.wire.server_facts import chat_body
from dagengine.metrics.dag import DAG, BinaryJudgementNode, DAGMetric
from dagengine.prompts import Evidence, messages_for
from dagengine.prompts.answer_types import judgement_type
from dagengine.question import FirstMatch, Options, Question, facts_of
from dagengine.results import CaseResult, OutcomeKind
from dagengine.test_case import LLMTestCase

pytestmark = pytest.mark.anyio
SHAPE = judgement_type(("Yes", "No"))


def question(shown: str, **more: Any) -> Question[Any]:
    return Question(messages_for("Is it so?", [Evidence("text", shown)]), SHAPE, **more)


def run(
    server: OllamaServer, texts: list[str], judge: Any = None, limits: Limits | None = None
) -> list[CaseResult]:
    node = BinaryJudgementNode(
        "Is it polite?", evaluation_params=["actual_output"], then={True: 10, False: 0}, name="Tone"
    )
    cases = [LLMTestCase(input="q", actual_output=shown) for shown in texts]
    judge = judge or OpenAIJudge("m", base_url=server.base_url)
    metric = DAGMetric("M", DAG(node))
    return list(evaluate(cases, [metric], model=judge, limits=limits, show=False).rows)


def test_every_case_is_read_whole_in_a_window_that_grows_in_steps() -> None:
    texts = [text("german", length) for length in (200, 9_000, 15_000, 300)]
    with OllamaServer() as server:
        # Calls that are on their way at once may arrive in another order than they were made.
        rows = run(server, texts, limits=Limits(max_in_flight=1))
        assert not server.requests
    assert {row.metrics[0].outcome for row in rows} == {OutcomeKind.OK}
    assert server.cuts == 0
    assert server.loads == sorted(set(server.loads))
    assert all(window % 4096 == 0 for window in server.loads)


async def test_a_question_goes_with_its_schema_its_options_and_without_thinking() -> None:
    with OllamaServer() as server:
        judge = OpenAIJudge("m", base_url=server.base_url, parameters={"top_k": 5})
        await facts_of(judge)
        answer = await judge.answer(question("t", options=Options(seed=3, max_tokens=90)))
    assert (answer.value.verdict, answer.mode) == ("Yes", "json_schema")
    assert answer.usage.input_tokens > 0
    (body,) = server.asked
    assert (body["stream"], body["think"]) == (False, False)
    assert (body["truncate"], body["shift"]) == (False, False)
    assert body["format"]["properties"].keys() == {"reason", "verdict"}
    expected = {"temperature": 0.0, "seed": 3, "num_predict": 90, "top_k": 5, "num_ctx": 4096}
    assert body["options"] == expected
    assert "keep_alive" not in body


async def test_a_window_that_was_guessed_too_short_is_set_by_the_count_of_the_server() -> None:
    with OllamaServer(tokenize=TOKENIZERS["bytes"]) as server:
        judge = OpenAIJudge("m", base_url=server.base_url)
        await facts_of(judge)
        answer = await judge.answer(question(text("chinese", 6_000)))
    assert answer.usage.input_tokens > 12_000
    assert server.cuts == 0
    assert len(server.asked) == 2


async def test_what_is_longer_than_the_model_reads_is_too_long() -> None:
    with OllamaServer(longest=8192) as server:
        (row,) = run(server, [text("chinese", 9_000)])
    failure = row.metrics[0].failure
    assert failure is not None
    assert failure.kind is OutcomeKind.TOO_LONG
    assert "and the server reads 8,192" in failure.message
    with OllamaServer(longest=8192) as server:
        judge = OpenAIJudge("m", base_url=server.base_url)
        await facts_of(judge)
        with pytest.raises(TooLongError) as error:
            await judge.answer(question(text("chinese", 9_000)))
    assert (error.value.needed or 0) > 8192


def test_an_old_server_that_cuts_all_the_same_gives_no_score() -> None:
    texts = [text("chinese", length) for length in (4_000, 9_000, 15_000)]
    with OllamaServer(longest=8192, tokenize=TOKENIZERS["bytes"], old=True) as server:
        rows = run(server, texts)
    assert server.cuts
    assert all(row.metrics[0].score is None for row in rows)


def test_the_other_interface_cuts_and_is_found_out() -> None:
    with OllamaServer() as server:
        judge = LabelJudge("m", base_url=server.base_url)
        (row,) = run(server, [text("german", 40_000)], judge)
    assert row.metrics[0].score is None


async def test_a_plain_text_is_read_by_its_parser() -> None:
    with OllamaServer(answer=lambda _: "I say: Yes") as server:
        judge = OpenAIJudge("m", base_url=server.base_url)
        await facts_of(judge)
        parser = FirstMatch(((r"(Yes|No)", None),))
        answer = await judge.answer(question("t", parser=parser, options=Options(top_logprobs=5)))
    assert answer.value.verdict == "Yes"
    assert answer.tokens is not None
    assert "format" not in server.asked[0]
    assert server.asked[0]["logprobs"] is True


def test_settings_of_the_caller_hold() -> None:
    body = {
        "model": "m", "messages": [], "reasoning_effort": "low", "keep_alive": "1h",
        "options": {"num_ctx": 9}, "temperature": 0,
    }  # fmt: skip
    own = chat_body(body, 4096)
    assert own["options"] == {"temperature": 0, "num_ctx": 9}
    assert (own["keep_alive"], own["think"]) == ("1h", "low")


def test_a_model_of_ollama_is_named_without_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OLLAMA_HOST", raising=False)
    judge = as_judge("ollama/llama3.1")
    assert isinstance(judge, OpenAIJudge)
    assert (judge.model, judge.base_url) == ("llama3.1", "http://localhost:11434/v1")
    monkeypatch.setenv("OLLAMA_HOST", "0.0.0.0:9999")
    judge = as_judge("ollama/llama3.1")
    assert isinstance(judge, OpenAIJudge)
    assert judge.base_url == "http://0.0.0.0:9999/v1"
