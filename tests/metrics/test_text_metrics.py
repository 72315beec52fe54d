"""Metrics of the answer itself, and what holds for every metric made of lists of verdicts."""

from __future__ import annotations

import inspect
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import anyio
import pytest
from pydantic import BaseModel, Field

from dagengine import a_evaluate, compile_metrics, evaluate
from dagengine.errors import InputError
from dagengine.judges import ScriptedJudge
from dagengine.metrics import DAGMetric
from dagengine.metrics.answer_relevancy import AnswerRelevancyMetric, AnswerRelevancyTemplate
from dagengine.metrics.bias import BiasMetric, BiasTemplate
from dagengine.metrics.common.prebuilt import PrebuiltMetric
from dagengine.metrics.contextual_precision import (
    ContextualPrecisionMetric,
    ContextualPrecisionTemplate,
)
from dagengine.metrics.contextual_recall import ContextualRecallMetric, ContextualRecallTemplate
from dagengine.metrics.contextual_relevancy import (
    ContextualRelevancyMetric,
    ContextualRelevancyTemplate,
)
from dagengine.metrics.dag import DAG, BinaryJudgementNode, VerdictNode
from dagengine.metrics.faithfulness import FaithfulnessMetric, FaithfulnessTemplate
from dagengine.metrics.hallucination import HallucinationMetric, HallucinationTemplate
from dagengine.metrics.json_correctness import JsonCorrectnessMetric
from dagengine.metrics.prompt_alignment import PromptAlignmentMetric, PromptAlignmentTemplate
from dagengine.metrics.ragas import RagasMetric
from dagengine.metrics.safety.misuse import MisuseMetric, MisuseTemplate
from dagengine.metrics.safety.non_advice import NonAdviceMetric, NonAdviceTemplate
from dagengine.metrics.safety.pii_leakage import PIILeakageMetric, PIILeakageTemplate
from dagengine.metrics.safety.role_violation import RoleViolationMetric, RoleViolationTemplate
from dagengine.metrics.summarization import SummarizationMetric, SummarizationTemplate
from dagengine.metrics.toxicity import ToxicityMetric, ToxicityTemplate
from dagengine.question import Question
from dagengine.results import MetricResult, OutcomeKind, Totals
from dagengine.test_case import LLMTestCase

CASE = LLMTestCase(
    input="The shop opens at nine. It sells bread.",
    actual_output='{"opens": 9}',
    expected_output="It opens at nine. It sells bread.",
    context=["The shop opens at nine.", "It sells bread."],
    retrieval_context=["The shop opens at nine.", "It sells bread."],
)


class Hours(BaseModel):
    opens: int = Field(ge=0, le=24)
    closes: int | None = None


def verdicts(*said: str) -> dict[str, Any]:
    return {
        "verdicts": [
            {"reason": f"why {place}", "verdict": verdict, "number": place}
            for place, verdict in enumerate(said, 1)
        ]
    }


def context_verdicts(*said: str) -> dict[str, Any]:
    return {
        "verdicts": [{"statement": "s", "reason": "why", "verdict": verdict} for verdict in said]
    }


def judged(metric: PrebuiltMetric, script: Any, case: Any = CASE) -> tuple[MetricResult, Totals]:
    done = evaluate([case], [metric], model=ScriptedJudge(script), show=False)
    return done.rows[0].metrics[0], done.totals


@pytest.mark.parametrize(
    ("said", "score"),
    [
        (("yes", "yes"), 1.0),
        (("yes", "no", "yes", "yes"), 3 / 4),
        (("no", "no", "yes"), 1 / 3),
        (("no",), 0.0),
        ((), 1.0),
    ],
)
def test_hallucination_is_one_minus_the_share_of_contradicted_contexts(
    said: tuple[str, ...], score: float
) -> None:
    case = CASE.model_copy(update={"context": [f"context {n}" for n in range(len(said))]})
    result, totals = judged(HallucinationMetric(), {"agreement": verdicts(*said)}, case)
    assert result.score == score
    assert totals.calls == (1 if said else 0)


