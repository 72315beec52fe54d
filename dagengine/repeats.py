"""Every question asked again and again, under stated conditions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from pydantic import BaseModel

from dagengine.evaluation import a_evaluate
from dagengine.gateway import Limits
from dagengine.judges import as_judge
from dagengine.plan import HasSpec
from dagengine.question import Answer, Judge, Question
from dagengine.results import OutcomeKind, Verdict
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
    path: tuple[Any, ...]


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
    cases: Sequence[TestCase],
    metrics: Sequence[HasSpec],
    *,
    times: int = 20,
    orders: Sequence[str] = ("given",),
    temperatures: Sequence[float | None] = (None,),
    judges: Sequence[Any] = (None,),
    limits: Limits | None = None,
    store: Any = None,
) -> Observations:
    """Run every metric on every case `times` under every setting."""
    rows: list[Observation] = []
    for judge in map(as_judge, judges):
        for order in orders:
            for temperature in temperatures:
                for sample in range(times):
                    own = judge.identity if len(judges) > 1 else ""
                    condition = Condition(sample, order, temperature, judge=own)
                    done = await a_evaluate(
                        cases, metrics, model=_Sampled(judge, condition), limits=limits, show=False
                    )
                    for row in done.rows:
                        for m in row.metrics:
                            rows.append(
                                Observation(
                                    row.index, m.metric, "", condition, None, m.score, None,
                                    m.outcome, m.path,
                                )
                            )  # fmt: skip
                            rows += [
                                Observation(
                                    row.index, m.metric, step.node, condition, step.verdict,
                                    step.score, step.reason, step.outcome, (),
                                )
                                for step in m.steps
                            ]  # fmt: skip
    return Observations(rows)
