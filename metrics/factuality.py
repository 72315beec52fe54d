"""A ready decision tree: how the facts of an answer relate to those of a reference."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from dagengine.metrics.dag import DAG, DAGMetric, NonBinaryJudgementNode

SCORES: Mapping[str, int] = MappingProxyType(
    {
        "fewer facts, none against the reference": 6,
        "more facts, none against the reference": 8,
        "the same facts": 10,
        "some facts against the reference": 0,
        "other words or trifles only": 10,
    }
)
"""The five relations and what each of them scores, from 0 to 10."""


def factuality(
    scores: Mapping[str, int] = SCORES, *, threshold: float | None = 0.5, model: Any = None
) -> DAGMetric:
    """A metric with one question and five verdicts, each with a score of yours.

    Reads `input`, `actual_output` and `expected_output`. Raises InputError for a score that is
    not from 0 to 10.
    """
    relation = NonBinaryJudgementNode(
        "How do the facts in `actual_output` relate to those in `expected_output`, which is true?",
        evaluation_params=["input", "actual_output", "expected_output"],
        label="relation",
    )
    for verdict, score in scores.items():
        relation.add_verdict(verdict, score=score)
    return DAGMetric("Factuality", DAG(relation), threshold=threshold, model=model)
