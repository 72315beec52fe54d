"""What a measurement was made of, as hashes: metrics node by node, judges, data, version."""

from __future__ import annotations

import hashlib
import importlib.metadata
import inspect
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from typing import Any

from pydantic import BaseModel

from dagengine.compiler.lowering import compile_metrics
from dagengine.compiler.plan import NONE
from dagengine.graph.graph import Metric
from dagengine.graph.node import BaseNode
from dagengine.question import schema_json
from dagengine.test_case import TestCase

_STEADY = ("name", "threshold", "strict", "combine", "include_reason", "judged_reason")


@dataclass(frozen=True, slots=True)
class Binding:
    """What a card speaks about.

    `metrics` hold, by metric and node, the SHA-256 of everything that the node says, reads
    and leads to (the node "" stands for the metric's own settings). `judges` are their
    identities, `data` the SHA-256 of all cases in order.
    """

    version: str
    metrics: dict[str, dict[str, str]]
    judges: tuple[str, ...]
    data: str
    cases: int

    @property
    def sha256(self) -> str:
        """One hash for all of it."""
        return _digest([self.version, self.metrics, self.judges, self.data])

    def metric_hash(self, metric: str) -> str:
        """One hash for all of a metric."""
        return _digest(self.metrics[metric])


def bind(metrics: Sequence[Metric], judges: Sequence[str], cases: Sequence[TestCase]) -> Binding:
    """The binding of a measurement; raises GraphError when a metric does not compile."""
    return Binding(
        version=importlib.metadata.version("dagengine"),
        metrics={metric.spec().name: _nodes(metric) for metric in metrics},
        judges=tuple(judges),
        data=_digest([case.content_hash() for case in cases]),
        cases=len(cases),
    )


def changes(old: Binding, new: Binding) -> list[str]:
    """What makes a card of `old` say nothing about `new`, one line each; empty when it holds."""
    return [*_metric_changes(old.metrics, new.metrics), *_other_changes(old, new)]


def _metric_changes(
    old: Mapping[str, Mapping[str, str]], new: Mapping[str, Mapping[str, str]]
) -> Iterator[str]:
    for metric in {**old, **new}:
        if metric not in new:
            yield f"metric {metric!r} is gone"
        elif metric not in old:
            yield f"metric {metric!r} is new"
        else:
            for node in {**old[metric], **new[metric]}:
                before, after = old[metric].get(node), new[metric].get(node)
                if before != after:
                    how = "is new" if before is None else "is gone" if after is None else "changed"
                    what = f"node {node!r}" if node else "its settings"
                    yield f"metric {metric!r}: {what} {how}"


def _other_changes(old: Binding, new: Binding) -> Iterator[str]:
    if old.judges != new.judges:
        yield f"judge: {' and '.join(old.judges)} → {' and '.join(new.judges)}"
    if old.data != new.data:
        yield f"data: {old.cases} cases → {new.cases} cases, not the same"
    if old.version != new.version:
        yield f"dagengine: {old.version} → {new.version}"


def _nodes(metric: Metric) -> dict[str, str]:
    """A hash per node of a metric, by the node's name, and one of its settings."""
    plan = compile_metrics([metric])
    found = {"": _digest([[getattr(scope.spec, n) for n in _STEADY] for scope in plan.scopes])}
    for slot in plan.slots:
        if slot.unit != NONE:
            leads = [
                [verdict, [_target(plan.slots[number]) for number in targets]]
                for verdict, targets in slot.branches.items()
            ]
            reads = [plan.slots[number].name for number in slot.reads]
            starts = [plan.slots[number].name for number in slot.activates]
            node = plan.units[slot.unit].node
            said = _plain({k: v for k, v in vars(node).items() if k not in _EDGES}, ())
            found[slot.name] = _digest([type(node).__qualname__, said, leads, reads, starts])
    return found


_EDGES = {"children", "inputs", "then"}


def _target(slot: Any) -> Any:
    return slot.score if slot.kind == "verdict" else slot.name


def _plain(value: Any, seen: tuple[int, ...]) -> Any:
    """Anything as data that is equal in every process; `seen` are the objects around it."""
    if value is None or isinstance(value, str | int | float):
        return value.value if isinstance(value, Enum) else value
    if id(value) in seen:
        return "…"
    around = (*seen, id(value))
    if isinstance(value, Mapping):
        return [[_plain(key, around), _plain(item, around)] for key, item in value.items()]
    if isinstance(value, list | tuple):
        return [_plain(item, around) for item in value]
    if isinstance(value, set | frozenset):
        return sorted(json.dumps(_plain(item, around)) for item in value)
    if isinstance(value, type):
        model = issubclass(value, BaseModel)
        return schema_json(value) if model else f"{value.__module__}.{value.__qualname__}"
    return _object(value, around)


def _object(value: Any, around: tuple[int, ...]) -> Any:
    name = type(value).__qualname__
    if isinstance(value, BaseNode):
        return [name, value.title, value.text]
    if inspect.isroutine(value):
        return _source(value)
    if isinstance(value, BaseModel):
        return [name, value.model_dump(mode="json")]
    if is_dataclass(value) and not isinstance(value, type):
        return [name, [[f.name, _plain(getattr(value, f.name), around)] for f in fields(value)]]
    return [name, _plain(getattr(value, "__dict__", {}), around)]


def _source(function: Any) -> str:
    """The text of a function, or its name where there is no text."""
    try:
        return inspect.getsource(function)
    except (OSError, TypeError):
        return f"{function.__module__}.{function.__qualname__}"


def _digest(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()
