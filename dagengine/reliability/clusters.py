"""Cases that depend on each other: those of one group, equal ones, those that share a question."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterable, Sequence

import networkx as nx

from dagengine.data.case_numbers import read_digest
from dagengine.errors import InputError
from dagengine.reliability.observations import Observation
from dagengine.test_case import TestCase, read_field


def clusters(
    cases: Sequence[TestCase], observations: Iterable[Observation], field: str | None = None,
    reads: Iterable[Collection[str]] = (),
) -> dict[int, Hashable]:  # fmt: skip
    """The group of every case that has company, by the number of the case.

    Cases with an equal value at `field` (a dotted path) are together. So are cases that are equal
    in all that a metric reads (`reads`: the paths of each metric), and cases on which a node asked
    one and the same question, as it was then asked once for all of them. What is asked once for all
    cases there are (the steps of G-Eval) ties none together. Raises InputError for a field that no
    case has.
    """
    ties: nx.Graph[Hashable] = nx.Graph()
    if field is not None:
        values = [read_field(case, field) for case in cases]
        if all(value is None for value in values):
            raise InputError(f"no case has a value at `{field}`, so cases cannot be grouped by it")
        for number, value in enumerate(values):
            if value is not None:
                ties.add_edge(number, ("field", str(value)))
    for shared, numbers in _sharing(cases, observations, reads).items():
        ties.add_edges_from((number, shared) for number in numbers)
    groups: dict[int, Hashable] = {}
    for component in nx.connected_components(ties):
        members = sorted(member for member in component if isinstance(member, int))
        if len(members) > 1:
            groups |= dict.fromkeys(members, f"group of case {members[0]}")
    return groups


def _sharing(
    cases: Sequence[TestCase], observations: Iterable[Observation],
    reads: Iterable[Collection[str]],
) -> dict[Hashable, set[int]]:  # fmt: skip
    """The cases that share a question, or all that is read, but for what all of them share."""
    sharing: dict[Hashable, set[int]] = {}
    seen: set[int] = set()
    for row in observations:
        seen.add(row.case)
        if row.question is not None:
            sharing.setdefault((row.metric, row.node, row.question), set()).add(row.case)
    numbers = range(len(cases))
    seen = seen or {*numbers}
    for paths, number in itertools.product(reads, seen.intersection(numbers)):
        sharing.setdefault((*paths, read_digest(cases[number], paths)), set()).add(number)
    # What every case was asked would make all of them one group, and no interval possible.
    return {of: alike for of, alike in sharing.items() if 1 < len(alike) < len(seen)}


def alike_but_for_blanks(cases: Sequence[TestCase], reads: Collection[str]) -> int:
    """Number of texts read by a metric that differ from another in blanks only."""
    exact = {read_digest(case, reads): case for case in cases}.values()
    counts = Counter(read_digest(case, reads, blanks=False) for case in exact)
    return sum(count for count in counts.values() if count > 1)


def constant_questions(observations: Iterable[Observation]) -> tuple[str, ...]:
    """The nodes that asked one and the same question for all cases, if there are several.

    Such an answer (the steps of G-Eval) moves all scores of a run alike. That makes no two cases
    more dependent than any others, and no interval over cases shows it.
    """
    seen: set[int] = set()
    asked = defaultdict[tuple[str, str, str], set[int]](set)
    for row in observations:
        seen.add(row.case)
        if row.node and row.question is not None:
            asked[row.node, row.metric, row.question].add(row.case)
    whole = (node for (node, *_), numbers in asked.items() if numbers == seen)
    return tuple(dict.fromkeys(whole)) if len(seen) > 1 else ()
