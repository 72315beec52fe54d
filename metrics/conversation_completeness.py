"""Conversation completeness: how much of what the user wanted was done."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict

from dagengine.graph.graph import Graph, is_blank
from dagengine.graph.node_values import Ask, Given, Judgement, NodeValue, QuestionCount
from dagengine.graph.nodes import CodeNode
from dagengine.metrics.common.default_prompts import ItemQuestion
from dagengine.metrics.common.extraction import (
    ONE_AT_LEAST,
    Wording,
    asked_again,
    each_once,
    item_check,
    nothing_found,
)
from dagengine.metrics.common.prebuilt import share
from dagengine.metrics.common.turns import (
    ConversationMetric,
    ConversationTask,
    conversation_prompt,
    items_prompt,
)
from dagengine.prompts.answer_bounds import Usually
from dagengine.prompts.instructions import task_instructions
from dagengine.question import Check, Message
from dagengine.test_case import Turn

INTENTIONS = (
    "List what the user wants from the assistant in this conversation, each wish as one short "
    "self-contained sentence, in the order in which the wishes come up. Count a wish that is "
    "repeated or made more precise once, in its last form; leave out one that the user takes "
    "back. Take the wishes from the user's turns only. A user who wants nothing else wants a "
    "fitting reply."
)
SATISFIED = ItemQuestion(
    "Did the assistant satisfy this intention of the user by the end of the conversation? yes: "
    "it did what was wanted or gave the answer that was wanted; no: it did not, did so only in "
    "part, or refused.",
    "intention",
)


class Intentions(BaseModel):
    """What the user wants, in the order of the conversation."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    intentions: Annotated[list[Annotated[str, Usually(1000)]], ONE_AT_LEAST]


class ConversationCompletenessTemplate:
    """The prompts of `ConversationCompletenessMetric`; override a method to replace one."""

    @staticmethod
    def extract_user_intentions(turns: list[Turn]) -> str:
        """Asks for `{"intentions": [...]}`."""
        return conversation_prompt(task_instructions(INTENTIONS), turns, answer_type=Intentions)

    @staticmethod
    def generate_verdicts(turns: list[Turn], intentions: list[str]) -> str:
        """Asks for `{"verdicts": {"1": {"reason", "verdict"}, ...}}`."""
        return items_prompt(SATISFIED, turns, intentions)


class ConversationCompletenessMetric(ConversationMetric):
    """The share of the user's intentions that the assistant satisfied.

    Reads `turns`; 2 calls. Score: satisfied / intentions, from 0 to 1, and 1 when the user never
    speaks. A case is skipped if the judge lists no intention of a user who does.
    """

    title, template = "Conversation Completeness", ConversationCompletenessTemplate

    def graph(self) -> Graph:
        intentions = intentions_of(self.wording("extract_user_intentions", "turns"))
        wording = self.wording("generate_verdicts", "turns", "intentions")
        verdicts = self.judge_items(SATISFIED, intentions, "satisfaction", wording, ["turns"])
        return self.score_graph(satisfied_share, [intentions, verdicts])


def intentions_of(wording: Wording = None) -> CodeNode:
    """Intentions of the user of a conversation, each once."""
    extracted = _IntentionsTask(
        INTENTIONS,
        "user intentions",
        evaluation_params=["turns"],
        output_type=Intentions,
        wording=wording,
    )
    return CodeNode(each_intention, inputs=[extracted], output_label="intentions")


class _IntentionsTask(ConversationTask):
    """Asks nothing about a conversation in which the user never said anything."""

    def questions(self, known: Mapping[str, Any], items: int) -> QuestionCount:
        return QuestionCount.exactly(int(any(turn.role == "user" for turn in known["turns"])))

    async def run(self, given: Given, ask: Ask) -> NodeValue:
        text = _words_of_user(given)
        # Who never speaks wants nothing, which costs no call.
        if is_blank(text):
            return NodeValue(Intentions(intentions=[]))
        question = self.task_question(given)
        answer = await ask(question)
        again = asked_again(question, answer, text, "what the user said")
        if again is not None:
            answer = await ask(again)
            if asked_again(question, answer, text, "") is not None:
                raise nothing_found("intentions", "what the user said")
        return NodeValue(answer.value)

    def check(self, given: Given, messages: tuple[Message, ...]) -> Check:
        return item_check(self.instructions, messages, _words_of_user(given))


def _words_of_user(given: Given) -> str:
    """The user's words in a conversation."""
    turns: list[Turn] = dict(given.fields)["turns"]
    return "\n".join(turn.content for turn in turns if turn.role == "user")


def each_intention(found: Intentions) -> NodeValue:
    return each_once(found.intentions)


def satisfied_share(intentions: list[str], verdicts: list[Judgement]) -> NodeValue:
    return share(
        intentions, verdicts, ("yes",), what="user intentions", passed="satisfied", empty=1.0
    )
