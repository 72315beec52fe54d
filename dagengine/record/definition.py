"""What `run.json` says of a run: data, judges, metrics as nodes and edges, and sums at its end.

A *standing* is what an earlier checkup found of a judge. It is kept beside the settings of the
user, and the record of a run has it with each judge.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import platform
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, date, datetime
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import Any, Final, Protocol

from pydantic import ValidationError

from dagengine.compiler.definitions import definitions, digest
from dagengine.compiler.plan import NONE, Plan, PlanMetric, PlanSlot
from dagengine.data.cases import AsyncCases, Cases
from dagengine.data.json_lines import without_nulls
from dagengine.errors import DagengineError, InputError
from dagengine.graph.node import AskingNode
from dagengine.graph.nodes import RatingNode
from dagengine.graph.rewriting import SpecMetric
from dagengine.judges.default import user_file
from dagengine.limits import Limits
from dagengine.question import Judge, display_name, durable_identity, model_of
from dagengine.record.hiding import Hiding
from dagengine.record.values import (
    DataRecord,
    EdgeRecord,
    JudgeRecord,
    Manifest,
    MetricRecord,
    NodeRecord,
    SpentRecord,
    Standing,
)
from dagengine.redaction import public_text, public_value
from dagengine.results import Spent, Totals
from dagengine.results.prices import find_price
from dagengine.system.regular_files import file_sha256, read_whole, write_whole
from dagengine.system.terminal import few
from dagengine.trees import document_of

_METRIC_SETTINGS = ("name", "threshold", "strict", "combine")
DAYS: Final = 90
"""Days for which a standing holds: servers change the model behind a name."""
WORDING: Final = "9384b11953dfe78f"
"""Digest of the questions of a checkup as they are worded now; a test compares it."""


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
    """Origin of the cases; of a file its hash. `columns` say how its columns were read."""
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


def identity_of(judge: Judge) -> str:
    """Name of a judge in a record: the name it has in every process, if it has one."""
    return public_text(durable_identity(judge) or judge.identity)


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
    """The judges and what each node spent at each; judges that only code of nodes asked are added.

    A sum names its judge by its number among the judges.
    """
    identities = [judge.identity for judge in judges]
    records: list[SpentRecord] = []
    for use in sorted(spent, key=lambda use: (use.metric, use.node, use.judge)):
        judge = public_text(use.judge)
        if judge not in identities:
            identities.append(judge)
        values = asdict(use) | asdict(use.usage) | {"judge": identities.index(judge)}
        records.append(SpentRecord.model_validate(values))
    more = (JudgeRecord(identity=identity) for identity in identities[len(judges) :])
    return (*judges, *more), tuple(records)


def keep_standing(standing: Standing) -> None:
    """Write a standing beside the settings of the user; raises OSError."""
    write_whole(_standing_file(standing.identity), standing.model_dump_json(indent=1) + "\n")


def find_standing(judge: Judge, today: date | None = None) -> Standing | None:
    """Return what `judge check` found of this judge; None if nothing that still holds.

    It holds for equal identity and wording, for 90 days up to `today` (UTC).
    """
    identity = public_text(durable_identity(judge) or "")
    try:
        standing = Standing.model_validate_json(read_whole(_standing_file(identity)))
    except (InputError, ValidationError):
        return None  # none is there, or it cannot be read: a checkup writes another one
    matches = (standing.identity, standing.wording) == (identity, WORDING)
    return standing if matches and is_recent(standing.date, today) else None


def is_recent(day: date, today: date | None = None) -> bool:
    """Return whether a finding of a day still says something on another one (None: today, UTC)."""
    # A clock may be a day behind the one that wrote the date.
    return -1 <= ((today or datetime.now(UTC).date()) - day).days <= DAYS


def _standing_file(identity: str) -> Path:
    name = f"{hashlib.sha256(identity.encode()).hexdigest()[:32]}.json"
    return user_file().parent / "checked" / name


def standing_lines(
    records: Iterable[JudgeRecord], asked: Iterable[Judge] = (), words: str | None = None
) -> list[str]:
    """The standings in the records, and a line on how to check `asked` judges that have none.

    `words` are the options that name these judges to `judge check` (None: `--judge` and a name).
    """
    standings = {record.identity: str(record.standing) for record in records if record.standing}
    judges = (judge for judge in asked if model_of(judge) and not judge.capabilities.batched)
    lines = list(standings.values())
    if names := [display_name(judge) for judge in judges if identity_of(judge) not in standings]:
        hint = f"dagengine judge check {words or '--judge ' + names[0]}"
        lines.append(f"not known whether {few(names)} can judge; a minute tells: {hint}")
    return lines


class _MetricRecorder:
    """Makes the record of a metric; `judge_numbers` in records are by indices in `plan.models`."""

    def __init__(self, plan: Plan, metric: PlanMetric, judge_numbers: Mapping[int, int]) -> None:
        self._plan, self._metric, self._judge_numbers = plan, metric, judge_numbers
        self._hashes = definitions(plan, metric)

    def record(self, with_tree: bool) -> MetricRecord:
        metric, tree = self._metric, None
        if with_tree:
            try:
                tree = document_of(metric.source or SpecMetric(metric.spec))
            except (DagengineError, RecursionError) as error:  # no document holds it: say why
                tree = {"name": metric.spec.name, "refused": public_text(str(error))}
        changed = {"hash": digest(self._hashes), "tree": tree}
        return self._scope(metric.scope).model_copy(update=changed)

    def _scope(self, number: int) -> MetricRecord:
        """Record of this metric or a nested one; `record` puts another hash at the top."""
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
        if slot.unit == NONE:
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
            # Inside a nested metric nothing is a root of the plan: there its owner starts them.
            root=slot.root or (owner != NONE and slot.index in self._plan.slots[owner].activates),
            hash=self._hashes[slot.name],
        )

    def _edges(self, slot: PlanSlot) -> Iterator[EdgeRecord]:
        """Edges from a slot: where its verdicts lead, then who reads it and what it starts."""
        for verdict, targets in slot.branches.items():
            if not targets:
                yield EdgeRecord(source=slot.name, verdict=verdict)
            for target in self._plan.slots_at(targets):
                if target.kind == "verdict":
                    yield EdgeRecord(source=slot.name, verdict=verdict, score=target.score)
                else:
                    yield EdgeRecord(source=slot.name, verdict=verdict, target=target.name)
        if slot.nested == NONE:  # a nested metric starts its own nodes: its own record has them
            for target in self._plan.slots_at(dict.fromkeys((*slot.feeds, *slot.activates))):
                # A slot also activates nodes that it reads: their edges to it say so (`pulls`).
                if target.index in slot.feeds or slot.index not in target.feeds:
                    starts = target.index in slot.activates
                    pulls = slot.index in target.activates
                    yield EdgeRecord(
                        source=slot.name, target=target.name, starts=starts, pulls=pulls
                    )

    def _names(self, numbers: Iterable[int]) -> tuple[str, ...]:
        return tuple(map(attrgetter("name"), self._plan.slots_at(numbers)))
