"""What an attack will ask at most, before it asks anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from dagengine.attacking.campaign import Plan, targets_of
from dagengine.attacking.defences import defended
from dagengine.compiler.lowering import compile_metrics
from dagengine.estimate.counting import estimate
from dagengine.estimate.estimates import Estimate
from dagengine.judges import as_judge
from dagengine.metrics.common.base import BaseMetric
from dagengine.test_case import TestCase


@dataclass(frozen=True, slots=True)
class Part:
    """A part of an attack: what it is, and what it asks in one repetition at most."""

    what: str
    estimate: Estimate
    judges: tuple[str, ...]


def parts_of(
    cases: Sequence[TestCase], metrics: Sequence[BaseMetric], plan: Plan, defend: Sequence[str],
    judges: Mapping[str, Any], model: Any,
) -> list[Part]:  # fmt: skip
    """The clean cases; the attacks if as many cases fail as there may be; every defence.

    Raises InputError for what cannot be attacked.
    """
    parts = [_part(f"{len(cases):,} clean cases", metrics, cases, model)]
    for target in targets_of(metrics, cases, plan):
        name, aim = target.ways.spec.name, target.ways.aim()
        tries = [
            attempt
            for number in plan.sample_cases(range(len(cases)))
            for attempt in plan.tries(number, cases[number], aim, target.fields)
        ]
        both = [*chain.from_iterable(attempt.both for attempt in tries)]
        what = f"{len(both):,} attacks and twins on {name}"
        parts.append(_part(what, [target.metric], both, model))
        behind = [*cases, *both[::2]]
        for defence in defend:
            metric = defended(target.metric, defence, target.fields, judges)
            parts.append(_part(f"{name} behind {defence}", [metric], behind, model))
    return parts


def _part(what: str, metrics: Sequence[BaseMetric], cases: Sequence[TestCase], model: Any) -> Part:
    compiled = compile_metrics(metrics)
    names = [as_judge(model if own is None else own) for own in compiled.models]
    identities = [judge.identity for judge in names]
    models = tuple(str(getattr(judge, "model", None) or judge.identity) for judge in names)
    return Part(what, estimate(compiled, cases, judges=identities), models)
