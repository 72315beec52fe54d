"""What a metric is made of, as hashes: equal in every process as long as it is the same.

A judge card is bound to them, and the record of a run keeps them. They tell whether a node that
answered differently was also asked something else.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
import re
from collections.abc import Container, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from operator import attrgetter, itemgetter
from typing import Any

from pydantic import BaseModel

from dagengine.compiler.execution_plan import NONE, Plan, PlanMetric
from dagengine.graph.graph import Metric
from dagengine.graph.node import BaseNode
from dagengine.question import schema_json

_SETTINGS = (
    *("name", "threshold", "strict", "combine", "include_reason", "judged_reason"),
    *("reason_if_perfect", "reason_wording", "judged", "expected"),
)
# Attributes of a node for other nodes, which have hashes of their own.
_EDGES = {"children", "inputs", "then"}
# Attributes that a node has only if they are set, in its constructor or on a copy later. They come
# last, where a copy gets them: then it has the hash of a node that was made with them. `quote_from`
# is none of these. Only constructors set it, and metrics of the catalogue have it in its place.
_OPTIONAL = ("quoting", "examples")
# Attributes of a metric that are no part of its functions: its specification has them, or they
# say how it runs, or what the last case came to.
_NO_PARAMETERS = frozenset(
    {"name", "threshold", "model", "include_reason", "strict_mode", "async_mode", "verbose_mode"}
    | {"score", "reason", "success", "error", "result", "verbose_logs", "evaluation_cost"}
)


def definitions(plan: Plan, metric: PlanMetric) -> dict[str, str]:
    """A hash per node of a metric of the plan, by the node's name, and one of its settings.

    The node "" stands for the settings of the metric and of the metrics nested in it.
    """
    scopes = [scope.spec for scope in plan.scopes if scope.slots[0] in metric.slots]
    settings = [_Serializer().each(attrgetter(*_SETTINGS)(spec)) for spec in scopes]
    hashes = {"": digest(settings)}
    for slot in plan.slots_at(metric.slots):
        if slot.unit != NONE:
            branches = []
            for verdict, numbers in slot.branches.items():
                targets = plan.slots_at(numbers)
                ends = [t.score if t.kind == "verdict" else t.name for t in targets]
                branches.append([verdict, ends])
            reads = list(map(attrgetter("name"), plan.slots_at(slot.reads)))
            starts = list(map(attrgetter("name"), plan.slots_at(slot.activates)))
            node = plan.units[slot.unit].node
            hashes[slot.name] = digest(
                [type(node).__qualname__, _Serializer().of_node(node), branches, reads, starts]
            )
    return hashes


@dataclass(frozen=True, slots=True)
class _Serializer:
    """Makes plain data of what is in the objects with these `ids`; `foreign`: one is not ours."""

    ids: tuple[int, ...] = ()
    foreign: bool = False

    def inside(self, value: Any, *, foreign: bool = False) -> _Serializer:
        return _Serializer((*self.ids, id(value)), self.foreign or foreign)

    def each(self, values: Iterable[Any]) -> list[Any]:
        return list(map(self.plain, values))

    def pairs(self, values: Mapping[Any, Any]) -> list[Any]:
        return list(map(self.each, values.items()))

    def plain(self, value: Any) -> Any:
        """Anything as data that is equal in every process."""
        if value is None or isinstance(value, str | int | float):
            return value.value if isinstance(value, Enum) else value
        if id(value) in self.ids:  # it contains itself
            return "…"
        inner = self.inside(value)
        if isinstance(value, Mapping):
            return inner.pairs(value)
        if isinstance(value, list | tuple):
            return inner.each(value)
        if isinstance(value, set | frozenset):
            return sorted(map(json.dumps, inner.each(value)))
        if isinstance(value, type):
            model = issubclass(value, BaseModel)
            return schema_json(value) if model else f"{value.__module__}.{value.__qualname__}"
        return inner.of_object(value)

    def of_object(self, value: Any) -> Any:
        name = type(value).__qualname__
        if isinstance(value, BaseNode):
            return [name, value.title, value.text, self.of_node(value)]
        if inspect.isroutine(value):
            return self.of_function(value)
        if isinstance(value, functools.partial):
            return self.each((value.func, value.args, value.keywords))
        if isinstance(value, BaseModel):
            return [name, value.model_dump(mode="json")]
        if is_dataclass(value):
            return [
                name,
                self.pairs({f.name: getattr(value, f.name) for f in fields(value) if f.compare}),
            ]
        if isinstance(value, re.Pattern | bytes):
            return repr(value)
        attributes = getattr(value, "__dict__", {})
        if isinstance(value, Metric):
            return [name, self.pairs(_without(attributes, _NO_PARAMETERS))]
        # A client that a function uses has others inside, whose state is of one process and moment.
        # So of an object the attributes count, but not those of the objects in it.
        if self.foreign:
            return name
        return [name, self.inside(value, foreign=True).plain(attributes)]

    def of_node(self, node: BaseNode) -> Any:
        """The attributes of a node, without what follows it."""
        own = _without(vars(node), _EDGES)
        last = {name: own.pop(name) for name in _OPTIONAL if name in own}
        return self.pairs({**own, **last})

    def of_function(self, function: Any) -> Any:
        """The text of a function, with the values that it takes along from where it was made.

        Metrics of one class have functions of one text. What tells them apart is the metric that a
        method belongs to, the variables of the functions around, and defaults of arguments.
        """
        owner = getattr(function, "__self__", None)
        inner = inspect.unwrap(getattr(function, "__func__", function))
        variables = []
        for cell in getattr(inner, "__closure__", None) or ():
            with suppress(ValueError):  # it is not set yet, or not any more
                variables.append(cell.cell_contents)
        values = {
            "self": None if inspect.ismodule(owner) else owner,
            "defaults": getattr(inner, "__defaults__", None),
            "keywords": getattr(inner, "__kwdefaults__", None),
            "variables": variables,
        }
        pairs = self.pairs(dict(filter(itemgetter(1), values.items())))
        return [_source(function), *pairs] if pairs else _source(function)


def _without(values: Mapping[str, Any], names: Container[str]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in names}


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
