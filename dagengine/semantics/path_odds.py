"""From the odds of verdicts to those of paths: an exact enumeration, which makes no judge calls.

Every decision and rating whose judge gave odds is *open*: it takes each of its values in turn. The
scheduler's state machine says which path that is. Where it leads to a node that was not asked, or
that read another verdict, the probability is `unknown`: nothing is guessed.

Items of a list may have odds, too. Code that scores the list may turn them into odds of its score,
and is open then. A list that anything else reads is *fixed*: it is taken with the verdicts that it
has, and the probability that it has others is unknown.

Verdicts of one case, items of a list included, are taken to be independent given the case, which
decision models claim. Pure functions of values.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import networkx as nx

from dagengine.compiler.execution_plan import NONE, Plan, Unit
from dagengine.graph.node import BaseNode
from dagengine.graph.node_values import Judgement, NodeValue
from dagengine.prompts.probabilities.options import unknown_of
from dagengine.results import Failure, MetricResult, OutcomeKind
from dagengine.results.metric_results import PathChance, ResultOdds
from dagengine.results.pass_rules import passes
from dagengine.semantics.case_scoring import Values, item_odds
from dagengine.semantics.scheduler import CaseState

MOST_PATHS = 2_000
"""How many paths are followed; the probability of the others counts as unknown."""


def with_odds(plan: Plan, results: Sequence[MetricResult], values: Values) -> list[MetricResult]:
    """The results with the odds of their paths, where some judge gave any.

    `values` holds the value of every live slot. A metric whose spec is `expected` has the expected
    score, unless some probability is unknown: then it keeps its score, and its mode says so.
    """
    if not any(value.odds is not None or item_odds(value.value) for value in values.values()):
        return list(results)
    with_paths: list[MetricResult] = []
    for metric, result in zip(plan.metrics, results, strict=True):
        odds = None if result.failure else odds_of(plan, metric.index, values)
        if odds is not None:
            result = replace(result, odds=odds)
        if odds is not None and metric.spec.expected:
            score = odds.expected
            if score is None:
                mode = f"likeliest ({odds.unknown:.3g} of the probability is unknown)"
                result = replace(result, mode=mode)
            else:
                passed = passes(score, result.threshold)
                result = replace(
                    result, score=score, raw_score=score, success=passed, mode="expected"
                )
        with_paths.append(result)
    return with_paths


def odds_of(plan: Plan, metric: int, values: Values) -> ResultOdds | None:
    """The odds of a metric's paths; None if no judge gave any."""
    judged = {
        plan.slots[number].unit: values[number]
        for number in plan.metrics[metric].slots
        if number in values and plan.slots[number].unit != NONE
    }
    readers: nx.DiGraph[int] = nx.DiGraph()
    for unit in judged:
        readers.add_edges_from(product(plan.units[unit].inputs, [unit]))
    # Verdicts of votes are not open. A rating that other nodes read is not, either: they read its
    # expectation, so it stays as it is.
    open_units = {
        unit
        for unit, value in judged.items()
        if value.odds is not None
        and not value.votes
        and (value.verdict is not None or not readers.adj.get(unit))
    }
    code = {unit for unit in open_units if not plan.units[unit].node.asks}
    fixed = _fixed_lists(plan, judged, readers, code)
    # Odds of scores that rest on a fixed list count verdicts that this list does not take here.
    open_units -= code & _all_readers(readers, fixed)
    if not open_units and not fixed:
        return None
    return _Enumeration(plan, metric, judged, open_units, fixed).follow()


def _fixed_lists(
    plan: Plan, judged: Mapping[int, NodeValue], readers: nx.DiGraph[int], code: Collection[int]
) -> dict[int, float]:
    """The lists that only count with the verdicts that they have, and the probability of these.

    Fixed is a list whose items have odds, unless all that reads it is `code` with odds of its own
    that rests on no fixed list, itself or through others.
    """
    lists = {
        unit: math.prod((dict(item.odds).get(item.verdict, 0.0)
                         for item in value.value if item.odds is not None), start=1.0)
        for unit, value in judged.items()
        if plan.units[unit].node.asks and not value.votes and item_odds(value.value)
    }  # fmt: skip
    # A list that is fixed takes the odds from code that reads it. Then other lists that this code
    # reads are fixed as well, and so on: until nothing is added.
    fixed: dict[int, float] = {}
    while True:
        open_code = set(code) - _all_readers(readers, fixed)
        more = {
            unit: chance
            for unit, chance in lists.items()
            if not open_code.issuperset(readers.adj.get(unit, ()))
        }
        if more == fixed:
            return fixed
        fixed = more


