"""Ragas: four measures of retrieval and generation as one number."""

from __future__ import annotations

import math
from typing import Any

from dagengine.graph import Graph
from dagengine.metrics.answer_relevancy import AnswerRelevancyMetric
from dagengine.metrics.contextual_precision import ContextualPrecisionMetric
from dagengine.metrics.contextual_recall import ContextualRecallMetric
from dagengine.metrics.faithfulness import FaithfulnessMetric
from dagengine.metrics.prebuilt import PrebuiltMetric
from dagengine.node import BaseNode, NodeValue
from dagengine.nodes import CodeNode

PARTS: tuple[type[PrebuiltMetric], ...] = (
    AnswerRelevancyMetric,
    FaithfulnessMetric,
    ContextualPrecisionMetric,
    ContextualRecallMetric,
)


class RagasMetric(PrebuiltMetric):
    """The mean of answer relevancy, faithfulness, contextual precision and recall.

    Reads what its parts read (`input`, `actual_output`, `expected_output`,
    `retrieval_context`); 6 calls, in two rounds. Score: the mean of the four; the result's
    steps and reason show each of them. Its parts have templates, it has none of its own.
    """

    title = "Ragas"

    def __init__(self, threshold: float = 0.5, model: Any = None, **settings: Any) -> None:
        if settings.get("evaluation_template") is not None:
            raise TypeError("RagasMetric has no evaluation_template; its parts have one each")
        super().__init__(threshold, model, **settings)

    def graph(self) -> Graph:
        return Graph(CodeNode(_mean, inputs=[_scored(part) for part in PARTS], name="score"))


def _scored(part: type[PrebuiltMetric]) -> BaseNode:
    """The node that scores a part, under the part's name."""
    (root,) = part().graph().root_nodes
    root.name = part.title
    return root


def _mean(*scores: float) -> NodeValue:
    score = math.fsum(scores) / len(scores)
    terms = " + ".join(f"{one:.4g}" for one in scores)
    reason = f"The mean of {len(scores)} parts: ({terms}) / {len(scores)} = {score:.4g}."
    return NodeValue(score, score=score, reason=reason)
