"""Role adherence: how steadily the assistant stays in the role it was given."""

from __future__ import annotations

from dagengine.graph.graph import Graph
from dagengine.graph.node_values import Judgement, NodeValue
from dagengine.graph.nodes import CodeNode
from dagengine.metrics.common.default_prompts import ItemQuestion
from dagengine.metrics.common.turns import ConversationMetric, items_prompt, replies, reply_share
from dagengine.prompts.evidence import turn_names
from dagengine.test_case import Turn

IN_ROLE = ItemQuestion(
    "The reply is the turn of the conversation that it names. Does it stay in the role that "
    "`chatbot_role` describes, seen in the conversation up to it? yes: what it says, what it "
    "knows and how it says it befit the role, or it is too plain to tell; no: something in it "
    "does not befit the role.",
    "reply",
)


class RoleAdherenceTemplate:
    """The prompts of `RoleAdherenceMetric`; override a method to replace one."""

    @staticmethod
    def generate_verdicts(turns: list[Turn], chatbot_role: str, replies: list[str]) -> str:
        """Asks for `{"verdicts": {"1": {"reason", "verdict"}, ...}}`, one per reply.

        `replies` are the names of the turns to judge: "assistant turn 1", …
        """
        return items_prompt(IN_ROLE, turns, replies, chatbot_role=chatbot_role)


class RoleAdherenceMetric(ConversationMetric):
    """The share of the assistant's turns (replies) that stay in the given role.

    Reads `turns` and `chatbot_role`; 1 call. Score: replies in role / replies; a conversation
    without a reply has no score.
    """

    title, template = "Role Adherence", RoleAdherenceTemplate

    def graph(self) -> Graph:
        names = CodeNode(names_of_replies, evaluation_params=["turns"], output_label="replies")
        fields = ["turns", "chatbot_role"]
        wording = self.wording("generate_verdicts", *fields, "replies")
        # The judge sees the whole conversation, not every reply by itself: a reply may fit a role
        # only because of what was said before.
        verdicts = self.judge_items(IN_ROLE, names, "role adherence", wording, fields)
        return self.score_graph(in_role_share, [verdicts], ["turns"])


def names_of_replies(turns: list[Turn]) -> list[str]:
    """What the assistant's turns are called."""
    names = turn_names(turns)
    return [names[place] for place in replies(turns)]


def in_role_share(turns: list[Turn], verdicts: list[Judgement]) -> NodeValue:
    return reply_share(turns, verdicts, "in role")
