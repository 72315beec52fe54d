"""Summarization: whether a summary is true to its source and keeps what matters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Unpack

from dagengine.graph.graph import Graph
from dagengine.graph.node import BaseNode
from dagengine.graph.node_values import Judgement, NodeValue
from dagengine.graph.nodes import CodeNode
from dagengine.metrics.common.default_prompts import ItemQuestion, task_prompt
from dagengine.metrics.common.extraction import (
    STATEMENTS,
    Questions,
    Statements,
    claims_of,
    fixed_list,
    limited_type,
    questions_of,
    truths_of,
    truths_prompt,
)
from dagengine.metrics.common.prebuilt import (
    MetricSettings,
    PrebuiltMetric,
    at_least_one,
    least_of,
    share,
)

ALIGNED = ItemQuestion(
    "The claim is taken from a summary, the facts in `truths` from its source. yes: the facts "
    "bear the claim out; idk: they do not speak of it, so the summary added it; no: they "
    "contradict it.",
    "claim",
    ("yes", "idk", "no"),
)
QUESTIONS = (
    "Write {n} questions that somebody who knows the main points of the text can answer, and "
    "somebody who does not cannot: each about another point, the most important first, and "
    "each to be answered with yes if one goes by the text. Write fewer when the text has "
    "fewer points."
)
ANSWERED = ItemQuestion(
    "Answer the question from `{field}` and from nothing else you know. yes: the text says "
    "or implies so; no: it says otherwise, or leaves it open.",
    "question",
)


class SummarizationTemplate:
    """The prompts of `SummarizationMetric`; override a method to replace one."""

    @staticmethod
    def generate_truths(text: str, extraction_limit: int | None = None) -> str:
        """Asks for `{"truths": [...]}`."""
        return truths_prompt(extraction_limit, input=text)

    @staticmethod
    def generate_claims(text: str) -> str:
        """Asks for `{"claims": [...]}`."""
        return task_prompt(STATEMENTS, Statements, actual_output=text)

    @staticmethod
    def generate_alignment_verdicts(summary_claims: list[str], truths: list[str]) -> str:
        """Asks for `{"verdicts": {"1": {"reason", "verdict"}, ...}}`."""
        return ALIGNED.prompt(summary_claims, truths=truths)

    @staticmethod
    def generate_questions(text: str, n: int) -> str:
        """Asks for `{"questions": [...]}`."""
        return task_prompt(QUESTIONS.format(n=n), limited_type(Questions, n), input=text)

    @staticmethod
    def generate_answers(questions: list[str], text: str) -> str:
        """Asks for `{"verdicts": {"1": {"reason", "verdict"}, ...}}`."""
        return ANSWERED.format(field="text").prompt(questions, text=text)


class SummarizationMetric(PrebuiltMetric):
    """The minimum of a summary's alignment with its source and its coverage of the source.

    Reads `input` (the source) and `actual_output` (the summary); 6 calls in two rounds, 5 with
    given `assessment_questions`. Alignment: claims of the summary that the source supports /
    claims. Coverage: questions that source and summary answer with yes / questions that the source
    answers with yes; the judge writes at most `n` questions. Score: the minimum of the two, from 0
    to 1. A part with nothing to judge does not count. Without both, the case is skipped. Raises
    TypeError when `assessment_questions` is one text, InputError when `n` or
    `truths_extraction_limit` is below 1.
    """

    title, template = "Summarization", SummarizationTemplate

    def __init__(
        self,
        *common: Any,
        n: int = 5,
        assessment_questions: Sequence[str] | None = None,
        truths_extraction_limit: int | None = None,
        **settings: Unpack[MetricSettings],
    ) -> None:
        self.take_common(common, settings)
        if isinstance(assessment_questions, str):
            raise TypeError("assessment_questions must be a list of texts, got one text")
        at_least_one("n", n)
        self.n = n
        self.assessment_questions = (
            None if assessment_questions is None else list(assessment_questions)
        )
        self.truths_extraction_limit = at_least_one(
            "truths_extraction_limit", truths_extraction_limit
        )

    def graph(self) -> Graph:
        return self.score_graph(lesser_part, [self._alignment(), self._coverage()])

    def _alignment(self) -> BaseNode:
        limit = self.truths_extraction_limit
        wording = self.wording("generate_truths", "input", extraction_limit=limit)
        truths = truths_of("input", limit, wording)
        claims = claims_of(wording=self.wording("generate_claims", "actual_output"))
        wording = self.wording("generate_alignment_verdicts", "claims", "truths")
        label = "claims against the source"
        verdicts = self.judge_items(ALIGNED, claims, label, wording, inputs=[truths])
        # Alignment alone would be 1 for a summary that says hardly anything; hence the minimum.
        return CodeNode(borne_out_share, inputs=[claims, verdicts], name="alignment")

    def _coverage(self) -> BaseNode:
        if self.assessment_questions is not None:
            questions: BaseNode = fixed_list(self.assessment_questions, "questions")
        else:
            wording = self.wording("generate_questions", "input", n=self.n)
            questions = questions_of("input", QUESTIONS.format(n=self.n), self.n, wording)
        # Two questions and not one: a judge that sees both texts takes an answer of one for the
        # other.
        answers: list[BaseNode] = []
        for field, text in (("input", "source"), ("actual_output", "summary")):
            question, label = ANSWERED.format(field=field), f"answers from the {text}"
            wording = self.wording("generate_answers", "questions", field)
            answers.append(self.judge_items(question, questions, label, wording, [field]))
        return CodeNode(covered_share, inputs=[questions, *answers], name="coverage")


def borne_out_share(claims: list[str], verdicts: list[Judgement]) -> NodeValue:
    if not claims:
        return NodeValue(None)
    passed = "borne out by the source"
    return share(claims, verdicts, ("yes",), what="claims", passed=passed, empty=1.0)


def covered_share(
    questions: list[str], source: list[Judgement], summary: list[Judgement]
) -> NodeValue:
    """Questions that the source does not answer with yes say nothing about the summary."""
    answers = zip(questions, source, summary, strict=True)
    counted = [(question, after) for question, before, after in answers if before.verdict == "yes"]
    if not counted:
        return NodeValue(None)
    asked, judgements = zip(*counted, strict=True)
    what, passed = "questions that the source answers with yes", "so answered by the summary"
    score = share(asked, judgements, ("yes",), what=what, passed=passed, empty=1.0)
    return replace(score, odds=None)  # which questions count has odds of its own


def lesser_part(alignment: float | None, coverage: float | None) -> NodeValue:
    parts = {"alignment": alignment, "coverage": coverage}
    return least_of(parts, "no claim in the summary, no question on the source")
