"""What a metric is made of, as hashes: equal in every process as long as it is the same.

A judge card is bound to them, and the record of a run keeps them. They tell whether a node that
answered differently was also asked something else.
"""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

from pydantic import BaseModel

from dagengine.compiler.plan import NONE, Plan, PlanMetric
from dagengine.graph.node import BaseNode
from dagengine.question import schema_json

_STEADY = ("name", "threshold", "strict", "combine", "include_reason", "judged_reason")


def definitions(plan: Plan, metric: PlanMetric) -> dict[str, str]:
    """A hash per node of a metric of the plan, by the node's name, and one of its settings.

    The node "" stands for the settings of the metric and of the metrics nested in it.
    """
    scopes = [scope.spec for scope in plan.scopes if scope.slots[0] in metric.slots]
    hashes = {"": digest([[getattr(spec, name) for name in _STEADY] for spec in scopes])}
    for slot in (plan.slots[number] for number in metric.slots):
        if slot.unit != NONE:
            leads = [
                [verdict, [_target(plan.slots[number]) for number in targets]]
                for verdict, targets in slot.branches.items()
            ]
            reads = [plan.slots[number].name for number in slot.reads]
            starts = [plan.slots[number].name for number in slot.activates]
            node = plan.units[slot.unit].node
            settings = _plain({k: v for k, v in vars(node).items() if k not in _EDGES}, ())
            hashes[slot.name] = digest([type(node).__qualname__, settings, leads, reads, starts])
    return hashes


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
    """The text of a function, or its name if there is no text."""
    try:
        return inspect.getsource(function)
    except (OSError, TypeError, SyntaxError):
        return f"{getattr(function, '__module__', '')}.{function.__qualname__}"


def digest(value: Any) -> str:
    """SHA-256 (hex) of plain data; the order of keys does not matter."""
    text = json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()
