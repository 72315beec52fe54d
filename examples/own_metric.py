"""A custom metric: alone in `evaluate`, and under a verdict of a tree.

Overriding `measure` is all it takes. The judge of the tree follows a script, so the
example runs without a model.
"""

from typing import Any

from dagengine import evaluate
from dagengine.judges import ScriptedJudge
from dagengine.metrics import BaseMetric, DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode, VerdictNode
from dagengine.question import Question
from dagengine.test_case import LLMTestCase


class Brevity(BaseMetric):
    """1 for an answer of at most `limit` words; less the longer it gets."""

    def __init__(self, limit: int, threshold: float = 0.5) -> None:
        self.name = "Brevity"
        self.limit = limit
        self.threshold = threshold

    def measure(self, test_case: LLMTestCase) -> float:
        words = len((test_case.actual_output or "").split())
        self.score = min(1.0, self.limit / max(words, 1))
        self.reason = f"{words} words, {self.limit} are allowed"
        self.success = self.score >= self.threshold
        return self.score


def opening_hours(question: Question[Any]) -> dict[str, Any]:
    """Stands in for a model: an answer with a time of day in it answers the question."""
    found = "9:00" in question.messages[-1]["content"]
    reason = "It states an hour." if found else "It states no hour."
    return {"reason": reason, "verdict": found}


brevity = Brevity(limit=12)
answers = BinaryJudgementNode(
    criteria="Does `actual_output` answer the question in `input`?",
    name="Answers the question",
    evaluation_params=["input", "actual_output"],
    children=[
        VerdictNode(verdict=False, score=0),
        VerdictNode(verdict=True, child=brevity),
    ],
)
tree = DAGMetric(name="Short answer", dag=DAG(root_node=answers))

QUESTION = "When do you open on Saturday?"
LONG = (
    "Thank you for getting in touch with us today! On Saturdays our doors are open from 9:00 "
    "in the morning, and all of us are looking forward to your visit very much indeed."
)
CASES = [
    LLMTestCase(name="short", input=QUESTION, actual_output="We open at 9:00."),
    LLMTestCase(name="long-winded", input=QUESTION, actual_output=LONG),
    LLMTestCase(name="evasive", input=QUESTION, actual_output="Please see our website."),
]

if __name__ == "__main__":
    judge = ScriptedJudge(opening_hours, name="opening hours")
    for row in evaluate(CASES, [brevity, tree], model=judge, show=False):
        for result in row.metrics:
            print(f"{row.case:12} {result.metric:13} score {result.score:.2f} {result.success}")
            print("   ", (result.reason or "").replace("\n", "\n    "))
