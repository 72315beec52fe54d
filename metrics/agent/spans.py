"""Metrics over the tool calls of a trace: which tool, what became of its result, of its failure.

Code decides what can be decided by looking; the judge gets one verdict to give on every span that
remains. A verdict keeps the id of its span, so it can be written to where the trace is.
"""

from __future__ import annotations

from typing import ClassVar

from dagengine.graph.graph import Graph
from dagengine.graph.node_values import Judgement, NodeValue
from dagengine.graph.nodes import CodeNode
from dagengine.metrics.common.default_prompts import ItemQuestion
from dagengine.metrics.common.prebuilt import PrebuiltMetric, share
from dagengine.test_case import Span

CHOSEN = ItemQuestion(
    "Was this tool the right one to call at this point, for what `input` asks? `tools` are all "
    "calls of tools, in their order. yes: the task needs what this tool does, and no tool that was "
    "called elsewhere does it better; no: the task needs something else, or nothing. Judge the "
    "choice of the tool only, neither its arguments nor what it returned.",
    "tool call",
)
USED = ItemQuestion(
    "Does `actual_output` use what this tool returned, and use it rightly? yes: what the answer "
    "needs of the result is in it, unchanged in its meaning, or the result served a later step of "
    "the work; no: the answer leaves out what it needs of the result, contradicts it, or gives it "
    "for something else.",
    "tool call",
)
RECOVERED = ItemQuestion(
    "This call of a tool failed. Did the agent deal with the failure well? `tools` are all calls "
    "of tools, in their order. yes: it got what it needed in another way, or `actual_output` says "
    "openly what could not be done; no: `actual_output` hides the failure, makes up what the tool "
    "would have returned, or lacks what another way would have given.",
    "tool call",
)


class SpansMetric(PrebuiltMetric):
    """The share of tool calls of a trace that are good: the judge says so, or code knows it.

    `gate` picks the calls that the judge is asked about, `settled` those that code knows to be
    good. In the reason, "3 of 4 tool calls are" goes before `passed`, and `nothing` says why there
    is nothing to judge.
    """

    judged = ()  # calls, not text: a case without an `actual_output` is not skipped
    question: ClassVar[ItemQuestion]
    label: ClassVar[str]
    passed: ClassVar[str]
    nothing: ClassVar[str]
    reads: ClassVar[tuple[str, ...]]

    def graph(self) -> Graph:
        spans = CodeNode(self.gate, evaluation_params=["tools"], output_label="calls", name="calls")
        wording = self.wording("generate_verdicts", *self.reads, "calls")
        verdicts = self.judge_items(self.question, spans, self.label, wording, self.reads)
        return self.score_graph(self.right_share, [spans, verdicts], ["tools"])

    @classmethod
    def right_share(
        cls, tools: list[Span], calls: list[Span], verdicts: list[Judgement]
    ) -> NodeValue:
        """The score, and why."""
        settled = cls.settled(tools)
        if not settled and not calls:
            return NodeValue(1.0, score=1.0, reason=f"Nothing to judge: {cls.nothing}.")
        named = [f"{place}: {span.name}" for place, span in enumerate([*settled, *calls], 1)]
        certain = [Judgement(verdict="yes")] * len(settled)
        return share(
            named, [*certain, *verdicts], ("yes",), what="tool calls", passed=cls.passed, empty=1.0
        )

    @staticmethod
    def gate(tools: list[Span]) -> list[Span]:
        """The calls that are judged: all of them."""
        return tools

    @staticmethod
    def settled(tools: list[Span]) -> list[Span]:
        """The calls that code knows to be good."""
        return []


class ToolChoiceTemplate:
    """The prompt of `ToolChoiceMetric`; override the method to replace it."""

    @staticmethod
    def generate_verdicts(input: str, tools: list[Span], calls: list[Span]) -> str:
        """Asks for `{"verdicts": {"1": {"reason", "verdict"}, ...}}`, one per call."""
        return CHOSEN.prompt(calls, input=input, tools=tools)


class ToolChoiceMetric(SpansMetric):
    """The share of the tool calls of a trace that called the right tool.

    Reads `input` and `tools`, the spans of tools; 1 call. Score: right / tool calls, 1 when no tool
    was called. Arguments and results do not count.
    """

    title = "Tool Choice"
    template = ToolChoiceTemplate
    question, label, passed = CHOSEN, "choice", "of the right tool"
    nothing = "no tool was called"
    reads = ("input", "tools")


class ResultUseTemplate:
    """The prompt of `ResultUseMetric`; override the method to replace it."""

    @staticmethod
    def generate_verdicts(input: str, actual_output: str, calls: list[Span]) -> str:
        """Asks for `{"verdicts": {"1": {"reason", "verdict"}, ...}}`, one per call."""
        return USED.prompt(calls, input=input, actual_output=actual_output)


class ResultUseMetric(SpansMetric):
    """The share of the tool results of a trace that the answer uses, and uses rightly.

    Reads `input`, `actual_output` and `tools`; 1 call. Calls that failed or returned nothing are
    left out by code. Score: used / results, 1 when there is no result.
    """

    title = "Result Use"
    template = ResultUseTemplate
    question, label, passed = USED, "use", "used in the answer"
    nothing = "no tool returned anything"
    reads = ("input", "actual_output")

    @staticmethod
    def gate(tools: list[Span]) -> list[Span]:
        """The calls that returned something."""
        return [span for span in tools if span.error is None and span.output is not None]


class RecoveryTemplate:
    """The prompt of `RecoveryMetric`; override the method to replace it."""

    @staticmethod
    def generate_verdicts(
        input: str, actual_output: str, tools: list[Span], calls: list[Span]
    ) -> str:
        """Asks for `{"verdicts": {"1": {"reason", "verdict"}, ...}}`, one per failed call."""
        return RECOVERED.prompt(calls, input=input, actual_output=actual_output, tools=tools)


class RecoveryMetric(SpansMetric):
    """The share of the failed tool calls of a trace that the agent dealt with well.

    Reads `input`, `actual_output` and `tools`; 1 call. A failure counts as dealt with, without a
    question, if the same tool was called again with the same arguments and did not fail. Score:
    dealt with / failed calls, 1 when no call failed.
    """

    title = "Recovery"
    template = RecoveryTemplate
    question, label, passed = RECOVERED, "recovery", "dealt with"
    nothing = "no tool call failed"
    reads = ("input", "actual_output", "tools")

    @staticmethod
    def gate(tools: list[Span]) -> list[Span]:
        """The failed calls that did not work later either."""
        return [
            span
            for place, span in enumerate(tools)
            if span.error and not _repeated(span, tools[place:])
        ]

    @staticmethod
    def settled(tools: list[Span]) -> list[Span]:
        """The failed calls that were repeated and did not fail."""
        return [span for n, span in enumerate(tools) if span.error and _repeated(span, tools[n:])]


def _repeated(failed: Span, later: list[Span]) -> bool:
    """Return whether a later call does the same and does not fail."""
    call = failed.name, failed.input
    return any(span.error is None and (span.name, span.input) == call for span in later)
