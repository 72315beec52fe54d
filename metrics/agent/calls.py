"""What metrics of tool calls share: a verdict on every call, in view of all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from dagengine.graph.graph import Graph
from dagengine.graph.node_values import Judgement, NodeValue
from dagengine.graph.nodes import CodeNode
from dagengine.metrics.common.default_prompts import ItemQuestion
from dagengine.metrics.common.prebuilt import PrebuiltMetric, share
from dagengine.test_case import ToolCall


class CallsMetric(PrebuiltMetric):
    """The share of the tool calls of a case for which `question` is true.

    `label` is what the verdicts are called, `passed` what the good calls are.
    """

    judged = ()  # calls, not text: an agent that called nothing has nothing wrong
    question: ClassVar[ItemQuestion]
    label: ClassVar[str]
    passed: ClassVar[str]

    def graph(self) -> Graph:
        calls = CodeNode(places_of_calls, evaluation_params=["tools_called"], output_label="calls")
        fields = ("input", "tools_called")
        wording = self.wording("generate_verdicts", *fields, "calls")
        verdicts = self.judge_items(
            self.question, calls, self.label, wording, fields, items_of="tools_called"
        )
        return self.score_graph(self.right_share, [verdicts], ["tools_called"])

    @classmethod
    def right_share(cls, tools_called: list[ToolCall], verdicts: list[Judgement]) -> NodeValue:
        """The score, and why."""
        if not tools_called:
            return NodeValue(1.0, score=1.0, reason="Nothing to judge: no tool was called.")
        named = [f"call {place}: {call.name}" for place, call in enumerate(tools_called, 1)]
        return share(named, verdicts, ("yes",), what="tool calls", passed=cls.passed, empty=1.0)


def places_of_calls(tools_called: Sequence[ToolCall]) -> list[str]:
    """What prompts call each tool call."""
    count = len(tools_called)
    return [f"tools_called ({place} of {count})" for place in range(1, count + 1)]
