"""How many questions each metric asks, and which of them at once.

The judge here answers nobody until every task is blocked: then all the questions that could
be asked by now are in flight. They are one wave; its questions are answered together. A
question that waits for no other one but is asked later makes one wave more, a question that
is asked too early a wave too large.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest
from graphs.contract import ARENA, FULL, TALK, case_for, make, metric_classes
from graphs.hostile import two_of_each
from graphs.shapes import summary_tree

from dagengine import Limits, a_evaluate
from dagengine.judges import ScriptedJudge
from dagengine.metrics import (
    AnswerRelevancyMetric,
    ArenaGEval,
    ContextualPrecisionMetric,
    ContextualRecallMetric,
    ContextualRelevancyMetric,
    ConversationalGEval,
    CriteriaMetric,
    DAGMetric,
    FactualCorrectness,
    FaithfulnessMetric,
    GEval,
    KnowledgeRetentionMetric,
    RagasMetric,
    SummarizationMetric,
    TaskCompletionMetric,
)
from dagengine.question import Question
from dagengine.results import EvaluationResult
from dagengine.test_case import ArenaTestCase, ConversationalTestCase, LLMTestCase, Turn

pytestmark = pytest.mark.sampled

# Questions per wave, for a case with two contexts, four turns or two contestants, by a judge
# that finds two of whatever is to be listed.
WAVES: dict[str, list[int]] = {
    "GEval": [1, 1],  # steps, rating
    "ConversationalGEval": [1, 1],
    "ArenaGEval": [1, 2],  # steps, both orders
    "AnswerRelevancyMetric": [1, 1],  # statements, verdicts
    "FaithfulnessMetric": [2, 1],  # truths and claims, verdicts
    "ContextualPrecisionMetric": [1],
    "ContextualRecallMetric": [1],
    "ContextualRelevancyMetric": [2],  # each context
    "RagasMetric": [4, 2],  # of its four parts; the statements are shared
    "FactualCorrectness": [2, 2],  # claims of both sides, verdicts on both
    "HallucinationMetric": [1],
    "BiasMetric": [1, 1],  # opinions, verdicts
    "ToxicityMetric": [1, 1],
    "SummarizationMetric": [3, 3],  # truths, claims, questions; alignment, answers from each
    "PromptAlignmentMetric": [1],
    "JsonCorrectnessMetric": [],
    "ToolCorrectnessMetric": [],
    "TaskCompletionMetric": [1, 1],  # task and outcome, rating
    "KnowledgeRetentionMetric": [1, 2, 1],  # facts of a turn beside the reply before it
    "RoleAdherenceMetric": [1],
    "PIILeakageMetric": [1, 1],  # details, verdicts
    "NonAdviceMetric": [1, 1],
    "MisuseMetric": [1, 1],
    "RoleViolationMetric": [1, 1],
    "TopicAdherenceMetric": [1, 2],  # intentions; on topic, taken up
    "TurnFaithfulnessMetric": [4, 2],  # each reply with context: truths and claims, verdicts
    "TurnContextualPrecisionMetric": [2],
    "TurnContextualRecallMetric": [2],
    "TurnContextualRelevancyMetric": [2],  # each context
    "ArgumentCorrectnessMetric": [1],
    "StepEfficiencyMetric": [1],
    "ToolChoiceMetric": [1],
    "ResultUseMetric": [1],
    "RecoveryMetric": [1],
    "PlanAdherenceMetric": [1, 1],  # plan, verdicts
    "ToolUseMetric": [2],  # choices, arguments
    "GoalAccuracyMetric": [1, 2],  # intentions; reached, pursued
    "ConversationCompletenessMetric": [1, 1],  # intentions, verdicts
    "ConversationRelevancyMetric": [2],  # each assistant turn
    "CriteriaMetric": [1],
    "RubricMetric": [2],  # each criterion
    "BleuMetric": [],
    "EditSimilarityMetric": [],
    "ExactMatchMetric": [],
    "JsonMatchMetric": [],
    "PatternMatchMetric": [],
    "RougeMetric": [],
}
FIVE = (
    AnswerRelevancyMetric,
    FaithfulnessMetric,
    ContextualPrecisionMetric,
    ContextualRecallMetric,
    ContextualRelevancyMetric,
)
KINDS = {kind.__qualname__: kind for kind in metric_classes()}
every_metric = pytest.mark.parametrize("name", KINDS)
STEPS = ["Is it polite?"]
SHOWN = ["input", "actual_output"]


@dataclass
class Waves:
    """A judge that answers when nothing else can happen, all that was asked by then."""

    found: list[list[str]] = field(default_factory=list)
    _asked: list[str] = field(default_factory=list)
    _gate: anyio.Event = field(default_factory=anyio.Event)

    async def answer(self, question: Question[Any]) -> Any:
        self._asked.append(question.name)
        await self._gate.wait()
        return two_of_each(question, 0)

    async def let_pass(self) -> None:
        """Release one wave after the other until cancelled."""
        while True:
            # On asyncio the next line would sleep for a tenth of a second beside a task at work.
            for _ in range(30):
                await anyio.lowlevel.checkpoint()
            await anyio.wait_all_tasks_blocked()
            if self._asked:
                self.found.append(sorted(self._asked))
                self._asked.clear()
                gate, self._gate = self._gate, anyio.Event()
                gate.set()
            await anyio.lowlevel.checkpoint()


async def waves_of(
    metrics: Sequence[Any], cases: Sequence[Any], limits: Limits | None = None
) -> tuple[list[list[str]], EvaluationResult]:
    """The names of the questions of each wave, and how the run ended."""
    waves, done = Waves(), list[EvaluationResult]()
    judge = ScriptedJudge(waves.answer)
    limits = limits or Limits()
    with anyio.fail_after(120):  # only when something waits for ever
        async with anyio.create_task_group() as group:
            group.start_soon(waves.let_pass)
            done.append(await a_evaluate(cases, metrics, model=judge, show=False, limits=limits))
            group.cancel_scope.cancel()
    return waves.found, done[0]


def sizes(waves: list[list[str]]) -> list[int]:
    return [len(wave) for wave in waves]


def has_score(done: EvaluationResult) -> bool:
    return all(result.score is not None for row in done.rows for result in row.metrics)


def test_every_metric_of_the_package_is_in_the_table() -> None:
    assert set(WAVES) == set(KINDS)


@every_metric
@pytest.mark.anyio
async def test_a_metric_asks_the_questions_of_its_row_in_these_waves(name: str) -> None:
    metric = make(KINDS[name])
    waves, done = await waves_of([metric], [case_for(metric)])
    assert sizes(waves) == WAVES[name]
    assert done.totals.calls == sum(WAVES[name])
    assert has_score(done)


@every_metric
@pytest.mark.anyio
async def test_a_reason_by_the_judge_is_one_question_more_and_the_last(name: str) -> None:
    try:
        metric = make(KINDS[name], judged_reason=True)
    except TypeError:
        pytest.skip("the judge writes the reason of this metric anyway")
    waves, done = await waves_of([metric], [case_for(metric)])
    assert sizes(waves) == [*WAVES[name], 1]
    assert waves[-1] == [f"{metric.name} reason"]
    assert done.totals.calls == sum(WAVES[name]) + 1


@every_metric
@pytest.mark.anyio
async def test_without_a_reason_nothing_is_asked_for_one(name: str) -> None:
    try:
        metric = make(KINDS[name], judged_reason=True, include_reason=False)
    except TypeError:
        pytest.skip("this metric has no such setting")
    waves, done = await waves_of([metric], [case_for(metric)])
    assert sizes(waves) == WAVES[name]
    assert done.rows[0].metrics[0].reason is None


CRITERIA = {"short": "Is it short?", "kind": "Is it kind?", "true": "Is it true?"}
SIX_TURNS = TALK.model_copy(update={"turns": [*TALK.turns, *TALK.turns[:2]]})
SETTINGS: dict[str, tuple[Any, Any, list[int]]] = {
    "G-Eval by steps": (
        GEval("G", evaluation_steps=STEPS, evaluation_params=SHOWN), FULL, [1]),
    "conversational G-Eval by steps": (
        ConversationalGEval("C", evaluation_steps=STEPS), TALK, [1]),
    "arena by steps": (
        ArenaGEval("A", evaluation_steps=STEPS, evaluation_params=SHOWN), ARENA, [2]),
    "arena of three": (
        ArenaGEval("A", evaluation_steps=STEPS, evaluation_params=SHOWN),
        ArenaTestCase(
            contestants={
                name: LLMTestCase(input="Hi", actual_output=name) for name in ("x", "y", "z")
            }
        ),
        [3],
    ),
    "summarization with questions": (
        SummarizationMetric(assessment_questions=["Is it about France?"]), FULL, [4, 1]),
    "task completion of a task": (TaskCompletionMetric(task="Name the capital."), FULL, [1, 1]),
    "factual correctness of one side": (FactualCorrectness(mode="recall"), FULL, [1, 1]),
    "several criteria": (CriteriaMetric(CRITERIA), FULL, [3]),
    "knowledge retention over six turns": (KnowledgeRetentionMetric(), SIX_TURNS, [1, 2, 2, 1]),
    "the walkthrough": (DAGMetric("D", summary_tree()), FULL, [1, 1, 1]),
}  # fmt: skip


@pytest.mark.parametrize(("metric", "case", "expected"), SETTINGS.values(), ids=SETTINGS)
@pytest.mark.anyio
async def test_settings_ask_for_more_or_less(metric: Any, case: Any, expected: list[int]) -> None:
    waves, done = await waves_of([metric], [case])
    assert sizes(waves) == expected
    assert done.totals.calls == sum(expected)
    assert has_score(done)


@pytest.mark.anyio
async def test_the_five_rag_metrics_together_make_eight_calls_in_two_waves() -> None:
    waves, done = await waves_of([kind() for kind in FIVE], [FULL])
    first = {
        "statements of actual_output": 1,
        "truths of retrieval_context": 1,
        "usefulness": 1,
        "attribution": 1,
        "relevance of contexts": 2,
    }
    assert [Counter(wave) for wave in waves] == [first, {"relevance": 1, "support": 1}]
    assert done.totals.calls == 8
    assert has_score(done)


@pytest.mark.anyio
async def test_ragas_beside_its_parts_costs_nothing() -> None:
    waves, done = await waves_of([*(kind() for kind in FIVE), RagasMetric()], [FULL])
    assert sizes(waves) == [6, 2]
    assert done.totals.calls == 8


@pytest.mark.anyio
async def test_steps_are_written_once_per_run_and_then_all_cases_are_rated_at_once() -> None:
    cases = [LLMTestCase(input=f"question {n}", actual_output="It is so.") for n in range(100)]
    metric = GEval("G", "Is it polite?", evaluation_params=SHOWN)
    waves, done = await waves_of([metric], cases, Limits(max_in_flight=100))
    assert sizes(waves) == [1, 100]
    assert waves[0] == ["evaluation steps"]
    assert done.totals.calls == 101
    assert has_score(done)


@pytest.mark.anyio
async def test_cases_do_not_wait_for_each_other() -> None:
    cases = [
        LLMTestCase(input=f"{n}?", actual_output=f"Paris {n}.", retrieval_context=[f"P {n}."])
        for n in range(10)
    ]
    waves, done = await waves_of([FaithfulnessMetric()], cases)
    assert sizes(waves) == [20, 10]
    assert done.totals.calls == 30


# Nothing to judge.

SILENT = ConversationalTestCase(chatbot_role="a guide", turns=[Turn(role="user", content="Hi")])
MUTE = ConversationalTestCase(chatbot_role="a guide", turns=[Turn(role="user", content=" ")])
BARE = FULL.model_copy(
    update={
        "retrieval_context": [],
        "context": [],
        "tools_called": [],
        "expected_tools": [],
        "spans": [],
    }
)
# Metric, its arguments, the case, the score there is without a call; None: no score.
NOTHING: list[tuple[str, dict[str, Any], Any, float | None]] = [
    ("FaithfulnessMetric", {}, BARE, None),
    ("ContextualPrecisionMetric", {}, BARE, 0.0),
    ("ContextualRecallMetric", {}, BARE, 0.0),
    ("ContextualRelevancyMetric", {}, BARE, 0.0),
    ("RagasMetric", {}, BARE, None),
    ("HallucinationMetric", {}, BARE, 1.0),
    ("PromptAlignmentMetric", {"prompt_instructions": []}, FULL, 1.0),
    ("ToolCorrectnessMetric", {}, BARE, 1.0),
    ("ArgumentCorrectnessMetric", {}, BARE, 1.0),
    ("StepEfficiencyMetric", {}, BARE, 1.0),
    ("ToolChoiceMetric", {}, BARE, 1.0),
    ("ResultUseMetric", {}, BARE, 1.0),
    ("RecoveryMetric", {}, BARE, 1.0),
    ("ToolUseMetric", {}, SILENT, None),
    ("GoalAccuracyMetric", {}, MUTE, None),
    ("TopicAdherenceMetric", {}, MUTE, None),
    ("TurnFaithfulnessMetric", {}, SILENT, None),
    ("TurnContextualRelevancyMetric", {}, SILENT, None),
    ("KnowledgeRetentionMetric", {}, SILENT, None),
    ("KnowledgeRetentionMetric", {}, MUTE, None),
    ("RoleAdherenceMetric", {}, SILENT, None),
    ("ConversationCompletenessMetric", {}, MUTE, None),
    ("ConversationRelevancyMetric", {}, SILENT, None),
    ("ConversationalGEval", {}, MUTE, None),
]


@pytest.mark.parametrize(("name", "settings", "case", "score"), NOTHING)
@pytest.mark.anyio
async def test_with_nothing_to_judge_nothing_is_asked(
    name: str, settings: dict[str, Any], case: Any, score: float | None
) -> None:
    waves, done = await waves_of([make(KINDS[name], **settings)], [case])
    result = done.rows[0].metrics[0]
    assert waves == []
    assert (done.totals.asked, done.totals.calls) == (0, 0)
    assert result.score == score
    assert (result.failure is None) is (score is not None)


# What is asked first finds nothing: the question after it is not asked.
EMPTY: dict[str, tuple[dict[str, Any], float | None]] = {
    "AnswerRelevancyMetric": ({"statements of actual_output": {"statements": []}}, None),
    "FaithfulnessMetric": (
        {
            "statements of actual_output": {"statements": []},
            "truths of retrieval_context": {"truths": ["Paris is in France."]},
        },
        None,
    ),
    "FactualCorrectness": (
        {
            "statements of actual_output": {"statements": []},
            "statements of expected_output": {"statements": []},
        },
        None,
    ),
    "BiasMetric": ({"opinions of actual_output": {"opinions": []}}, 1.0),
    "ToxicityMetric": ({"opinions of actual_output": {"opinions": []}}, 1.0),
    "PIILeakageMetric": ({"details of actual_output": {"details": []}}, 1.0),
    "NonAdviceMetric": ({"advices of actual_output": {"advices": []}}, 1.0),
    "MisuseMetric": ({"services of actual_output": {"services": []}}, 1.0),
    "RoleViolationMetric": ({"departures of actual_output": {"departures": []}}, 1.0),
    "PlanAdherenceMetric": ({"plan of the agent": {"plan": []}}, 1.0),
    "GoalAccuracyMetric": ({"user intentions": {"intentions": []}}, None),
    "TopicAdherenceMetric": ({"user intentions": {"intentions": []}}, None),
    "ConversationCompletenessMetric": ({"user intentions": {"intentions": []}}, None),
    "KnowledgeRetentionMetric": ({"facts": {"facts": []}}, 1.0),
    "SummarizationMetric": (
        {
            "truths of input": {"truths": ["Paris is in France."]},
            "statements of actual_output": {"statements": []},
            "questions about the source": {"questions": []},
        },
        None,
    ),
}


@pytest.mark.parametrize("name", EMPTY)
@pytest.mark.anyio
async def test_what_finds_nothing_costs_no_verdicts(name: str) -> None:
    script, score = EMPTY[name]
    metric = make(KINDS[name])
    judge = ScriptedJudge(script)  # has an answer to nothing else
    done = await a_evaluate([case_for(metric)], [metric], model=judge, show=False)
    result = done.rows[0].metrics[0]
    assert result.score == score
    assert done.totals.failed == 0
    assert (result.failure is None) is (score is not None)