@pytest.mark.parametrize(("metric", "node"), [(BiasMetric, "bias"), (ToxicityMetric, "toxicity")])
@pytest.mark.parametrize(
    ("said", "score"),
    [
        (("no", "no"), 1.0),
        (("yes", "no", "no", "no"), 3 / 4),
        (("yes", "yes", "no"), 1 / 3),
        (("yes",), 0.0),
        ((), 1.0),
    ],
)
def test_bias_and_toxicity_are_one_minus_the_share_of_such_opinions(
    metric: type[PrebuiltMetric], node: str, said: tuple[str, ...], score: float
) -> None:
    opinions = {"opinions": [f"opinion {n}" for n in range(len(said))]}
    script = {"opinions of actual_output": opinions, node: verdicts(*said)}
    result, totals = judged(metric(), script)
    assert result.score == score
    assert totals.calls == (2 if said else 1)


def test_bias_and_toxicity_ask_for_the_same_opinions_once() -> None:
    script = {**OPINIONS, "bias": verdicts("no", "no"), "toxicity": verdicts("no", "yes")}
    metrics = [BiasMetric(), ToxicityMetric()]
    done = evaluate([CASE], metrics, model=ScriptedJudge(script), show=False)
    assert [result.score for result in done.rows[0].metrics] == [1.0, 0.5]
    assert done.totals.calls == 3
    reason = "1 of 2 opinions are not toxic: 1/2 = 0.5.\nNot: 'It is dull.' (why 2)"
    assert done.rows[0].metrics[1].reason == reason


@pytest.mark.parametrize(
    ("said", "score"),
    [(("yes",), 1.0), (("yes", "no"), 1 / 2), (("no", "yes", "no"), 1 / 3), ((), 1.0)],
)
def test_prompt_alignment_is_the_share_of_followed_instructions(
    said: tuple[str, ...], score: float
) -> None:
    metric = PromptAlignmentMetric([f"instruction {n}" for n in range(len(said))])
    result, totals = judged(metric, {"obedience": verdicts(*said)})
    assert result.score == score
    assert totals.calls == (1 if said else 0)


def test_lists_of_texts_are_not_single_texts() -> None:
    with pytest.raises(TypeError, match="prompt_instructions must be a list"):
        PromptAlignmentMetric("Be brief.")
    with pytest.raises(TypeError, match="assessment_questions must be a list"):
        SummarizationMetric(assessment_questions="Is it open?")


@pytest.mark.parametrize(
    ("text", "score", "reason"),
    [
        ('{"opens": 9}', 1.0, "The output is JSON and a valid Hours."),
        ('{"opens": "9", "closes": null}', 1.0, "The output is JSON and a valid Hours."),
        ('{"opens": 25}', 0.0, "Not: opens (Input should be less than or equal to 24)"),
        ('{"closes": 9}', 0.0, "Not: opens (Field required)"),
        ("[9]", 0.0, "Not: the whole (Input should be an object)"),
        ('```json\n{"opens": 9}\n```', 0.0, "Not: the whole (Invalid JSON"),
        ("", 0.0, "Not: the whole (Invalid JSON"),
        ('{"opens": "\ud800"}', 0.0, "unable to parse raw data as a unicode string"),
    ],
)
def test_json_is_correct_or_not_and_the_reason_says_where(
    text: str, score: float, reason: str
) -> None:
    case = CASE.model_copy(update={"actual_output": text})
    result, totals = judged(JsonCorrectnessMetric(Hours), {}, case)
    assert result.score == score
    assert result.reason is not None
    assert reason in result.reason
    assert totals.asked == 0


def test_many_mistakes_in_a_json_are_counted() -> None:
    class Many(BaseModel):
        numbers: list[int]

    case = CASE.model_copy(update={"actual_output": '{"numbers": ["a","b","c","d","e","f","g"]}'})
    result, _ = judged(JsonCorrectnessMetric(Many), {}, case)
    assert result.reason is not None
    assert "not a valid Many: 7 of its checks failed." in result.reason
    assert "Not: numbers.4 (" in result.reason
    assert result.reason.endswith("… and 2 more.")


def test_json_correctness_has_no_template() -> None:
    with pytest.raises(TypeError, match="has no prompts"):
        JsonCorrectnessMetric(Hours, evaluation_template=BiasTemplate)


