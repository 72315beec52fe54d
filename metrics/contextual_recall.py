"""Contextual recall: whether the context holds what the expected answer needs."""

from __future__ import annotations

from dagengine.graph.graph import Graph, is_blank
from dagengine.graph.node_values import Judgement, NodeValue
from dagengine.graph.nodes import CodeNode
from dagengine.metrics.common.default_prompts import ItemQuestion
from dagengine.metrics.common.prebuilt import PrebuiltMetric, share
from dagengine.prompts.evidence import sentences

ATTRIBUTABLE = ItemQuestion(
    "The sentences are those of the expected answer to `input`, in order. Can what the "
    "sentence says be attributed to a piece of `retrieval_context`? yes: at least one piece "
    "says it or implies it; no: none does. In the reason, name the piece or what is missing.",
    "sentence",
)


class ContextualRecallTemplate:
    """The prompt of `ContextualRecallMetric`; override the method to replace it."""

    @staticmethod
    def generate_verdicts(sentences: list[str], retrieval_context: list[str], input: str) -> str:
        """Asks for `{"verdicts": {"1": {"reason", "verdict"}, ...}}`."""
        return ATTRIBUTABLE.prompt(sentences, input=input, retrieval_context=retrieval_context)


class ContextualRecallMetric(PrebuiltMetric):
    """The share of the expected output's sentences that can be attributed to the context.

    Reads `input`, `expected_output` and `retrieval_context`; 1 call (the text is split into
    sentences without one). Score: attributable / sentences, 0 without sentences or context.
    """

    title, template = "Contextual Recall", ContextualRecallTemplate
    judged = (("expected_output",),)

    def graph(self) -> Graph:
        fields = ("sentences", "retrieval_context", "input")
        # The denominator of the score must not depend on how a judge counts sentences.
        split = CodeNode(
            sentences_to_find,
            evaluation_params=["expected_output", "retrieval_context"],
            output_label="sentences",
        )
        wording = self.wording("generate_verdicts", *fields)
        reads = ["input", "retrieval_context"]
        verdicts = self.judge_items(
            ATTRIBUTABLE, split, "attribution", wording, reads, quote_from=reads[1:]
        )
        return self.score_graph(attributable_share, [split, verdicts])


def sentences_to_find(expected_output: str, contexts: list[str]) -> list[str]:
    """The sentences to judge; none without context, which can be the source of nothing."""
    return [] if is_blank(contexts) else sentences(expected_output)


def attributable_share(found: list[str], verdicts: list[Judgement]) -> NodeValue:
    return share(
        found,
        verdicts,
        ("yes",),
        what="sentences" if found else "sentences with a context",
        passed="attributable to the context",
        empty=0.0,
    )
