"""Code review

A good comment names a line that exists, says what to do, and stays polite. Code checks the line.
"""

import re

from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode, CodeNode


def line_exists(code: str, comment: str) -> bool:
    named = [int(number) for number in re.findall(r"[Ll]ine (\d+)", comment)]
    return bool(named) and max(named) <= len(code.splitlines())


polite = BinaryJudgementNode(
    "Does `actual_output` speak about the code, and not about its author?",
    evaluation_params=["actual_output"],
    then={True: 10, False: 2},
    name="About the code",
)
remedy = BinaryJudgementNode(
    "Does `actual_output` say what to write instead?",
    evaluation_params=["actual_output"],
    then={True: polite, False: 5},
    name="Says what to do",
)
line = CodeNode(
    line_exists,
    evaluation_params=["input", "actual_output"],
    then={True: remedy, False: 0},
    name="Line",
)
metric = DAGMetric("Review comment", DAG(root_node=line))
