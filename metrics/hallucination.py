"""Hallucination: whether the answer contradicts what was given as true."""

from __future__ import annotations

from dagengine.graph import Graph
from dagengine.list_nodes import VerdictListNode
from dagengine.metrics.prebuilt import PrebuiltMetric, share, whole_prompt
from dagengine.node import Judgement, NodeValue
from dagengine.nodes import CodeNode

VERDICTS = ("yes", "no")
AGREES = (
    "Take the piece of context as true. Is `actual_output` compatible with it? no: something "
    "in the output contradicts it, they cannot both be true; yes: nothing does. An output "
    "that leaves out, adds to or is not about the piece does not contradict it."
)


class HallucinationTemplate:
    """The prompt of `HallucinationMetric`; override the method to replace it."""

    @staticmethod
    def generate_verdicts(actual_output: str, contexts: list[str]) -> str:
        """Asks for `{"verdicts": [{"reason", "verdict", "number"}, ...]}`."""
        return whole_prompt(AGREES, actual_output=actual_output, contexts=contexts)


class HallucinationMetric(PrebuiltMetric):
    """The share of contexts that the answer does not contradict; 1 is free of hallucination.

    Reads `actual_output` and `context`; 1 call. Score: 1 - contradicted / contexts, 1
    when there is no context.
    """

    title = "Hallucination"

    def graph(self) -> Graph:
        verdicts = VerdictListNode(
            AGREES,
            "context",
            "agreement",
            verdicts=VERDICTS,
            item_label="piece of context",
            evaluation_params=["actual_output"],
            wording=self.wording(
                HallucinationTemplate, "generate_verdicts", "actual_output", "context"
            ),
        )
        return Graph(
            CodeNode(_score, evaluation_params=["context"], inputs=[verdicts], name="score")
        )


def _score(contexts: list[str], verdicts: list[Judgement]) -> NodeValue:
    passed = "not contradicted by the output"
    return share(contexts, verdicts, ("yes",), what="contexts", passed=passed, empty=1.0)
