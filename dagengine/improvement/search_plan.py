"""A search before it asks anything: labels read, cases split, and its calls by step, and money.

Every answer of a node before the changed one comes from the store. So a candidate asks at that
node, and at nodes that a changed answer may newly lead to.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import networkx as nx

from dagengine.compiler.execution_plan import Plan, compile_metrics
from dagengine.data.case_lookup import read_digest
from dagengine.data.cases import read_cases, valid_cases
from dagengine.errors import InputError
from dagengine.estimate.estimate_types import NO_QUESTIONS, Bounds, Estimate
from dagengine.estimate.estimator import estimate, judges_of
from dagengine.graph.node import AskingNode
from dagengine.improvement.candidates import VOTES, answers_of_one, asking_node, holistic
from dagengine.improvement.experiment import Split, reader_of, split_cases
from dagengine.improvement.improvement_report import Rung
from dagengine.metrics.common.base import BaseMetric
from dagengine.reliability.counterfactual import Counterfactual
from dagengine.reliability.human_labels import Given, HumanLabels, Labels, NodeAnswers, labels_for
from dagengine.reliability.observed_runs import clusters
from dagengine.reliability.statistics.paired_comparisons import visible_difference
from dagengine.system.terminal_text import counted, text_if
from dagengine.test_case import TestCase, case_label
from dagengine.voting.metric_rewrites import can_split, pair_at

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


@dataclass(frozen=True)
class Search:
    """One search, checked and split, before anything is asked."""

    cases: Sequence[TestCase]
    metric: BaseMetric
    labels: Labels
    people: Given
    answers: NodeAnswers
    groups: Mapping[int, Hashable]
    split: Split
    rungs: Sequence[Rung]
    node: str | None
    times: int
    sealed_share: float
    notes: tuple[str, ...]

    @classmethod
    def of(
        cls,
        test_cases: Any,
        metric: BaseMetric,
        labels: str | Path | Mapping[int, Any],
        *,
        groups: str | None = None,
        node: str | None = None,
        times: int = 3,
        proposals: int = 2,
        sealed: float = 0.4,
    ) -> Search:
        """Read labels and split the cases; raises InputError for what cannot be improved."""
        cases: list[Any] = list(valid_cases(read_cases(test_cases)))
        if not isinstance(metric, BaseMetric):
            raise InputError(f"improve takes one metric, got {metric!r:.80}")
        if times < 1 or proposals < 0:
            raise InputError("times= is a whole number from 1 on, proposals= one from 0 on")
        nodes = changeable(metric)
        if node is not None and node not in nodes:
            names = ", ".join(map(repr, nodes)) or "none"
            raise InputError(f"no node {node!r} has a criterion to change; there is {names}")
        replay, human = Counterfactual(metric), HumanLabels(cases, labels)
        (people,) = human.for_metrics([replay])
        meant = labels_for(people, replay, cases)
        answers = human.walked(replay) or answers_of_one(metric, meant.by_case)
        reads = replay.plan.fields
        together = clusters(cases, (), groups, [reads])
        split = split_cases(cases, meant.by_case, together, sealed, reads)
        texts = {read_digest(cases[case], reads) for case in meant.by_case}
        notes = [*human.left_out([replay])]
        if copies := len(meant.by_case) - len(texts):
            notes.append(
                f"{copies} of {counted(len(meant.by_case), 'labelled case')} are copies of others "
                "in all that the metric reads; copies stay together"
            )
        reader_of(metric, meant)  # raises for labels that say neither pass nor fail nor a verdict
        rungs = possible_rungs(
            metric, node, answers, passes=meant.kind == "pass", times=times, proposals=proposals
        )
        return cls(
            cases, metric, meant, people, answers, together, split, rungs, node, times, sealed,
            tuple(notes),
        )  # fmt: skip

    def plan(self, *, model: Any = None, prices: Any = None) -> SearchPlan:
        """Plan the calls of every step; ask nothing.

        Those of a node that is not known yet are at most the greatest.
        """
        steps = tuple(self._steps())
        tried = [self.cases[number] for number in self.split.tried]
        whole = estimate(self._compiled, tried, judges=judges_of(self._compiled, model))
        likely = sum(judge.calls for judge in whole.judges)
        money = whole.cost(prices or {})
        if money is not None and likely:
            money = money / likely * sum(step.calls.most or 0 for step in steps)
        return SearchPlan(steps, len(self.rungs), len(self.split.sealed), money)

    def people_differ(self) -> tuple[int, tuple[str, ...]]:
        """The number of cases with several labels, and the cases on which these differ."""
        several, names = 0, list[str]()
        for number, votes in self.people.items():
            several += len(votes) > 1
            if len(set(map(str, votes))) > 1:  # as text: 1 and "1" are one label
                names.append(case_label(self.cases[number], number))
        return several, tuple(names)

    @cached_property
    def _compiled(self) -> Plan:
        return compile_metrics([self.metric])

    def _steps(self) -> Iterator[PlannedStep]:
        """Every step of the search with its calls."""
        split, titles = self.split, changeable(self.metric, self.node)
        # A merged node is asked where its parent was.
        parents = [pair.parent.title for title in titles if (pair := pair_at(self.metric, title))]
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
        yield PlannedStep("the metric as it is", self._calls_of_all(split.tried))
        letters = map(chr, itertools.count(ord("a")))
        for rung in self.rungs:
            if rung == "rival":
                rival = len(split.without(0)) * self.times
                yield PlannedStep("one holistic node", Bounds(rival, rival, rival))
            elif rung in changes:
                what, changed, factor, edits = changes[rung]
                calls = self._calls_at(changed, split.without(0), factor, edits)
                if rung == "criterion":
                    what += f", {next(letters)}"
                if rung not in ("examples", "criterion"):  # they may be skipped
                    calls = calls.by_chance(0.0)
                yield PlannedStep(what, calls)
        yield PlannedStep("sealed part, before", self._calls_of_all(split.sealed))
        if self.rungs:
            calls = self._calls_at([*titles, *parents], split.sealed, VOTES)
            yield PlannedStep("sealed part, after", calls.by_chance(0.0))

    def _estimate(self, numbers: Iterable[int]) -> Estimate:
        return estimate(self._compiled, [self.cases[number] for number in numbers])

    def _calls_of_all(self, numbers: Iterable[int]) -> Bounds:
        """The calls of the whole metric."""
        return self._estimate(numbers).asked.times(self.times)

    def _calls_at(
        self, titles: Sequence[str], numbers: Iterable[int], factor: int, edits: int = 0
    ) -> Bounds:
        """The calls of a changed node, and of what may follow it; of several nodes the extremes.

        The node itself is asked `factor` times each, and a rewriter up to `edits` times.
        """
        (metric,) = self._estimate(numbers).metrics
        questions = {node.node: node.asked for node in metric.nodes}
        least, most = list[int](), list[float]()
        for title in titles:
            calls = questions.get(title, NO_QUESTIONS).times(factor)
            for name in self._behind(title):  # none of these questions is sure
                calls += questions.get(name, NO_QUESTIONS).by_chance(0.0)
            calls = calls.times(self.times)
            least.append(calls.least)
            most.append(math.inf if calls.most is None else calls.most)
        highest = max(most, default=0)
        bound = None if math.isinf(highest) else int(highest)
        return Bounds(min(least, default=0), 0.0, bound) + Bounds(min(edits, 1), 0.0, edits)

    def _behind(self, title: str) -> set[str]:
        """The nodes that may follow a node, or read it."""
        units, graph, later = self._compiled.units, self._compiled.graph, set[int]()
        for unit in units:
            if unit.name == title:
                later |= nx.descendants(graph, unit.index)
        # A node of several units may be behind itself, and is counted already.
        return {units[index].name for index in later} - {title}


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
