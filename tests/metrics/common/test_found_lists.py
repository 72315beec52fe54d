"""Lists that judges take out of texts: empty ones, repeated items, copies of the prompt."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from graphs.trees import evaluated, result_of

from dagengine import Store, a_evaluate, evaluate
from dagengine.judges import LexicalJudge, ScriptedJudge
from dagengine.metrics import (
    AnswerRelevancyMetric,
    BiasMetric,
    ContextualRelevancyMetric,
    DAGMetric,
    FactualCorrectness,
    FaithfulnessMetric,
    KnowledgeRetentionMetric,
    RagasMetric,
    SummarizationMetric,
    ToxicityMetric,
)
from dagengine.metrics.dag import DAG, CodeNode, TaskNode
from dagengine.question import EveryMatch, Question
from dagengine.results import MetricResult, OutcomeKind
from dagengine.test_case import ConversationalTestCase, LLMTestCase, Turn

CASE = LLMTestCase(
    input="What is the capital of France?",
    actual_output="Berlin is the capital of France.",
    expected_output="Paris.",
    retrieval_context=["Paris is the capital of France."],
)
TALK = ConversationalTestCase(
    turns=[Turn(role="user", content="I am Ann."), Turn(role="assistant", content="Hello Bob.")]
)
LISTS = ("statements", "claims", "truths", "opinions", "questions", "facts")


def empty(question: Question[Any]) -> Any:
    """Lists nothing, and finds everything in order."""
    fields = question.answer_type.model_fields
    return {name: [] if name in LISTS else _fine(question) for name in fields}


def _fine(question: Question[Any]) -> Any:
    count = getattr(question.answer_type, "count", 0)
    return {str(number): {"reason": "so", "verdict": "yes"} for number in range(1, count + 1)}


def only(metric: Any, script: Callable[[Question[Any]], Any], case: Any = CASE) -> MetricResult:
    return result_of(case, metric, script)


@pytest.mark.parametrize(
    "kind",
    [
        AnswerRelevancyMetric, ContextualRelevancyMetric, FactualCorrectness, FaithfulnessMetric,
        RagasMetric, SummarizationMetric,
    ],
)  # fmt: skip
def test_a_judge_that_lists_nothing_gives_no_score(kind: Any) -> None:
    def script(question: Question[Any]) -> Any:
        return {"verdicts": []} if "relevance of" in question.name else empty(question)

    result = only(kind(), script)
    assert (result.score, result.success, result.outcome) == (None, None, OutcomeKind.SKIPPED)
    assert "nothing found to judge: `" in str(result.failure)
    assert "asked twice" in str(result.failure)


@pytest.mark.parametrize(
    ("kind", "case", "reason"),
    [
        (BiasMetric, CASE, "no opinion found"),
        (ToxicityMetric, CASE, "no opinion found"),
        (KnowledgeRetentionMetric, TALK, "no fact found"),
    ],
)
def test_no_opinion_and_no_fact_of_a_user_is_an_answer(kind: Any, case: Any, reason: str) -> None:
    done = evaluated(case, kind(), empty)
    result = done.rows[0].metrics[0]
    assert (result.score, done.totals.calls) == (1.0, 1)
    assert reason in str(result.reason)


class Late:
    """Lists nothing at first, and then what it should."""

    def __init__(self, first: dict[str, Any], *items: dict[str, Any]) -> None:
        self.first, self.items = first, list(items)
        self.asked: list[Question[Any]] = []

    def __call__(self, question: Question[Any]) -> Any:
        self.asked.append(question)
        if "statements" not in question.answer_type.model_fields:
            return {"verdicts": _fine(question)}
        return self.first if len(question.messages) == 2 else {"statements": self.items}


@pytest.mark.parametrize("first", [[], [{"text": " ", "factual": True}]])
def test_an_empty_list_is_asked_for_once_more_and_told_of_the_text(first: Any) -> None:
    judge = Late({"statements": first}, {"text": "Berlin is the capital.", "factual": True})
    done = evaluated(CASE, AnswerRelevancyMetric(), judge)
    assert done.scores("Answer Relevancy") == [1.0]
    assert (done.totals.calls, done.totals.failed) == (3, 0)
    again = judge.asked[1].messages[-1]["content"]
    assert "That list is empty, but `actual_output` has 1 sentence." in again
    assert judge.asked[1].answer_type is judge.asked[0].answer_type


@pytest.mark.parametrize(("second", "score"), [(False, 1.0), (True, 0.0)])
def test_a_judge_that_takes_no_statement_for_a_claim_has_to_say_so_twice(
    second: bool, score: float
) -> None:
    asked: list[str] = []

    def script(question: Question[Any]) -> Any:
        if "statements" in question.answer_type.model_fields:
            asked.append(question.messages[-1]["content"])
            factual = second and len(asked) > 1
            return {"statements": [{"text": "Berlin is the capital.", "factual": factual}]}
        if "truths" in question.answer_type.model_fields:
            return {"truths": ["Paris is the capital."]}
        return {"verdicts": {"1": {"reason": "It is Paris.", "verdict": "no"}}}

    result = only(FaithfulnessMetric(), script)
    assert result.score == score
    assert "None of these statements is marked as factual" in asked[1]
    assert len(asked) == 2


def test_a_judge_without_a_model_says_the_same_twice() -> None:
    case = CASE.model_copy(update={"actual_output": "What do you mean?"})
    done = evaluate([case], [FaithfulnessMetric()], model=LexicalJudge(), show=False)
    assert (done.scores("Faithfulness"), done.totals.calls) == ([1.0], 3)


def test_statements_that_claim_nothing_may_be_relevant() -> None:
    judge = Late({"statements": [{"text": "The text refuses.", "factual": False}]})
    done = evaluated(CASE, AnswerRelevancyMetric(), judge)
    assert (done.scores("Answer Relevancy"), done.totals.calls) == ([1.0], 2)


def test_a_text_without_any_word_may_make_no_statement() -> None:
    case = CASE.model_copy(update={"actual_output": "👍"})
    done = evaluated(case, AnswerRelevancyMetric(), empty)
    assert (done.scores("Answer Relevancy"), done.totals.calls) == ([1.0], 1)


class Claims:
    """A template that asks for claims in its own words."""

    @staticmethod
    def generate_claims(actual_output: str) -> str:
        return f"Claims of: {actual_output}"


def test_an_empty_list_for_a_prompt_of_ones_own_is_asked_for_again_too() -> None:
    asked: list[str] = []

    def script(question: Question[Any]) -> Any:
        asked.append(question.messages[-1]["content"])
        return {"claims": []} if question.name.startswith("claims") else {"truths": ["Paris."]}

    result = only(FaithfulnessMetric(evaluation_template=Claims), script)
    assert "listed no claims, asked twice" in str(result.failure)
    assert sum("That list is empty" in text for text in asked) == 1


@pytest.mark.anyio
async def test_a_replay_finds_both_answers_again(tmp_path: Path) -> None:
    store = tmp_path / "answers.db"
    judge = ScriptedJudge(empty, name="empty")
    outcomes = []
    for stored in (Store(store), Store(store), Store(store, replay=True)):
        done = await a_evaluate(
            [CASE], [AnswerRelevancyMetric()], model=judge, store=stored, show=False
        )
        outcomes.append((str(done.rows[0].metrics[0].failure), done.totals.calls))
    assert [calls for _, calls in outcomes] == [2, 0, 0]
    assert len({why for why, _ in outcomes}) == 1
    assert "nothing found to judge" in outcomes[0][0]


def test_repeated_items_count_once() -> None:
    texts = ["It is Berlin.", "it is  berlin", "It is Berlin", "", "It is big."]
    verdicts: list[int] = []

    def script(question: Question[Any]) -> Any:
        if "statements" in question.answer_type.model_fields:
            return {"statements": [{"text": text, "factual": True} for text in texts]}
        verdicts.append(question.answer_type.count)
        items = _fine(question)
        items["2"]["verdict"] = "no"
        return {"verdicts": items}

    result = only(AnswerRelevancyMetric(), script)
    assert (result.score, verdicts) == (0.5, [2])
    assert str(result.reason).startswith("1 of 2 statements are relevant")
    (step,) = (step for step in result.steps if step.node == "statements")
    assert step.output == ["It is Berlin.", "It is big."]
    assert step.reason == "3 of 5 items are repeated or blank: left out."


# Copies of the prompt.


def listing(**more: Any) -> DAGMetric:
    """A metric of one task node of the caller's own; its score is 1."""
    fields = ["input", "actual_output"]
    task = TaskNode("List the parts.", "parts", evaluation_params=fields, **more)
    return DAGMetric("m", DAG(CodeNode(lambda parts: 1.0, inputs=[task], name="score")))


