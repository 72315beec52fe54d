"""What a metric's score would be if its nodes had answered otherwise; makes no judge calls.

The score of a case is a function of the nodes' replies. `Counterfactual` computes it with the
scheduler's state machine, which takes the given replies in place of a judge's.
"""

from __future__ import annotations

import inspect
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import networkx as nx

from dagengine.compiler.execution_plan import NONE, Unit, compile_metrics
from dagengine.graph.current_node import asking_nobody
from dagengine.graph.graph import Metric, MetricSpec
from dagengine.graph.node import BaseNode
from dagengine.graph.node_values import Given, Judgement, NodeValue
from dagengine.graph.nodes import (
    BinaryJudgementNode,
    CodeNode,
    FieldNode,
    NonBinaryJudgementNode,
    RatingNode,
)
from dagengine.results import MetricResult, Verdict
from dagengine.semantics.scheduler import CaseState
from dagengine.test_case import TestCase, read_field

_ANSWERING = (BinaryJudgementNode, NonBinaryJudgementNode, RatingNode)


@dataclass(frozen=True, slots=True)
class Reply:
    """What one node said: the verdict of a decision, or a score from 0 to 1."""

    verdict: Verdict | None = None
    score: float | None = None


class NoReplyError(Exception):
    """Raised when a path leads to a node that no reply is given for."""

    def __init__(self, node: str) -> None:
        self.node = node
        super().__init__(node)


@dataclass(frozen=True, slots=True)
class Speaker:
    """A node whose answers decide or score.

    `reads` is empty for a node that asks a judge. For code that is not computed again it names
    the asking nodes whose answers it works on: its noise is theirs.
    """

    node: str
    kind: str
    reads: tuple[str, ...] = ()


