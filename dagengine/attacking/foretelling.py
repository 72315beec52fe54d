"""What an attack will ask at most, before it asks anything."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from dagengine.attacking.campaign import Plan, targets_of
from dagengine.attacking.defences import defended
from dagengine.compiler.lowering import compile_metrics
from dagengine.estimate.counting import forecast
from dagengine.estimate.estimates import Forecast
from dagengine.metrics.common.base import BaseMetric
from dagengine.test_case import TestCase


def forecasts(
    cases: Sequence[TestCase], metrics: Sequence[BaseMetric], plan: Plan, defend: Sequence[str],
    judges: Mapping[str, Any], model: Any,
) -> Iterator[Forecast]:  # fmt: skip
    """The clean cases; the attacks if as many cases fail as there may be; every defence.

    Raises InputError for what cannot be attacked.
    """
    yield forecast(f"{len(cases):,} clean cases", compile_metrics(metrics), cases, model)
    for target in targets_of(metrics, cases, plan):
        name, aim = target.ways.spec.name, target.ways.aim()
        tries = [
            attempt
            for number in plan.sample_cases(range(len(cases)))
            for attempt in plan.tries(number, cases[number], aim, target.fields)
        ]
        both = [*chain.from_iterable(attempt.both for attempt in tries)]
        what = f"{len(both):,} attacks and twins on {name}"
        yield forecast(what, compile_metrics([target.metric]), both, model)
        behind = [*cases, *both[::2]]
        for defence in defend:
            metric = defended(target.metric, defence, target.fields, judges)
            what = f"{name} behind {defence}"
            yield forecast(what, compile_metrics([metric]), behind, model)