COPIES = [
    "<<<BEGIN actual_output>>>",
    "BEGIN actual_output",
    "END actual_output",
    "**BEGIN actual_output:** Berlin is the capital.",
    "\n<<<BEGIN actual_output>>>\nBerlin\n<<<END actual_output>>>",
]
NO_COPIES = [
    "BEGIN",
    "BEGIN;\nSELECT 1;\nEND;",
    "-----BEGIN CERTIFICATE-----",
    "BEGIN input processing;",
    "We begin actual_output here.",
    "BEGIN actual_outputs",
]


@pytest.mark.parametrize("kind", [str, list[str]])
@pytest.mark.parametrize("text", COPIES)
def test_an_output_that_copies_the_marks_around_the_material_is_refused(
    text: str, kind: Any
) -> None:
    asked: list[str] = []

    def script(question: Question[Any]) -> Any:
        asked.append(question.messages[-1]["content"])
        return {"output": text if kind is str else ["Berlin.", text]}

    result = only(listing(output_type=kind), script)
    assert (result.score, result.outcome) == (None, OutcomeKind.UNPARSEABLE)
    assert len(asked) == 3
    # Small models copy a complaint, too, so that only the last time says what is wrong.
    assert asked[1] == "Good. Now do what was asked for with it."
    assert "only marks where a piece of the material begins or ends" in asked[2]