def _all_readers(readers: nx.DiGraph[int], units: Iterable[int]) -> set[int]:
    """Everything that reads one of these units, itself or through others."""
    return set[int]().union(*(nx.descendants(readers, unit) for unit in units))


class _Enumeration:
    """All paths of one metric on one case.

    A path under way is its `choices`, values of open units and fixed lists, and its `mass`: the
    product of their probabilities.
    """

    def __init__(
        self,
        plan: Plan,
        metric: int,
        judged: Mapping[int, NodeValue],
        open_units: Container[int],
        fixed: Mapping[int, float],
    ) -> None:
        self._plan, self._metric = plan, metric
        self._skipped = {
            metric_plan.index: Failure(OutcomeKind.SKIPPED, metric_plan.spec.name, "another metric")
            for metric_plan in plan.metrics
            if metric_plan.index != metric
        }
        self._judged, self._open_units, self._fixed = judged, open_units, fixed
        self._masses: dict[tuple[Any, float, bool], float] = {}  # by path, score and success
        self._followed = 0
        self._unknown: list[float] = []

    def follow(self) -> ResultOdds:
        """Follow every path, the likeliest values first; return the odds, the likeliest first."""
        waiting: list[tuple[dict[int, Any], float]] = [({}, 1.0)]
        while waiting:
            choices, mass = waiting.pop()
            if self._followed >= MOST_PATHS:
                self._unknown.append(mass)
            else:
                waiting += self._step(choices, mass)
        ranked = sorted(self._masses.items(), key=lambda pair: -pair[1])
        return ResultOdds(
            tuple(PathChance(*end, mass) for end, mass in ranked), math.fsum(self._unknown)
        )

    def _step(self, choices: dict[int, Any], mass: float) -> Iterator[tuple[dict[int, Any], float]]:
        """Go on to the end, or to the next open or fixed unit; yield a path per value of it."""
        # Every path is run anew from the beginning. The state of a case is not made to be copied,
        # and what a run costs here is counting: nobody is asked. In this graph, where `a` has said
        # yes with 0.8, and `b` no with 0.6, the stack holds one more choice each time:
        #
        #     {} ──a──▶ {a: yes} 0.8 ──b──▶ {a: yes, b: no} 0.48, {a: yes, b: yes} 0.32
        #        └────▶ {a: no}  0.2 ──▶ leads to `c`, which was not asked: 0.2 is unknown
        state = CaseState(self._plan, self._skipped)
        while state.ready:
            number = min(state.ready)
            state.ready.remove(number)
            unit, value = self._plan.units[number], self._judged.get(number)
            if value is None or self._reads_otherwise(unit, choices):
                self._unknown.append(mass)
                return
            if number in choices:
                if number not in self._fixed:
                    value = _as_if(unit.node, value, choices[number])
            elif number in self._open_units:
                odds = value.odds or ()
                if rest := unknown_of(odds):
                    self._unknown.append(mass * rest)
                for option, chance in sorted(odds, key=lambda pair: pair[1]):
                    if chance > 0:
                        yield {**choices, number: option}, mass * chance
                return
            elif number in self._fixed:
                chance = self._fixed[number]
                self._unknown.append(mass * (1 - chance))
                if chance > 0:
                    yield {**choices, number: value.value}, mass * chance
                return
            state.complete(number, value)
        self._end(state.results()[self._metric], mass)

    def _reads_otherwise(self, unit: Unit, choices: Mapping[int, Any]) -> bool:
        """Return whether a node read another value than this path has."""
        for source in choices.keys() & unit.inputs:
            value = self._judged[source]
            if choices[source] != (value.value if value.verdict is None else value.verdict):
                return True
        return False

    def _end(self, result: MetricResult, mass: float) -> None:
        self._followed += 1
        if result.score is None:  # verdicts that cannot come together end in a failure
            self._unknown.append(mass)
            return
        key = result.path, result.score, bool(result.success)
        self._masses[key] = self._masses.get(key, 0.0) + mass


def _as_if(node: BaseNode, value: NodeValue, option: Any) -> NodeValue:
    """A value as it would be if the answer had been another one."""
    score = None if value.score is None else node.score_of(option)
    if value.verdict is None:
        return replace(value, value=option, score=score)
    return replace(value, verdict=option, value=Judgement(verdict=option), score=score)
