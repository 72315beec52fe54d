"""Decision trees of conversations: the same nodes and the same metric under other names.

`turn_window` and `evaluation_params` of turns (`role`, `content`) are settings of every node;
`turn_windows` slide over the whole conversation.
"""

from dagengine.metrics.common.turns import turn_windows
from dagengine.metrics.dag import (
    BaseNode,
    BinaryJudgementNode,
    DAGMetric,
    NonBinaryJudgementNode,
    TaskNode,
    VerdictNode,
)
from dagengine.unknown import answer_absent

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

answer_absent(__name__)
