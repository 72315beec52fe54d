"""Every question asked again and again, under stated conditions."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from pydantic import BaseModel

from dagengine.evaluation import a_evaluate, sync
from dagengine.gateway import Limits
from dagengine.judges import as_judge
from dagengine.plan import HasSpec
from dagengine.question import Answer, Judge, Question
from dagengine.results import CaseResult, OutcomeKind, Verdict
from dagengine.test_case import TestCase

T = TypeVar("T", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Condition:
    """Under what one repetition is asked."""

    sample: int
    order: str = "given"
    temperature: float | None = None
    seed: int | None = None
    paraphrase: str = ""
    judge: str = ""


@dataclass(frozen=True, slots=True)
class Observation:
    """What one node, or (node "") the metric, gave on one case under one condition."""

    case: int
    metric: str
    node: str
    condition: Condition
    verdict: Verdict | None
    score: float | None
    raw: str | None
    outcome: OutcomeKind
    path: tuple[Any, ...] = ()


class Observations:
    """All observations of one benchmark."""

    def __init__(self, rows: Iterable[Observation]) -> None:
        self.rows = tuple(rows)

    def __iter__(self) -> Iterator[Observation]:
        return iter(self.rows)


class _Sampled:
    """A judge that is asked for its n-th sample."""

    def __init__(self, judge: Judge, condition: Condition) -> None:
        self._judge, self._condition = judge, condition
        self.identity, self.capabilities = judge.identity, judge.capabilities

    async def answer(self, question: Question[T]) -> Answer[T]:
        options = replace(question.options, sample=self._condition.sample)
        if self._condition.temperature is not None:
            options = replace(options, temperature=self._condition.temperature)
        return await self._judge.answer(replace(question, options=options))


async def a_repeat(
    test_cases: Sequence[TestCase],
    metrics: Sequence[HasSpec],
    *,
    times: int = 20,
    orders: Sequence[str] = ("given",),
    temperatures: Sequence[float | None] = (None,),
    judges: Mapping[str, Any] | None = None,
    model: Any = None,
    limits: Limits | None = None,
) -> Observations:
    """Run every metric on every case `times` under every setting."""
    rows: list[Observation] = []
    named = judges or {"": model}
    ways = itertools.product(named, orders, temperatures, range(times))
    for judge, order, temperature, sample in ways:
        condition = Condition(sample, order, temperature, judge=judge)
        asked = _Sampled(as_judge(named[judge]), condition)
        done = await a_evaluate(test_cases, metrics, model=asked, limits=limits, show=False)
        rows += (seen for row in done.rows for seen in _observed(row, condition))
    return Observations(rows)


def repeat(
    test_cases: Sequence[TestCase], metrics: Sequence[HasSpec], **settings: Any
) -> Observations:
    """`a_repeat` for callers without an event loop."""
    return sync(lambda: a_repeat(test_cases, metrics, **settings))


def _observed(row: CaseResult, condition: Condition) -> Iterator[Observation]:
    for found in row.metrics:
        yield Observation(
            row.index, found.metric, "", condition, None, found.score, None, found.outcome,
            found.path,
        )  # fmt: skip
        for step in found.steps:
            yield Observation(
                row.index, found.metric, step.node, condition, step.verdict, step.score, None,
                step.outcome,
            )  # fmt: skip
