"""Hallucination: whether the answer contradicts what was given as true."""

from __future__ import annotations

from dagengine.graph.graph import Graph
from dagengine.graph.node_values import Judgement, NodeValue
from dagengine.metrics.common.default_prompts import ItemQuestion
from dagengine.metrics.common.prebuilt import PrebuiltMetric, share

AGREES = ItemQuestion(
    "Take the piece of context as true. Is `actual_output` compatible with it? no: something "
    "in the output contradicts it, they cannot both be true; yes: nothing does. An output "
    "that leaves out, adds to or is not about the piece does not contradict it.",
    "piece of context",
)


class HallucinationTemplate:
    """The prompt of `HallucinationMetric`; override the method to replace it."""

    @staticmethod
    def generate_verdicts(actual_output: str, contexts: list[str]) -> str:
        """Asks for `{"verdicts": {"1": {"reason", "verdict"}, ...}}`."""
        return AGREES.prompt(contexts, field="context", actual_output=actual_output)


class HallucinationMetric(PrebuiltMetric):
    """The share of contexts that the answer does not contradict; 1 is free of hallucination.

    Reads `actual_output` and `context`; 1 call. Score: 1 - contradicted / contexts, 1
    when there is no context.
    """

    title, template = "Hallucination", HallucinationTemplate
    # 1 is best, as for all metrics; thresholds written for shares of faults are warned of.
    counts_faults = True
    judged = (("actual_output",), ("context",))

    def graph(self) -> Graph:
        fields = ["actual_output", "context"]
        wording = self.wording("generate_verdicts", *fields)
        verdicts = self.judge_items(AGREES, "context", "agreement", wording, fields[:1])
        return self.score_graph(uncontradicted_share, [verdicts], fields[1:])


def uncontradicted_share(contexts: list[str], verdicts: list[Judgement]) -> NodeValue:
    passed = "not contradicted by the output"
    return share(contexts, verdicts, ("yes",), what="contexts", passed=passed, empty=1.0)
