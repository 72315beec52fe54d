"""What `run.json` says of a run: data, judges, metrics as nodes and edges, and sums at its end."""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import Any, Protocol

from dagengine.compiler.execution_plan import NONE, Plan, PlanMetric, PlanSlot
from dagengine.compiler.metric_hashes import definitions, digest
from dagengine.data.cases import AsyncCases, Cases
from dagengine.data.written_lines import without_nulls
from dagengine.errors import DagengineError, InputError
from dagengine.graph.node import AskingNode
from dagengine.graph.nodes import RatingNode
from dagengine.graph.rewriting import SpecMetric
from dagengine.limits import Limits
from dagengine.question import Judge, model_of
from dagengine.record.hidden_fields import Hiding
from dagengine.record.judge_standing import find_standing, identity_of
from dagengine.record.run_json_types import (
    DataRecord,
    EdgeRecord,
    JudgeRecord,
    Manifest,
    MetricRecord,
    NodeRecord,
    SpentRecord,
)
from dagengine.redaction import public_text, public_value
from dagengine.results import Spent, Totals
from dagengine.results.prices import find_price
from dagengine.system.safe_files import file_sha256
from dagengine.trees import document_of

_METRIC_SETTINGS = ("name", "threshold", "strict", "combine")


class Judging(Protocol):
    """What judges the cases, as a record reads it: an engine, or the coordinator of a cluster."""

    @property
    def plan(self) -> Plan: ...

    @property
    def judges(self) -> Sequence[Judge]: ...

    @property
    def limits(self) -> Limits: ...

    @property
    def store(self) -> str | None: ...

    @property
    def totals(self) -> Totals: ...

    @property
    def spent(self) -> tuple[Spent, ...]: ...


def manifest_of(
    run: Judging,
    data: DataRecord,
    settings: Mapping[str, Any],
    *,
    texts: bool = True,
    redact: Sequence[str] = (),
    command: str | None = None,
) -> Manifest:
    """Manifest of a run that starts now; `texts` keeps its cases, `redact` hides fields of them."""
    return Manifest(
        dagengine=importlib.metadata.version("dagengine"),
        python=platform.python_version(),
        started=datetime.now(UTC),
        command=command,
        metrics=metrics_of(run.plan, trees=True),
        judges=judges_of(run.plan, run.judges, run.limits.prices),
        data=data,
        limits=asdict(run.limits),
        settings=public_value(without_nulls(settings)),
        store=run.store,
        texts=texts,
        redacted=hidden_fields(redact),
    )


def hidden_fields(redact: Sequence[str]) -> tuple[str, ...]:
    """The fields to hide; raises InputError for a single text, and for what is no field."""
    if isinstance(redact, str):
        raise InputError(f"redact takes a list of fields: redact=[{redact!r}]")
    return Hiding(tuple(redact)).fields


def data_of(cases: Cases | AsyncCases, **columns: Any) -> DataRecord:
    """Where the cases are from; `columns` are options by which the columns of a file are read."""
    if isinstance(cases, AsyncCases):
        return DataRecord()
    count = cases.count()
    if not cases.name:
        return DataRecord(cases=count)
    return DataRecord(file=cases.name, sha256=file_sha256(Path(cases.name)), cases=count, **columns)


def judges_of(
    plan: Plan, judges: Sequence[Judge], prices: Mapping[str, Any]
) -> tuple[JudgeRecord, ...]:
    """The judges that some node asks; `judges` are in the order of `plan.models`.

    `prices` are the caller's own: they come before the public list.
    """
    records: list[JudgeRecord] = []
    for judge in map(judges.__getitem__, plan.asked):
        identity, model, standing = identity_of(judge), model_of(judge), find_standing(judge)
        price = find_price(model, prices)
        records.append(JudgeRecord(identity=identity, model=model, price=price, standing=standing))
    return tuple(records)


def metrics_of(plan: Plan, *, trees: bool = False) -> tuple[MetricRecord, ...]:
    """The metrics of a plan, nested ones inside the node that they stand for.

    With `trees` each has its document, too.
    """
    # As in `judges_of`, a node names a judge by its number among those that are asked.
    numbers = {index: number for number, index in enumerate(plan.asked)}
    return tuple(_MetricRecorder(plan, metric, numbers).record(trees) for metric in plan.metrics)


