"""JSON correctness: whether the answer is JSON of the expected form."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Unpack

from pydantic import BaseModel, ValidationError

from dagengine.graph.graph import Graph, MetricSpec
from dagengine.graph.node_values import NodeValue
from dagengine.metrics.common.prebuilt import MetricSettings, PrebuiltMetric

# Validation errors told in a reason; the rest is counted.
_TOLD = 5


class JsonCorrectnessMetric(PrebuiltMetric):
    """Whether the whole answer is JSON that `expected_schema`, a pydantic model, accepts.

    Reads `actual_output`; no call. Score: 1 if it validates, else 0; the reason lists what is
    wrong. With `judged_reason` the judge writes the reason of an output that is not valid, in
    one call. The metric has no other question, so it has no template.
    """

    title = "Json Correctness"
    judged = ()  # a blank output is not JSON
    no_template = "has no prompts, so it takes no evaluation_template"

    def __init__(
        self,
        expected_schema: type[BaseModel],
        *common: Any,
        **settings: Unpack[MetricSettings],
    ) -> None:
        self.take_common(common, settings)
        self.expected_schema = expected_schema

    def graph(self) -> Graph:
        return self.score_graph(self.validated, [], ["actual_output"])

    def spec(self) -> MetricSpec:
        return replace(super().spec(), reason_if_perfect=False)

    def validated(self, actual_output: str) -> NodeValue:
        """The score, and what is wrong."""
        name = self.expected_schema.__name__
        try:
            self.expected_schema.model_validate_json(actual_output)
        except ValidationError as error:
            return NodeValue(0.0, score=0.0, reason=_complaint(name, error))
        return NodeValue(1.0, score=1.0, reason=f"The output is JSON and a valid {name}.")


def _complaint(name: str, error: ValidationError) -> str:
    """Every problem with its place in the JSON."""
    errors = error.errors(include_url=False, include_context=False, include_input=False)
    parts = [f"The output is not a valid {name}: {len(errors)} of its checks failed."]
    for problem in errors[:_TOLD]:
        where = ".".join(map(str, problem["loc"])) or "the whole"
        parts.append(f"Not: {where} ({problem['msg']})")
    if len(errors) > _TOLD:
        parts.append(f"… and {len(errors) - _TOLD} more.")
    return "\n".join(parts)
