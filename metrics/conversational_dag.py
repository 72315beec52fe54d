"""Decision trees of conversations: the same nodes and the same metric under other names.

`turn_window` and `evaluation_params` of turns (`role`, `content`) are settings of every node;
`turn_windows` slide over the whole conversation.
"""

from typing import TYPE_CHECKING

from dagengine.elsewhere import absent_names
from dagengine.metrics.common.turns import turn_windows
from dagengine.metrics.dag import (
    BaseNode,
    BinaryJudgementNode,
    DAGMetric,
    NonBinaryJudgementNode,
    TaskNode,
    VerdictNode,
)

ConversationalBaseNode = BaseNode
ConversationalBinaryJudgementNode = BinaryJudgementNode
ConversationalDAGMetric = DAGMetric
ConversationalNonBinaryJudgementNode = NonBinaryJudgementNode
ConversationalTaskNode = TaskNode
ConversationalVerdictNode = VerdictNode

__all__ = [
    "ConversationalBaseNode",
    "ConversationalBinaryJudgementNode",
    "ConversationalDAGMetric",
    "ConversationalNonBinaryJudgementNode",
    "ConversationalTaskNode",
    "ConversationalVerdictNode",
    "turn_windows",
]

if not TYPE_CHECKING:  # type checkers shall not take any name for one of ours
    __getattr__ = absent_names(__name__)
