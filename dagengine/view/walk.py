"""A person's way through the tree of a metric: which question is next, and where the walk ends.

The person's answers choose the branches. Code is filled in with what the run computed, as long as
the person gave the same answers that it read. What a task wrote is shown as evidence. The plan that
is walked is made from the record of the metric: the program that made the run is not needed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import networkx as nx

from dagengine.compiler.plan import NONE, Plan, PlanMetric, PlanScope, PlanSlot, Unit
from dagengine.compiler.wiring import SlotKind, material_of
from dagengine.graph.graph import Graph, MetricSpec
from dagengine.graph.nodes import CodeNode
from dagengine.graph.values import NodeValue
from dagengine.record.values import EdgeRecord, MetricRecord, NodeRecord
from dagengine.results import MetricResult, OutcomeKind, Step, Verdict
from dagengine.semantics.scheduler import CaseState

Said = Verdict | float | None
"""A person's answer: a verdict, a rating from 0 to 1, or None for "cannot tell"."""

WHOLE = ""
"""In the place of a node: the case as a whole."""
UNSURE = "cannot tell"

_DECIDES = {"binary judgement", "judgement"}
_LISTS = {"map", "verdict list"}


@dataclass(frozen=True, slots=True)
class Choice:
    """One answer that a person may give: what it is called, and what it stands for."""

    label: str
    answer: Verdict | float


@dataclass(frozen=True, slots=True)
class Asked:
    """The question that a person is asked next.

    `reads` are the fields to show; `evidence` is what nodes before it wrote, as the run has it,
    with the name of the node.
    """

    node: str
    kind: str
    question: str
    choices: tuple[Choice, ...]
    reads: tuple[str, ...]
    evidence: tuple[tuple[str, object], ...]
    hash: str | None


@dataclass(frozen=True, slots=True)
class Passed:
    """One step of a walk that is behind: what was answered, and by whom."""

    node: str
    answer: Said
    by: Literal["person", "code"]


@dataclass(frozen=True, slots=True)
class Position:
    """Where a walk stands: the steps so far, and the next question, or how it ended.

    `score` (0 to 1) is that of the person's own path; with `why` the walk ended without one.
    """

    steps: tuple[Passed, ...]
    asked: Asked | None
    score: float | None = None
    success: bool | None = None
    why: str = ""

    @property
    def done(self) -> bool:
        """Return whether nothing is left to be asked."""
        return self.asked is None


class StuckError(Exception):
    """Raised where a walk cannot continue; the message says why."""