class Counterfactual:
    """One metric as a function from replies to its score.

    A code node is computed again if everything that it reads is known. It may read verdicts,
    ratings, fields of the case, and other code that is computed again. All other code, and every
    coroutine function (it may wait for something), keeps the reply that was recorded.
    """

    def __init__(self, metric: Metric) -> None:
        """Raises GraphError when the metric does not compile."""
        self.plan = compile_metrics([metric])
        self._computed: list[bool] = []
        self._reads: nx.DiGraph[int] = nx.DiGraph()
        following: set[int] = set()  # units whose values follow from replies and fields
        for unit in self.plan.units:  # sources come first
            follows = _has_value_at_once(unit.node) and following.issuperset(unit.inputs)
            self._computed.append(follows)
            self._reads.add_node(unit.index)
            self._reads.add_edges_from((source, unit.index) for source in unit.inputs)
            if follows or isinstance(unit.node, _ANSWERING):
                following.add(unit.index)
        self._names: dict[str, str] = {}
        speakers: dict[str, Speaker] = {}
        # Slots are in topological order; units that share a name speak as the first of them.
        for slot in self.plan.slots:
            if slot.unit == NONE:
                continue
            unit = self.plan.units[slot.unit]
            self._names.setdefault(slot.name, unit.name)
            if unit.name not in speakers and self.speaks(unit):
                # Code speaks for the nodes that were asked before it, through other code, too.
                numbers = () if unit.node.asks else nx.ancestors(self._reads, unit.index)
                before = (self.plan.units[number] for number in numbers)
                asked = sorted({source.name for source in before if source.node.asks})
                speakers[unit.name] = Speaker(unit.name, unit.node.kind, tuple(asked))
        self.speakers = tuple(speakers.values())

    @property
    def spec(self) -> MetricSpec:
        """The metric as it was compiled."""
        return self.plan.metrics[0].spec

    @cached_property
    def asking(self) -> frozenset[str]:
        """Names of the nodes that put questions to a judge."""
        return frozenset(unit.name for unit in self.plan.units if unit.node.asks)

    @property
    def computes(self) -> bool:
        """Return whether code is computed again, which may read the case."""
        return any(self._computed)

    def speaks(self, unit: Unit) -> bool:
        """Whether a unit's answer decides or scores, here or in code that is computed again."""
        if self._computed[unit.index]:
            return False
        if isinstance(unit.node, RatingNode):
            return True
        return any(slot.branches or slot.grades for slot in self.plan.slots_at(unit.slots))

    def units_to_run(self, unit: Unit) -> list[int]:
        """The units that have to run again for another answer of a speaker, sources first.

        A node that asks is asked again on what it read. Code that stands for questions has
        these asked again; other speakers that it reads keep what they said.
        """
        numbers = {unit.index}
        waiting = [] if unit.node.asks else [unit]
        while waiting:
            for number in waiting.pop().inputs:
                source = self.plan.units[number]
                if number not in numbers and not self._computed[number] and not self.speaks(source):
                    numbers.add(number)
                    waiting.append(source)
        return sorted(numbers)

    def name_of(self, step: str) -> str:
        """The speaker behind a step; a node in several places of a metric is one speaker."""
        return self._names.get(step, step)

    def verdicts_of(self, node: str) -> tuple[Verdict, ...]:
        """The verdicts that a node may give; empty if they depend on the case."""
        choices = (slot.branches for slot in self.plan.slots if slot.name == node)
        return tuple(dict.fromkeys(verdict for branches in choices for verdict in branches))

    def score(self, replies: Mapping[str, Reply], case: TestCase | None = None) -> float | None:
        """The score (0 to 1) of these replies, by node; None if they lead to no score.

        Raises what `result` raises.
        """
        result = self.result(replies, case)
        return None if result is None else result.score

    def result(
        self, replies: Mapping[str, Reply], case: TestCase | None = None
    ) -> MetricResult | None:
        """The result of these replies, by node; None if they lead to none.

        `case` is needed where code reads fields of it. Raises NoReplyError where the replies
        lead to a node that has none.
        """
        state = CaseState(self.plan)
        while state.ready:
            index = state.ready.pop()
            value = self._value(self.plan.units[index], replies, state, case)
            if value is None:
                return None
            state.complete(index, value)
        return state.results()[0] if state.finished else None

    def _value(
        self, unit: Unit, replies: Mapping[str, Reply], state: CaseState, case: TestCase | None
    ) -> NodeValue | None:
        if self._computed[unit.index]:
            return _at_once(unit, state, case)
        if not self.speaks(unit):
            return NodeValue(None)
        if unit.name not in replies:
            raise NoReplyError(unit.name)
        # A reply as what readers of the node see.
        reply = replies[unit.name]
        value: Any = reply.score
        if reply.verdict is not None:
            value = Judgement(verdict=reply.verdict)
        elif isinstance(unit.node, RatingNode) and reply.score is not None:
            low, high = unit.node.points.ends
            value = low + reply.score * (high - low)
        return NodeValue(value, verdict=reply.verdict, score=reply.score)


def _has_value_at_once(node: BaseNode) -> bool:
    """Return whether a node computes, and waits for nothing, as code that is a coroutine may."""
    if isinstance(node, CodeNode):
        return not inspect.iscoroutinefunction(node.function)
    return isinstance(node, FieldNode)


def _at_once(unit: Unit, state: CaseState, case: TestCase | None) -> NodeValue | None:
    """Run code on its inputs; None if it fails or waits for something."""
    fields = tuple((path, None if case is None else read_field(case, path)) for path in unit.reads)
    reads = Given(fields, state.inputs_of(unit), case)
    work: Coroutine[Any, Any, NodeValue] = unit.node.run(reads, _no_ask)
    try:
        with asking_nobody():
            # One step: what waits for nothing is done after it, and all else is closed below.
            work.send(None)
    except StopIteration as done:
        value: NodeValue = done.value
        return value
    except Exception:  # noqa: BLE001 - the metric's code, on inputs that did not occur
        return None
    work.close()
    return None


_no_ask: Any = None
