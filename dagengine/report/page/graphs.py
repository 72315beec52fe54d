"""A metric's graph as the page has it: nodes, answers and feeds by number."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from dagengine.record.values import EdgeRecord, MetricRecord, NodeRecord
from dagengine.report.page.values import Answer, Feed, Node


@dataclass(slots=True)
class PageGraph:
    """One metric, nested ones included; answers that no edge foretells are added as they come."""

    metric: MetricRecord
    nodes: list[Node] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    feeds: list[Feed] = field(default_factory=list)
    _node: dict[str, int] = field(default_factory=dict)
    _answer: dict[tuple[int, str], int] = field(default_factory=dict)

    @classmethod
    def of(cls, metric: MetricRecord) -> PageGraph:
        """The graph of a metric as it was recorded."""
        graph = cls(metric)
        graph._add(metric, inside=None)
        return graph

    def node(self, name: str) -> int | None:
        """The number of a node; None for a name that the graph does not have."""
        return self._node.get(name)

    def around(self, node: int) -> list[int]:
        """A node, and those that stand for the metrics that it is in."""
        found = [node]
        while (owner := self.nodes[found[-1]].inside) is not None:
            found.append(owner)
        return found

    def answer(self, node: int, verdict: Any) -> int:
        """The number of an answer; a new one when the graph has none such."""
        key = (node, words(verdict))
        if key not in self._answer:
            self._answer[key] = len(self.answers)
            self.answers.append(Answer(node, key[1]))
        return self._answer[key]

    def _add(self, metric: MetricRecord, inside: int | None) -> None:
        for record in metric.nodes:
            self._add_node(record, inside)
        for edge in metric.edges:
            self._add_edge(edge)

    def _add_node(self, record: NodeRecord, inside: int | None) -> None:
        shown, nested = record, record.metric
        if nested is not None and len(nested.nodes) == 1 and not nested.nodes[0].metric:
            shown, nested = nested.nodes[0], None  # one node is in the place of its metric
        number = self._node[record.name] = len(self.nodes)
        self.nodes.append(
            Node(
                name=record.name,
                kind=shown.kind,
                question=None if shown.question == "<lambda>" else shown.question,
                reads=shown.reads,
                inputs=shown.inputs,
                hash=shown.hash,
                panel=shown.panel,
                inside=inside,
            )
        )
        if nested is not None:
            self._add(nested, inside=number)

    def _add_edge(self, edge: EdgeRecord) -> None:
        source = self._node[edge.source]
        target = None if edge.target is None else self._node[edge.target]
        if edge.verdict is None:
            if target is not None and target != source:
                self.feeds.append(Feed(source, target, edge.starts))
            return
        answer = self.answers[self.answer(source, edge.verdict)]
        if target is not None:
            answer.targets.append(target)
        answer.score = edge.score if edge.score is not None else answer.score

    def as_dict(self) -> dict[str, Any]:
        """What the page gets, without the drawings."""
        return {
            "name": self.metric.name,
            "threshold": self.metric.threshold,
            "strict": self.metric.strict,
            "hash": self.metric.hash,
            "nodes": [node.as_dict() for node in self.nodes],
            "answers": [answer.as_dict() for answer in self.answers],
            "feeds": [feed.as_dict() for feed in self.feeds],
        }


def words(verdict: Any) -> str:
    """A verdict as the page, and the command line, write it."""
    return verdict if isinstance(verdict, str) else str(verdict)


def item_verdicts(output: Any) -> Iterator[Any]:
    """The verdicts in the output of a node that judges the items of a list."""
    if isinstance(output, list):
        for item in output:
            if isinstance(item, dict) and isinstance(item.get("verdict"), str | bool):
                yield item["verdict"]
