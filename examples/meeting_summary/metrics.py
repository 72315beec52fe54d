"""Does a meeting summary have the headings 'intro', 'body' and 'conclusion', in that order?

A missing heading scores 0. With all three there, the score says how well they are ordered:
10, 4 or 2 of 10.
"""

from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import (
    DAG,
    BinaryJudgementNode,
    NonBinaryJudgementNode,
    TaskNode,
    VerdictNode,
)
from dagengine.test_case import LLMTestCaseParams

heading_order = NonBinaryJudgementNode(
    name="Heading order",
    criteria="Are the summary headings in the correct order: 'intro' => 'body' => 'conclusion'?",
    children=[
        VerdictNode(verdict="Yes", score=10),
        VerdictNode(verdict="Two are out of order", score=4),
        VerdictNode(verdict="All out of order", score=2),
    ],
)

headings_present = BinaryJudgementNode(
    name="Headings present",
    criteria="Does the summary headings contain all three: 'intro', 'body', and 'conclusion'?",
    children=[
        VerdictNode(verdict=False, score=0),
        VerdictNode(verdict=True, child=heading_order),
    ],
)

# Both questions read the headings, so the step that extracts them hands on to both.
extract_headings = TaskNode(
    instructions="Extract all headings in `actual_output`",
    evaluation_params=[LLMTestCaseParams.ACTUAL_OUTPUT],
    output_label="Summary headings",
    children=[headings_present, heading_order],
)

dag = DAG(root_node=extract_headings)
metric = DAGMetric(name="Format Correctness", dag=dag)