class Walk:
    """One person on one case: `answers` are theirs by node, `result` is what the run said."""

    def __init__(
        self, metric: MetricRecord, result: MetricResult | None, answers: Mapping[str, Said]
    ) -> None:
        self._metric = metric
        self._plan = plan_of(metric)
        self._verdicts = metric.verdicts()
        self._answers = answers
        self._steps = {} if result is None else result.by_node()
        self._nodes = {node.name: node for node in metric.every_node()}
        self._values: dict[str, Said] = {}
        self._agree: dict[str, bool] = {}

    def position(self) -> Position:
        """Go as far as the answers lead.

        The tree may have no question for a person, or lead to code that the run did not compute.
        Then the person is asked about the case as a whole.
        """
        reached = self._through_tree()
        answered = any(step.by == "person" for step in reached.steps)
        if not reached.done or (answered and not reached.why) or reached.why.startswith(UNSURE):
            return reached
        if WHOLE not in self._answers:
            reads = sorted({path for node in self._nodes.values() for path in node.reads})
            name = self._metric.name
            yes_no = (Choice("It passes", True), Choice("It fails", False))
            asked = Asked(
                WHOLE, "metric", f"Does this case pass {name}?", yes_no, tuple(reads), (),
                self._metric.hash,
            )  # fmt: skip
            return replace(reached, asked=asked, score=None, success=None)
        answer = self._answers[WHOLE]
        steps = (*reached.steps, Passed(WHOLE, answer, "person"))
        why = f"{UNSURE} about the case" if answer is None else ""
        return Position(steps, None, None, None if answer is None else bool(answer), why)

    def _through_tree(self) -> Position:
        """Position to which the answers lead; the engine's own state of the case says what runs."""
        state = CaseState(self._plan)
        steps: list[Passed] = []
        waiting: set[int] = set()
        try:
            while not state.finished:
                waiting.update(state.ready)
                state.ready.clear()
                unit = min(waiting)
                waiting.remove(unit)
                node = self._nodes[self._plan.units[unit].name]
                if not (node.grades or node.scale or self._verdicts.get(node.name)):
                    # It neither decides nor rates but prepares for others: no step of a person.
                    state.complete(unit, NodeValue(None))
                    continue
                if not node.judges:
                    # What code said in the run holds for this walk only if it ran on the same.
                    step = self._steps.get(node.name)
                    if step is None or step.outcome != OutcomeKind.OK:
                        raise StuckError(f"{node.name} is code that the run did not reach")
                    if not all(map(self._as_in_run, node.inputs)):
                        raise StuckError(
                            f"{node.name} is code, and ran on other answers than yours"
                        )
                    value = NodeValue(step.output, verdict=step.verdict, score=step.score)
                    steps.append(Passed(node.name, answer_in(value), "code"))
                elif node.name not in self._answers:
                    return Position(tuple(steps), self._question(node))
                elif (answer := self._answers[node.name]) is not None:
                    if node.kind in _DECIDES and isinstance(answer, bool | str):
                        value = NodeValue(answer, verdict=answer)
                    else:
                        value = NodeValue(answer, score=float(answer))
                    steps.append(Passed(node.name, answer, "person"))
                else:
                    steps.append(Passed(node.name, None, "person"))
                    return Position(tuple(steps), None, why=f"{UNSURE} at {node.name}")
                self._values[node.name] = answer_in(value)
                state.complete(unit, value)
        except StuckError as error:
            return Position(tuple(steps), None, why=str(error))
        (result,) = state.results()
        why = "" if result.failure is None else result.failure.message
        return Position(tuple(steps), None, result.score, result.success, why)

    # What is known without asking.

    def _as_in_run(self, name: str) -> bool:
        """Return whether the walk has what a node said in the run.

        What only the judge answered it has not: code on it would tell the judge's answers.
        """
        if name not in self._agree:
            node, step = self._nodes.get(name), self._steps.get(name)
            same = node is not None and step is not None
            if node is not None and step is not None:
                if name in self._values:
                    same = self._values[name] == answer_in(step)
                elif node.judges:
                    same = node.kind == "task"
                same = same and all(map(self._as_in_run, node.inputs))
            self._agree[name] = same
        return self._agree[name]

    def _question(self, node: NodeRecord) -> Asked:
        choices: tuple[Choice, ...] = ()
        if node.kind in _DECIDES:
            answers = self._verdicts.get(node.name, ())
            verdicts = sorted(answers, key=lambda verdict: verdict is False)
            choices = tuple(Choice(str(verdict), verdict) for verdict in verdicts)
        elif node.scale and node.kind not in _LISTS:
            low, high = min(node.scale.values()), max(node.scale.values())
            choices = tuple(
                Choice(label, (number - low) / (high - low)) for label, number in node.scale.items()
            )
        if not choices:
            raise StuckError(f"{node.name} judges the items of a list, which a walk does not ask")
        wrote = [name for name in node.inputs if self._nodes[name].kind not in _DECIDES]
        outputs = (getattr(self._steps.get(name), "output", None) for name in wrote)
        evidence = tuple(zip(wrote, outputs, strict=True))
        return Asked(
            node.name, node.kind, node.question or node.name, choices, node.reads, evidence,
            node.hash,
        )  # fmt: skip


