"""Answer relevancy: how much of the answer is about the question."""

from __future__ import annotations

from dagengine.graph.graph import Graph
from dagengine.graph.node import BaseNode
from dagengine.graph.node_values import Judgement, NodeValue
from dagengine.graph.nodes import CodeNode
from dagengine.metrics.common.default_prompts import ItemQuestion, task_prompt
from dagengine.metrics.common.extraction import STATEMENTS, Statements, statements_of_answer
from dagengine.metrics.common.prebuilt import PrebuiltMetric, share

RELEVANT = ItemQuestion(
    "Does the statement help to answer `input`? yes: it answers it, in part or in whole, or "
    "supports such an answer; idk: it is related but neither helps nor distracts; no: it is "
    "about something else.",
    "statement",
    ("yes", "idk", "no"),
)


class AnswerRelevancyTemplate:
    """The prompts of `AnswerRelevancyMetric`; override a method to replace one."""

    @staticmethod
    def generate_statements(actual_output: str) -> str:
        """Asks for `{"statements": [...]}`."""
        return task_prompt(STATEMENTS, Statements, actual_output=actual_output)

    @staticmethod
    def generate_verdicts(input: str, statements: list[str]) -> str:
        """Asks for `{"verdicts": {"1": {"reason", "verdict"}, ...}}`."""
        return RELEVANT.prompt(statements, input=input)


class AnswerRelevancyMetric(PrebuiltMetric):
    """The share of the answer's statements that are relevant to the input.

    Reads `input` and `actual_output`; 2 calls. Score: (relevant + related) / statements, from 0 to
    1. A case is skipped if the judge lists no statement of an answer with words.
    """

    title, template = "Answer Relevancy", AnswerRelevancyTemplate

    def graph(self) -> Graph:
        return Graph(self.score_node())

    def score_node(self, wanted: BaseNode | None = None) -> CodeNode:
        """The node that scores; `wanted` is a node whose value says whether to ask anything."""
        # Relevancy judges all statements, faithfulness those that claim a fact. One extraction
        # lists and marks them, so that both metrics together ask for it once.
        wording = self.wording("generate_statements", "actual_output")
        statements = statements_of_answer(wording, wanted)
        wording = self.wording("generate_verdicts", "input", "statements")
        verdicts = self.judge_items(RELEVANT, statements, "relevance", wording, ["input"])
        return CodeNode(relevant_share, inputs=[statements, verdicts], name="score")


def relevant_share(statements: list[str], verdicts: list[Judgement]) -> NodeValue:
    return share(
        statements, verdicts, ("yes", "idk"), what="statements", passed="relevant", empty=1.0
    )
