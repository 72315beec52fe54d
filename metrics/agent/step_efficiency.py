"""Step efficiency: whether an agent did only what its task needed."""

from __future__ import annotations

from dagengine.metrics.agent.calls import CallsMetric
from dagengine.metrics.common.default_prompts import ItemQuestion
from dagengine.test_case import ToolCall

NEEDED = ItemQuestion(
    "The call is the one of `tools_called` that it names. Did the agent need it to do what `input` "
    "asks? yes: without it the task would not have been done, or not as well; no: it fetched what "
    "was there already, did again what an earlier call had done, tried again what cannot change, "
    "went a detour, or served something that nobody asked for. Of two calls that do the same, only "
    "the later one was not needed. Trying again after a passing error is needed.",
    "call",
)


class StepEfficiencyTemplate:
    """The prompt of `StepEfficiencyMetric`; override the method to replace it."""

    @staticmethod
    def generate_verdicts(input: str, tools_called: list[ToolCall], calls: list[str]) -> str:
        """Asks for `{"verdicts": {"1": {"reason", "verdict"}, ...}}`, one per call."""
        return NEEDED.prompt(calls, input=input, tools_called=tools_called)


class StepEfficiencyMetric(CallsMetric):
    """The share of an agent's steps that its task needed; a step is a tool call.

    Reads `input` and `tools_called`, in the order of the calls; 1 call. Score: needed / tool calls,
    1 when no tool was called. Whether the task was done in the end does not count.
    """

    title = "Step Efficiency"
    template = StepEfficiencyTemplate
    question, label, passed = NEEDED, "need", "needed for the task"