def spending_of_judges(
    spent: Iterable[Spent], judges: Sequence[JudgeRecord]
) -> tuple[tuple[JudgeRecord, ...], tuple[SpentRecord, ...]]:
    """The judges, and what each node spent at each of them, which it names by number.

    Judges that only the code of nodes has asked are added to `judges`.
    """
    identities = [judge.identity for judge in judges]
    records: list[SpentRecord] = []
    for sums in sorted(spent, key=lambda sums: (sums.metric, sums.node, sums.judge)):
        judge = public_text(sums.judge)
        if judge not in identities:
            identities.append(judge)
        values = asdict(sums) | asdict(sums.usage) | {"judge": identities.index(judge)}
        records.append(SpentRecord.model_validate(values))
    added = (JudgeRecord(identity=identity) for identity in identities[len(judges) :])
    return (*judges, *added), tuple(records)


class _MetricRecorder:
    """Makes the record of a metric; by `judge_numbers` it names the judges of `plan.models`."""

    def __init__(self, plan: Plan, metric: PlanMetric, judge_numbers: Mapping[int, int]) -> None:
        self._plan, self._metric, self._judge_numbers = plan, metric, judge_numbers
        self._hashes = definitions(plan, metric)

    def record(self, with_tree: bool) -> MetricRecord:
        metric, tree = self._metric, None
        if with_tree:
            try:
                tree = document_of(metric.source or SpecMetric(metric.spec))
            except (DagengineError, RecursionError) as error:  # no document can have it: say why
                tree = {"name": metric.spec.name, "refused": public_text(str(error))}
        added = {"hash": digest(self._hashes), "tree": tree}
        return self._scope(metric.scope).model_copy(update=added)

    def _scope(self, number: int) -> MetricRecord:
        """Record of this metric or of a nested one; `record` replaces the hash of the former."""
        scope = self._plan.scopes[number]
        slots = list(self._plan.slots_at(scope.slots))
        nodes = tuple(self._node(slot) for slot in slots if slot.kind != "verdict")
        settings = {name: getattr(scope.spec, name) for name in _METRIC_SETTINGS}
        return MetricRecord(
            **settings,
            hash=digest([settings, [[node.name, node.hash] for node in nodes]]),
            nodes=nodes,
            edges=tuple(chain.from_iterable(map(self._edges, slots))),
            terminals=self._names(scope.terminals),
        )

    def _node(self, slot: PlanSlot) -> NodeRecord:
        if slot.unit == NONE:  # a nested metric
            nested = self._scope(slot.nested)
            return NodeRecord(
                name=slot.name, kind="metric", grades=True, hash=nested.hash, metric=nested
            )
        unit = self._plan.units[slot.unit]
        node = unit.node
        owner = self._plan.scopes[slot.scope].owner
        judges = unit.judges if node.asks else ()
        return NodeRecord(
            name=slot.name,
            kind=node.kind,
            question=node.text or None,
            reads=unit.reads,
            inputs=tuple(dict.fromkeys(self._names(slot.reads))),
            judges=tuple(dict.fromkeys(map(self._judge_numbers.__getitem__, judges))),
            panel=None if node.panel is None else node.panel.label,
            examples=len(node.examples) if isinstance(node, AskingNode) else 0,
            grades=slot.grades,
            scale=node.points.steps if isinstance(node, RatingNode) else None,
            # No slot in a nested metric is a root of the plan: its owner starts the roots of it.
            root=slot.root or (owner != NONE and slot.index in self._plan.slots[owner].activates),
            hash=self._hashes[slot.name],
        )

    def _edges(self, slot: PlanSlot) -> Iterator[EdgeRecord]:
        """Edges from a slot: of its verdicts, then to the slots that read it or that it starts."""
        for verdict, targets in slot.branches.items():
            if not targets:
                yield EdgeRecord(source=slot.name, verdict=verdict)
            for target in self._plan.slots_at(targets):
                if target.kind == "verdict":
                    yield EdgeRecord(source=slot.name, verdict=verdict, score=target.score)
                else:
                    yield EdgeRecord(source=slot.name, verdict=verdict, target=target.name)
        if slot.nested != NONE:
            return  # a nested metric starts its own nodes: its own record has these edges
        for target in self._plan.slots_at(dict.fromkeys((*slot.feeds, *slot.activates))):
            # A slot also activates nodes that it reads: their edges to it say so (`pulls`).
            if target.index in slot.feeds or slot.index not in target.feeds:
                starts, pulls = target.index in slot.activates, slot.index in target.activates
                yield EdgeRecord(source=slot.name, target=target.name, starts=starts, pulls=pulls)

    def _names(self, numbers: Iterable[int]) -> tuple[str, ...]:
        return tuple(map(attrgetter("name"), self._plan.slots_at(numbers)))