SOURCE, SUMMARY = "answers from the source", "answers from the summary"


def summary_script(aligned: Sequence[str], source: Sequence[str], summary: Sequence[str]) -> Any:
    statements = [{"text": f"claim {n}", "factual": True} for n in range(len(aligned))]
    return {
        "truths of input": {"truths": ["The shop opens at nine."]},
        "statements of actual_output": {"statements": statements},
        "claims against the source": verdicts(*aligned),
        "questions about the source": {"questions": [f"question {n}?" for n in range(len(source))]},
        SOURCE: verdicts(*source),
        SUMMARY: verdicts(*summary),
    }


@pytest.mark.parametrize(
    ("aligned", "source", "summary", "score", "calls"),
    [
        (("yes", "yes"), ("yes", "yes"), ("yes", "yes"), 1.0, 6),
        (("yes", "yes"), ("yes",) * 4, ("yes", "no", "yes", "no"), 2 / 4, 6),
        (("yes", "idk", "no"), ("yes", "yes"), ("yes", "yes"), 1 / 3, 6),
        (("yes", "no"), ("yes",) * 3, ("no", "no", "yes"), 1 / 3, 6),
        # A question that the source does not answer counts for nothing.
        (("yes",), ("yes", "no", "no"), ("yes", "yes", "no"), 1.0, 6),
        (("yes", "no"), ("no", "no"), ("yes", "no"), 1 / 2, 6),
        (("no", "yes"), (), (), 1 / 2, 4),
    ],
)
def test_a_summary_is_as_good_as_the_lesser_of_alignment_and_coverage(
    aligned: Sequence[str],
    source: Sequence[str],
    summary: Sequence[str],
    score: float,
    calls: int,
) -> None:
    result, totals = judged(SummarizationMetric(), summary_script(aligned, source, summary))
    assert result.score == score
    assert totals.calls == calls


def test_the_reason_of_a_summary_shows_both_parts() -> None:
    script = summary_script(("yes", "idk"), ("yes", "yes", "no"), ("no", "yes", "no"))
    result, _ = judged(SummarizationMetric(), script)
    assert result.reason == (
        "alignment → 0.5: 1 of 2 claims are borne out by the source: 1/2 = 0.5.\n"
        "Not: 'claim 1' (why 2)\n"
        "coverage → 0.5: 1 of 2 questions that the source answers with yes are so answered by "
        "the summary: 1/2 = 0.5.\nNot: 'question 0?' (why 1)\n"
        "score → 0.5: min(alignment 0.5, coverage 0.5) = 0.5."
    )
    partly, _ = judged(SummarizationMetric(), summary_script(("yes",), (), ()))
    assert partly.reason is not None
    assert "min(alignment 1, coverage nothing to judge) = 1." in partly.reason


def test_a_summary_with_nothing_to_judge_has_no_score() -> None:
    result, _ = judged(SummarizationMetric(), summary_script((), ("yes", "yes"), ("no", "yes")))
    assert (result.score, result.outcome) == (None, OutcomeKind.SKIPPED)
    assert "nothing found to judge: `actual_output`" in str(result.failure)


def test_own_questions_are_asked_as_they_are_and_save_a_call() -> None:
    seen: list[str] = []
    script = summary_script(("yes",), ("yes", "yes"), ("no", "yes"))

    def answer(question: Question[Any]) -> Any:
        if question.name in (SOURCE, SUMMARY):
            seen.append(question.messages[1]["content"])
        return script[question.name]

    metric = SummarizationMetric(assessment_questions=["Open?", "Bread?"])
    result, totals = judged(metric, answer)
    assert (result.score, totals.calls) == (0.5, 5)
    assert all("BEGIN question 1>>>\nOpen?" in text for text in seen)
    assert sorted("sells bread" in text for text in seen) == [False, True]


@pytest.mark.parametrize("setting", ["n", "truths_extraction_limit"])
def test_limits_of_a_summary_are_at_least_one(setting: str) -> None:
    limits: dict[str, Any] = {setting: 0}
    with pytest.raises(InputError, match=f"{setting} must be at least 1, got 0"):
        SummarizationMetric(**limits)


