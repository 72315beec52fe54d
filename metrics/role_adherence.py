"""Role adherence: how steadily the assistant stays in the role it was given."""

from __future__ import annotations

from dagengine.graph.graph import Graph
from dagengine.graph.list_nodes import numbered
from dagengine.graph.nodes import CodeNode
from dagengine.graph.values import Judgement, NodeValue
from dagengine.metrics.common.prebuilt import PrebuiltMetric
from dagengine.metrics.common.turns import (
    ConversationVerdicts,
    conversation_prompt,
    replies,
    reply_share,
)
from dagengine.prompts.answer_types import list_type
from dagengine.prompts.evidence import turn_names
from dagengine.prompts.instructions import list_instructions
from dagengine.test_case import Turn

VERDICTS = ("yes", "no")
ITEM = "reply"
IN_ROLE = (
    "The reply is the turn of the conversation that it names. Does it stay in the role that "
    "`chatbot_role` describes, seen in the conversation up to it? yes: what it says, what it "
    "knows and how it says it befit the role, or it is too plain to tell; no: something in it "
    "does not befit the role."
)


class RoleAdherenceTemplate:
    """The prompts of `RoleAdherenceMetric`; override a method to replace one."""

    @staticmethod
    def generate_verdicts(turns: list[Turn], chatbot_role: str, replies: list[str]) -> str:
        """Asks for `{"verdicts": {"1": {"reason", "verdict"}, ...}}`, one per reply.

        `replies` are the names of the turns to judge: "assistant turn 1", …
        """
        system = list_instructions(IN_ROLE, VERDICTS, ITEM, len(replies))
        blocks = numbered(ITEM, replies)
        return conversation_prompt(
            system,
            turns,
            *blocks,
            answer_type=list_type(VERDICTS, len(replies)),
            chatbot_role=chatbot_role,
        )


class RoleAdherenceMetric(PrebuiltMetric):
    """The share of the assistant's turns that stay in the given role.

    Reads `turns` and `chatbot_role`; 1 call. Score: in role / assistant turns; a conversation
    without an assistant turn has no score.
    """

    title = "Role Adherence"
    judged = (("turns",),)

    def graph(self) -> Graph:
        spoken = CodeNode(names_of_replies, evaluation_params=["turns"], output_label="replies")
        # The judge sees the whole conversation with its turns named, not every reply by itself: a
        # reply may fit a role only because of what was said before.
        verdicts = ConversationVerdicts(
            IN_ROLE,
            spoken,
            "role adherence",
            verdicts=VERDICTS,
            item_label=ITEM,
            evaluation_params=["turns", "chatbot_role"],
            wording=self.wording(
                RoleAdherenceTemplate, "generate_verdicts", "turns", "chatbot_role", "replies"
            ),
            per_call=self.verdicts_per_call,
        )
        score = CodeNode(
            in_role_share, evaluation_params=["turns"], inputs=[verdicts], name="score"
        )
        return Graph(score)


def names_of_replies(turns: list[Turn]) -> list[str]:
    """What the assistant's turns are called."""
    names = turn_names(turns)
    return [names[place] for place in replies(turns)]


def in_role_share(turns: list[Turn], verdicts: list[Judgement]) -> NodeValue:
    return reply_share(turns, verdicts, "in role")
