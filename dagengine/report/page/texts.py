"""The texts of a run in compressed blocks: those of failed cases first, then the others."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from dagengine.report.page.graphs import PageGraph, words
from dagengine.results import CaseResult, Failure, MetricResult, Step, implied_output

_BLOCK = 256 * 1024  # characters of a block before it is compressed
_JSON = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


def packed(value: Any) -> str:
    """JSON text, compressed with gzip, as base64: equal for equal data."""
    text = value if isinstance(value, str) else _JSON.encode(value)
    data = gzip.compress(text.encode(errors="backslashreplace"), 6, mtime=0)
    return base64.b64encode(data).decode("ascii")


@dataclass(slots=True)
class _Group:
    """Lines of rows of one kind, compressed a block at a time."""

    blocks: list[str] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    _lines: list[str] = field(default_factory=list)
    _length: int = 0

    def add(self, row: int, line: str) -> None:
        self.rows.append(row)
        self._lines.append(line)
        self._length += len(line)
        if self._length >= _BLOCK:
            self.close()

    def close(self) -> None:
        if self._lines:
            self.blocks.append(packed("\n".join(self._lines)))
            self.sizes.append(len(self._lines))
            self._lines, self._length = [], 0


class Texts:
    """Collects the texts of rows: what failed or has no score, and the others."""

    def __init__(self, graphs: Sequence[PageGraph], room: int, rows: int) -> None:
        """`room` is how many characters of the page all blocks may take together.

        A run of more than `rows` rows keeps the texts of the first group alone.
        """
        self._graphs = graphs
        self._room, self._rows = room, rows
        self._count = 0
        self._first, self._rest = _Group(), _Group()

    def add(self, row: CaseResult, fields: dict[str, Any] | None, states: Sequence[str]) -> None:
        """Add the next row with the fields of its case."""
        found = {result.metric: result for result in row.metrics}
        results = [_metric(graph, found.get(graph.metric.name)) for graph in self._graphs]
        first = "f" in states or "n" in states
        if first or self._count < self._rows:
            group = self._first if first else self._rest
            group.add(self._count, _JSON.encode([fields, results]))
        self._count += 1

    def close(self) -> tuple[list[str], list[int], list[int]]:
        """The blocks that fit, the slots they start at, and every row's slot (-1: left out)."""
        slots = [-1] * self._count
        blocks: list[str] = []
        starts: list[int] = []
        used = slot = 0
        for group in self._kept():
            group.close()
            rows = iter(group.rows)
            for block, size in zip(group.blocks, group.sizes, strict=True):
                used += len(block)
                if used > self._room:
                    return blocks, starts, slots
                blocks.append(block)
                starts.append(slot)
                for place in range(slot, slot + size):
                    slots[next(rows)] = place
                slot += size
        return blocks, starts, slots

    def _kept(self) -> Iterator[_Group]:
        yield self._first
        if self._count <= self._rows:
            yield self._rest


def _metric(graph: PageGraph, result: MetricResult | None) -> list[Any]:
    if result is None:
        return [None, None, []]
    failure: Failure | None = result.failure
    steps = [_step(graph, step) for step in result.steps]
    return [result.reason, failure.as_dict() if failure else None, steps]


def _step(graph: PageGraph, step: Step) -> list[Any]:
    node = graph.node(step.node)
    verdict = None if step.verdict is None else words(step.verdict)
    known = None if node is None else graph.nodes[node].kind
    tokens = round(step.usage.input_tokens + step.usage.output_tokens)
    values = [
        *(step.node if node is None else node, str(step.outcome), verdict, _output(step)),
        *(step.reason, step.score, step.mode, step.confidence),
        *(list(step.votes) or None, tokens or None, None if step.kind == known else step.kind),
    ]
    while values[-1] is None:
        values.pop()
    return values


def _output(step: Step) -> Any:
    """The output, unless the verdict and the reason say it all, or the score does."""
    row = {"kind": step.kind, "verdict": step.verdict, "reason": step.reason}
    if step.verdict is not None and repr(step.output) == repr(implied_output(row)):
        return None
    return None if step.score is not None and step.output == step.score else step.output
