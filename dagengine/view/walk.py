"""A person's way through the tree of a metric: which question is next, and where the walk ends.

The person's answers choose the branches. Code is filled in with what the run computed, as long as
the person gave the same answers that it read. What a task wrote is shown as evidence.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from dagengine.record.changes.tree_changes import every_edge, every_node
from dagengine.record.values import EdgeRecord, MetricRecord, NodeRecord
from dagengine.results import MetricResult, OutcomeKind, Step, Verdict
from dagengine.results.verdict import combined, passes, strict_score

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
        """Whether nothing is left to be asked."""
        return self.asked is None


class StuckError(Exception):
    """Raised where a walk cannot continue; the message says why."""


class Walk:
    """One person on one case: `answers` are theirs by node, `result` is what the run said."""

    def __init__(
        self, metric: MetricRecord, result: MetricResult | None, answers: Mapping[str, Said]
    ) -> None:
        self._metric = metric
        self._answers = answers
        self._steps = {} if result is None else {step.node: step for step in result.steps}
        self._nodes = {node.name: node for node in every_node(metric)}
        self._values: dict[str, Said] = {}
        self._agree: dict[str, bool] = {}

    def position(self) -> Position:
        """Go as far as the answers lead.

        The tree may have no question for a person, or lead to code that the run did not compute.
        Then the person is asked about the case as a whole.
        """
        found = self._through_tree()
        told = any(step.by == "person" for step in found.steps)
        if not found.done or (told and not found.why) or found.why.startswith(UNSURE):
            return found
        return self._whole(found)

    def _whole(self, found: Position) -> Position:
        """The position with the last question: does the case pass?"""
        if WHOLE not in self._answers:
            reads = sorted({path for node in self._nodes.values() for path in node.reads})
            name = self._metric.name
            yes_no = (Choice("It passes", True), Choice("It fails", False))
            asked = Asked(
                WHOLE, "metric", f"Does this case pass {name}?", yes_no, tuple(reads), (),
                self._metric.hash,
            )  # fmt: skip
            return replace(found, asked=asked, score=None, success=None)
        said = self._answers[WHOLE]
        steps = (*found.steps, Passed(WHOLE, said, "person"))
        why = f"{UNSURE} about the case" if said is None else ""
        return Position(steps, None, None, None if said is None else bool(said), why)

    def _through_tree(self) -> Position:
        steps: list[Passed] = []
        try:
            while (node := self._next()) is not None:
                if not node.judges:
                    value = self._computed(node)
                    steps.append(Passed(node.name, value, "code"))
                elif node.name in self._answers:
                    value = self._answers[node.name]
                    steps.append(Passed(node.name, value, "person"))
                    if value is None:
                        return Position(tuple(steps), None, why=f"{UNSURE} at {node.name}")
                else:
                    return Position(tuple(steps), self._question(node))
                self._values[node.name] = value
            score = self._score(self._metric)
        except StuckError as error:
            return Position(tuple(steps), None, why=str(error))
        threshold = 1.0 if self._metric.strict else self._metric.threshold
        return Position(tuple(steps), None, score, passes(score, threshold))

    # What runs.

    def _next(self) -> NodeRecord | None:
        """The first node that speaks, runs and has no value yet.

        An answer may make an earlier node run: one that only a later node reads.
        """
        for node in self._nodes.values():
            if node.name not in self._values and self._speaks(node) and self._live(node.name):
                return node
        return None

    @cached_property
    def _edges(self) -> Sequence[EdgeRecord]:
        return list(every_edge(self._metric))

    @cached_property
    def _owner(self) -> Mapping[str, str]:
        """The node that stands for the nested metric in which a node is."""
        return dict(_owners(self._metric))

    def _leads(self, name: str) -> list[EdgeRecord]:
        return [one for one in self._edges if one.source == name and one.verdict is not None]

    def _speaks(self, node: NodeRecord) -> bool:
        """Whether a node decides or rates; all else only prepares."""
        return node.grades or bool(node.scale) or bool(self._leads(node.name))

    def _live(self, name: str) -> bool:
        """Whether the answers so far make a node run."""
        into = [one for one in self._edges if one.target == name]
        starts = [one for one in into if one.verdict is not None or one.starts]
        if any(self._taken(one) for one in starts):
            return True
        readers = [
            one.target for one in self._edges
            if one.source == name and one.verdict is None and not one.starts and one.target
        ]  # fmt: skip
        if any(self._live(reader) for reader in readers):
            return True
        return not starts and not readers and self._inside_live(name)

    def _inside_live(self, name: str) -> bool:
        owner = self._owner.get(name)
        return owner is None or self._live(owner)

    def _taken(self, edge: EdgeRecord) -> bool:
        if edge.verdict is None:
            return self._live(edge.source)
        return edge.source in self._values and _equal(self._values[edge.source], edge.verdict)

    # What is known without asking.

    def _computed(self, node: NodeRecord) -> Said:
        """What code said in the run; raises StuckError where that is not for this walk."""
        step = self._steps.get(node.name)
        if step is None or step.outcome != OutcomeKind.OK:
            raise StuckError(f"{node.name} is code that the run did not reach")
        if not all(map(self._as_in_run, node.inputs)):
            raise StuckError(f"{node.name} is code, and ran on other answers than yours")
        return _said(step)

    def _as_in_run(self, name: str) -> bool:
        """Whether the walk has what a node said in the run.

        What only the judge answered it has not: code on it would tell the judge's answers.
        """
        if name not in self._agree:
            node, step = self._nodes.get(name), self._steps.get(name)
            same = node is not None and step is not None
            if name in self._values:
                same = same and self._values[name] == (None if step is None else _said(step))
            elif node is not None and node.judges:
                same = same and node.kind == "task"
            inputs = node.inputs if node is not None else ()
            self._agree[name] = same and all(map(self._as_in_run, inputs))
        return self._agree[name]

    def _question(self, node: NodeRecord) -> Asked:
        choices = self._choices(node)
        if not choices:
            raise StuckError(f"{node.name} judges the items of a list, which a walk does not ask")
        evidence = tuple(
            (name, None if step is None else step.output)
            for name in node.inputs
            for step in (self._steps.get(name),)
            if self._nodes[name].kind not in _DECIDES
        )
        return Asked(
            node.name, node.kind, node.question or node.name, choices, node.reads, evidence,
            node.hash,
        )  # fmt: skip

    def _choices(self, node: NodeRecord) -> tuple[Choice, ...]:
        if node.kind in _DECIDES:
            verdicts = dict.fromkeys(one.verdict for one in self._leads(node.name))
            return tuple(Choice(str(one), one) for one in verdicts if one is not None)
        if node.kind in _LISTS or not node.scale:
            return ()
        low, high = min(node.scale.values()), max(node.scale.values())
        return tuple(
            Choice(label, (number - low) / (high - low)) for label, number in node.scale.items()
        )

    # Where it ended.

    def _score(self, metric: MetricRecord) -> float:
        """The score of a metric on the way that was taken; raises StuckError without one."""
        reached: list[float] = []
        for node in metric.nodes:
            if node.metric is not None:
                reached += [self._score(node.metric)] if self._live(node.name) else []
            elif node.name in self._values:
                reached += self._scores_of(node, metric)
        if not reached:
            raise StuckError("no answer leads to a score")
        if metric.combine == "error" and len(reached) > 1:
            raise StuckError(f"{len(reached)} scores were reached at once")
        score = combined(reached, metric.combine)
        return strict_score(score) if metric.strict else score

    def _scores_of(self, node: NodeRecord, metric: MetricRecord) -> Iterator[float]:
        value = self._values[node.name]
        leads = [one for one in metric.edges if one.source == node.name and one.verdict is not None]
        if leads:
            for one in leads:
                if one.score is not None and one.verdict is not None and _equal(value, one.verdict):
                    yield one.score
        elif node.grades and isinstance(value, int | float):
            yield float(value)


def _owners(metric: MetricRecord) -> Iterator[tuple[str, str]]:
    for node in metric.nodes:
        if node.metric is not None:
            yield from ((inner.name, node.name) for inner in node.metric.nodes)
            yield from _owners(node.metric)


def _equal(one: Said, other: Said) -> bool:
    return isinstance(one, bool) == isinstance(other, bool) and one == other


def _said(step: Step) -> Said:
    return step.score if step.verdict is None else step.verdict
