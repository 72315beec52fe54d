"""Rows of a run as columns: what filters, counts and sorts without a text."""

from __future__ import annotations

from array import array
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from dagengine.record.costs import StepCosts
from dagengine.report.page.graphs import PageGraph, item_verdicts
from dagengine.report.page.people import People
from dagengine.results import CaseResult, MetricResult, Step
from dagengine.results.verdict import LETTERS

_FREE = frozenset({"code", "field", "metric"})  # kinds of nodes that ask no question
_DIGITS = 8  # of a content's hash


@dataclass(slots=True)
class MetricColumns:
    """The columns of one metric. A *way* is what rows share that went alike through the graph."""

    graph: PageGraph
    costs: StepCosts
    ways: dict[Any, int] = field(default_factory=dict)
    way: array[int] = field(default_factory=lambda: array("l"))
    score: list[float | None] = field(default_factory=list)
    state: list[str] = field(default_factory=list)
    tokens: array[int] = field(default_factory=lambda: array("l"))
    questions: array[int] = field(default_factory=lambda: array("l"))
    cost: list[float | None] = field(default_factory=list)
    seconds: list[float | None] = field(default_factory=list)
    split: dict[int, list[int]] = field(default_factory=dict)
    items: dict[int, list[tuple[int, int]]] = field(default_factory=dict)

    def add(self, result: MetricResult | None) -> str:
        """Add one row's result (None: the row has none of this metric); returns its state."""
        row = len(self.state)
        found = result or MetricResult(self.graph.metric.name, None, None, None)
        state = LETTERS[found.state]
        self.state.append(state)
        self.score.append(None if found.score is None else round(found.score, 6))
        used = found.usage
        self.tokens.append(round(used.input_tokens + used.output_tokens))
        self.questions.append(sum(map(_questions, found.steps)))
        self.cost.append(self.cost_of(found))
        self.seconds.append(None if found.seconds is None else round(found.seconds, 3))
        self.way.append(self.ways.setdefault(self._way(row, found), len(self.ways)))
        return state

    def cost_of(self, result: MetricResult) -> float | None:
        """US dollars of one result; None if a price is not known, or nothing was used."""
        money = 0.0
        for step in result.steps:
            cost = self.costs.of(result.metric, step)
            if cost is None:
                return None
            money += cost
        return float(f"{money:.4g}") or None

    def _way(self, row: int, result: MetricResult) -> Any:
        answers: list[int] = []
        nodes: list[int] = []
        for step in result.steps:
            node = self.graph.node(step.node)
            if node is None:
                continue
            nodes += [one for one in self.graph.around(node) if one not in nodes]
            if step.verdict is not None:
                answer = self.graph.answer(node, step.verdict)
                answers.append(answer)
                if step.votes and step.agreeing < len(step.votes):
                    self.split.setdefault(answer, []).append(row)
            for verdict, count in Counter(item_verdicts(step.output)).items():
                answer = self.graph.answer(node, verdict)
                self.items.setdefault(answer, []).append((row, count))
        failure = result.failure
        broken = failure and (str(failure.kind), self.graph.node(failure.node), failure.node)
        return tuple(answers), tuple(nodes), self._end(result), broken

    def _end(self, result: MetricResult) -> tuple[int | None, int | None]:
        """The node that gave the score, and the answer where a verdict did."""
        name, verdict = result.last
        node = self.graph.node(name)
        if node is None or verdict is None:
            return node, None
        return node, self.graph.answer(node, verdict)

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready form."""
        return {
            "ways": [
                {"answers": answers, "nodes": nodes, "end": end, "failure": failure}
                for answers, nodes, end, failure in self.ways
            ],
            "way": list(self.way),
            "score": self.score,
            "state": "".join(self.state),
            "tokens": list(self.tokens),
            "questions": list(self.questions),
            "cost": self.cost if any(self.cost) else None,
            "seconds": self.seconds if any(self.seconds) else None,
            "split": self.split,
            "items": self.items,
        }

    def counted(self) -> list[tuple[Any, int, int]]:
        """Every way with its cases, and those of them that failed."""
        cases: Counter[int] = Counter(self.way)
        failed: Counter[int] = Counter(
            way for way, state in zip(self.way, self.state, strict=True) if state == "f"
        )
        return [(way, cases[number], failed[number]) for way, number in self.ways.items()]


def _questions(step: Step) -> int:
    if step.kind in _FREE:
        return 0
    each = len(step.output) if step.kind == "map" and isinstance(step.output, list) else 1
    return each * max(1, len(step.votes))


@dataclass(slots=True)
class Columns:
    """All columns of a run."""

    metrics: list[MetricColumns]
    name: list[str] = field(default_factory=list)
    hash: list[str] = field(default_factory=list)
    number: array[int] = field(default_factory=lambda: array("l"))
    tags: dict[str, int] = field(default_factory=dict)
    tagged: list[list[int]] = field(default_factory=list)
    people: People = field(default_factory=People)
    said: dict[int, list[dict[str, Any]]] = field(default_factory=dict)

    def add(self, row: CaseResult, hash_: str | None, tags: list[str]) -> list[str]:
        """Add one row; returns its states, one per metric."""
        said = self.people.of(hash_)
        if said:
            self.said[len(self.name)] = said
        self.name.append(row.case)
        self.hash.append((hash_ or "")[:_DIGITS])
        self.number.append(row.index)
        self.tagged.append([self.tags.setdefault(tag, len(self.tags)) for tag in tags])
        found = {result.metric: result for result in row.metrics}
        return [metric.add(found.get(metric.graph.metric.name)) for metric in self.metrics]

    def as_dict(self, slot: list[int]) -> dict[str, Any]:
        """JSON-ready form; `slot` is the place of every row among the texts."""
        placed = all(number == place for place, number in enumerate(self.number))
        return {
            "name": self.name,
            "hash": self.hash,
            "number": None if placed else list(self.number),
            "tags": list(self.tags),
            "tagged": self.tagged if self.tags else None,
            "said": self.said,
            "slot": slot,
            "metrics": [metric.as_dict() for metric in self.metrics],
        }
