"""Tutoring

A tutor leads the pupil to the answer. To a right one, the tutor says so; else helps without telling
the result. Both branches share a question about encouragement.
"""

from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode

kind = BinaryJudgementNode(
    "Is `actual_output` encouraging?",
    evaluation_params=["actual_output"],
    then={True: 10, False: 4},
    name="Encouraging",
)
tells = BinaryJudgementNode(
    "Does `actual_output` tell the result?",
    evaluation_params=["actual_output"],
    then={True: 2, False: kind},
    name="Tells the result",
)
confirms = BinaryJudgementNode(
    "Does `actual_output` say that the pupil is right?",
    evaluation_params=["actual_output"],
    then={True: kind, False: 0},
    name="Confirms",
)
right = BinaryJudgementNode(
    "Is the result that the pupil gives in `input` right?",
    evaluation_params=["input"],
    then={True: confirms, False: tells},
    name="Pupil is right",
)
metric = DAGMetric("Tutor", DAG(root_node=right))
