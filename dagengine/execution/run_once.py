"""Nodes that no case reaches, such as the steps of G-Eval: run once, equal for every case."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial

import anyio

from dagengine.compiler.plan import Plan, Unit
from dagengine.errors import DagengineError
from dagengine.execution.node_run import judge_unit
from dagengine.gateway.gateway import Asks
from dagengine.gateway.single_flight import SingleFlight
from dagengine.gateway.waiting import FIRST
from dagengine.graph.values import Given, NodeValue
from dagengine.question import Judge
from dagengine.results import Failure

Outcome = NodeValue | Failure


class RunOnce:
    """Outcomes of the constant units of one plan, each made when it is first wanted.

    A failure that may pass goes to the cases that waited for it, and is not kept.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._flights: SingleFlight[Outcome] = SingleFlight(len(plan.units) + 1)

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
        """The outcome of a unit, which `make` makes unless it is known.

        It waits inside `waiting` for another one who makes it.
        """

        async def lasting() -> Outcome:  # what may pass is raised, and so not kept
            outcome = await make()
            if isinstance(outcome, Failure) and outcome.may_pass:
                raise _PassingError(outcome)
            return outcome

        try:
            return await self._flights.get(unit.index, lasting, waiting=waiting)
        except _PassingError as error:
            return error.failure

    async def every(self, judges: Sequence[Judge], gateway: Asks) -> dict[int, Outcome]:
        """The outcomes of all constant units, failed ones included, by their number.

        What would read the output of a unit that failed is left out.
        """
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
                unit, partial(judge_unit, unit, gateway, judges, lambda: reads, FIRST)
            )
            outcomes[unit.index] = made
            return made

        async with anyio.create_task_group() as group:
            for unit in self._plan.units:
                if unit.constant:
                    group.start_soon(outcome, unit)
        return outcomes


class _PassingError(DagengineError):
    """Carries a failure that another attempt may not meet."""

    def __init__(self, failure: Failure) -> None:
        self.failure = failure
        super().__init__(failure.message)
