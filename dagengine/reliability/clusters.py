"""Cases that depend on each other: those of one group, and those that share a question."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import networkx as nx

from dagengine.compiler.plan import Unit
from dagengine.errors import InputError
from dagengine.reliability.counterfactual import Counterfactual
from dagengine.reliability.observations import Condition, Observation
from dagengine.test_case import TestCase, read_field

Seen = Mapping[str, Observation]
"""What was observed of one case under one condition, by node."""


def clusters(
    cases: Sequence[TestCase],
    observations: Iterable[Observation],
    replays: Sequence[Counterfactual],
    field: str | None = None,
) -> dict[int, Hashable]:
    """The group of every case that has company, by the number of the case.

    Cases with an equal value at `field` (a dotted path) are together, and so are cases on which a
    node asked one and the same question, as it was then asked once for all of them. What is asked
    once for all cases (the steps of G-Eval) ties no cases together. Raises InputError for a field
    that no case has.
    """
    ties: nx.Graph[Hashable] = nx.Graph()
    ties.add_edges_from(_by_field(cases, field) if field is not None else ())
    ties.add_edges_from(_by_question(cases, list(observations), replays))
    found: dict[int, Hashable] = {}
    for component in nx.connected_components(ties):
        members = sorted(one for one in component if isinstance(one, int))
        if len(members) > 1:
            found |= dict.fromkeys(members, f"group of case {members[0]}")
    return found


def _by_field(cases: Sequence[TestCase], field: str) -> Iterator[tuple[int, Hashable]]:
    values = [read_field(case, field) for case in cases]
    if all(value is None for value in values):
        raise InputError(f"no case has a value at `{field}`, by which cases should be grouped")
    for number, value in enumerate(values):
        if value is not None:
            yield number, ("field", str(value))


def _by_question(
    cases: Sequence[TestCase], seen: Sequence[Observation], replays: Sequence[Counterfactual]
) -> Iterator[tuple[int, Hashable]]:
    for replay in replays:
        known: dict[tuple[int, Condition], dict[str, Observation]] = {}
        for one in seen:
            if one.metric == replay.spec.name and one.node:
                known.setdefault((one.case, one.condition), {})[replay.name_of(one.node)] = one
        for (number, condition), nodes in known.items():
            for question in _questions(replay, cases[number], nodes):
                yield number, (replay.spec.name, replace(condition, judge=""), question)


def _questions(replay: Counterfactual, case: TestCase, nodes: Seen) -> Iterator[str]:
    """A digest of everything that goes into each question that was asked."""
    for unit in replay.plan.units:
        if unit.node.asks and not unit.constant and unit.name in nodes:
            yield _digest([unit.name, *_reads(replay, unit, case, nodes)])


def _reads(replay: Counterfactual, unit: Unit, case: TestCase, nodes: Seen) -> Iterator[str]:
    """What a node reads: fields of the case, and what other nodes made of theirs."""
    for path in unit.reads:
        yield f"{path}: {read_field(case, path)!r}"
    for label, source, _ in unit.sources:
        yield f"{label}: {_made(replay, replay.plan.units[source], case, nodes)}"


def _made(replay: Counterfactual, unit: Unit, case: TestCase, nodes: Seen) -> str:
    """What stands for a node's output: the judge's words, or what code worked on."""
    found = nodes.get(unit.name)
    if unit.node.asks:
        return "" if found is None else f"{found.raw} {found.vote!r}"
    return _digest([unit.name, *_reads(replay, unit, case, nodes)])


def _digest(parts: Sequence[str]) -> str:
    return hashlib.sha256("\0".join(parts).encode(errors="surrogatepass")).hexdigest()[:16]
