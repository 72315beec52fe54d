"""Knowledge retention: whether the assistant remembers what the user told it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Annotated, Any, cast

from pydantic import BaseModel, ConfigDict, Field, create_model

from dagengine.graph.graph import Graph, is_blank
from dagengine.graph.list_nodes import judgement_of, number_items
from dagengine.graph.node import AskingNode
from dagengine.graph.node_values import Ask, Given, Judgement, NodeValue, QuestionCount
from dagengine.graph.nodes import verdict_of
from dagengine.metrics.common.extraction import Wording, distinct, item_check
from dagengine.metrics.common.prebuilt import share
from dagengine.metrics.common.turns import (
    ConversationMetric,
    conversation_prompt,
    flat,
    given_replies,
    quoted,
    replies,
    turn_blocks,
)
from dagengine.prompts.answer_bounds import Usually
from dagengine.prompts.answer_types import judgement_type
from dagengine.prompts.evidence import Evidence, turn_names
from dagengine.prompts.instructions import judgement_instructions, task_instructions
from dagengine.question import Answer, Question
from dagengine.test_case import Turn

VERDICTS = ("yes", "no")
FACT = "known fact"
FACTS = (
    "List the facts that the last turn of the material, which is the user's, states about the "
    "user or about what the user wants or needs, each as one short self-contained sentence. "
    "The turn before it, if there is one, only helps to understand it. Leave out what the known "
    "facts say already; greetings and mere questions state nothing. If there are known facts, "
    "give also the numbers of those that this turn corrects or takes back."
)
RETAINED = (
    "Does the last turn of the material, which is the assistant's, keep to the known facts, "
    "which the user stated earlier? yes: it uses them rightly or has no need of them; no: it "
    "contradicts one, asks for one again, or acts as if it had not been told. To confirm a fact "
    "is not to forget it."
)


class KnowledgeRetentionTemplate:
    """The prompts of `KnowledgeRetentionMetric`; override a method to replace one.

    `known` are the facts known so far; `stretch` is the turn in question, with the turn
    before it if there is one.
    """

    @staticmethod
    def generate_facts(known: list[str], stretch: list[Turn]) -> str:
        """Asks for `{"facts": [...]}`, and for `"outdated": [numbers]` if facts are known."""
        return conversation_prompt(
            task_instructions(FACTS),
            stretch,
            *number_items(FACT, known),
            answer_type=facts_type(len(known)),
        )

    @staticmethod
    def generate_verdict(known: list[str], stretch: list[Turn]) -> str:
        """Asks for `{"reason", "verdict"}`."""
        system = judgement_instructions(RETAINED, VERDICTS)
        return conversation_prompt(
            system, stretch, *number_items(FACT, known), answer_type=judgement_type(VERDICTS)
        )


class KnowledgeRetentionMetric(ConversationMetric):
    """The share of the assistant's turns that are consistent with what the user said before.

    The judge extracts facts from the user's turns in order, since a turn may correct an earlier
    one. It judges the replies before a user turn while it reads that turn. Replies before the first
    fact are not judged. Reads `turns`; 1 call per user turn that says something and that a reply
    follows, and 1 per judged reply. Score: retained / judged replies, from 0 to 1, and 1 when no
    reply follows a fact. A case without any reply is `skipped`.
    """

    title, template = "Knowledge Retention", KnowledgeRetentionTemplate

    def graph(self) -> Graph:
        retention = RetentionNode(
            self.wording("generate_facts", "known", "stretch"),
            self.wording("generate_verdict", "known", "stretch"),
        )
        return self.score_graph(retained_share, [retention], ["turns"])


class Reply(BaseModel):
    """A judged reply: its place in the conversation, and the facts that were known by then."""

    model_config = ConfigDict(frozen=True)
    place: int
    known: list[str]
    judgement: Judgement


Waiting = list[tuple[int, list[str]]]
"""Replies to be judged: the index of each turn, and the facts known before it."""


def _replies(waiting: Waiting, answers: Sequence[Answer[Any]]) -> list[Reply]:
    judged: list[Reply] = []
    for (turn, facts), answer in zip(waiting, answers, strict=True):
        judgement = judgement_of(answer.value, answer.chances)
        judged.append(Reply(place=turn, known=facts, judgement=judgement))
    return judged


class RetentionNode(AskingNode):
    """Reads the user's turns in order; the replies so far are judged while the next is read.

    Readers see a list of `Reply` in the order of the conversation. What comes after the last
    reply is not read: it cannot be forgotten any more.
    """

    kind = "retention"

    def __init__(self, facts_wording: Wording = None, verdict_wording: Wording = None) -> None:
        super().__init__(evaluation_params=["turns"], output_label="retention")
        self._facts = AskingNode(name="facts", wording=facts_wording)
        self._verdict = AskingNode(name="retention", wording=verdict_wording)

    @property
    def text(self) -> str:
        return RETAINED

    def questions(self, known: Mapping[str, Any], items: int) -> QuestionCount:
        """One per user turn up to the last reply, then one per reply if any fact is known."""
        turns: list[Turn] = known["turns"]
        judged = replies(turns)
        user_turns = [index for index in range(max(judged, default=-1) + 1) if index not in judged]
        least = len(user_turns)
        later = sum(index > user_turns[0] for index in judged) if user_turns else 0
        return QuestionCount(least, least + later, least + later, least + (later > 0))

    async def run(self, given: Given, ask: Ask) -> NodeValue:
        turns: list[Turn] = given.fields[0][1]
        judged: list[Reply] = []
        waiting: Waiting = []
        facts: list[str] = []
        for index in range(max(replies(turns), default=-1) + 1):
            if turns[index].role == "assistant":
                waiting += [(index, facts)] if facts else []
            elif not is_blank(turns[index].content):
                reads, evidence = _turn_evidence(turns, index, facts)
                messages = self._facts.messages(reads, task_instructions(FACTS), evidence)
                check = item_check(FACTS, messages, turns[index].content)
                new = self._facts.put(messages, facts_type(len(facts)), check=check)
                # Replies before this turn are judged together with it: they need no fact of it.
                questions = [replace(new, options=self.options), *self._questions(given, waiting)]
                answer, *verdicts = await ask.each(questions)
                judged += _replies(waiting, verdicts)
                # What the user has revised no longer holds; verdicts before it go by the old facts.
                revised = cast(Any, answer.value)
                outdated = set(getattr(revised, "outdated", ()))
                valid = [fact for number, fact in enumerate(facts, 1) if number not in outdated]
                facts, waiting = distinct([*valid, *revised.facts]), []
        verdicts = await ask.each(self._questions(given, waiting))
        return NodeValue([*judged, *_replies(waiting, verdicts)])

    def _questions(self, given: Given, waiting: Waiting) -> list[Question[Any]]:
        turns, case = given.fields[0][1], given.case
        system = judgement_instructions(RETAINED, VERDICTS)
        questions: list[Question[Any]] = []
        for turn, facts in waiting:
            reads, evidence = _turn_evidence(turns, turn, facts)
            messages = self._verdict.messages(reads, system, evidence)
            about = Given((("turns", turns),), (("known facts", facts),), case)
            words = f"{RETAINED}\n\nThe last turn of the material is {turn_names(turns)[turn]}."
            decision = verdict_of(about, words, VERDICTS)
            questions.append(self._verdict.put(messages, judgement_type(VERDICTS), decision))
        return questions


def _turn_evidence(turns: list[Turn], place: int, known: list[str]) -> tuple[Given, list[Evidence]]:
    """Evidence of a question about one turn: the turn before, the turn, numbered facts."""
    part = slice(max(0, place - 1), place + 1)
    reads = Given((), (("known", known), ("stretch", turns[part])))
    return reads, [*flat(turn_blocks(turns)[part]), *number_items(FACT, known)]


@cache
def facts_type(known: int) -> type[BaseModel]:
    """Answer type of a user turn: new facts, and the numbers of known ones that no longer hold."""
    fact = Annotated[str, Usually(1000)]
    fields: dict[str, Any] = {"facts": (list[fact], ...)}
    if known:
        number = Annotated[int, Field(ge=1, le=known)]
        fields["outdated"] = (list[number], ...)
    return create_model("Facts", **fields)


def retained_share(turns: list[Turn], judged: list[Reply]) -> NodeValue:
    """The share of the judged replies that keep to the facts known before them.

    Raises NotApplicableError when the assistant never spoke.
    """
    given_replies(turns)
    if not judged:  # a turn that greets or asks states no fact: an empty list is an answer
        why = "Nothing to judge: no fact found before a reply, no replies after a stated fact."
        return NodeValue(1.0, score=1.0, reason=why)
    return share(
        quoted(turns, [reply.place for reply in judged]),
        [reply.judgement for reply in judged],
        ("yes",),
        what="replies after a stated fact",
        passed="true to what is known",
        empty=1.0,
    )
