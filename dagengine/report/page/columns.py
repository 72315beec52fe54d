"""Rows of a run as columns: what filters, counts and sorts without a text."""

from __future__ import annotations

from array import array
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from dagengine.record.costs import StepCosts, used_by
from dagengine.report.page.days import Groups
from dagengine.report.page.people import People
from dagengine.report.pictures.graphs import Contest, MetricGraph, item_verdicts
from dagengine.results import CaseResult, MetricResult
from dagengine.results.verdict import LETTERS

_DIGITS = 8  # of a content's hash


class Course(NamedTuple):
    """A result as columns have it: its state, score and way, answers with split votes, items."""

    state: str
    score: float | None
    way: int
    split: tuple[int, ...]
    items: tuple[tuple[int, int], ...]


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
        outcome = result or MetricResult(self.graph.metric.name, None, None, None)
        course, used = self.course(outcome), used_by(outcome, self.costs)
        row = len(self.state)
        self.state.append(course.state)
        self.score.append(course.score)
        self.way.append(course.way)
        for answer in course.split:
            self.split.setdefault(answer, []).append(row)
        for answer, count in course.items:
            self.items.setdefault(answer, []).append((row, count))
        self.tokens.append(used.input_tokens + used.output_tokens)
        self.questions.append(used.questions)
        self.cost.append(shown_cost(used.cost))
        self.seconds.append(None if used.seconds is None else round(used.seconds, 3))
        return course.state

    def course(self, result: MetricResult) -> Course:
        """What the columns say of a result, but for what it used; its way gets a number."""
        answers: list[int] = []
        nodes: list[int] = []
        split: list[int] = []
        items: list[tuple[int, int]] = []
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
                    split.append(answer)
            for verdict, count in Counter(item_verdicts(step.output)).items():
                items.append((self.graph.answer(node, verdict), count))
            if (vote := Contest.of(step.output)) is not None:
                contest = self._contest(node, vote, split, items)
                answers.append(contest)
        failure = result.failure
        broken = failure and (str(failure.kind), self.graph.node(failure.node), failure.node)
        end = self._end(result)
        if contest is not None:
            end = (end[0], contest)
        way = self.ways.setdefault((tuple(answers), tuple(nodes), end, broken), len(self.ways))
        score = None if result.score is None else round(result.score, 6)
        return Course(LETTERS[result.state], score, way, tuple(split), tuple(items))

    def _contest(
        self, node: int, contest: Contest, split: list[int], items: list[tuple[int, int]]
    ) -> int:
        """Count the votes of an arena; returns the answer that stands for its winner.

        A winner is an answer of the node that counted, a vote one of the node that asked, the place
        of a winner one of the node that drew the order. So filters, shares and large runs need
        nothing of their own for an arena.
        """
        winner = self.graph.answer(node, contest.winner)
        votes = [vote for _, vote in contest.votes]
        if len(set(votes)) > 1:
            split.append(winner)
        asked = self.graph.asked_by(node)
        places = [
            f"shown {order.index(vote) + 1}" for order, vote in contest.votes if vote in order
        ]
        for about, verdicts in ((asked, votes), (self.graph.asked_by(asked), places)):
            for verdict, count in Counter(verdicts).items():
                items.append((self.graph.answer(about, verdict), count))
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


def shown_cost(cost: float | None) -> float | None:
    """US dollars of a result as pages have them; None if not known, or nothing."""
    return float(f"{cost:.4g}") or None if cost else None


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
