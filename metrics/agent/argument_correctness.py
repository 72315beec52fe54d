"""Argument correctness: whether an agent called its tools with the right arguments."""

from __future__ import annotations

from dagengine.metrics.agent.calls import CallsMetric
from dagengine.metrics.common.default_prompts import ItemQuestion
from dagengine.test_case import ToolCall

RIGHT = ItemQuestion(
    "The call is the one of `tools_called` that it names. Are its arguments right for what `input` "
    "asks? yes: each follows from the input or from the output of an earlier call, or is a "
    "sensible value for what both leave open, and none is missing that the tool needs; no: an "
    "argument is wrong, made up or missing. Judge the arguments only, neither the choice of the "
    "tool nor its output.",
    "call",
)


class ArgumentCorrectnessTemplate:
    """The prompt of `ArgumentCorrectnessMetric`; override the method to replace it."""

    @staticmethod
    def generate_verdicts(input: str, tools_called: list[ToolCall], calls: list[str]) -> str:
        """Asks for `{"verdicts": {"1": {"reason", "verdict"}, ...}}`, one per call."""
        return RIGHT.prompt(calls, input=input, tools_called=tools_called)


class ArgumentCorrectnessMetric(CallsMetric):
    """The share of the tool calls whose arguments are right; needs no expected calls.

    Reads `input` and `tools_called`; 1 call. Score: right / tool calls, 1 when no tool was called.
    """

    title = "Argument Correctness"
    template = ArgumentCorrectnessTemplate
    question, label, passed = RIGHT, "arguments", "right in their arguments"
