"""Answers from passages (RAG)

If the passages do not answer the question, the answer has to say so. If they do, it has to answer
it, and `FaithfulnessMetric`, a metric under a verdict, judges its claims.
"""

from dagengine.metrics import DAGMetric, FaithfulnessMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode, CodeNode, VerdictNode


def anything_found(passages: list[str]) -> bool:
    return len(passages) > 0


admits = BinaryJudgementNode(
    "Does `actual_output` say that it does not know?",
    evaluation_params=["actual_output"],
    then={True: 10, False: 0},
    name="Admits it",
)
holds = BinaryJudgementNode(
    "Do the passages in `retrieval_context` answer `input`?",
    evaluation_params=["input", "retrieval_context"],
    name="Passages answer",
)
answers = BinaryJudgementNode(
    "Is `actual_output` an answer to `input`?",
    evaluation_params=["input", "actual_output"],
    children=[VerdictNode(True, child=FaithfulnessMetric()), VerdictNode(False, score=0)],
    name="Answers",
)
holds.add_verdict(True, then=answers)
holds.add_verdict(False, then=admits)
found = CodeNode(
    anything_found,
    evaluation_params=["retrieval_context"],
    then={True: holds, False: admits},
    name="Found",
)
metric = DAGMetric("RAG answer", DAG(root_node=found))
