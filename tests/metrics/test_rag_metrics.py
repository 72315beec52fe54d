"""Metrics of retrieval and generation: their formulas, their calls, what runs at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import anyio
import pytest

from dagengine import Limits, a_evaluate, evaluate
from dagengine.errors import InputError
from dagengine.judges import ScriptedJudge
from dagengine.metrics.answer_relevancy import AnswerRelevancyMetric
from dagengine.metrics.common.prebuilt import PrebuiltMetric
from dagengine.metrics.contextual_precision import ContextualPrecisionMetric
from dagengine.metrics.contextual_recall import ContextualRecallMetric
from dagengine.metrics.contextual_relevancy import ContextualRelevancyMetric
from dagengine.metrics.faithfulness import FaithfulnessMetric, FaithfulnessTemplate
from dagengine.metrics.ragas import RagasMetric
from dagengine.question import Question
from dagengine.results import MetricResult, OutcomeKind, Totals
from dagengine.test_case import LLMTestCase

CASE = LLMTestCase(
    input="When was the tower built, and by whom?",
    actual_output="It was built in 1889 by Eiffel's firm.",
    expected_output="The tower was built in 1889. The firm of Gustave Eiffel built it.",
    retrieval_context=["The tower dates from 1889.", "Tickets are sold at the foot."],
)
STATEMENTS, TRUTHS = "statements of actual_output", "truths of retrieval_context"
FIVE = (
    AnswerRelevancyMetric,
    FaithfulnessMetric,
    ContextualPrecisionMetric,
    ContextualRecallMetric,
    ContextualRelevancyMetric,
)


def verdicts(*said: str, numbers: Sequence[int] = ()) -> dict[str, Any]:
    places = numbers or range(1, len(said) + 1)
    return {
        "verdicts": [
            {"reason": f"why {place}", "verdict": verdict, "number": place}
            for place, verdict in zip(places, said, strict=True)
        ]
    }


def claims(count: int) -> dict[str, Any]:
    """So many claims, and a greeting, which is none."""
    found = [{"text": f"claim {n}", "factual": True} for n in range(1, count + 1)]
    return {"statements": [*found, {"text": "Hello.", "factual": False}]}


def context_verdicts(*said: str) -> dict[str, Any]:
    return {
        "verdicts": [
            {"statement": f"{verdict} {n}", "reason": "why", "verdict": verdict}
            for n, verdict in enumerate(said, 1)
        ]
    }


def judged(metric: PrebuiltMetric, script: Any, case: Any = CASE) -> tuple[MetricResult, Totals]:
    done = evaluate([case], [metric], model=ScriptedJudge(script), show=False)
    return done.rows[0].metrics[0], done.totals


def contexts(count: int) -> LLMTestCase:
    return CASE.model_copy(update={"retrieval_context": [f"text {n}" for n in range(1, count + 1)]})


FULL: dict[str, Any] = {
    STATEMENTS: claims(2),
    TRUTHS: {"truths": ["The tower dates from 1889."]},
    "relevance": verdicts("yes", "idk", "no"),
    "support": verdicts("yes", "no"),
    "usefulness": verdicts("no", "yes"),
    "attribution": verdicts("yes", "no"),
    "relevance of contexts": context_verdicts("yes", "no"),
}


@pytest.mark.parametrize(
    ("said", "lenient", "severe"),
    [
        (("yes", "yes"), 1.0, 1.0),
        (("yes", "idk", "no"), 2 / 3, 1 / 3),
        (("idk", "idk"), 1.0, 0.0),
        (("no", "yes", "yes", "idk"), 3 / 4, 2 / 4),
        (("no",), 0.0, 0.0),
    ],
)
def test_faithfulness_is_the_share_of_claims_not_contradicted(
    said: tuple[str, ...], lenient: float, severe: float
) -> None:
    script = {**FULL, STATEMENTS: claims(len(said)), "support": verdicts(*said)}
    for ambiguous_fails, score in ((False, lenient), (True, severe)):
        metric = FaithfulnessMetric(penalize_ambiguous_claims=ambiguous_fails)
        result, totals = judged(metric, script)
        assert result.score == score
        assert totals.calls == 3


def test_faithfulness_tells_the_count_and_the_failing_claims() -> None:
    result, _ = judged(FaithfulnessMetric(), FULL)
    assert result.reason == (
        "1 of 2 claims are not contradicted by the 2 contexts: 1/2 = 0.5.\nNot: 'claim 2' (why 2)"
    )
    severe, _ = judged(FaithfulnessMetric(penalize_ambiguous_claims=True), FULL)
    assert severe.reason is not None
    assert severe.reason.startswith("1 of 2 claims are supported by the 2 contexts: 1/2 = 0.5.")
    quiet, _ = judged(FaithfulnessMetric(include_reason=False), FULL)
    assert quiet.reason is None


def test_an_answer_that_claims_nothing_is_faithful_and_costs_no_verdicts() -> None:
    result, totals = judged(FaithfulnessMetric(), {**FULL, STATEMENTS: claims(0)})
    assert (result.score, result.reason) == (1.0, "There are no claims to judge.")
    assert totals.calls == 3  # that none is factual has to be said twice


@pytest.mark.parametrize("metric", [FaithfulnessMetric(), RagasMetric()], ids=lambda m: m.title)
def test_faithfulness_to_no_context_at_all_is_not_applicable_and_asks_nothing(
    metric: PrebuiltMetric,
) -> None:
    result, totals = judged(metric, FULL, contexts(0))
    assert result.score is None
    assert result.failure is not None
    assert result.failure.node == "something to compare"
    assert "not applicable: `retrieval_context` is empty" in result.failure.message
    assert totals.asked == 0


def test_faithfulness_without_context_does_not_cost_answer_relevancy_its_statements() -> None:
    metrics = [FaithfulnessMetric(), AnswerRelevancyMetric()]
    done = evaluate([contexts(0)], metrics, model=ScriptedJudge(FULL), show=False)
    assert [result.score for result in done.rows[0].metrics] == [None, 2 / 3]
    assert done.totals.calls == 2


def test_the_number_of_truths_is_asked_for_and_held_to() -> None:
    prompts: list[str] = []
    answers = [{"truths": ["a", "b", "c"]}, {"truths": ["a", "b"]}]

    def answer(question: Question[Any]) -> Any:
        if question.name != TRUTHS:
            return FULL[question.name]
        prompts.append(question.messages[-1]["content"])
        return answers.pop(0)

    result, totals = judged(FaithfulnessMetric(truths_extraction_limit=2), answer)
    assert result.score == 0.5
    assert totals.calls == 4
    assert "Give the 2 most important at most." in prompts[0]


def test_a_limit_below_one_is_an_error() -> None:
    with pytest.raises(InputError, match="truths_extraction_limit must be at least 1, got 0"):
        FaithfulnessMetric(truths_extraction_limit=0)


@pytest.mark.parametrize(
    ("said", "score"),
    [
        ("y", 1.0),
        ("yyn", 1.0),
        ("yny", (1 / 1 + 2 / 3) / 2),
        ("ny", 1 / 2),
        ("nny", 1 / 3),
        ("nyyny", (1 / 2 + 2 / 3 + 3 / 5) / 3),
        ("nn", 0.0),
    ],
)
def test_contextual_precision_is_the_mean_precision_at_relevant_ranks(
    said: str, score: float
) -> None:
    full = {"y": "yes", "n": "no"}
    script = {"usefulness": verdicts(*(full[letter] for letter in said))}
    result, totals = judged(ContextualPrecisionMetric(), script, contexts(len(said)))
    assert result.score == pytest.approx(score, abs=1e-15)
    assert totals.calls == 1


def test_contextual_precision_shows_its_sum_and_the_contexts_that_cost() -> None:
    script = {"usefulness": verdicts("no", "yes", "yes", "no")}
    result, _ = judged(ContextualPrecisionMetric(), script, contexts(4))
    assert result.reason == (
        "2 of 4 contexts are relevant, at rank 2, 3: (1/2 + 2/3) / 2 = 0.5833.\nNot: rank 1 (why 1)"
    )
    nothing, _ = judged(
        ContextualPrecisionMetric(), {"usefulness": verdicts("no", "no")}, contexts(2)
    )
    assert nothing.reason == (
        "None of 2 contexts is relevant.\nNot: rank 1 (why 1)\nNot: rank 2 (why 2)"
    )


@pytest.mark.parametrize(
    ("expected_output", "said", "score"),
    [
        ("One.", ("yes",), 1.0),
        ("One. Two.", ("no", "yes"), 1 / 2),
        ("One. Two! Three?", ("no", "yes", "no"), 1 / 3),
        ("- one\n- two\n- three\n- four", ("yes", "yes", "yes", "no"), 3 / 4),
        ("One. Two.", ("no", "no"), 0.0),
    ],
)
def test_contextual_recall_is_the_share_of_attributable_sentences(
    expected_output: str, said: tuple[str, ...], score: float
) -> None:
    case = CASE.model_copy(update={"expected_output": expected_output})
    result, totals = judged(ContextualRecallMetric(), {"attribution": verdicts(*said)}, case)
    assert result.score == score
    assert totals.calls == 1


def test_contextual_recall_tells_the_sentences_that_no_context_holds() -> None:
    result, _ = judged(ContextualRecallMetric(), FULL)
    assert result.reason == (
        "1 of 2 sentences are attributable to the context: 1/2 = 0.5.\n"
        "Not: 'The firm of Gustave Eiffel built it.' (why 2)"
    )


@pytest.mark.parametrize(
    ("said", "score"),
    [
        ((("yes",),), 1.0),
        ((("yes", "no"), ("yes",)), 2 / 3),
        ((("no", "no", "no"), (), ("yes",)), 1 / 4),
        ((("no",), ("no",)), 0.0),
        (((), ()), None),
    ],
)
def test_contextual_relevancy_is_the_share_of_relevant_statements_of_all_contexts(
    said: tuple[tuple[str, ...], ...], score: float | None
) -> None:
    def answer(question: Question[Any]) -> Any:
        text = question.messages[1]["content"]
        (place,) = (n for n in range(len(said)) if f"text {n + 1}\n" in text)
        return context_verdicts(*said[place])

    result, totals = judged(ContextualRelevancyMetric(), answer, contexts(len(said)))
    assert result.score == score
    assert totals.calls == len(said) + said.count(())  # an empty list is asked for again


def test_a_context_is_judged_without_sight_of_the_others() -> None:
    seen: list[str] = []

    def answer(question: Question[Any]) -> Any:
        seen.append(question.messages[1]["content"])
        return context_verdicts("yes")

    judged(ContextualRelevancyMetric(), answer)
    assert sorted("Tickets" in text for text in seen) == [False, True]
    assert sorted("1889" in text for text in seen) == [False, True]
    assert all("When was the tower built" in text for text in seen)


@pytest.mark.parametrize(
    "metric",
    [ContextualPrecisionMetric(), ContextualRecallMetric(), ContextualRelevancyMetric()],
    ids=lambda m: m.title,
)
def test_without_contexts_there_is_nothing_to_judge_and_no_call(metric: PrebuiltMetric) -> None:
    result, totals = judged(metric, {}, contexts(0))
    assert result.score == 0.0
    assert result.reason is not None
    assert "to judge" in result.reason
    assert totals.asked == 0


def test_an_expected_output_without_words_has_nothing_to_attribute() -> None:
    case = CASE.model_copy(update={"expected_output": "…"})
    result, totals = judged(ContextualRecallMetric(), {}, case)
    assert (result.score, totals.asked) == (0.0, 0)


MISFITS = {
    "short": verdicts("yes"),
    "long": verdicts("yes", "no", "yes"),
    "doubled": verdicts("yes", "no", numbers=(1, 1)),
    "misnumbered": verdicts("yes", "no", numbers=(0, 1)),
    "unknown verdict": verdicts("yes", "perhaps"),
    "unreadable": {"verdicts": "yes and no"},
}


@pytest.mark.parametrize("misfit", MISFITS.values(), ids=MISFITS)
@pytest.mark.parametrize(
    ("metric", "node", "calls"),
    [
        (FaithfulnessMetric(), "support", 2),
        (ContextualPrecisionMetric(), "usefulness", 0),
        (ContextualRecallMetric(), "attribution", 0),
    ],
    ids=["faithfulness", "precision", "recall"],
)
def test_a_list_that_does_not_fit_is_asked_again(
    metric: PrebuiltMetric, node: str, calls: int, misfit: Any
) -> None:
    answers = [misfit, verdicts("yes", "no")]

    def mends(question: Question[Any]) -> Any:
        return answers.pop(0) if question.name == node else FULL[question.name]

    result, totals = judged(metric, mends)
    assert result.raw_score == (1.0 if node == "usefulness" else 0.5)
    assert totals.calls == calls + 2


@pytest.mark.parametrize("misfit", ["doubled", "unreadable"])
def test_a_list_of_which_nothing_can_be_used_is_never_scored(misfit: str) -> None:
    result, totals = judged(FaithfulnessMetric(), {**FULL, "support": MISFITS[misfit]})
    assert (result.score, result.outcome) == (None, OutcomeKind.UNPARSEABLE)
    assert result.failure is not None
    assert result.failure.raw is not None
    assert totals.calls == 2 + 1 + Limits().reasks


def test_ragas_is_the_mean_of_its_four_parts_and_shows_them() -> None:
    result, totals = judged(RagasMetric(), FULL)
    # relevancy 2/3, faithfulness 1/2, precision 1/2, recall 1/2
    assert result.score == pytest.approx((2 / 3 + 3 / 2) / 4, abs=1e-15)
    parts = {step.node: step.score for step in result.steps if step.score is not None}
    assert parts == {
        "Answer Relevancy": 2 / 3,
        "Contextual Precision": 0.5,
        "Contextual Recall": 0.5,
        "Faithfulness": 0.5,
        "score": result.score,
    }
    assert result.reason is not None
    assert "Faithfulness → 0.5: 1 of 2 claims are not contradicted" in result.reason
    assert result.reason.endswith("4 parts: (0.6667 + 0.5 + 0.5 + 0.5) / 4 = 0.5417.")
    assert totals.calls == 6
    assert totals.shared == 1  # the statements of the answer


def test_ragas_has_no_template_of_its_own() -> None:
    with pytest.raises(TypeError, match="its parts have one each"):
        RagasMetric(evaluation_template=FaithfulnessTemplate)


@pytest.mark.parametrize(
    ("metrics", "calls"),
    [
        ([AnswerRelevancyMetric], 2),
        ([FaithfulnessMetric], 3),
        ([ContextualPrecisionMetric], 1),
        ([ContextualRecallMetric], 1),
        ([ContextualRelevancyMetric], 2),
        (FIVE, 8),
        ([*FIVE, RagasMetric], 8),
    ],
)
def test_a_case_with_two_contexts_costs_so_many_calls(
    metrics: Sequence[Callable[[], PrebuiltMetric]], calls: int
) -> None:
    made = [metric() for metric in metrics]
    done = evaluate([CASE], made, model=ScriptedJudge(FULL), show=False)
    assert all(result.failure is None for result in done.rows[0].metrics)
    assert done.totals.calls == calls


class Meeting:
    """Answers nobody in a round until everybody of that round has asked."""

    def __init__(self, *rounds: Counter[str]) -> None:
        self.missing = [Counter(names) for names in rounds]
        self.complete = [anyio.Event() for _ in rounds]

    async def answer(self, question: Question[Any]) -> Any:
        (place,) = (n for n, names in enumerate(self.missing) if question.name in names)
        self.missing[place][question.name] -= 1
        if not any(self.missing[place].values()):
            self.complete[place].set()
        await self.complete[place].wait()  # would wait for ever if asked one by one
        return FULL[question.name]


EXTRACTION = Counter({STATEMENTS: 1, TRUTHS: 1})
ALONE = Counter({"usefulness": 1, "attribution": 1})
EACH = Counter({"relevance of contexts": 2})


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("metrics", "rounds"),
    [
        ([FaithfulnessMetric], [EXTRACTION, Counter({"support": 1})]),
        ([ContextualRelevancyMetric], [EACH]),
        ([RagasMetric], [EXTRACTION + ALONE, Counter({"support": 1, "relevance": 1})]),
        (FIVE, [EXTRACTION + ALONE + EACH, Counter({"support": 1, "relevance": 1})]),
    ],
    ids=["faithfulness", "contextual relevancy", "ragas", "the five together"],
)
async def test_what_does_not_depend_on_each_other_is_asked_at_once(
    metrics: Sequence[Callable[[], PrebuiltMetric]], rounds: list[Counter[str]]
) -> None:
    meeting = Meeting(*rounds)
    judge = ScriptedJudge(meeting.answer)
    with anyio.fail_after(120):
        done = await a_evaluate([CASE], [metric() for metric in metrics], model=judge, show=False)
    assert all(result.failure is None for result in done.rows[0].metrics)
    assert done.totals.calls == sum(names.total() for names in rounds)
    assert not any(any(names.values()) for names in meeting.missing)


def bare(*said: str) -> dict[str, Any]:
    """Verdicts as prompts of deepeval ask for them: reasons of faults only, no numbers."""
    return {
        "verdicts": [
            {"verdict": verdict, **({} if verdict == "yes" else {"reason": None})}
            for verdict in said
        ]
    }


@pytest.mark.parametrize("middle", ["borderline", "Borderline.", "idk"])
def test_verdicts_without_reasons_and_those_between_yes_and_no_are_read_at_once(
    middle: str,
) -> None:
    script = {
        STATEMENTS: claims(3),
        TRUTHS: {"truths": ["The tower dates from 1889."]},
        "support": bare("yes", middle, "no"),
        "relevance": bare("yes", middle, "no", "yes"),
    }
    metrics = [FaithfulnessMetric(), AnswerRelevancyMetric()]
    done = evaluate([CASE], metrics, model=ScriptedJudge(script), show=False)
    faithful, relevant = done.rows[0].metrics
    assert (faithful.score, relevant.score) == (2 / 3, 0.75)
    assert (faithful.reason or "").splitlines()[-1] == "Not: 'claim 3'"
    assert done.totals.calls == 4


def test_statements_of_a_context_are_read_without_reasons() -> None:
    listed = [{"statement": "It dates from 1889.", "verdict": "yes"}]
    judge = ScriptedJudge(lambda question: {"verdicts": listed})
    done = evaluate([CASE], [ContextualRelevancyMetric()], model=judge, show=False)
    assert (done.scores("Contextual Relevancy"), done.totals.calls) == ([1.0], 2)
