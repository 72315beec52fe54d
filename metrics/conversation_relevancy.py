"""Conversation relevancy: how much of what the assistant says belongs where it stands."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

from dagengine.graph.graph import Graph
from dagengine.graph.list_nodes import judgement_of
from dagengine.graph.node import AskingNode
from dagengine.graph.node_values import Ask, Given, Judgement, NodeValue, QuestionCount
from dagengine.graph.nodes import verdict_of
from dagengine.metrics.common.extraction import Wording
from dagengine.metrics.common.turns import (
    WindowedMetric,
    conversation_prompt,
    flat,
    replies,
    reply_share,
    turn_blocks,
)
from dagengine.prompts.answer_types import judgement_type
from dagengine.prompts.instructions import judgement_instructions
from dagengine.test_case import Turn

VERDICTS = ("yes", "no")
RELEVANT = (
    "The material is a stretch of a conversation. Is its last turn, which is the assistant's, "
    "relevant to the turns before it? yes: it answers, follows up or moves along what is being "
    "talked about; no: it is about something else. A turn with nothing before it is relevant if "
    "it opens a conversation, as a greeting does."
)


class ConversationRelevancyTemplate:
    """The prompts of `ConversationRelevancyMetric`; override a method to replace one."""

    @staticmethod
    def generate_verdict(window: list[Turn]) -> str:
        """Asks for `{"reason", "verdict"}` on the last turn of the window."""
        step = judgement_instructions(RELEVANT, VERDICTS)
        return conversation_prompt(step, window, answer_type=judgement_type(VERDICTS))


class ConversationRelevancyMetric(WindowedMetric):
    """The share of the assistant's turns that are relevant to the turns before them.

    Each turn is judged in a window that ends with it, all windows in parallel. A window has at most
    `window_size` turns. It begins with the conversation, or at a multiple of half of `window_size`,
    so that windows begin alike and are read once: where the conversation is longer, it has more
    than half as many turns. The judge sees nothing outside of it. Reads `turns`; 1 call per
    assistant turn. Score: relevant / assistant turns; a conversation without an assistant turn has
    no score.
    """

    title, template = "Conversation Relevancy", ConversationRelevancyTemplate

    def graph(self) -> Graph:
        wording = self.wording("generate_verdict", "window")
        verdicts = WindowVerdictsNode(self.window_size, wording)
        return self.score_graph(relevant_share, [verdicts], ["turns"])


TurnRelevancyMetric = ConversationRelevancyMetric


class WindowVerdictsNode(AskingNode):
    """One question per assistant turn about the window that ends with it, all at once."""

    kind = "windows"

    def __init__(self, size: int, wording: Wording) -> None:
        super().__init__(
            evaluation_params=["turns"], output_label="turn relevance", wording=wording
        )
        self.size = size

    @property
    def text(self) -> str:
        return RELEVANT

    @property
    def writes(self) -> bool:
        return False

    @property
    def vote(self) -> Literal["items"]:
        return "items"

    def questions(self, known: Mapping[str, Any], items: int) -> QuestionCount:
        return QuestionCount.exactly(len(replies(known["turns"])))

    async def run(self, given: Given, ask: Ask) -> NodeValue:
        turns: list[Turn] = given.fields[0][1]
        blocks = turn_blocks(turns)
        step = judgement_instructions(RELEVANT, VERDICTS)
        apart = self.size // 2  # turns between beginnings of windows
        questions = []
        for end in replies(turns):
            start = math.ceil(max(0, end + 1 - self.size) / apart) * apart
            window = Given((), (("window", turns[start : end + 1]),))
            stretch = blocks[start : end + 1]
            messages = self.messages(window, step, flat(stretch))
            # What is asked about the stretch of the conversation that some turns make
            begin, finish = stretch[0][0].label, stretch[-1][0].label
            about = f"{RELEVANT}\n\nThe stretch begins with {begin} and ends with {finish}."
            decision = verdict_of(given, about, VERDICTS)
            questions.append(self.put(messages, judgement_type(VERDICTS), decision))
        answers = await ask.each(questions)
        return NodeValue([judgement_of(answer.value, answer.chances) for answer in answers])


def relevant_share(turns: list[Turn], verdicts: list[Judgement]) -> NodeValue:
    return reply_share(turns, verdicts, "relevant")
