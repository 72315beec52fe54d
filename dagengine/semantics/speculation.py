"""Which questions a case may still bring, and which of them could be asked already. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import networkx as nx

from dagengine.compiler.execution_plan import ALWAYS, Plan, Unit
from dagengine.graph.node import AskingNode
from dagengine.question import Judge
from dagengine.semantics.scheduler import CaseState


def bringing(plan: Plan, judges: Sequence[Judge]) -> frozenset[int]:
    """Units after whose end, or in whose run, a question may come that travels with others."""
    asking = {unit.index for unit in deciding_units(plan, judges)}
    if not asking:
        return frozenset()
    # Whatever comes before an asking node may make it ready. So a pack waits for these nodes, too,
    # and for nothing else of the case.
    graph = plan.graph
    return frozenset(asking.union(*(nx.ancestors(graph, unit) for unit in asking)))


def ahead(state: CaseState, units: Iterable[Unit]) -> Iterator[Unit]:
    """Units that verdicts to come may want, and that could ask now what they would ask then.

    Everything that they read is settled, so their questions will be the same. Left out are nodes
    with code that is not this library's, panels, and what is equal for all cases.
    """
    for unit in units:
        plain = not (unit.foreign or unit.constant) and unit.node.panel is None
        # Every source has to be there that will be there when the unit runs.
        if (
            plain
            and state.may_start(unit.index)
            and all(
                state.has_output(source)
                for _, source, slot in unit.sources
                if slot == ALWAYS or state.is_live(slot)
            )
        ):
            yield unit


def deciding_units(plan: Plan, judges: Sequence[Judge]) -> tuple[Unit, ...]:
    """Units that put decisions to a judge that takes several in one request."""
    return tuple(
        unit
        for unit in plan.units
        if isinstance(unit.node, AskingNode)
        and not unit.node.writes
        and any(judges[judge].capabilities.packs is not None for judge in unit.judges)
    )
