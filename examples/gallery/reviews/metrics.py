"""Customer reviews

May a review be published? It has to be about the product, insult nobody and say why. The criterion
of *Insults* leaves open whether harsh words about the product are insults. `dagengine improve`
finds this fault by 100 labels.
"""

from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode

why = BinaryJudgementNode(
    "Does `actual_output` say what is good or bad about `input`?",
    evaluation_params=["input", "actual_output"],
    then={True: 10, False: 3},
    name="Reasons",
)
insults = BinaryJudgementNode(
    "Does `actual_output` contain insults?",
    evaluation_params=["actual_output"],
    then={True: 0, False: why},
    name="Insults",
)
topic = BinaryJudgementNode(
    "Is `actual_output` about `input`, and not about the delivery or the shop?",
    evaluation_params=["input", "actual_output"],
    then={True: insults, False: 0},
    name="Topic",
)
metric = DAGMetric("Review", DAG(root_node=topic))
