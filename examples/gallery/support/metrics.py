"""Support answers

Does an answer solve the problem, or ask for what is missing? Is it friendly, and does it make only
promises that can be kept?
"""

from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode, NonBinaryJudgementNode

tone = NonBinaryJudgementNode(
    "How does `actual_output` speak to the customer? Rude is: it blames, mocks or orders.",
    evaluation_params=["actual_output"],
    then={"friendly": 10, "neutral": 8, "rude": 3},
    name="Tone",
)
promises = BinaryJudgementNode(
    "Does `actual_output` guarantee a result or a date that depends on others?",
    evaluation_params=["actual_output"],
    then={True: 4, False: tone},
    name="Guarantees",
)
asks = BinaryJudgementNode(
    "Does `actual_output` ask for something that is needed to help with `input`?",
    evaluation_params=["input", "actual_output"],
    then={True: tone, False: 0},
    name="Asks back",
)
helps = BinaryJudgementNode(
    "Does `actual_output` name a step that would solve the problem in `input`?",
    evaluation_params=["input", "actual_output"],
    then={True: promises, False: asks},
    name="Helps",
)
metric = DAGMetric("Support answer", DAG(root_node=helps))
