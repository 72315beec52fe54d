"""A tree of two questions, one case, one picture: python quickstart.py [directory]

Every node says what it reads (`inputs`, `evaluation_params`) and a question where its
verdicts lead (`then`). The judge here follows a script; leave `model` out to ask gpt-4o.
"""

import sys
from pathlib import Path

from dagengine.judges import ScriptedJudge
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode, NonBinaryJudgementNode, TaskNode
from dagengine.test_case import LLMTestCase

claims = TaskNode(
    "List every factual claim that `actual_output` makes, one by one.",
    output_label="claims",
    output_type=list[str],
    evaluation_params=["actual_output"],
)
complete = NonBinaryJudgementNode(
    "How much of the question in `input` do the `claims` answer?",
    name="Complete",
    inputs=[claims],
    evaluation_params=["input"],
    then={"all of it": 10, "a part": 6, "nothing": 0},
)
supported = BinaryJudgementNode(
    "Is every one of the `claims` supported by `context`?",
    name="Supported",
    inputs=[claims],
    evaluation_params=["context"],
    then={False: 0, True: complete},
)

judge = ScriptedJudge(
    {
        "claims": ["Parcels can be returned within 30 days."],
        "Supported": {"reason": "The policy names 30 days.", "verdict": True},
        "Complete": {"reason": "Who pays the postage is left open.", "verdict": "a part"},
    }
)
metric = DAGMetric("Helpful answer", DAG(root_node=supported), model=judge)
case = LLMTestCase(
    input="How long can I return a parcel, and who pays the postage?",
    actual_output="You can return it within 30 days.",
    context=["Returns are accepted for 30 days. We pay the postage inside the country."],
)

print("score ", metric.measure(case))
print("passed", metric.success)
print(metric.reason)
out = Path(sys.argv[1] if len(sys.argv) > 1 else "out")
print("drawn ", metric.render(str(out / "quickstart.svg")))
