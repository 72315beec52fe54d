"""A person's way through the tree of a metric: which question is next, and where the walk ends.

The person's answers choose the branches. Code is filled in with what the run computed, as long as
the person gave the same answers that it read. What a task wrote is shown as evidence. The plan that
is walked is made from the record of the metric: the program that made the run is not needed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from dagengine.compiler.dependencies import (
    Scope,
    Slot,
    Source,
    Wiring,
    cause_graph,
    find_material,
    find_tangles,
    reach,
)
from dagengine.compiler.execution_plan import Numbering, Plan
from dagengine.graph.graph import Graph, MetricSpec
from dagengine.graph.node_values import NodeValue
from dagengine.graph.nodes import CodeNode, DecisionNode
from dagengine.record.run_json_types import EdgeRecord, MetricRecord, NodeRecord
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
                if node.judges and node.name not in self._answers:
                    return Position(tuple(steps), self._question(node))
                value = self._answer(node) if node.judges else self._value_by_code(node)
                answer = answer_in(value)
                steps.append(Passed(node.name, answer, "person" if node.judges else "code"))
                if node.judges and answer is None:
                    return Position(tuple(steps), None, why=f"{UNSURE} at {node.name}")
                self._values[node.name] = answer
                state.complete(unit, value)
        except StuckError as error:
            return Position(tuple(steps), None, why=str(error))
        (result,) = state.results()
        why = getattr(result.failure, "message", "")
        return Position(tuple(steps), None, result.score, result.success, why)

    def _answer(self, node: NodeRecord) -> NodeValue:
        """The person's answer; neither a verdict nor a score if they cannot tell."""
        answer = self._answers[node.name]
        if node.kind in _DECIDES and isinstance(answer, bool | str):
            return NodeValue(answer, verdict=answer)
        return NodeValue(answer, score=None if answer is None else float(answer))

    def _value_by_code(self, node: NodeRecord) -> NodeValue:
        """The value of code in the run, which holds for this walk only if it ran on the same."""
        step = self._steps.get(node.name)
        if step is None or step.outcome != OutcomeKind.OK:
            raise StuckError(f"{node.name} is code that the run did not reach")
        if not all(map(self._as_in_run, node.inputs)):
            raise StuckError(f"{node.name} is code, and ran on other answers than yours")
        return NodeValue(step.output, verdict=step.verdict, score=step.score)

    def _as_in_run(self, name: str) -> bool:
        """Return whether the walk has what a node said in the run.

        What only the judge answered it has not: code on it would tell the judge's answers.
        """
        node, step = self._nodes.get(name), self._steps.get(name)
        if node is None or step is None:
            return False
        if name not in self._agree:
            same = not node.judges or node.kind == "task"
            if name in self._values:
                same = self._values[name] == answer_in(step)
            self._agree[name] = same and all(map(self._as_in_run, node.inputs))
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
        evidence = tuple(
            (name, getattr(self._steps.get(name), "output", None))
            for name in node.inputs
            if self._nodes[name].kind not in _DECIDES
        )
        return Asked(
            node.name, node.kind, node.question or node.name, choices, node.reads, evidence,
            node.hash,
        )  # fmt: skip


def answer_in(value: NodeValue | Step) -> Said:
    """The verdict of a node, or its score without one."""
    return value.score if value.verdict is None else value.verdict


def plan_of(metric: MetricRecord) -> Plan:
    """The plan that a metric was recorded from, but for its nodes: each of them does nothing."""
    slots: list[Slot] = []
    scope = _scope_of(metric, None, slots)
    find_material(slots)
    find_tangles(slots)
    return Numbering([Wiring(scope, slots, [], [], cause_graph(slots))], [None]).plan(())


def _scope_of(metric: MetricRecord, owner: Slot | None, slots: list[Slot]) -> Scope:
    """Add the slots of a metric to `slots`, the parts of a nested one before what stands for it."""
    spec = MetricSpec(
        metric.name, Graph(), metric.threshold, metric.strict, metric.combine, include_reason=False
    )
    scope, verdicts = Scope(spec, owner), metric.verdicts()
    for node in metric.nodes:
        slot = scope.slots[node.name] = Slot(scope, "node", node.name, grades=node.grades)
        if node.metric is not None:
            slot.kind, slot.grades = "metric", True
            slot.nested = _scope_of(node.metric, slot, slots)
        else:
            then = dict.fromkeys(verdicts.get(node.name, ()))
            computes = node.kind == "code"
            slot.node = CodeNode(answer_in, then=then) if computes else DecisionNode(then=then)
        slots.append(slot)
        for edge in metric.edges:
            if edge.source == node.name and edge.score is not None:
                name = f"{node.name} = {edge.verdict}"
                end = Slot(scope, "verdict", name, score=edge.score, grades=True)
                scope.slots[node.name, edge.verdict] = end
                slot.branches.append((edge.verdict, end))
                slots.append(end)
    _connect(scope, metric)
    grading = {slot.name: slot for slot in scope.slots.values() if slot.grades}
    scope.terminals = [grading[name] for name in metric.terminals or grading]
    return scope


def _connect(scope: Scope, metric: MetricRecord) -> None:
    """Connect the slots of one metric as its record has them."""
    for edge in metric.edges:
        if edge.target is not None:
            source, target = scope.slots[edge.source], scope.slots[edge.target]
            if edge.verdict is not None:
                source.branches.append((edge.verdict, target))
            else:
                target.sources.append(Source(source, _pulls(edge)))
                if edge.starts:
                    source.activates.append(target)
    roots = [scope.slots[node.name] for node in metric.nodes if _is_root(node, metric.edges)]
    for slot in reach(roots, lambda slot: (*slot.activates, *slot.pulls())):
        slot.always_live = True
    for root in roots:
        root.root = scope.owner is None
    if scope.owner is not None:
        scope.owner.activates += roots


def _pulls(edge: EdgeRecord) -> bool:
    """Whether a reader makes its source run; in an older record, of what does not start it."""
    return not edge.starts if edge.pulls is None else edge.pulls


def _is_root(node: NodeRecord, edges: Sequence[EdgeRecord]) -> bool:
    """Whether a node runs whenever its metric does; in an older record, if nothing leads to it."""
    if node.root is not None:
        return node.root
    for edge in edges:
        if edge.target == node.name and (edge.verdict is not None or edge.starts):
            return False
        if edge.source == node.name and edge.verdict is None and _pulls(edge):
            return False
    return True