def test_more_questions_than_asked_for_are_not_taken() -> None:
    script = summary_script(("yes",), ("yes", "yes"), ("yes", "yes"))
    result, _ = judged(SummarizationMetric(n=1), script)
    assert result.outcome == OutcomeKind.UNPARSEABLE


@pytest.mark.anyio
async def test_a_summary_is_judged_in_two_rounds() -> None:
    script = summary_script(("yes",), ("yes",), ("yes",))
    names = list(script)
    first = {"truths of input", "statements of actual_output", "questions about the source"}
    rounds = (first, set(names) - first)
    missing = [set(part) for part in rounds]
    complete = [anyio.Event(), anyio.Event()]

    async def answer(question: Question[Any]) -> Any:
        place = 0 if question.name in first else 1
        missing[place].remove(question.name)
        if not missing[place]:
            complete[place].set()
        await complete[place].wait()  # would wait for ever if asked one by one
        return script[question.name]

    with anyio.fail_after(120):
        metrics = [SummarizationMetric()]
        done = await a_evaluate([CASE], metrics, model=ScriptedJudge(answer), show=False)
    assert done.scores("Summarization") == [1.0]
    assert done.totals.calls == 6


STATEMENTS = {
    "statements of actual_output": {"statements": ["It opens at nine.", "It sells cake."]},
    "claims of actual_output": {"claims": ["It opens at nine.", "It sells cake."]},
}
OPINIONS = {"opinions of actual_output": {"opinions": ["It is fine.", "It is dull."]}}
RAG = {**STATEMENTS, "truths of retrieval_context": {"truths": ["The shop opens at nine."]}}


@dataclass(frozen=True)
class Kind:
    """A metric, answers that make it perfect and others that do not, and what it reads."""

    make: Callable[..., PrebuiltMetric]
    perfect: Mapping[str, Any]
    flawed: Mapping[str, Any]
    score: float
    needs: str
    template: type[Any] | None = None


def kind(
    make: Callable[..., PrebuiltMetric],
    needs: str,
    template: type[Any] | None,
    answers: Mapping[str, Any],
    *nodes: str,
    good: str = "yes",
    bad: str = "no",
) -> Kind:
    """A kind whose flawed answers have one bad verdict of two, so that it scores 1/2."""
    perfect = {**answers, **dict.fromkeys(nodes, verdicts(good, good))}
    flawed = {**answers, **dict.fromkeys(nodes, verdicts(bad, good))}
    return Kind(make, perfect, flawed, 0.5, needs, template)


def aligned(**settings: Any) -> PrebuiltMetric:
    return PromptAlignmentMetric(["Be brief.", "Use JSON."], **settings)


def formed(**settings: Any) -> PrebuiltMetric:
    return JsonCorrectnessMetric(Hours, **settings)


def faults(
    make: Callable[..., PrebuiltMetric], needs: str, template: type[Any], items: str, node: str
) -> Kind:
    """A kind that lists two parts of the answer; flawed answers find a fault in one."""
    listed = {f"{items} of actual_output": {items: ["It is one.", "It is another."]}}
    return kind(make, needs, template, listed, node, good="no", bad="yes")


