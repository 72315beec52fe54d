"""A real model as the judge: whatever it says, what comes of it is typed, bounded and told.

One server serves the tests of this file. They ask few questions with short answers, so that two
busy processors take less than a minute.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from anyio.from_thread import start_blocking_portal
from programs.commands import start_command
from servers import real_model
from servers.model_servers import servers, wait_for_server, wait_until_gone

from dagengine import Limits, PromptTemplate, a_evaluate
from dagengine.checkup import check_judge
from dagengine.checkup.checkup_report import NotMeasured
from dagengine.judges import GGUFJudge, LabelJudge
from dagengine.judges.local import gguf as server
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import (
    DAG,
    BinaryJudgementNode,
    NonBinaryJudgementNode,
    RatingNode,
    TaskNode,
    VerdictNode,
)
from dagengine.question import FirstMatch, Options, facts_of
from dagengine.results import Attempt, EvaluationResult, MetricResult, OutcomeKind
from dagengine.test_case import LLMTestCase

MODEL = real_model.model_file()
pytestmark = [
    pytest.mark.skipif(MODEL is None, reason=real_model.MISSING),
    pytest.mark.anyio,
]
linux = pytest.mark.skipif(sys.platform != "linux", reason="looks at processes as Linux lists them")
SHORT = Options(max_characters=30, max_items=4)
WINDOW = 1536
SUMMARY = "# Intro\nWe met.\n# Body\nWe planned the release.\n# Conclusion\nWe ship on Monday."


@pytest.fixture
def anyio_backend() -> str:
    """One event loop: a question takes a second, and the loops are not what is tested."""
    return "asyncio"


@pytest.fixture(scope="module")
def judge() -> Iterator[GGUFJudge]:
    """The model, served until the last test of this file."""
    assert MODEL is not None
    # One thread: with more, a processor that does other work makes all of them wait.
    judge = GGUFJudge(MODEL, window=WINDOW, places=2, threads=1)
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(judge.session()),
    ):
        yield judge


async def judged(
    judge: GGUFJudge | LabelJudge,
    texts: list[str],
    node: BinaryJudgementNode | RatingNode | TaskNode,
) -> tuple[EvaluationResult, list[Attempt]]:
    attempts: list[Attempt] = []
    done = await a_evaluate(
        [LLMTestCase(input="Summarise the meeting.", actual_output=text) for text in texts],
        [DAGMetric("tree", DAG(node))],
        model=judge,
        limits=Limits(reasks=1, attempts=1),
        on_attempt=attempts.append,
        show=False,
    )
    return done, attempts


def results(done: EvaluationResult) -> list[MetricResult]:
    return [result for row in done for result in row.metrics]


def headings() -> TaskNode:
    """The tree of the README, with short answers."""
    order = NonBinaryJudgementNode(
        "Are the headings in the order 'intro', 'body', 'conclusion'?",
        children=[
            VerdictNode("Yes", score=10),
            VerdictNode("Two are out of order", score=4),
            VerdictNode("All out of order", score=2),
        ],
        name="Heading order",
        options=SHORT,
    )
    present = BinaryJudgementNode(
        "Are all three headings there: 'intro', 'body', 'conclusion'?",
        children=[VerdictNode(False, score=0), order],
        name="Headings present",
        options=SHORT,
    )
    return TaskNode(
        "Extract all headings of `actual_output`",
        output_label="Headings",
        evaluation_params=["actual_output"],
        children=[present, order],
        options=SHORT,
    )


def yes_or_no(**options: int) -> BinaryJudgementNode:
    """A question that is answered by one word."""
    return BinaryJudgementNode(
        "Is the output about food?",
        evaluation_params=["actual_output"],
        prompt=PromptTemplate("Is this about food? Answer Yes or No.\n\nText: {actual_output}"),
        parser=FirstMatch(((r"(?s).*\b[Yy]es\b.*", True), (r"(?s)(.*)", False))),
        then={True: 10, False: 0},
        options=Options(max_tokens=3, **options),
    )


async def test_the_tree_of_the_readme_ends_in_scores_or_typed_outcomes(judge: GGUFJudge) -> None:
    done, attempts = await judged(judge, [SUMMARY], headings())
    assert len(results(done)) == 1
    for result in results(done):
        assert result.outcome in {OutcomeKind.OK, OutcomeKind.UNPARSEABLE}, result.failure
        assert (result.score is None) == (result.outcome is not OutcomeKind.OK)
        assert result.score in {None, 0.0, 0.2, 0.4, 1.0}
        for step in result.steps:
            # What failed has the reason why instead.
            assert step.outcome is not OutcomeKind.OK or len(step.reason or "") <= 30
    assert all(0 < attempt.usage.output_tokens < 200 for attempt in attempts)


async def test_a_decision_that_the_grammar_holds_to_its_form_has_a_score(judge: GGUFJudge) -> None:
    node = BinaryJudgementNode(
        "Is the output about a meeting?",
        then={True: 10, False: 0},
        evaluation_params=["actual_output"],
        options=SHORT,
    )
    done, attempts = await judged(judge, [SUMMARY], node)
    assert [result.outcome for result in results(done)] == [OutcomeKind.OK]
    assert {result.score for result in results(done)} <= {0.0, 1.0}
    assert {attempt.mode for attempt in attempts} == {"json_schema"}
    assert all(len(step.reason or "") <= 30 for row in results(done) for step in row.steps)


async def test_a_question_at_temperature_0_is_answered_the_same_twice(judge: GGUFJudge) -> None:
    texts = ["Bread and butter for everyone."]
    answers = [
        [step.answers for result in results(done) for step in result.steps]
        for done, _ in [await judged(judge, texts, yes_or_no()) for _ in range(2)]
    ]
    assert all(answers[0])
    assert answers[0] == answers[1]


async def test_a_label_has_a_probability_and_says_how_much_fell_on_labels(
    judge: GGUFJudge,
) -> None:
    async with judge.session() as client:
        labels = LabelJudge("any", base_url=str(client.api.base_url), api_key=client.api.api_key)
        node = BinaryJudgementNode(
            "Is it about food?", then={True: 10, False: 0}, evaluation_params=["actual_output"]
        )
        done, _ = await judged(labels, ["Bread and butter for everyone."], node)
    (result,) = results(done)
    assert result.outcome in {OutcomeKind.OK, OutcomeKind.UNPARSEABLE}, result.failure
    for step in result.steps:
        answer = json.loads(step.answers[0])
        assert 0 < answer["mass"] <= 1
        assert step.mass == pytest.approx(answer["mass"])
        assert "of all probability fell on the labels" in str(step.reason)
        # Odds are of the labels alone, and known only if at least half of all fell on them.
        assert (answer["odds"] is not None) == (answer["mass"] >= 0.5)


async def test_probabilities_of_a_word_are_those_of_a_token(judge: GGUFJudge) -> None:
    done, attempts = await judged(judge, ["Bread for all."], yes_or_no(top_logprobs=5))
    assert [attempt.outcome for attempt in attempts] == [OutcomeKind.OK]
    (result,) = results(done)
    assert all(0 <= (step.confidence or 0) <= 1 for step in result.steps)


async def test_a_rating_is_weighted_where_one_digit_is_one_token(judge: GGUFJudge) -> None:
    options = Options(top_logprobs=20, max_characters=30)
    node = RatingNode("How polite is it?", ["actual_output"], options=options)
    done, attempts = await judged(judge, ["Thank you!"], node)
    assert [attempt.outcome for attempt in attempts] == [OutcomeKind.OK]
    (result,) = results(done)
    (step,) = result.steps
    assert step.mass is not None
    # Its digits have nearly all of the mass; without asking on, a `1` may begin a `10`.
    assert result.mode == "weighted" or step.mass < 0.5


async def test_a_prompt_beyond_the_window_has_an_outcome_and_no_score(judge: GGUFJudge) -> None:
    assert (await facts_of(judge)).window == WINDOW
    long = "The committee met again and again. " * WINDOW
    done, _ = await judged(judge, [long, "Bread."], yes_or_no())
    failed, after = results(done)
    assert failed.score is None
    assert failed.outcome is OutcomeKind.TOO_LONG
    assert failed.failure is not None
    assert f"{WINDOW:,}" in failed.failure.message or str(WINDOW) in failed.failure.message
    assert after.outcome is OutcomeKind.OK


@linux
async def test_a_file_as_the_judge_starts_answers_and_is_gone(
    judge: GGUFJudge, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_processors", lambda: 1)  # the others have work to do
    before = servers()
    done = await a_evaluate(
        [LLMTestCase(input="Bread for all.", actual_output="Bread for all.")],
        [DAGMetric("food", DAG(yes_or_no()))],
        model=f"gguf:{MODEL}",
        show=False,
    )
    assert [result.outcome for result in results(done)] == [OutcomeKind.OK]
    assert servers() == before


@linux
def test_a_file_that_is_answering_is_gone_when_its_program_is_killed(tmp_path: Path) -> None:
    (tmp_path / "metrics.py").write_text(ENDLESS)
    (tmp_path / "cases.jsonl").write_text('{"input": "the sea"}\n')
    command = ("run", "metrics.py", "--data", "cases.jsonl", "--judge", f"gguf:{MODEL}")
    program = start_command(tmp_path, *command)
    process = wait_for_server(program)
    program.kill()
    wait_until_gone(process)
    program.ended()


# Asks for a text that takes longer than the test.
ENDLESS = """
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode, TaskNode
from dagengine.question import Options

story = TaskNode(
    "Write a long story about `input`.", "Story", evaluation_params=["input"],
    options=Options(max_characters=20_000),
    children=[BinaryJudgementNode("Is it long?", then={True: 10, False: 0})],
)
metric = DAGMetric("story", DAG(story))
"""


async def test_a_checkup_sees_what_the_server_is_and_that_the_model_guesses(
    judge: GGUFJudge,
) -> None:
    checkup = await check_judge(judge, seconds=6)
    assert checkup.connection.problem is None
    assert checkup.connection.is_listed
    assert (checkup.facts.window, checkup.facts.slots) == (WINDOW, 2)
    if not isinstance(checkup.structure, NotMeasured):
        assert checkup.structure.enforced
    if not isinstance(checkup.easy, NotMeasured):
        assert checkup.easy.guesses
    assert not checkup.usable
