"""The smallest trees, and the result of one metric for one case."""

from __future__ import annotations

from typing import Any

from dagengine import evaluate
from dagengine.judges import ScriptedJudge
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode, NonBinaryJudgementNode, TaskNode
from dagengine.results import EvaluationResult, MetricResult


def yes_no(name: str = "good", yes: Any = 10, no: Any = 0, **settings: Any) -> BinaryJudgementNode:
    """A binary judgement of the input."""
    usual: dict[str, Any] = {"criteria": f"Is it {name}?", "evaluation_params": ["input"]}
    usual |= {"name": name, "then": {True: yes, False: no}, **settings}
    return BinaryJudgementNode(**usual)


def yes_no_metric(name: str = "worth", node: str = "good", **settings: Any) -> DAGMetric:
    """A metric that asks one question of the input, which decides between 0 and 1."""
    return DAGMetric(name, DAG(yes_no(node)), **{"threshold": 0.5, **settings})


def food_metric() -> DAGMetric:
    """Two questions in a row: the topic of the input, and whether it is about food."""
    topic = TaskNode("Name the topic.", "topic", evaluation_params=["input"])
    asked = BinaryJudgementNode("Is it about food?", inputs=[topic], then={True: 10, False: 0})
    return DAGMetric(name="food", dag=DAG(root_nodes=[topic, asked]))


def tone_metric(**settings: Any) -> DAGMetric:
    """Of the input: whether it is right, and if so which of three tones it has."""
    tone = NonBinaryJudgementNode(
        "Tone?", evaluation_params=["input"], then={"warm": 10, "cold": 4, "rude": 0}, name="tone"
    )
    right = yes_no("right", yes=tone, criteria="Right?")
    return DAGMetric("Tree", DAG(right), **settings)


def evaluated(case: Any, metric: Any, judge: Any = None, **settings: Any) -> EvaluationResult:
    """One case judged by one metric; a script stands for the judge that follows it."""
    if callable(judge) or isinstance(judge, dict):
        judge = ScriptedJudge(judge)
    return evaluate([case], [metric], model=judge, show=False, **settings)


def result_of(case: Any, metric: Any, judge: Any = None, **settings: Any) -> MetricResult:
    """The result of one metric for one case; a script stands for the judge that follows it."""
    result: MetricResult = evaluated(case, metric, judge, **settings).rows[0].metrics[0]
    return result
