"""Ragas: four measures of retrieval and generation as one number."""

from __future__ import annotations

import math

from dagengine.graph.graph import Graph
from dagengine.graph.node import BaseNode
from dagengine.graph.node_values import NodeValue
from dagengine.metrics.answer_relevancy import AnswerRelevancyMetric
from dagengine.metrics.common.prebuilt import PrebuiltMetric
from dagengine.metrics.contextual_precision import ContextualPrecisionMetric
from dagengine.metrics.contextual_recall import ContextualRecallMetric
from dagengine.metrics.faithfulness import FaithfulnessMetric, comparison_gate
from dagengine.unknown import answer_absent


class RagasMetric(PrebuiltMetric):
    """The mean of answer relevancy, faithfulness, contextual precision and recall.

    Reads the fields of its parts (`input`, `actual_output`, `expected_output`,
    `retrieval_context`); 6 calls, in two rounds. Score: the mean of the four; the result's steps
    and reason show each of them. Templates belong to the four parts.
    """

    title = "Ragas"
    judged = (("actual_output",), ("expected_output",))
    no_template = "has no evaluation_template; its parts have one each"

    def graph(self) -> Graph:
        """The parts' graphs, merged; without context no call is made for any of them."""
        # The parts' own graphs, not their scores: equal questions and nodes of theirs run once.
        size, gate = self.verdicts_per_call, comparison_gate()
        relevancy = AnswerRelevancyMetric(verdicts_per_call=size)
        faithfulness = FaithfulnessMetric(verdicts_per_call=size)
        precision = ContextualPrecisionMetric(verdicts_per_call=size)
        recall = ContextualRecallMetric(verdicts_per_call=size)
        parts = [
            name_after(relevancy, relevancy.score_node(gate)),
            name_after(faithfulness, faithfulness.score_node(gate)),
            name_after(precision, precision.graph().root_nodes[0]),
            name_after(recall, recall.graph().root_nodes[0]),
        ]
        return self.score_graph(mean_of_parts, parts)


def name_after(part: PrebuiltMetric, score: BaseNode) -> BaseNode:
    """Give the node that scores a part the part's name."""
    score.name = part.title
    return score


def mean_of_parts(*scores: float) -> NodeValue:
    score = math.fsum(scores) / len(scores)
    terms = " + ".join(f"{part:.4g}" for part in scores)
    reason = f"The mean of {len(scores)} parts: ({terms}) / {len(scores)} = {score:.4g}."
    return NodeValue(score, score=score, reason=reason)


answer_absent(__name__)
