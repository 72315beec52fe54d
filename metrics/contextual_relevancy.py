"""Contextual relevancy: how much of the retrieved context is about the question."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict

from dagengine.graph.graph import Graph
from dagengine.graph.judged import is_blank
from dagengine.graph.node import AskingNode
from dagengine.graph.nodes import CodeNode, verdict_of
from dagengine.graph.values import Ask, Given, Judgement, NodeValue, QuestionCount
from dagengine.metrics.common.default_prompts import task_prompt
from dagengine.metrics.common.prebuilt import PrebuiltMetric, share
from dagengine.prompts.answer_types import Reason, judgement_type, nearest
from dagengine.prompts.bounds import Usually
from dagengine.prompts.instructions import judgement_instructions, task_instructions
from dagengine.prompts.sentences import sentences
from dagengine.question import Question

VERDICTS = ("yes", "no")
RELEVANT = (
    "List every statement that the piece of context makes, each as one short self-contained "
    "sentence, in the order of the text. Say of each whether it is relevant to `input`. yes: "
    "it helps to answer it, in part or in whole; no: it does not. First the statement, then "
    "your reason, then the verdict. A piece of context that states nothing gives an empty list."
)
RELEVANT_SENTENCE = (
    "Is the sentence, which comes from the retrieved context, relevant to `input`? yes: it helps "
    "to answer it, in part or in whole; no: it does not."
)


class ContextStatement(BaseModel):
    """One statement of a context, and whether it is relevant."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    statement: Annotated[str, Usually(1000)]
    reason: Reason
    verdict: Annotated[
        Literal["yes", "no"], BeforeValidator(lambda value: nearest(value, VERDICTS))
    ]


class DecidedSentence(Judgement):
    """A sentence of a context, and whether it is relevant, with odds."""

    statement: str


class ContextStatements(BaseModel):
    """The answer about one context."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    verdicts: list[ContextStatement]


class ContextualRelevancyTemplate:
    """The prompt of `ContextualRelevancyMetric`; override the method to replace it."""

    @staticmethod
    def generate_verdicts(input: str, context: str) -> str:
        """Asks for `{"verdicts": [{"statement", "reason", "verdict"}, ...]}`."""
        return task_prompt(RELEVANT, ContextStatements, context=context, input=input)


class ContextualRelevancyMetric(PrebuiltMetric):
    """The share of the context's statements that are relevant to the input.

    Reads `input` and `retrieval_context`; one call per context, all at once. Score: relevant /
    statements of all contexts, 0 when there is none. A judge that only decides cannot list
    statements: it is asked about each sentence of the contexts instead.
    """

    title = "Contextual Relevancy"
    judged = (("retrieval_context",),)

    def graph(self) -> Graph:
        wording = self.wording(ContextualRelevancyTemplate, "generate_verdicts", "input", "context")
        return Graph(CodeNode(relevant_share, inputs=[EachContextNode(wording)], name="score"))


class EachContextNode(AskingNode):
    """One question per context, all at once: its statements, each with a verdict.

    Readers see the `ContextStatement`s of all contexts in one list. A blank context states
    nothing and costs no call. Of a judge that only decides there is one question per sentence.
    """

    kind = "map"

    def __init__(self, wording: Callable[[Given], str] | None = None) -> None:
        super().__init__(
            output_label="relevance of contexts",
            evaluation_params=["retrieval_context", "input"],
            wording=wording,
        )

    @property
    def text(self) -> str:
        return RELEVANT

    @property
    def writes(self) -> bool:
        return self.prompted

    def questions(self, known: Mapping[str, Any], items: int) -> QuestionCount:
        return QuestionCount.exactly(len(known["retrieval_context"]))

    async def run(self, given: Given, ask: Ask) -> NodeValue:
        (_, contexts), *rest = given.fields
        if ask.decides and not self.prompted:
            return await self._decided(contexts, Given(tuple(rest), (), given.case), ask)
        instructions = task_instructions(RELEVANT)
        each = [
            Given((("context", text), *rest), (), given.case)
            for text in contexts
            if not is_blank(text)
        ]
        questions = (self.question(one, instructions, ContextStatements) for one in each)
        answers = await ask.each(questions)
        return NodeValue([found for answer in answers for found in answer.value.verdicts])

    async def _decided(self, contexts: Sequence[str], rest: Given, ask: Ask) -> NodeValue:
        """The same list, of the sentences of the contexts."""
        found = [one for text in contexts for one in sentences(text)]
        answers = await ask.each(self._about(one, rest) for one in found)
        return NodeValue(
            [
                DecidedSentence(
                    verdict=answer.value.verdict,
                    reason=answer.value.reason,
                    odds=answer.chances,
                    statement=text,
                )
                for text, answer in zip(found, answers, strict=True)
            ]
        )

    def _about(self, sentence: str, rest: Given) -> Question[Any]:
        given = Given(rest.fields, (("sentence", sentence),), rest.case)
        instructions = judgement_instructions(RELEVANT_SENTENCE, VERDICTS)
        decision = verdict_of(given, RELEVANT_SENTENCE, VERDICTS)
        return self.question(given, instructions, judgement_type(VERDICTS), decision)


def relevant_share(found: Sequence[ContextStatement | DecidedSentence]) -> NodeValue:
    judgements = [
        one if isinstance(one, Judgement) else Judgement(verdict=one.verdict, reason=one.reason)
        for one in found
    ]
    return share(
        [one.statement for one in found],
        judgements,
        ("yes",),
        what="statements of the contexts",
        passed="relevant",
        empty=0.0,
    )
