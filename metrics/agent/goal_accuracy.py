"""Goal accuracy: whether an agent reaches what its user wants, and goes about it sensibly."""

from __future__ import annotations

from dagengine.graph.graph import Graph
from dagengine.graph.node_values import Judgement, NodeValue
from dagengine.graph.nodes import CodeNode
from dagengine.metrics.common.default_prompts import ItemQuestion
from dagengine.metrics.common.prebuilt import share
from dagengine.metrics.common.turns import ConversationMetric, items_prompt
from dagengine.metrics.conversation_completeness import (
    SATISFIED,
    ConversationCompletenessTemplate,
    intentions_of,
    satisfied_share,
)
from dagengine.metrics.ragas import mean_of_parts
from dagengine.test_case import Turn

PLANNED = ItemQuestion(
    "Did the assistant go about this intention of the user in a sensible way? yes: the steps that "
    "it took towards it (questions, tool calls, what it did itself) fit the intention, come in an "
    "order that makes sense, and are those that it announced, if it announced any; no: a step that "
    "was needed is missing, one leads somewhere else or repeats another, or it departed from what "
    "it had announced. Whether the intention was satisfied in the end does not count.",
    "intention",
)


class GoalAccuracyTemplate(ConversationCompletenessTemplate):
    """The prompts of `GoalAccuracyMetric`; override a method to replace one."""

    @staticmethod
    def generate_plan_verdicts(turns: list[Turn], intentions: list[str]) -> str:
        """Asks for `{"verdicts": {"1": {"reason", "verdict"}, ...}}`."""
        return items_prompt(PLANNED, turns, intentions)


class GoalAccuracyMetric(ConversationMetric):
    """How many of the user's goals an agent reaches, and how many it goes about sensibly.

    Reads `turns`, with the tools called; 3 calls in two rounds. Two of them are those of
    `ConversationCompletenessMetric`, so both metrics together ask them once. Score: (reached +
    sensibly pursued) / (2 x goals), from 0 to 1, and 1 when the user never speaks. A case is
    skipped if the judge lists no goal of a user who does.
    """

    title, template = "Goal Accuracy", GoalAccuracyTemplate

    def graph(self) -> Graph:
        goals = intentions_of(self.wording("extract_user_intentions", "turns"))
        wording = self.wording("generate_verdicts", "turns", "intentions")
        reached = self.judge_items(SATISFIED, goals, "satisfaction", wording, ["turns"])
        wording = self.wording("generate_plan_verdicts", "turns", "intentions")
        planned = self.judge_items(PLANNED, goals, "pursuit", wording, ["turns"])
        parts = [
            CodeNode(satisfied_share, inputs=[goals, reached], name="goals"),
            CodeNode(pursued_share, inputs=[goals, planned], name="plans"),
        ]
        return self.score_graph(mean_of_parts, parts)


def pursued_share(intentions: list[str], verdicts: list[Judgement]) -> NodeValue:
    what, passed = "user intentions", "pursued sensibly"
    return share(intentions, verdicts, ("yes",), what=what, passed=passed, empty=1.0)
