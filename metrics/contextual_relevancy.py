"""Contextual relevancy: how much of the retrieved context is about the question."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict

from dagengine.graph.graph import Graph, is_blank
from dagengine.graph.node import AskingNode
from dagengine.graph.node_values import Ask, Given, Judgement, NodeValue, QuestionCount
from dagengine.graph.nodes import verdict_of
from dagengine.metrics.common.default_prompts import task_prompt
from dagengine.metrics.common.extraction import (
    ONE_AT_LEAST,
    Wording,
    asked_again,
    distinct,
    item_check,
    nothing_found,
)
from dagengine.metrics.common.prebuilt import PrebuiltMetric, share
from dagengine.prompts.answer_bounds import Usually
from dagengine.prompts.answer_types import Reason, Reasoned, judgement_type, nearest
from dagengine.prompts.evidence import Evidence, numbered_name, says_something, sentences
from dagengine.prompts.instructions import judgement_instructions, task_instructions
from dagengine.question import Question
from dagengine.system.terminal_text import counted

VERDICTS = ("yes", "no")
RELEVANT = (
    "List every statement that the piece of context makes, each as one short self-contained "
    "sentence, in the order of the text. Of a piece that states nothing, say in one sentence what "
    "it is. Say of each whether it is relevant to `input`. yes: "
    "it helps to answer it, in part or in whole; no: it does not. First the statement, then "
    "your reason, then the verdict."
)
RELEVANT_SENTENCE = (
    "Is the sentence, which comes from the retrieved context, relevant to `input`? yes: it helps "
    "to answer it, in part or in whole; no: it does not."
)


class ContextStatement(Reasoned):
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
    verdicts: Annotated[list[ContextStatement], ONE_AT_LEAST]


class ContextualRelevancyTemplate:
    """The prompt of `ContextualRelevancyMetric`; override the method to replace it."""

    @staticmethod
    def generate_verdicts(input: str, context: str) -> str:
        """Asks for `{"verdicts": [{"statement", "reason", "verdict"}, ...]}`."""
        return task_prompt(RELEVANT, ContextStatements, context=context, input=input)


class ContextualRelevancyMetric(PrebuiltMetric):
    """The share of the context's statements that are relevant to the input.

    Reads `input` and `retrieval_context`; one call per context, all at once. Score: relevant /
    statements of all contexts, 0 without a context. A case is skipped if the judge lists no
    statement of any context. A judge that only decides cannot list statements: it is asked about
    each sentence of the contexts instead.
    """

    title, template = "Contextual Relevancy", ContextualRelevancyTemplate
    judged = (("retrieval_context",),)

    def graph(self) -> Graph:
        wording = self.wording("generate_verdicts", "input", "context")
        return self.score_graph(relevant_share, [EachContextNode(wording)])


class EachContextNode(AskingNode):
    """One question per context, all at once: its statements, each with a verdict.

    Readers see the `ContextStatement`s of all contexts in one list. A blank context states
    nothing and costs no call. Of a judge that only decides there is one question per sentence.
    """

    kind = "map"

    def __init__(self, wording: Wording) -> None:
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
        (_, contexts), *fields = given.fields
        if ask.decides and not self.prompted:
            return await self._decide(contexts, Given(tuple(fields), (), given.case), ask)
        pieces: list[Evidence] = []
        for number, text in enumerate(contexts, 1):
            if not is_blank(text):
                name = numbered_name("retrieval_context", number, len(contexts))
                pieces.append(Evidence(name, text))
        lists = await self._lists(pieces, Given(tuple(fields), (), given.case), ask)
        empty = lists.count([])
        reason = f"{counted(empty, 'context')} of {len(lists)} stated nothing."
        return NodeValue([*chain.from_iterable(lists)], reason=reason if empty else None)

    async def _lists(
        self, pieces: Sequence[Evidence], rest: Given, ask: Ask
    ) -> list[list[ContextStatement]]:
        """The statements of each context; an empty list is asked for once more."""
        questions: list[Question[ContextStatements]] = []
        for context in pieces:
            # Each is asked about alone, and keeps the name that it has in the case.
            reads = Given((("context", context.text), *rest.fields), (), rest.case)
            evidence = [context, *rest.evidence()]
            messages = self.messages(reads, task_instructions(RELEVANT), evidence)
            check = item_check(RELEVANT, messages, context.text)
            question = self.put(messages, ContextStatements, parser=self.parser, check=check)
            questions.append(question)
        answers = await ask.each(questions)
        again = {}
        for index, (question, answer) in enumerate(zip(questions, answers, strict=True)):
            once_more = asked_again(question, answer, pieces[index].text, "the context")
            if once_more is not None:
                again[index] = once_more
        for index, answer in zip(again, await ask.each(again.values()), strict=True):
            answers[index] = answer
        lists = [distinct(answer.value.verdicts, _identity) for answer in answers]
        if again and not any(lists):
            raise nothing_found("statements", "`retrieval_context`")
        return lists

    async def _decide(self, contexts: Sequence[str], rest: Given, ask: Ask) -> NodeValue:
        """The same list, of the sentences of the contexts."""
        pieces = list(chain.from_iterable(map(sentences, contexts)))
        instructions = judgement_instructions(RELEVANT_SENTENCE, VERDICTS)
        questions: list[Question[Any]] = []
        for piece in pieces:
            reads = Given(rest.fields, (("sentence", piece),), rest.case)
            decision = verdict_of(reads, RELEVANT_SENTENCE, VERDICTS)
            questions.append(self.question(reads, instructions, judgement_type(VERDICTS), decision))
        answers = await ask.each(questions)
        decided: list[DecidedSentence] = []
        for text, answer in zip(pieces, answers, strict=True):
            verdict, reason = answer.value.verdict, answer.value.reason
            decided.append(
                DecidedSentence(verdict=verdict, reason=reason, odds=answer.chances, statement=text)
            )
        return NodeValue(decided)


def _identity(statement: ContextStatement) -> str:
    """Identity of a statement: a statement with both verdicts counts as two."""
    blank = not says_something(statement.statement)
    return "" if blank else f"{statement.verdict}: {statement.statement}"


def relevant_share(statements: Sequence[ContextStatement | DecidedSentence]) -> NodeValue:
    judgements = [
        statement
        if isinstance(statement, Judgement)
        else Judgement(verdict=statement.verdict, reason=statement.reason)
        for statement in statements
    ]
    return share(
        [statement.statement for statement in statements],
        judgements,
        ("yes",),
        what="statements of the contexts",
        passed="relevant",
        empty=0.0,
    )
