"""The nodes that graphs are built from: what they read and where their verdicts lead."""

from dagengine.graph.examples_and_quotes import Example
from dagengine.graph.graph import Graph, MetricSpec
from dagengine.graph.list_nodes import MapNode, VerdictListNode
from dagengine.graph.node import BaseNode
from dagengine.graph.node_values import Judgement, NodeValue
from dagengine.graph.nodes import (
    BinaryJudgementNode,
    CodeNode,
    FieldNode,
    NonBinaryJudgementNode,
    RatingNode,
    TaskNode,
    VerdictNode,
)
from dagengine.unknown import answer_absent

__all__ = [
    "BaseNode",
    "BinaryJudgementNode",
    "CodeNode",
    "Example",
    "FieldNode",
    "Graph",
    "Judgement",
    "MapNode",
    "MetricSpec",
    "NodeValue",
    "NonBinaryJudgementNode",
    "RatingNode",
    "TaskNode",
    "VerdictListNode",
    "VerdictNode",
]

answer_absent(__name__)
