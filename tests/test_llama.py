"""The whole way through, with llama.cpp's own server as the judge.

Its model is noise, so nothing is said about which verdict it gives; its protocol is real:
grammars, token probabilities, answers cut short, prompts that are too long.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.util import find_spec

import pytest
from servers import llama_server

from dagengine import Limits, a_evaluate
from dagengine.judges import DecisionJudge, OpenAIJudge
from dagengine.metrics.dag import (
    DAG,
    BinaryJudgementNode,
    DAGMetric,
    NonBinaryJudgementNode,
    RatingNode,
    TaskNode,
)
from dagengine.question import Options
from dagengine.results import Attempt, EvaluationResult, OutcomeKind
from dagengine.test_case import LLMTestCase

pytestmark = pytest.mark.skipif(
    any(find_spec(package) is None for package in ("xllamacpp", "gguf", "numpy")),
    reason="needs the llama extra",
)

CASES = [LLMTestCase(input=f"question {n}", actual_output=f"answer {n % 7}") for n in range(8)]
# What may become of an answer of noise: it is cut off, or not of the asked shape.
TYPED = {OutcomeKind.OK, OutcomeKind.UNPARSEABLE}


@pytest.fixture(scope="module")
def base_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patch:
        for sign in "ABC":  # likely enough to be among the alternatives of a token
            patch.setitem(llama_server.BIASES, sign, 2.0)
        for sign in "12345":  # together more likely than everything else
            patch.setitem(llama_server.BIASES, sign, 5.0)
        patch.setitem(llama_server.BIASES, '"', 5.5)  # short texts
        with llama_server.llama_server(tmp_path_factory.mktemp("llama")) as url:
            yield url


def tree(max_tokens: int | None = None) -> DAGMetric:
    """Extract, decide yes or no, then decide between three."""
    options = Options(temperature=1.0, max_tokens=max_tokens)
    tone = NonBinaryJudgementNode(
        "Which word fits?",
        then={"yes": 10, "no": 4, "true": 0},
        evaluation_params=["actual_output"],
        name="word",
        options=options,
    )
    right = BinaryJudgementNode(
        "Is it right?", then={True: tone, False: 2}, name="right", options=options
    )
    extract = TaskNode(
        "Say what it says.",
        "said",
        [right, tone],
        ["input", "actual_output"],
        name="said",
        options=options,
    )
    return DAGMetric("tree", DAG(extract))


def rating() -> DAGMetric:
    options = Options(temperature=1.0, top_logprobs=20)
    node = RatingNode("How good is it?", ["input", "actual_output"], scale=(1, 5), options=options)
    return DAGMetric("rating", DAG(node))


async def run(
    base_url: str, cases: list[LLMTestCase], metrics: list[DAGMetric]
) -> tuple[EvaluationResult, list[Attempt]]:
    ledger: list[Attempt] = []
    result = await a_evaluate(
        cases,
        metrics,
        model=OpenAIJudge("random", base_url=base_url),
        limits=Limits(max_in_flight=16, reasks=1),
        show=False,
        on_attempt=ledger.append,
    )
    return result, ledger


@pytest.mark.anyio
async def test_every_case_gets_a_score_or_a_typed_outcome(base_url: str) -> None:
    result, ledger = await run(base_url, CASES[:8], [tree(), rating()])
    assert [row.index for row in result] == list(range(8))
    metrics = [metric for row in result for metric in row.metrics]
    assert len(metrics) == 16
    assert {metric.outcome for metric in metrics} <= TYPED
    for metric in metrics:
        assert (metric.score is None) == (metric.failure is not None)
        assert metric.score is None or 0 <= metric.score <= 1
    scored = [metric for metric in metrics if metric.metric == "tree" and metric.score is not None]
    # Only paths of the tree are taken, and only the scores that its verdicts have are given.
    assert {metric.score for metric in scored} <= {0.0, 0.2, 0.4, 1.0}
    assert {len(metric.path) for metric in scored} <= {1, 2}
    assert result.totals.calls == len(ledger)
    assert {attempt.mode for attempt in ledger if attempt.outcome is OutcomeKind.OK} == {
        "json_schema"
    }


@pytest.mark.anyio
async def test_ratings_are_weighted_or_say_why_not(base_url: str) -> None:
    result, _ = await run(base_url, CASES[:8], [rating()])
    scored = [metric for row in result for metric in row.metrics if metric.score is not None]
    modes = [metric.mode for metric in scored]
    assert "weighted" in modes
    assert all(mode == "weighted" or (mode or "").startswith("raw (") for mode in modes)
    # A whole number from 1 to 5 is a multiple of a quarter; an expectation hardly ever is.
    assert any(metric.score not in (0, 0.25, 0.5, 0.75, 1) for metric in scored)


@pytest.mark.anyio
async def test_an_answer_cut_off_at_the_token_limit_is_a_typed_outcome(base_url: str) -> None:
    result, _ = await run(base_url, CASES[:5], [tree(max_tokens=20)])
    assert {metric.outcome for row in result for metric in row.metrics} <= TYPED
    failures = [metric.failure for row in result for metric in row.metrics if metric.failure]
    assert failures  # the fixed words of an answer alone take nearly as many tokens
    assert any("cut off at the token limit" in failure.message for failure in failures)


@pytest.mark.anyio
async def test_a_prompt_longer_than_the_context_costs_only_its_own_case(base_url: str) -> None:
    long = LLMTestCase(input="too long", actual_output="x" * (2 * llama_server.CONTEXT))
    result, ledger = await run(base_url, [CASES[0], long, CASES[1]], [rating()])
    before, failed, after = (row.metrics[0] for row in result)
    assert failed.failure is not None
    assert failed.failure.kind is OutcomeKind.TOO_LONG
    assert "HTTP 400" in failed.failure.message
    assert {before.outcome, after.outcome} <= TYPED
    assert [a.outcome for a in ledger].count(OutcomeKind.TOO_LONG) == 1


@pytest.mark.anyio
async def test_a_server_of_ordinary_models_decides_by_labels(
    base_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    word = NonBinaryJudgementNode(
        "Which word fits?", then={"x": 10, "y": 4, "z": 0}, evaluation_params=["actual_output"],
    )  # fmt: skip
    right = BinaryJudgementNode(
        "Is it right?", then={True: word, False: word}, evaluation_params=["input"]
    )
    judge = DecisionJudge("any", form="systemone", base_url=base_url)
    attempts: list[Attempt] = []
    done = await a_evaluate(
        CASES[:8], [DAGMetric("Labels", DAG(right))], model=judge, show=False,
        on_attempt=attempts.append, limits=Limits(reasks=0, attempts=1),
    )  # fmt: skip
    assert len([one for one in caplog.records if "501" in one.message]) == 1
    assert {one.mode for one in attempts} == {"labels any"}
    for row in done.rows:
        (result,) = row.metrics
        assert result.failure is None, result.failure
        for step in result.steps:
            assert step.mass is not None
            assert json.loads(step.answers[0])["mass"] == pytest.approx(step.mass)
            # A model of noise would rather say something else: its odds are not known.
            assert 0 < step.mass < 0.5
            assert (step.odds, step.confidence) == (None, None)
            assert "its odds are unknown" in str(step.reason)
        assert result.odds is not None
        assert result.odds.unknown == 1
    assert len({row.metrics[0].steps[0].mass for row in done.rows}) > 1  # it looked at the cases
