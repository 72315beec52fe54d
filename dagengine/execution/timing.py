"""How long the nodes of a case took, put beside what they said."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from dagengine.compiler.plan import NONE, Plan, PlanMetric
from dagengine.results import MetricResult


def timed(
    plan: Plan, results: Sequence[MetricResult], seconds: Mapping[int, float]
) -> list[MetricResult]:
    """The results, each step with the time of its unit; `seconds` are those of units."""
    return [
        _timed(result, _by_name(plan, metric, seconds))
        for metric, result in zip(plan.metrics, results, strict=True)
    ]


def _by_name(plan: Plan, metric: PlanMetric, seconds: Mapping[int, float]) -> dict[str, float]:
    slots = (plan.slots[number] for number in metric.slots)
    return {
        slot.name: seconds[slot.unit]
        for slot in slots
        if slot.unit != NONE and slot.unit in seconds
    }


def _timed(result: MetricResult, seconds: Mapping[str, float]) -> MetricResult:
    steps = (replace(step, seconds=seconds.get(step.node)) for step in result.steps)
    return replace(result, steps=tuple(steps)) if result.steps else result