def answer_in(value: NodeValue | Step) -> Said:
    """The verdict of a node, or its score without one."""
    return value.score if value.verdict is None else value.verdict


def plan_of(metric: MetricRecord) -> Plan:
    """The plan that a metric was recorded from, but for its nodes: each of them does nothing."""
    record = _Record()
    record.add(metric, NONE)
    return record.plan()


@dataclass(slots=True, eq=False)
class _Slot:
    """A slot in the making."""

    scope: int
    kind: SlotKind
    name: str
    node: NodeRecord | None = None
    score: float | None = None
    nested: int = NONE
    root: bool = False
    branches: dict[Any, list[int]] = field(default_factory=lambda: defaultdict(list))
    activates: list[int] = field(default_factory=list)
    feeds: list[int] = field(default_factory=list)
    reads: list[int] = field(default_factory=list)

    @property
    def targets(self) -> tuple[int, ...]:
        return tuple(target for targets in self.branches.values() for target in targets)

    @property
    def grades(self) -> bool:
        return self.kind != "node" or (self.node is not None and self.node.grades)


class _Record:
    """The slots and scopes of one metric, numbered as its record has them."""

    def __init__(self) -> None:
        self.slots: list[_Slot] = []
        self.metrics: list[MetricRecord] = []
        self.owners: list[int] = []

    def add(self, metric: MetricRecord, owner: int) -> int:
        """Add a metric, with the parts of nested ones before what stands for them."""
        scope = len(self.metrics)
        self.metrics.append(metric)
        self.owners.append(owner)
        numbers: dict[str, int] = {}
        for node in metric.nodes:
            nested = NONE if node.metric is None else self.add(node.metric, NONE)
            kind: SlotKind = "node" if node.metric is None else "metric"
            number = numbers[node.name] = self._add_slot(
                _Slot(scope, kind, node.name, node, nested=nested)
            )
            if nested != NONE:
                self.owners[nested] = number
                self.slots[number].activates += [
                    at for at, slot in enumerate(self.slots) if slot.scope == nested and slot.root
                ]
            for edge in metric.edges:
                if edge.source == node.name and edge.score is not None:
                    label = f"{node.name} = {edge.verdict}"
                    score = _Slot(scope, "verdict", label, score=edge.score)
                    self.slots[number].branches[edge.verdict].append(self._add_slot(score))
        for edge in metric.edges:
            self.connect(edge, numbers)
        for name, number in numbers.items():
            self.slots[number].root = _is_root(self.slots[number].node, metric.edges, name)
        return scope

    def _add_slot(self, slot: _Slot) -> int:
        self.slots.append(slot)
        return len(self.slots) - 1

    def connect(self, edge: EdgeRecord, numbers: dict[str, int]) -> None:
        number = numbers[edge.source]
        source = self.slots[number]
        if edge.verdict is not None:
            branch = source.branches[edge.verdict]
            if edge.target is not None:
                branch.append(numbers[edge.target])
        elif edge.target is not None:
            target = self.slots[numbers[edge.target]]
            source.feeds.append(numbers[edge.target])
            target.reads.append(number)
            if edge.starts:
                source.activates.append(numbers[edge.target])
            if _pulls(edge):
                target.activates.append(number)

    def plan(self) -> Plan:
        specs = [
            MetricSpec(
                metric.name, Graph(), metric.threshold, metric.strict, metric.combine,
                include_reason=False,
            )
            for metric in self.metrics
        ]  # fmt: skip
        units = [
            Unit(
                index, slot.name, specs[0].name, CodeNode(lambda: None), (), slot.node.reads, (),
                (number,), False, False, (bool(slot.node.judges), number),
            )
            for index, (number, slot) in enumerate(self._nodes())
            if slot.node is not None
        ]  # fmt: skip
        scopes = []
        for index, spec in enumerate(specs):
            slots = [number for number, slot in enumerate(self.slots) if slot.scope == index]
            grading = {self.slots[n].name: n for n in slots if self.slots[n].grades}
            names = self.metrics[index].terminals or grading
            terminals = tuple(grading[name] for name in names)
            scopes.append(PlanScope(index, spec, self.owners[index], tuple(slots), terminals))
        return Plan(
            metrics=(PlanMetric(0, specs[0], 0, range(len(self.slots)), ()),),
            scopes=tuple(scopes),
            slots=tuple(self._slots({unit.slots[0]: unit.index for unit in units})),
            units=tuple(units),
            models=(None,),
            warnings=(),
        )

    def _nodes(self) -> Iterator[tuple[int, _Slot]]:
        return ((n, slot) for n, slot in enumerate(self.slots) if slot.kind == "node")

    def _slots(self, unit_of: dict[int, int]) -> Iterator[PlanSlot]:
        causes: list[list[int]] = [[] for _ in self.slots]
        for number, slot in enumerate(self.slots):
            for target in (*slot.targets, *slot.activates):
                causes[target].append(number)
        tangles = self.tangles()
        for number, slot in enumerate(self.slots):
            tangle = tangles.get(number, ())
            yield PlanSlot(
                index=number,
                metric=0,
                scope=slot.scope,
                kind=slot.kind,
                name=slot.name,
                unit=unit_of.get(number, NONE),
                score=slot.score,
                grades=slot.grades,
                nested=slot.nested,
                root=slot.root and slot.scope == 0,
                branches={verdict: tuple(to) for verdict, to in slot.branches.items()},
                targets=slot.targets,
                activates=tuple(slot.activates),
                feeds=tuple(slot.feeds),
                causes=len(causes[number]),
                reads=tuple(slot.reads),
                tangle=tangle,
                made_by=tuple(causes[number]) if tangle else (),
                material=self.material(number),
            )

    def material(self, number: int) -> tuple[int, ...]:
        def computes(at: int) -> bool:
            node = self.slots[at].node
            return node is not None and node.kind == "code"

        def stated_scores(at: int) -> list[int]:
            return [to for to in self.slots[at].targets if self.slots[to].kind == "verdict"]

        if not (self.slots[number].grades and computes(number)):
            return ()
        return tuple(material_of(number, lambda at: self.slots[at].reads, computes, stated_scores))

    def tangles(self) -> dict[int, tuple[int, ...]]:
        """Slots that may make each other live, as `compiler.liveness.find_tangles` says."""
        handed: nx.DiGraph[int] = nx.DiGraph()
        handed.add_nodes_from(range(len(self.slots)))
        handed.add_edges_from((n, t) for n, slot in self._nodes() for t in slot.activates)
        always: set[int] = set()
        for number, slot in enumerate(self.slots):
            if slot.root and number not in always:
                always |= {number, *nx.descendants(handed, number)}
        graph: nx.DiGraph[int] = nx.DiGraph()
        for number, slot in enumerate(self.slots):
            leads = (*slot.targets, *slot.activates)
            graph.add_edges_from((number, target) for target in leads if target not in always)
        groups = (group for group in nx.strongly_connected_components(graph) if len(group) > 1)
        return {number: tuple(sorted(group)) for group in groups for number in group}


def _pulls(edge: EdgeRecord) -> bool:
    """Whether a reader makes its source run; in an older record, of what does not start it."""
    return not edge.starts if edge.pulls is None else edge.pulls


def _is_root(node: NodeRecord | None, edges: tuple[EdgeRecord, ...], name: str) -> bool:
    """Whether a node runs whenever its metric does; in an older record, if nothing leads to it."""
    if node is not None and node.root is not None:
        return node.root
    led_to = (edge.target == name and (edge.verdict is not None or edge.starts) for edge in edges)
    read = (edge.source == name and edge.verdict is None and _pulls(edge) for edge in edges)
    return not any(led_to) and not any(read)
