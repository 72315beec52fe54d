"""What a search will ask, before it asks anything: calls by step, and money.

Every answer of a node before the changed one comes from the store. So a candidate asks at that
node, and at nodes that a changed answer may newly lead to.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import networkx as nx

from dagengine.compiler.plan import compile_metrics
from dagengine.estimate.counting import estimate, forecast
from dagengine.estimate.estimates import NO_QUESTIONS, Bounds, Estimate, Prices
from dagengine.graph.node import AskingNode
from dagengine.improvement.findings import Rung
from dagengine.improvement.rungs import VOTES, asking_node, holistic
from dagengine.metrics.common.base import BaseMetric
from dagengine.reliability.labels import NodeAnswers
from dagengine.reliability.statistics.comparisons import visible_difference
from dagengine.system.terminal import counted, text_if
from dagengine.test_case import TestCase
from dagengine.voting.wrappers import can_split, pair_at

if TYPE_CHECKING:
    from dagengine.improvement.search import Search


_DIFFERING = 0.15  # the share of cases that a change is taken to judge otherwise


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """One step of the search, and the calls that it takes, before anything is asked."""

    what: str
    calls: Bounds


@dataclass(frozen=True, slots=True)
class SearchPlan:
    """The calls of the whole search, and what they cost at most (None: no price is known).

    `sealed` counts the cases, or groups of them, that the proof rests on.
    """

    steps: tuple[PlannedStep, ...]
    tries: int
    sealed: int
    cost: float | None = None

    @property
    def calls(self) -> Bounds:
        """The calls, if every step is taken; retries come on top."""
        return sum((step.calls for step in self.steps), NO_QUESTIONS)


def possible_rungs(
    metric: BaseMetric,
    node: str | None,
    answers: NodeAnswers,
    *,
    passes: bool,
    times: int,
    proposals: int,
) -> list[Rung]:
    """The tries there may be, cheapest first; every p value counts all of them.

    Without a `node` those of any node. `passes` says that labels are pass or fail.
    """
    titles = changeable(metric, node)
    nodes = [*filter(None, (asking_node(metric, title) for title in titles))]
    cuts = passes and not metric.spec().strict
    exemplary = any(answers.get(each.title) and each.exemplary for each in nodes)
    wordings = proposals * any(map(_has_criterion, nodes))
    counts: dict[Rung, int] = {
        "threshold": cuts,
        "scores": cuts,
        "votes": times > 1 and any(each.vote and each.panel is None for each in nodes),
        "examples": exemplary,
        "criterion": wordings,
        "together": exemplary and wordings > 0,
        "merge": any(pair_at(metric, title) for title in titles),
        "split": proposals > 0 and any(can_split(metric, title) for title in titles),
        "rival": passes and holistic(metric) is not None,
    }
    return [*Counter(counts).elements()]


def changeable(metric: BaseMetric, node: str | None = None) -> list[str]:
    """The nodes that a search may change: `node`, else those that ask for verdicts or ratings."""
    if node is not None:
        return [node]
    nodes = metric.spec().graph.nodes()
    return [own.title for own in nodes if isinstance(own, AskingNode) and _has_criterion(own)]


def _has_criterion(node: AskingNode) -> bool:
    of_criteria = getattr(node, "of_criteria", False)
    return hasattr(node, "criteria") and not of_criteria and not node.prompted


def search_plan(search: Search, model: Any, prices: Prices | None) -> SearchPlan:
    """The calls of every step; those of a node that is not known yet are at most the greatest."""
    counts = _Counted(search)
    steps = tuple(counts.steps())
    whole = forecast(steps[0].what, counts.plan, counts.cases(search.split.tried), model)
    likely = sum(judge.calls for judge in whole.estimate.judges)
    money = whole.cost(prices or {})
    if money is not None and likely:
        money = money / likely * sum(step.calls.most or 0 for step in steps)
    return SearchPlan(steps, len(search.rungs), len(search.split.sealed), money)


class _Counted:
    """Counts questions of a search on some of its cases."""

    def __init__(self, search: Search) -> None:
        self._search = search
        self.plan = compile_metrics([search.metric])

    def cases(self, numbers: Iterable[int]) -> list[TestCase]:
        """The cases of these numbers."""
        return [*map(self._search.cases.__getitem__, numbers)]

    def steps(self) -> Iterator[PlannedStep]:
        """Every step of the search with its calls."""
        search, split = self._search, self._search.split
        titles = changeable(search.metric, search.node)
        # A merged node is asked where its parent was.
        pairs = (pair_at(search.metric, title) for title in titles)
        parents = [pair.parent.title for pair in pairs if pair]
        # By rung: words, the nodes that are asked anew, how often, and calls of a rewriter. The
        # first vote is the answer that the metric as it is got: it is in the store.
        changes: dict[Rung, tuple[str, Sequence[str], int, int]] = {
            "votes": (f"{VOTES} votes", titles, VOTES - 1, 0),
            "examples": ("examples from labels", titles, 1, 0),
            "criterion": ("criterion rewritten", titles, 1, 2),
            "together": ("criterion and examples", titles, 1, 0),
            "merge": ("merged with a neighbour", parents, 1, 0),
            "split": ("split in two", titles, 2, 2),
        }
        yield PlannedStep("the metric as it is", self._whole(split.tried))
        letters = map(chr, itertools.count(ord("a")))
        for rung in search.rungs:
            if rung == "rival":
                rival = len(split.without(0)) * search.times
                yield PlannedStep("one holistic node", Bounds(rival, rival, rival))
            elif rung in changes:
                what, changed, factor, edits = changes[rung]
                calls = self._at(changed, split.without(0), factor, edits)
                if rung == "criterion":
                    what += f", {next(letters)}"
                if rung not in ("examples", "criterion"):  # they may be skipped
                    calls = calls.by_chance(0.0)
                yield PlannedStep(what, calls)
        yield PlannedStep("sealed part, before", self._whole(split.sealed))
        if search.rungs:
            calls = self._at([*titles, *parents], split.sealed, VOTES)
            yield PlannedStep("sealed part, after", calls.by_chance(0.0))

    def _whole(self, numbers: Sequence[int]) -> Bounds:
        """The calls of the whole metric."""
        return self._estimate(numbers).asked.times(self._search.times)

    def _at(
        self, titles: Sequence[str], numbers: Sequence[int], factor: int = 1, edits: int = 0
    ) -> Bounds:
        """The calls of a changed node, and of what may follow it; of several nodes the extremes.

        The node itself is asked `factor` times each, and a rewriter up to `edits` times.
        """
        (metric,) = self._estimate(numbers).metrics
        by_node = {node.node: node.asked for node in metric.nodes}
        calls: list[Bounds] = []
        for title in titles:
            own = by_node.get(title, NO_QUESTIONS).times(factor) + self._after(title, by_node)
            calls.append(own.times(self._search.times))
        least = min((own.least for own in calls), default=0)
        unbounded = any(own.most is None for own in calls)
        most = None if unbounded else max((own.most or 0 for own in calls), default=0)
        return Bounds(least, 0.0, most) + Bounds(min(edits, 1), 0.0, edits)

    def _after(self, title: str, by_node: Mapping[str, Bounds]) -> Bounds:
        """The questions, none of them sure, of nodes that may follow a node, or read it."""
        units = [unit.index for unit in self.plan.units if unit.name == title]
        behind = {later for unit in units for later in nx.descendants(self.plan.graph, unit)}
        # A node of several units may be behind itself, and is counted already.
        names = {self.plan.units[later].name for later in behind} - {title}
        own = (by_node.get(name, NO_QUESTIONS).by_chance(0.0) for name in names)
        return sum(own, NO_QUESTIONS)

    def _estimate(self, numbers: Sequence[int]) -> Estimate:
        return estimate(self.plan, self.cases(numbers))


def plan_lines(plan: SearchPlan) -> Iterator[tuple[str, str]]:
    """The steps of a plan and their calls, then the sum."""
    for part in plan.steps:
        yield part.what, _calls(part.calls)
    gain = visible_difference(plan.sealed, _DIFFERING)
    yield "power", (f"{counted(plan.sealed, 'sealed case')}: a gain of {100 * gain:.0f} points is "
                    "proved in 8 of 10 searches, a smaller one less often")  # fmt: skip
    money = "" if plan.cost is None else f", at most about ${plan.cost:,.2f}"
    yield "all", _calls(plan.calls) + money


def _calls(calls: Bounds) -> str:
    if calls.most is None:
        return f"{calls.least:,} calls at least"
    least = text_if(calls.least != calls.most, f"{calls.least:,} to ")
    return f"{least}{calls.most:,} calls"