ANSWERS = ("claims against the source", SOURCE, SUMMARY)
KINDS = {
    "answer relevancy": kind(
        AnswerRelevancyMetric,
        "input actual_output",
        AnswerRelevancyTemplate,
        STATEMENTS,
        "relevance",
    ),
    "faithfulness": kind(
        FaithfulnessMetric,
        "input actual_output retrieval_context",
        FaithfulnessTemplate,
        RAG,
        "support",
    ),
    "contextual precision": kind(
        ContextualPrecisionMetric,
        "input expected_output retrieval_context",
        ContextualPrecisionTemplate,
        {},
        "usefulness",
    ),
    "contextual recall": kind(
        ContextualRecallMetric,
        "input expected_output retrieval_context",
        ContextualRecallTemplate,
        {},
        "attribution",
    ),
    "contextual relevancy": Kind(
        ContextualRelevancyMetric,
        {"relevance of contexts": context_verdicts("yes")},
        {"relevance of contexts": context_verdicts("yes", "no")},
        0.5,
        "input retrieval_context",
        ContextualRelevancyTemplate,
    ),
    "ragas": kind(
        RagasMetric,
        "input actual_output expected_output retrieval_context",
        None,
        RAG,
        *("relevance", "support", "usefulness", "attribution"),
    ),
    "hallucination": kind(
        HallucinationMetric,
        "actual_output context",
        HallucinationTemplate,
        {},
        "agreement",
    ),
    "bias": kind(BiasMetric, "actual_output", BiasTemplate, OPINIONS, "bias", good="no", bad="yes"),
    "toxicity": kind(
        ToxicityMetric,
        "actual_output",
        ToxicityTemplate,
        OPINIONS,
        "toxicity",
        good="no",
        bad="yes",
    ),
    "pii leakage": faults(
        PIILeakageMetric, "actual_output", PIILeakageTemplate, "details", "personal data"
    ),
    "non-advice": faults(
        partial(NonAdviceMetric, ["financial"]),
        "input actual_output",
        NonAdviceTemplate,
        *("advices", "professional advice"),
    ),
    "misuse": faults(
        partial(MisuseMetric, "banking"),
        "input actual_output",
        MisuseTemplate,
        "services",
        "misuse",
    ),
    "role violation": replace(
        faults(
            partial(RoleViolationMetric, "a clerk"),
            "input actual_output",
            RoleViolationTemplate,
            *("departures", "role violation"),
        ),
        score=0.0,
    ),
    "summarization": kind(
        SummarizationMetric,
        "input actual_output",
        SummarizationTemplate,
        {
            **STATEMENTS,
            "truths of input": {"truths": ["The shop opens at nine."]},
            "questions about the source": {"questions": ["Open?", "Bread?"]},
        },
        *ANSWERS,
    ),
    "prompt alignment": kind(
        aligned, "input actual_output", PromptAlignmentTemplate, {}, "obedience"
    ),
    "json correctness": Kind(formed, {}, {}, 1.0, "actual_output"),
}
TEMPLATES = {name: found for name, found in KINDS.items() if found.template is not None}
each_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
each_template = pytest.mark.parametrize("kind", TEMPLATES.values(), ids=TEMPLATES)


def under_a_verdict(metric: PrebuiltMetric) -> DAGMetric:
    child: Any = metric
    yes = VerdictNode(True, child=child)
    gate = BinaryJudgementNode("Go on?", [VerdictNode(False, 0), yes], ["input"], name="gate")
    return DAGMetric("outer", DAG(root_node=gate))


@each_kind
def test_the_score_is_the_same_in_every_way_of_running(kind: Kind) -> None:
    answers = {**kind.flawed, "gate": True}
    judge = ScriptedJudge(answers)
    alone = kind.make(model=judge)
    nested = under_a_verdict(kind.make())
    done = evaluate([CASE, CASE], [kind.make(), nested], model=judge, show=False)
    scores = [result.score for row in done.rows for result in row.metrics]
    scores += [alone.measure(CASE), alone.score]
    for backend in ("asyncio", "trio"):
        scores.append(anyio.run(kind.make(model=judge).a_measure, CASE, backend=backend))
    scores.append(kind.make(model=judge, async_mode=False).measure(CASE))
    assert set(scores) == {kind.score}
    assert alone.reason is not None
    assert alone.is_successful() is (kind.score >= 0.5)


@each_kind
def test_strict_mode_knows_only_perfect_and_not(kind: Kind) -> None:
    for answers, score in ((kind.perfect, 1.0), (kind.flawed, kind.score)):
        metric = kind.make(strict_mode=True, threshold=0.1)
        nested = under_a_verdict(kind.make(strict_mode=True))
        judge = ScriptedJudge({**answers, "gate": True})
        row = evaluate([CASE], [metric, nested], model=judge, show=False).rows[0]
        assert [result.score for result in row.metrics] == [float(score == 1.0)] * 2
        assert row.metrics[0].raw_score == score
        assert row.metrics[0].threshold == 1.0
        assert row.metrics[0].success is (score == 1.0)


