"""Does a meeting summary have the headings 'intro', 'body' and 'conclusion', in that order?

A missing heading scores 0. With all three there, the score says how well they are ordered:
10, 4 or 2 of 10.
"""

from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode, NonBinaryJudgementNode, TaskNode

order = NonBinaryJudgementNode(
    "Are the headings in the order 'intro', 'body', 'conclusion'?",
    name="Heading order",
    then={"Yes": 10, "Two are out of order": 4, "All out of order": 2},
)
present = BinaryJudgementNode(
    "Are all three headings there: 'intro', 'body' and 'conclusion'?",
    name="Headings present",
    then={False: 0, True: order},
)
headings = TaskNode(  # both questions read the headings
    "Extract all headings in `actual_output`",
    output_label="Summary headings",
    evaluation_params=["actual_output"],
    children=[present, order],
)
metric = DAGMetric("Format Correctness", DAG(headings))
