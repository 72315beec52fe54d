"""The texts of a run in compressed blocks, with prompts as they were sent and people's labels."""

from __future__ import annotations

import base64
import gzip
import json
import sqlite3
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import accumulate, chain
from pathlib import Path
from typing import Any

from dagengine.errors import InputError
from dagengine.question import Message
from dagengine.record.case_costs import StepCosts, call_record
from dagengine.record.label_file import LABELS, LabelFile
from dagengine.record.reader import Run
from dagengine.report.pictures.metric_graph import MetricGraph
from dagengine.results import CaseResult, MetricResult, Step, calls_words, implied_output
from dagengine.store.cache_misses import question_parts
from dagengine.store.database import UNREADABLE, connect_to_read, question_by, unpack

_BLOCK = 256 * 1024  # characters of a block before it is compressed
_JSON = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
Prompt = list[Message]
RowKeys = list[list[tuple[str, ...]]]
"""The keys of what was asked in one row: by metric, then by step."""
_PATIENCE = 1.0  # seconds, where another run has the store locked


def pack(value: Any) -> str:
    """Bytes or JSON text, compressed with gzip, as base64: equal for equal data."""
    if not isinstance(value, bytes):
        text = value if isinstance(value, str) else _JSON.encode(value)
        value = text.encode(errors="backslashreplace")
    return base64.b64encode(gzip.compress(value, 6, mtime=0)).decode("ascii")


@dataclass(slots=True)
class Blocks:
    """Lines of JSON, compressed a block at a time; `size` is that of all blocks so far.

    What comes when they take more than `room` characters already is not kept.
    """

    room: int
    size: int = 0
    _blocks: list[str] = field(default_factory=list)
    _counts: list[int] = field(default_factory=list)
    _lines: list[str] = field(default_factory=list)
    _length: int = 0

    def add(self, value: Any) -> None:
        """Add a line."""
        if self.size > self.room:
            return
        line = _JSON.encode(value)
        self._lines.append(line)
        self._length += len(line)
        if self._length >= _BLOCK:
            self._close()

    def _close(self) -> None:
        if self._lines:
            self._blocks.append(pack("\n".join(self._lines)))
            self._counts.append(len(self._lines))
            self.size += len(self._blocks[-1])
            self._lines, self._length = [], 0

    def within(self, room: int) -> tuple[list[str], list[int]]:
        """The blocks that take at most `room` characters, and how many lines each has."""
        self._close()
        fitting = bisect_right([*accumulate(map(len, self._blocks))], room)
        return self._blocks[:fitting], self._counts[:fitting]


def starts_of(counts: Sequence[int]) -> list[int]:
    """The number of the first line of every block."""
    return list(accumulate(counts, initial=0))[:-1]


class Texts:
    """Collects the texts of rows: what failed or has no score, and the others."""

    def __init__(
        self, graphs: Sequence[MetricGraph], costs: StepCosts, room: int, rows: int
    ) -> None:
        """`room` is how many characters of the page all blocks may take together.

        A run of more than `rows` rows keeps the texts of the first group alone.
        """
        self._graphs, self._costs = graphs, costs
        self._room, self._rows = room, rows
        self._count = 0
        self._blocks = Blocks(room), Blocks(room)
        self._rows_of: tuple[list[int], list[int]] = ([], [])

    def add(self, row: CaseResult, fields: Mapping[str, Any] | None) -> None:
        """Add the next row with the fields of its case."""
        states = {result.state for result in row.metrics}
        later = states <= {"passed", "scored"} and len(row.metrics) >= len(self._graphs)
        if not later or self._count < self._rows:
            self._blocks[later].add(packed_row(self._graphs, self._costs, row, fields))
            self._rows_of[later].append(self._count)
        self._count += 1

    def close(self) -> tuple[list[str], list[int], list[int]]:
        """The blocks that fit, the slots they start at, and every row's slot (-1: left out)."""
        blocks, counts = self._blocks[0].within(self._room)
        rows = self._rows_of[0]
        # Texts of cases that passed come in only where those of all that did not have room.
        if sum(counts) == len(rows) and self._count <= self._rows:
            more, more_counts = self._blocks[1].within(self._room - sum(map(len, blocks)))
            blocks, counts, rows = blocks + more, counts + more_counts, rows + self._rows_of[1]
        slots = [-1] * self._count
        for slot, row in enumerate(rows[: sum(counts)]):
            slots[row] = slot
        return blocks, starts_of(counts), slots


