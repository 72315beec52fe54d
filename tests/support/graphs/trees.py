"""The smallest trees, and the result of one metric for one case."""

from __future__ import annotations

from typing import Any

from dagengine import evaluate
from dagengine.judges import ScriptedJudge
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode
from dagengine.results import MetricResult


def yes_no(name: str = "good", yes: Any = 10, no: Any = 0, **settings: Any) -> BinaryJudgementNode:
    """A binary judgement of the input."""
    usual = {"then": {True: yes, False: no}, "evaluation_params": ["input"], "name": name}
    return BinaryJudgementNode(f"Is it {name}?", **{**usual, **settings})


def yes_no_metric(name: str = "worth", node: str = "good", **settings: Any) -> DAGMetric:
    """A metric that asks one question of the input, which decides between 0 and 1."""
    return DAGMetric(name, DAG(yes_no(node)), **{"threshold": 0.5, **settings})


def result_of(case: Any, metric: Any, judge: Any = None, **settings: Any) -> MetricResult:
    """The result of one metric for one case; a script stands for the judge that follows it."""
    if callable(judge) or isinstance(judge, dict):
        judge = ScriptedJudge(judge)
    done = evaluate([case], [metric], model=judge, show=False, **settings)
    result: MetricResult = done.rows[0].metrics[0]
    return result
