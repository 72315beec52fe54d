"""Rows of a run as columns: what filters, counts and sorts without a text.

A page reads them as bytes: numbers in the order of little-endian machines, and texts as their
count, where each ends, and their UTF-8. A file has every column whole, a server hands out chunks.
"""

from __future__ import annotations

import json
import math
import re
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Any, NamedTuple

from dagengine.record.case_costs import Used
from dagengine.record.parquet_columns import Block, outline_of
from dagengine.record.run_json_types import MetricRecord
from dagengine.report.page.graph_layouts import layouts
from dagengine.report.pictures.metric_graph import Contest, MetricGraph, item_verdicts
from dagengine.results import MetricResult
from dagengine.results.metric_results import STARTED, WATCHED
from dagengine.results.pass_rules import LETTERS

CHUNK = 131_072
"""Rows of a column that a server hands out at once."""
_DIGITS = 8  # of a content's hash
_KEPT = 10_000  # groups of traces that are kept: all rows without a trace have the same
_CASE = {"number": "d", "group": "I"}
# Of every metric, with its number behind a dot. What is only shown and sorted by has seven digits.
_METRIC = {"kind": "I", "score": "d", "tokens": "f", "questions": "f", "cost": "f", "seconds": "f"}


_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
Group = tuple[str | None, str | None, float]


class Kind(NamedTuple):
    """How a result went, but for its score: results of one kind share what the picture counts.

    The answers taken and the nodes that ran; the node and the answer that it ended at; the kind of
    failure with its node; the state as a letter; answers with split votes; items by answer.
    """

    answers: tuple[int, ...]
    nodes: tuple[int, ...]
    end: tuple[int | None, int | None]
    failure: tuple[str, int | None, str] | None
    state: str
    split: tuple[int, ...]
    items: tuple[tuple[int, int], ...]


class MetricKinds:
    """The kinds of one metric, numbered in the order of their first results."""

    def __init__(self, metric: MetricRecord) -> None:
        self.graph = MetricGraph.of(metric)
        self.cases = Counter[int]()
        self._numbers: dict[Kind, int] = {}

    def number_and_score(self, course: str | None) -> tuple[int, float]:
        """The number of the kind of a course, and its score; None if a row has no result."""
        name = self.graph.metric.name
        empty = MetricResult(name, None, None, None)
        result = empty if course is None else outline_of(name, course)
        return self.number(result), math.nan if result.score is None else round(result.score, 6)

    def number(self, result: MetricResult) -> int:
        """The number of the kind of a result."""
        answers, nodes, split = list[int](), list[int](), list[int]()
        items, contest = list[tuple[int, int]](), None
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
            items += self._count_items(node, item_verdicts(step.output))
            if (vote := Contest.of(step.output)) is not None:
                contest = self._contest(node, vote, split, items)
                answers.append(contest)
        broken = None
        if (failure := result.failure) is not None:
            broken = str(failure.kind), self.graph.node(failure.node), failure.node
        # The node that gave the score, and the answer where a verdict did. The answer is numbered
        # even if the winner of a contest takes its place: numbers follow the order of answers.
        name, verdict = result.last
        last = self.graph.node(name)
        final = None if last is None or verdict is None else self.graph.answer(last, verdict)
        end = last, final if contest is None else contest
        kind = Kind(
            tuple(answers), tuple(nodes), end, broken, LETTERS[result.state], tuple(split),
            tuple(sorted(items)),
        )  # fmt: skip
        return self._numbers.setdefault(kind, len(self._numbers))

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
        ranks = [f"shown {order.index(vote) + 1}" for order, vote in contest.votes if vote in order]
        items += self._count_items(asked, votes)
        items += self._count_items(self.graph.asked_by(asked), ranks)
        return winner

    def _count_items(self, node: int, verdicts: Iterable[Any]) -> list[tuple[int, int]]:
        """The answers that a node gave to items, each with how often."""
        return [(self.graph.answer(node, at), n) for at, n in Counter(verdicts).items()]

    def as_dicts(self) -> list[dict[str, Any]]:
        """The kinds, JSON-ready."""
        return list(map(Kind._asdict, self._numbers))

    def as_drawn(self) -> dict[str, Any]:
        """The metric with its drawings, JSON-ready."""
        counted = [
            (kind, self.cases[number], self.cases[number] * (kind.state == "f"))
            for kind, number in self._numbers.items()
        ]
        drawings, nested = layouts(self.graph, counted, self.cases.total())
        return {**self.graph.as_dict(), "layouts": drawings, "nested": nested}