def packed_row(
    graphs: Sequence[MetricGraph], costs: StepCosts, row: CaseResult, fields: Any
) -> list[Any]:
    """The texts of a row with the fields of its case (None: not there); see `packed.ts`."""
    by_metric = row.by_metric()
    results = [_packed_result(graph, costs, by_metric.get(graph.metric.name)) for graph in graphs]
    took = _three_digits(row.seconds)
    return [fields, results] if took is None else [fields, results, took]


def _packed_result(graph: MetricGraph, costs: StepCosts, result: MetricResult | None) -> list[Any]:
    if result is None:
        return [None, None, []]
    steps, decisions = list[Any](), list[str]()
    for step in result.steps:
        steps.append(_step(graph, step, costs.of(result.metric, step)))
        if step.verdict is not None:
            because = f": {step.reason}" if step.reason else ""
            decisions.append(f"{step.node} → {step.verdict!s}{because}")
    # A reason that only says what the decisions said is in the steps already.
    reason = result.reason == "\n".join(decisions) or result.reason
    packed = [reason, result.failure and result.failure.as_dict(), steps]
    if result.odds is not None:
        packed.append({"expected": result.odds.expected_bounds, "pass": result.odds.pass_bounds})
    return packed


def _three_digits(seconds: float | None) -> float | None:
    """A time as exactly as the page shows it."""
    return None if seconds is None else float(f"{seconds:.3g}")


def _step(graph: MetricGraph, step: Step, cost: float | None) -> list[Any]:
    node = graph.node(step.node)
    as_ever = node is not None and graph.nodes[node].kind == step.kind
    verdict = None if step.verdict is None else str(step.verdict)
    values = [
        *(step.node if node is None else node, str(step.outcome), verdict, _own_output(step)),
        *(step.reason, step.score, step.mode, step.confidence),
    ]
    tokens = round(step.usage.input_tokens + step.usage.output_tokens)
    way, more = calls_words(step.calls), (step.usage.cached_tokens, _quotes(step), list(step.spans))
    dollars = float(f"{cost or 0:.4g}")
    shown = (list(step.votes), tokens, "" if as_ever else step.kind, dollars)
    values += (value or None for value in shown)
    odds = step.odds and [(str(at), round(chance, 4)) for at, chance in step.odds]
    values += (_three_digits(step.seconds), odds)
    # What happened on the way to the answers: mostly nothing
    calls = way and {"words": way, "questions": [[*map(call_record, at)] for at in step.calls]}
    values += (value or None for value in (calls, *more))
    # Values are known by their places: only None at the end can be left out.
    while values[-1] is None:
        values.pop()
    return values


def _quotes(step: Step) -> list[dict[str, Any]]:
    """The quotes of the whole answer with the item number 0, those of its items from 1 on."""
    return [
        {"item": item, "piece": "", "places": [], **quote.as_dict()}
        for item, own in enumerate((step.quotes, *step.item_quotes))
        for quote in own
    ]


def _own_output(step: Step) -> Any:
    """The output of a step; None if the verdict and the reason say it all, or the score does."""
    row = {"kind": step.kind, "verdict": step.verdict, "reason": step.reason}
    implied = step.verdict is not None and repr(step.output) == repr(implied_output(row))
    scored = step.score is not None and step.output == step.score
    return None if implied or scored else step.output