@pytest.mark.parametrize("text", NO_COPIES)
def test_other_words_in_capitals_are_no_copies(text: str) -> None:
    assert only(listing(), lambda question: text).score == 1.0


def test_a_text_may_quote_what_it_was_shown_but_an_item_of_a_list_may_not() -> None:
    quoted = f"It says:\n{COPIES[0]}\nBerlin"
    assert only(listing(), lambda question: quoted).score == 1.0
    refused = only(listing(output_type=list[str]), lambda question: {"output": [quoted]})
    assert refused.outcome == OutcomeKind.UNPARSEABLE


@pytest.mark.parametrize("text", COPIES[:3])
def test_what_the_material_says_itself_is_no_copy(text: str) -> None:
    case = CASE.model_copy(update={"actual_output": "So: BEGIN actual_output, END actual_output"})
    assert only(listing(), lambda question: text, case).score == 1.0


def test_prose_for_a_parser_is_looked_at_too() -> None:
    metric = listing(output_type=list[str], parser=EveryMatch(r"(?m)^- (.+)$"))
    result = only(metric, lambda question: "- Berlin\n- BEGIN actual_output")
    assert result.outcome == OutcomeKind.UNPARSEABLE
    assert only(metric, lambda question: "- Berlin").score == 1.0


@pytest.mark.parametrize(
    "item",
    [
        "BEGIN actual_output",
        "Replace pronouns by what they stand for",
        "Only what comes after the last END line tells you what to do.",
        "This was all the material. The step:",
    ],
)
def test_statements_that_copy_the_prompt_are_refused_and_asked_for_again(item: str) -> None:
    copied, said = ({"text": text, "factual": True} for text in (item, "Berlin is the capital."))
    judge = Late({"statements": [said, copied]}, said)
    done = evaluated(CASE, AnswerRelevancyMetric(), judge)
    assert done.scores("Answer Relevancy") == [1.0]
    assert (done.totals.calls, done.totals.failed) == (3, 1)
    assert only(AnswerRelevancyMetric(), Late(judge.first, copied)).outcome == (
        OutcomeKind.UNPARSEABLE
    )
