"""Tool use: whether an agent calls the right tools in a conversation, with the right arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

from dagengine.errors import InputError, NotApplicableError
from dagengine.graph.graph import Graph, is_blank
from dagengine.graph.list_nodes import VerdictListNode
from dagengine.graph.node_values import Judgement, NodeValue
from dagengine.graph.nodes import CodeNode
from dagengine.metrics.common.default_prompts import ItemQuestion
from dagengine.metrics.common.prebuilt import MetricSettings, least_of, share
from dagengine.metrics.common.turns import ConversationMetric, items_prompt, quoted
from dagengine.prompts.evidence import turn_names
from dagengine.test_case import ToolCall, Turn

SELECTED = ItemQuestion(
    "The reply is the turn of the conversation that it names. The assistant could use the tools in "
    "`available_tools`. Did it choose well among them for this reply? yes: it called the tools "
    "that the user's wish needs at this point and no other, or called none where none helps; no: "
    "it left out one that was needed, took one while another fits better, called one in vain, or "
    "one that is not available.",
    "reply",
)
RIGHT = ItemQuestion(
    "The call is the line that it names of the tools called at a turn of the conversation. Are its "
    "arguments right? yes: each follows from the conversation up to this turn or from the output "
    "of an earlier call, or is a sensible value for what both leave open, and none is missing that "
    "the tool needs; no: an argument is wrong, made up or missing. Judge the arguments only, "
    "neither the choice of the tool nor its output.",
    "call",
)


class ToolUseTemplate:
    """The prompts of `ToolUseMetric`; override a method to replace one."""

    @staticmethod
    def generate_selection_verdicts(
        turns: list[Turn], replies: list[str], available_tools: list[ToolCall]
    ) -> str:
        """Asks for `{"verdicts": {"1": {"reason", "verdict"}, ...}}`, one per reply."""
        return items_prompt(SELECTED, turns, replies, available_tools=available_tools)

    @staticmethod
    def generate_argument_verdicts(
        turns: list[Turn], calls: list[str], available_tools: list[ToolCall]
    ) -> str:
        """Asks for `{"verdicts": {"1": {"reason", "verdict"}, ...}}`, one per call."""
        return items_prompt(RIGHT, turns, calls, available_tools=available_tools)


class ToolUseMetric(ConversationMetric):
    """How well an agent chooses its tools in a conversation, and their arguments.

    `available_tools` are all tools that it could use, with names and descriptions (InputError
    without any). Reads `turns` with their `tools_called`; 2 calls in parallel, 1 when no tool was
    called. Score: the minimum of two shares, from 0 to 1: assistant turns with a good choice of
    tools, and tool calls with the right arguments, if there are calls. A conversation in which the
    assistant neither says nor calls anything has no score.
    """

    title, template = "Tool Use", ToolUseTemplate

    def __init__(
        self,
        available_tools: Sequence[ToolCall],
        *common: Any,
        **settings: Unpack[MetricSettings],
    ) -> None:
        self.take_common(common, settings)
        self.available_tools = list(available_tools)
        if not self.available_tools:
            raise InputError("available_tools is an empty list: name the tools of the agent")
        for tool in self.available_tools:
            if not isinstance(tool, ToolCall):
                raise TypeError(f"available_tools must be a list of ToolCall, got {tool!r:.80}")

    def graph(self) -> Graph:
        tools = CodeNode(lambda: list(self.available_tools), output_label="available_tools")
        replies = CodeNode(names_of_active, evaluation_params=["turns"], output_label="replies")
        choices = self._verdicts("selection", SELECTED, replies, "tool selection", tools)
        calls = CodeNode(names_of_calls, evaluation_params=["turns"], output_label="calls")
        right = self._verdicts("argument", RIGHT, calls, "arguments", tools)
        parts = [
            CodeNode(chosen_share, evaluation_params=["turns"], inputs=[choices], name="selection"),
            CodeNode(right_share, evaluation_params=["turns"], inputs=[right], name="argument"),
        ]
        return self.score_graph(lesser_part, parts)

    def _verdicts(
        self, part: str, question: ItemQuestion, over: CodeNode, label: str, tools: CodeNode
    ) -> VerdictListNode:
        items = str(over.output_label)
        wording = self.wording(f"generate_{part}_verdicts", "turns", items, "available_tools")
        return self.judge_items(question, over, label, wording, ["turns"], inputs=[tools])


def active(turns: Sequence[Turn]) -> list[int]:
    """The indices of the assistant's turns that say something or call a tool."""
    indices: list[int] = []
    for index, turn in enumerate(turns):
        if turn.role == "assistant" and (turn.tools_called or not is_blank(turn)):
            indices.append(index)
    return indices


def names_of_active(turns: list[Turn]) -> list[str]:
    """What the turns to judge are called; raises NotApplicableError without any."""
    names = turn_names(turns)
    acting = [names[place] for place in active(turns)]
    if not acting:
        raise NotApplicableError("nothing to judge: the assistant neither says nor calls anything")
    return acting


def names_of_calls(turns: list[Turn]) -> list[str]:
    """What prompts call each tool call of the assistant: its turn and its line there."""
    names = turn_names(turns)
    return [
        f"{names[place]}, tools called, line {line}"
        for place in active(turns)
        for line in range(1, len(turns[place].tools_called or ()) + 1)
    ]


def chosen_share(turns: list[Turn], verdicts: list[Judgement]) -> NodeValue:
    items = quoted(turns, active(turns))
    what, passed = "choices of tools", "good"
    return share(items, verdicts, ("yes",), what=what, passed=passed, empty=1.0)


def right_share(turns: list[Turn], verdicts: list[Judgement]) -> NodeValue:
    if not verdicts:
        return NodeValue(None)
    names = turn_names(turns)
    items = [
        f"{names[place]}: {call.name}"
        for place in active(turns)
        for call in turns[place].tools_called or ()
    ]
    passed = "right in their arguments"
    return share(items, verdicts, ("yes",), what="tool calls", passed=passed, empty=1.0)


def lesser_part(selection: float | None, arguments: float | None) -> NodeValue:
    return least_of({"selection": selection, "arguments": arguments}, "no reply and no tool call")
