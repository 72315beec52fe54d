"""Cases that depend on each other: those of one group, and those that share a question."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

import networkx as nx

from dagengine.errors import InputError
from dagengine.reliability.observations import Observation
from dagengine.test_case import TestCase, read_field


def clusters(
    cases: Sequence[TestCase], observations: Iterable[Observation], field: str | None = None
) -> dict[int, Hashable]:
    """The group of every case that has company, by the number of the case.

    Cases with an equal value at `field` (a dotted path) are together. So are cases on which a node
    asked one and the same question, as it was then asked once for all of them. What is asked once
    for all cases there are (the steps of G-Eval) ties none together. Raises InputError for a field
    that no case has.
    """
    ties: nx.Graph[Hashable] = nx.Graph()
    if field is not None:
        values = [read_field(case, field) for case in cases]
        if all(value is None for value in values):
            raise InputError(f"no case has a value at `{field}`, so cases cannot be grouped by it")
        ties.add_edges_from(
            (number, ("field", str(value)))
            for number, value in enumerate(values)
            if value is not None
        )
    asked: dict[Hashable, set[int]] = {}
    seen: set[int] = set()
    for row in observations:
        seen.add(row.case)
        if row.question is not None:
            asked.setdefault((row.metric, row.node, row.question), set()).add(row.case)
    for question, numbers in asked.items():
        # What every case was asked would make all of them one group, and no interval possible.
        if 1 < len(numbers) < len(seen):
            ties.add_edges_from((number, question) for number in numbers)
    groups: dict[int, Hashable] = {}
    for component in nx.connected_components(ties):
        members = sorted(member for member in component if isinstance(member, int))
        if len(members) > 1:
            groups |= dict.fromkeys(members, f"group of case {members[0]}")
    return groups


def shared_by_all(observations: Iterable[Observation]) -> tuple[str, ...]:
    """The nodes that asked one and the same question for all cases, if there are several.

    Such an answer (the steps of G-Eval) moves all scores of a run alike. That makes no two cases
    more dependent than any others, and no interval over cases shows it.
    """
    seen: set[int] = set()
    asked: dict[tuple[str, str], dict[str, set[int]]] = {}
    for row in observations:
        seen.add(row.case)
        if row.node and row.question is not None:
            asked.setdefault((row.metric, row.node), {}).setdefault(row.question, set()).add(
                row.case
            )
    return tuple(
        dict.fromkeys(
            node
            for (_, node), questions in asked.items()
            if len(seen) > 1 and any(numbers == seen for numbers in questions.values())
        )
    )
