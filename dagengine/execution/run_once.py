"""Nodes that no case reaches, such as the steps of G-Eval: run once, equal for every case."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial

import anyio

from dagengine.compiler.execution_plan import Plan, Unit
from dagengine.execution.node_run import run_unit
from dagengine.gateway.call_priorities import FIRST
from dagengine.gateway.gateway import Asks
from dagengine.gateway.single_flight import SingleFlight
from dagengine.graph.node_values import Given, NodeValue
from dagengine.question import Judge
from dagengine.results import Failure

Outcome = NodeValue | Failure


class RunOnce:
    """Outcomes of the constant units of one plan, each made when it is first wanted.

    A failure that may pass goes to the cases that waited for it, and is not kept.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        # What weighs nothing is kept to the end.
        self._flights: SingleFlight[Outcome] = SingleFlight(
            0, lambda outcome: isinstance(outcome, Failure) and outcome.may_pass
        )

    def preload(self, outcomes: Mapping[int, Outcome]) -> None:
        """Take outcomes, by the number of their unit, that another process made."""
        for number, outcome in outcomes.items():
            self._flights.keep(number, outcome)

    async def get(
        self,
        unit: Unit,
        make: Callable[[], Awaitable[Outcome]],
        waiting: AbstractContextManager[None] | None = None,
    ) -> Outcome:
        """The outcome of a unit; `waiting` is entered while somebody else makes it."""
        return await self._flights.get(unit.index, make, waiting=waiting)

    async def every(self, judges: Sequence[Judge], gateway: Asks) -> dict[int, Outcome]:
        """The outcomes of all constant units whose inputs have values, by their number."""
        outcomes: dict[int, Outcome] = {}

        async def outcome(unit: Unit) -> Outcome | None:
            inputs: list[tuple[str, object]] = []
            for label, source, _ in unit.sources:
                read = await outcome(self._plan.units[source])
                if not isinstance(read, NodeValue):
                    return None
                inputs.append((label, read.value))
            reads = Given((), tuple(inputs))
            made = await self.get(
                unit, partial(run_unit, gateway, judges, FIRST, unit, lambda: reads)
            )
            outcomes[unit.index] = made
            return made

        async with anyio.create_task_group() as group:
            for unit in self._plan.units:
                if unit.constant:
                    group.start_soon(outcome, unit)
        return outcomes