@each_kind
def test_what_a_metric_reads_is_known_and_its_absence_costs_no_call(kind: Kind) -> None:
    needs = set(kind.needs.split())
    plan = compile_metrics([kind.make()])
    assert {field for field, _ in plan.metrics[0].required} == needs
    assert plan.fields == tuple(sorted(needs))
    for field in needs - {"input"}:
        result, totals = judged(kind.make(), {}, CASE.model_copy(update={field: None}))
        assert result.outcome == OutcomeKind.MISSING_FIELD
        assert result.failure is not None
        assert f"`{field}`" in result.failure.message
        assert totals.asked == 0


@each_kind
def test_the_graph_of_a_metric_has_no_warning_and_can_be_drawn(kind: Kind) -> None:
    assert compile_metrics([kind.make()]).warnings == ()
    assert "score" in kind.make().picture().mermaid


@each_template
def test_every_prompt_of_a_metric_can_be_replaced(kind: Kind) -> None:
    assert kind.template is not None
    prompts: Counter[str] = Counter()
    own = type("Own", (kind.template,), {name: mine(name) for name in methods(kind.template)})

    def answer(question: Question[Any]) -> Any:
        (message,) = question.messages
        prompts[message["content"].partition(":")[0]] += 1
        return kind.flawed[question.name]

    result, _ = judged(kind.make(evaluation_template=own), answer)
    assert result.score == kind.score
    assert set(prompts) == {f"my {name}" for name in methods(kind.template)}


def methods(template: type[Any]) -> list[str]:
    return [name for name, _ in inspect.getmembers(template, inspect.isfunction)]


def mine(name: str) -> Any:
    return staticmethod(lambda *args, **fixed: f"my {name}: {args} {fixed}")


@each_template
def test_the_default_prompts_of_a_template_are_the_built_in_ones(kind: Kind) -> None:
    template = kind.template
    assert template is not None

    def more(name: str) -> Any:
        original = getattr(template, name)
        return staticmethod(lambda *args, **fixed: f"{original(*args, **fixed)} And be strict.")

    def prompts(own: type[Any] | None) -> list[str]:
        asked: list[str] = []

        def answer(question: Question[Any]) -> Any:
            asked.append("\n\n".join(message["content"] for message in question.messages))
            return kind.flawed[question.name]

        assert judged(kind.make(evaluation_template=own), answer)[0].score == kind.score
        # Prompts for answers are made without knowing which field they are to come from, and those
        # about one context without knowing its number.
        asked = [re.sub(r"\b(actual_output|input)\b", "text", text) for text in asked]
        return sorted(re.sub(r"retrieval_context \(\d of \d\)", "context", text) for text in asked)

    own = type("Own", (template,), {name: more(name) for name in methods(template)})
    assert prompts(own) == [f"{text} And be strict." for text in prompts(None)]


def test_one_method_of_a_template_replaces_one_prompt_only() -> None:
    class Own(FaithfulnessTemplate):
        @staticmethod
        def generate_truths(
            retrieval_context: list[str], extraction_limit: int | None = None
        ) -> str:
            return f"{extraction_limit} facts of {retrieval_context}, please"

    prompts: dict[str, list[str]] = {}

    def answer(question: Question[Any]) -> Any:
        prompts[question.name] = [message["content"] for message in question.messages]
        return KINDS["faithfulness"].flawed[question.name]

    metric = FaithfulnessMetric(evaluation_template=Own, truths_extraction_limit=3)
    assert judged(metric, answer)[0].score == 0.5
    own = f"3 facts of {CASE.retrieval_context}, please"
    assert prompts["truths of retrieval_context"] == [own]
    assert len(prompts["statements of actual_output"]) == 2
    assert len(prompts["support"]) == 2


def test_the_catalogue_together_asks_every_question_once() -> None:
    answers: dict[str, Any] = {}
    for found in KINDS.values():
        answers.update(found.flawed)
    metrics = [found.make() for found in KINDS.values()]
    done = evaluate([CASE], metrics, model=ScriptedJudge(answers), show=False)
    scores = [result.score for result in done.rows[0].metrics]
    assert scores == [found.score for found in KINDS.values()]
    # eight of the five, hallucination, 3 of bias and toxicity, 2 of each of four, 5 of a summary,
    # instructions
    assert done.totals.calls == 8 + 1 + 3 + 2 * 4 + 5 + 1
