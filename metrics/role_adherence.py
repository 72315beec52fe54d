"""Role adherence: how steadily the assistant stays in the role it was given."""

from __future__ import annotations

from dagengine.graph import Graph
from dagengine.metrics.prebuilt import PrebuiltMetric
from dagengine.metrics.turns import (
    ConversationVerdicts,
    conversation_prompt,
    replies,
    reply_share,
)
from dagengine.node import Judgement, NodeValue
from dagengine.nodes import CodeNode
from dagengine.test_case import Turn

VERDICTS = ("yes", "no")
IN_ROLE = (
    "Does the assistant turn stay in the role that `chatbot_role` describes, seen in the "
    "conversation up to it? yes: what it says, what it knows and how it says it befit the role, "
    "or it is too plain to tell; no: something in it does not befit the role."
)


class RoleAdherenceTemplate:
    """The prompts of `RoleAdherenceMetric`; override a method to replace one."""

    @staticmethod
    def generate_verdicts(turns: list[Turn], chatbot_role: str) -> str:
        """Asks for `{"verdicts": [{"reason", "verdict", "number"}, ...]}`, one per reply."""
        return conversation_prompt(IN_ROLE, turns, chatbot_role=chatbot_role)


class RoleAdherenceMetric(PrebuiltMetric):
    """The share of the assistant's turns that stay in the given role.

    Reads `turns` and `chatbot_role`; 1 call. Score: in role / assistant turns; a conversation
    without an assistant turn has no score.
    """

    title = "Role Adherence"

    def graph(self) -> Graph:
        spoken = CodeNode(_spoken, evaluation_params=["turns"], output_label="assistant turns")
        verdicts = ConversationVerdicts(
            IN_ROLE,
            spoken,
            "role adherence",
            verdicts=VERDICTS,
            item_label="assistant turn",
            evaluation_params=["turns", "chatbot_role"],
            wording=self.wording(
                RoleAdherenceTemplate, "generate_verdicts", "turns", "chatbot_role"
            ),
        )
        score = CodeNode(_score, evaluation_params=["turns"], inputs=[verdicts], name="score")
        return Graph(score)


def _spoken(turns: list[Turn]) -> list[Turn]:
    return [turns[place] for place in replies(turns)]


def _score(turns: list[Turn], verdicts: list[Judgement]) -> NodeValue:
    return reply_share(turns, verdicts, "in role")