class PackedColumns:
    """Takes the rows of a run block by block, and gives their columns as bytes."""

    def __init__(self, metrics: Sequence[MetricRecord]) -> None:
        self.kinds = list(map(MetricKinds, metrics))
        self.placed = True
        """Whether the number of every case is its place."""
        self._groups: dict[Group, int] = {}
        self._group = lru_cache(_KEPT)(self._number_of_group)
        self.taken = 0
        self._texts: dict[str, list[bytes]] = {"name": [], "hash": []}
        codes = {f"{name}.{n}": _METRIC[name] for n in range(len(metrics)) for name in _METRIC}
        self._numbers = {name: array(code) for name, code in {**_CASE, **codes}.items()}

    @property
    def waiting(self) -> int:
        """Rows that were not taken yet."""
        return len(self._texts["name"])

    def extend(self, block: Block) -> None:
        """Add the rows of a block."""
        start = self.taken + self.waiting
        self.placed = self.placed and block["index"] == [*range(start, start + len(block["index"]))]
        self._texts["name"] += (name.encode(errors="replace") for name in block["case"])
        self._texts["hash"] += (
            (own or "")[:_DIGITS].encode(errors="replace") for own in block["hash"]
        )
        self._numbers["number"].extend(block["index"])
        self._numbers["group"].extend(map(self._group, block["trace"]))
        for metric, kinds in enumerate(self.kinds):
            self._add_results(metric, kinds, block)

    def _add_results(self, metric: int, kinds: MetricKinds, block: Block) -> None:
        # Most rows went as some other row did: each course is read once.
        courses = block[f"course.{metric}"]
        pairs = {text: kinds.number_and_score(text) for text in dict.fromkeys(courses)}
        numbers = [pairs[text][0] for text in courses]
        kinds.cases.update(numbers)
        names = map(f"{{}}.{metric}".format, Used._fields)
        read, written, questions, costs, seconds = map(block.__getitem__, names)
        columns: dict[str, Iterable[Any]] = {
            "kind": numbers,
            "score": [pairs[text][1] for text in courses],
            "tokens": [(a or 0) + (b or 0) for a, b in zip(read, written, strict=True)],
            "questions": [count or 0 for count in questions],
            # A cost of nothing is one without a price.
            "cost": [float(f"{cost or math.nan:.4g}") for cost in costs],
            "seconds": [math.nan if took is None else round(took, 3) for took in seconds],
        }
        for column, values in columns.items():
            self._numbers[f"{column}.{metric}"].extend(values)

    def _number_of_group(self, trace: str | None) -> int:
        group = group_of({} if trace is None else json.loads(trace))
        return self._groups.setdefault(group, len(self._groups))

    def take(self, rows: int) -> dict[str, bytes]:
        """The bytes of the next rows, by column."""
        taken = dict[str, bytes]()
        for name, texts in self._texts.items():
            # Where each text ends and not how long it is: a page finds any of them without adding
            # up.
            ends = array("I", [len(texts[:rows]), *accumulate(map(len, texts[:rows]))])
            taken[name] = ends.tobytes() + b"".join(texts[:rows])
            del texts[:rows]
        for name, numbers in self._numbers.items():
            taken[name] = numbers[:rows].tobytes()
            del numbers[:rows]
        self.taken += rows
        return taken

    @property
    def days(self) -> list[str | None]:
        """The day of every group."""
        return [day for day, *_ in self._groups]

    def day_of(self, case: int) -> str | None:
        """The day of the case with a number, as long as its row waits; None without one."""
        if self._numbers["number"][case : case + 1] != array("d", [case]):
            return None
        return self.days[self._numbers["group"][case]]

    def as_dict(self) -> dict[str, Any]:
        """Meaning of the numbers in the columns, JSON-ready."""
        return {
            "placed": self.placed,
            "groups": list(self._groups),
            "kinds": list(map(MetricKinds.as_dicts, self.kinds)),
        }


def group_of(ids: Mapping[str, Any]) -> Group:
    """The day of a trace (UTC, YYYY-MM-DD), its stratum, and the probability that it was judged.

    `ids` are those of its row. Both are None for a case that is of no trace, or was not sampled.
    """
    day = _DAY.match(ids.get(STARTED, ""))
    stratum, probability, _ = map(ids.get, WATCHED)
    try:
        share = float(probability or 1)
    except ValueError:  # a field that is hidden
        share = 1.0
    return None if day is None else day[0], stratum, share if 0 < share <= 1 else 1.0