def prompt_blocks(
    db: sqlite3.Connection | None, keys: Sequence[RowKeys], slots: Sequence[int], room: int
) -> tuple[list[str], list[int]]:
    """Blocks of prompts in at most `room` characters, and the slots they start at.

    `keys` are those of every row, `slots` those of the rows among the texts. The first of them have
    their prompts. The line of a slot lists prompts by metric and step. None without a store.
    """
    if db is None or not any(map(any, chain.from_iterable(keys))):
        return [], []
    filled = Blocks(room)
    for _, row in sorted((slot, row) for row, slot in enumerate(slots) if slot >= 0):
        if filled.size > room:
            break
        filled.add(prompts_of(db, keys[row]))
    blocks, counts = filled.within(room)
    return blocks, starts_of(counts)


def people_of(run: Run) -> Mapping[str | None, list[dict[str, Any]]]:
    """The labels in the folder of a run, in their order, by the hash of their case's content.

    Raises InputError for a damaged line.
    """
    people = defaultdict[str | None, list[dict[str, Any]]](list)
    for label in LabelFile(run.folder / LABELS).labels():
        # `answer` is that of a node, `outcome` that of the whole case.
        outcome = label.outcome
        if outcome is not None and not isinstance(outcome, str):
            outcome = f"{outcome:.2f}"
        answer = None if label.answer is None else str(label.answer)
        shown = {name: getattr(label, name) for name in ("who", "when", "metric", "node")}
        more = {"answer": answer, "outcome": outcome, "note": label.note}
        people[label.case].append(shown | more)
    return people


def prompts_of(db: sqlite3.Connection, keys: RowKeys) -> list[list[list[Prompt]]]:
    """Prompts of the steps of a row, equal prompts of a step once.

    What is not in the store is left out; see `open_prompts`.
    """
    return [[_prompts_of_step(db, asked) for asked in steps] for steps in keys]


def _prompts_of_step(db: sqlite3.Connection, keys: Iterable[str]) -> list[Prompt]:
    prompts: list[Prompt] = []
    for key in dict.fromkeys(keys):
        with suppress(*UNREADABLE, sqlite3.Error):
            if (packed := question_by(db, key)) is not None:
                messages: Sequence[Any] = question_parts(unpack(packed)).messages
                prompt: Prompt = [{"role": m["role"], "content": m["content"]} for m in messages]
                if prompt not in prompts:
                    prompts.append(prompt)
    return prompts


def keys_of(row: CaseResult, metrics: Iterable[str]) -> RowKeys:
    """The keys of a row, by metric in the order that is given."""
    results = {result.metric: result.steps for result in row.metrics}
    return [[step.asked for step in results.get(name, ())] for name in metrics]


@contextmanager
def open_prompts(run: Run) -> Iterator[sqlite3.Connection | None]:
    """The store of a run, to be read; None if its prompts must not or cannot be shown."""
    store = _open_store(run)
    if isinstance(store, str):
        yield None
        return
    with closing(store):
        yield store


def why_without(run: Run) -> str | None:
    """Why no prompt of a run can be shown, in words; None if they can."""
    store = _open_store(run)
    if isinstance(store, str):
        return store
    store.close()
    return None


def _open_store(run: Run) -> sqlite3.Connection | str:
    """The store of a run, or why its prompts cannot be shown.

    A prompt has the texts of its case in it: what the record hides or leaves out must not come
    back through the store.
    """
    manifest = run.manifest
    if manifest.store is None:
        return "run with --store to see them here"
    if not manifest.texts:
        return "left out by --no-texts"
    if manifest.redacted:
        return f"hidden by --redact {', '.join(manifest.redacted)}"
    # A folder that was moved or copied often has its store in it, or beside it.
    store = Path(manifest.store)
    paths = store, run.folder / store.name, run.folder.parent / store.name
    path = next((path for path in paths if path.is_file()), None)
    if path is None:
        return f"the store {store.name} was moved or deleted"
    try:
        return connect_to_read(path, _PATIENCE)
    except InputError as error:
        return str(error)
