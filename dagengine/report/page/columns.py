"""Rows of a run as columns: what filters, counts and sorts without a text."""

from __future__ import annotations

from array import array
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from dagengine.record.costs import StepCosts
from dagengine.report.page.days import Groups
from dagengine.report.page.people import People
from dagengine.report.pictures.graphs import Contest, MetricGraph, item_verdicts
from dagengine.results import CaseResult, MetricResult, Step
from dagengine.results.verdict import LETTERS

_FREE = frozenset({"code", "field", "metric"})  # kinds of nodes that ask no question
_DIGITS = 8  # of a content's hash


@dataclass(slots=True)
class MetricColumns:
    """The columns of one metric. A *way* is what rows share that went alike through the graph."""

    graph: MetricGraph
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
        outcome = result or MetricResult(self.graph.metric.name, None, None, None)
        state = LETTERS[outcome.state]
        self.state.append(state)
        self.score.append(None if outcome.score is None else round(outcome.score, 6))
        used = outcome.usage
        self.tokens.append(round(used.input_tokens + used.output_tokens))
        self.questions.append(sum(map(_questions, outcome.steps)))
        self.cost.append(self.cost_of(outcome))
        self.seconds.append(None if outcome.seconds is None else round(outcome.seconds, 3))
        self.way.append(self.ways.setdefault(self._way(row, outcome), len(self.ways)))
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
        contest: int | None = None
        for step in result.steps:
            node = self.graph.node(step.node)
            if node is None:
                continue
            nodes += [around for around in self.graph.around(node) if around not in nodes]
            if step.verdict is not None:
                answer = self.graph.answer(node, step.verdict)
                answers.append(answer)
                if step.votes and step.agreeing < len(step.votes):
                    self.split.setdefault(answer, []).append(row)
            for verdict, count in Counter(item_verdicts(step.output)).items():
                answer = self.graph.answer(node, verdict)
                self.items.setdefault(answer, []).append((row, count))
            if (vote := Contest.of(step.output)) is not None:
                contest = self._contest(row, node, vote)
                answers.append(contest)
        failure = result.failure
        broken = failure and (str(failure.kind), self.graph.node(failure.node), failure.node)
        end = self._end(result)
        return tuple(answers), tuple(nodes), end if contest is None else (end[0], contest), broken

    def _contest(self, row: int, node: int, contest: Contest) -> int:
        """Count the votes of an arena; returns the answer that stands for its winner.

        A winner is an answer of the node that counted, a vote one of the node that asked, the place
        of a winner one of the node that drew the order. So filters, shares and large runs need
        nothing of their own for an arena.
        """
        winner = self.graph.answer(node, contest.winner)
        votes = [vote for _, vote in contest.votes]
        if len(set(votes)) > 1:
            self.split.setdefault(winner, []).append(row)
        asked = self.graph.asked_by(node)
        places = [
            f"shown {order.index(vote) + 1}" for order, vote in contest.votes if vote in order
        ]
        for about, verdicts in ((asked, votes), (self.graph.asked_by(asked), places)):
            for verdict, count in Counter(verdicts).items():
                answer = self.graph.answer(about, verdict)
                self.items.setdefault(answer, []).append((row, count))
        return winner

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
    groups: Groups = field(default_factory=Groups)
    people: People = field(default_factory=People)
    human_answers: dict[int, list[dict[str, Any]]] = field(default_factory=dict)

    def add(self, row: CaseResult, hash_: str | None, tags: list[str]) -> list[str]:
        """Add one row; returns its states, one per metric."""
        answers = self.people.of(hash_)
        if answers:
            self.human_answers[len(self.name)] = answers
        self.name.append(row.case)
        self.hash.append((hash_ or "")[:_DIGITS])
        self.number.append(row.index)
        self.groups.add(row)
        self.tagged.append([self.tags.setdefault(tag, len(self.tags)) for tag in tags])
        results = {result.metric: result for result in row.metrics}
        return [metric.add(results.get(metric.graph.metric.name)) for metric in self.metrics]

    def day_of(self, number: int) -> str | None:
        """The day of the case with a number; None without one."""
        place = number if self.number[number : number + 1] == array("l", [number]) else -1
        return self.groups.day(place) if place >= 0 else None

    def as_dict(self, slot: list[int]) -> dict[str, Any]:
        """JSON-ready form; `slot` is the place of every row among the texts."""
        placed = all(number == place for place, number in enumerate(self.number))
        return {
            "name": self.name,
            "hash": self.hash,
            "number": None if placed else list(self.number),
            "tags": list(self.tags),
            "tagged": self.tagged if self.tags else None,
            "said": self.human_answers,
            "slot": slot,
            "groups": self.groups.as_dict(),
            "metrics": [metric.as_dict() for metric in self.metrics],
        }
