"""A metric's graph by number: nodes, answers and feeds, as pictures and the page have it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import compress
from typing import Any, ClassVar

from dagengine.record.run_json_types import MetricRecord, NodeRecord


class Node(NodeRecord):
    """A node; one of a nested metric stands `inside` the node of that metric."""

    inside: int | None = None

    def as_dict(self) -> dict[str, Any]:
        """Data for the page; of the panel the number of votes."""
        names = ("name", "kind", "question", "reads", "inputs", "hash", "examples", "inside")
        shown = {name: getattr(self, name) for name in names if name != "examples" or self.examples}
        votes = re.search(r"\d+", self.panel or "")
        return {**shown, "votes": int(votes[0]) if votes else 1}


@dataclass(slots=True)
class Answer:
    """An answer of a node: where it leads, or its score (0 to 1)."""

    node: int
    verdict: str
    targets: list[int] = field(default_factory=list)
    score: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready form; scores of verdicts are whole numbers from 0 to 10."""
        score = None if self.score is None else round(self.score * 10, 6)
        to = next(iter(self.targets), None)
        return {"node": self.node, "verdict": self.verdict, "to": to, "score": score}


@dataclass(frozen=True, slots=True)
class Feed:
    """An edge without an answer; one that `runs` makes its target run."""

    source: int
    target: int
    runs: bool

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready form."""
        return {"from": self.source, "to": self.target, "runs": self.runs}


@dataclass(slots=True)
class MetricGraph:
    """One metric, nested ones included; answers that no edge foretells are added as they come."""

    metric: MetricRecord
    nodes: list[Node] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    feeds: list[Feed] = field(default_factory=list)
    _node: dict[str, int] = field(default_factory=dict)
    _answer: dict[tuple[int, str], int] = field(default_factory=dict)

    @classmethod
    def of(cls, metric: MetricRecord) -> MetricGraph:
        """The graph of a metric as it was recorded."""
        graph = cls(metric)
        graph._add(metric, inside=None)
        return graph

    def node(self, name: str) -> int | None:
        """The number of a node; None for a name that the graph does not have."""
        return self._node.get(name)

    def around(self, node: int) -> list[int]:
        """A node, and those that stand for the metrics that it is in."""
        chain = [node]
        while (owner := self.nodes[chain[-1]].inside) is not None:
            chain.append(owner)
        return chain

    def inner(self, owner: int | None) -> list[int]:
        """The nodes directly in the metric that a node stands for (None: in the graph itself)."""
        return [number for number, node in enumerate(self.nodes) if node.inside == owner]

    def targets(self) -> set[int]:
        """The nodes that answers lead to."""
        return {target for answer in self.answers for target in answer.targets}

    def owners(self) -> set[int]:
        """The nodes that stand for metrics with nodes of their own."""
        return {node.inside for node in self.nodes if node.inside is not None}

    def scores(self, node: int) -> int:
        """Number of answers of a node that are scores."""
        return sum(answer.node == node and answer.score is not None for answer in self.answers)

    def asked_by(self, node: int) -> int:
        """The node whose output a node counts; the node itself if it reads none."""
        inputs = list(map(self.node, self.nodes[node].inputs))
        return next((number for number in inputs if number is not None), node)

    def answer(self, node: int, verdict: Any) -> int:
        """The number of an answer; a new one when the graph has none such."""
        key = (node, str(verdict))
        if key not in self._answer:
            self._answer[key] = len(self.answers)
            self.answers.append(Answer(node, key[1]))
        return self._answer[key]

    def _add(self, metric: MetricRecord, inside: int | None) -> None:
        for record in metric.nodes:
            shown, nested = record, record.metric
            if nested is not None and len(nested.nodes) == 1 and not nested.nodes[0].metric:
                shown, nested = nested.nodes[0], None  # one node is in the place of its metric
            number = self._node[record.name] = len(self.nodes)
            question = None if shown.question == "<lambda>" else shown.question
            own = {"name": record.name, "grades": record.grades, "question": question}
            self.nodes.append(Node(**{**dict(shown), **own, "inside": inside}))
            # Before the next node: inner nodes are numbered right after the one they stand in.
            if nested is not None:
                self._add(nested, inside=number)
        for edge in metric.edges:
            source = self._node[edge.source]
            target = self._node.get(edge.target or "")
            if edge.verdict is None:
                if target is not None and target != source:
                    self.feeds.append(Feed(source, target, edge.starts))
                continue
            answer = self.answers[self.answer(source, edge.verdict)]
            if target is not None:
                answer.targets.append(target)
            if edge.score is not None:
                answer.score = edge.score

    def as_dict(self) -> dict[str, Any]:
        """Data for the page, without the drawings."""
        return {
            "name": self.metric.name,
            "threshold": self.metric.threshold,
            "strict": self.metric.strict,
            "hash": self.metric.hash,
            "nodes": list(map(Node.as_dict, self.nodes)),
            "answers": list(map(Answer.as_dict, self.answers)),
            "feeds": list(map(Feed.as_dict, self.feeds)),
        }


@dataclass(frozen=True, slots=True)
class Contest:
    """How an arena ended: its winner (or `tie`), and every order with who won it."""

    winner: str
    votes: tuple[tuple[list[str], str], ...]
    reason: str

    TIE: ClassVar[str] = "tie"

    @classmethod
    def of(cls, output: Any) -> Contest | None:
        """The contest in the output of a step; None for any other output."""
        ballots = output.get("ballots") if isinstance(output, dict) else None
        # A tie has no winner: a ballot is known by the other two.
        if not (isinstance(ballots, list) and ballots) or not all(
            isinstance(ballot, dict) and {"order", "reason"} <= ballot.keys() for ballot in ballots
        ):
            return None
        winner = output.get("winner") or cls.TIE
        votes = tuple((ballot["order"], ballot.get("winner") or cls.TIE) for ballot in ballots)
        won = [vote == winner for _, vote in votes]
        first = next(compress(ballots, won), ballots[0])
        return cls(winner, votes, first["reason"])


def item_verdicts(output: Any) -> Iterator[Any]:
    """The verdicts in the output of a node that judges the items of a list."""
    if isinstance(output, list):
        for item in output:
            if isinstance(item, dict) and isinstance(item.get("verdict"), str | bool):
                yield item["verdict"]
