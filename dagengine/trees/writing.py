"""Metrics as documents; what comes back is proved to be the same metric, or nothing is written."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self, cast

from dagengine.compiler.checks import check, require_no_errors
from dagengine.compiler.execution_plan import compile_metrics
from dagengine.compiler.metric_hashes import definitions
from dagengine.errors import InputError
from dagengine.graph.argument_checks import field_paths
from dagengine.graph.graph import Graph, Metric, MetricSpec
from dagengine.graph.node import BaseNode, shorten
from dagengine.system.safe_files import write_whole
from dagengine.system.terminal_text import free_name
from dagengine.trees.reading import Reader, metrics_of, read_document
from dagengine.trees.schema import (
    KINDS,
    SCHEMA,
    Code,
    is_same,
    key,
    metric_kind,
    parameters_of,
    write_value,
)

# Arguments of nodes that are written as `then` and `children`, or twice.
_EDGES = ("children", "then", "label")
# What a specification calls arguments of a tree.
_SPEC = {"dag": "graph", "strict_mode": "strict"}
_QUOTES = {"quote": "mode", "unsupported": "unsupported"}
_TURNS = re.compile(r"turns\.(-?\d+):(-?\d+)")


class Written:
    """What can be written as a document, and read back: a metric of the catalogue, or a tree."""

    def to_dict(self, folder: str | Path | None = None) -> dict[str, Any]:
        """Plain data of which `from_dict` makes the same again.

        Code is named as seen from `folder` (None: the folder of the first file with code).
        Raises InputError for what no document can hold (a lambda, a judge, a class of your own,
        votes), and GraphError for what does not compile.
        """
        if isinstance(self, Graph):
            require_no_errors(check(MetricSpec("", self))[0])
            whole = document_of(metric_kind("DAGMetric")("DAG", self), folder)
            return {name: whole[name] for name in ("$schema", "roots", "nodes")}
        return document_of(cast("Metric", self), folder)

    def to_json(self, folder: str | Path | None = None) -> str:
        """The same as JSON text, in an order that reviews can follow."""
        return text_of(self.to_dict(folder))

    def save(self, path: str | Path) -> None:
        """Write it into a file; raises as `to_dict`, and then writes nothing."""
        write_whole(Path(path), self.to_json(Path(path).parent))

    @classmethod
    def from_dict(cls, data: Any, folder: str | Path | None = None, **allowed: bool) -> Self:
        """`from_json` of plain data."""
        try:
            text = json.dumps(data)
        except (TypeError, ValueError, RecursionError) as error:
            raise InputError(f"a document is plain data, as JSON has it: {error}") from None
        return cls.from_json(text, folder, "", **allowed)

    @classmethod
    def from_json(
        cls, text: str, folder: str | Path | None = None, name: str = "", **allowed: bool
    ) -> Self:
        """The metric or tree of a document, also of deepeval's; `name` is that of its file.

        `allow_code=True` runs code that it names, from `folder` or installed. `allow_model=True`
        lets it choose judges. Raises InputError, which says where, and GraphError.
        """
        metrics = metrics_of(text, folder, name, **allowed)
        content = f"{len(metrics)} metrics"
        if len(metrics) == 1:
            made = getattr(metrics[0], "dag", metrics[0]) if issubclass(cls, Graph) else metrics[0]
            if isinstance(made, cls):
                return made
            content = f"a {type(made).__name__}"
        raise InputError(f"{name or 'the document'} has {content}, not one {cls.__name__}")

    @classmethod
    def load(cls, path: str | Path, **allowed: bool) -> Self:
        """`from_json` of a file; the code that it names is beside it."""
        return cls.from_json(
            read_document(Path(path)), Path(path).parent, name=str(path), **allowed
        )


def document_of(metric: Metric, folder: str | Path | None = None) -> dict[str, Any]:
    """A metric as plain data; see `Written.to_dict`."""
    before, code = _identity(metric), Code(folder)
    tree = _Writer(code).metric(metric, "")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they were said when the metric was made
        again = Reader(code, allow_model=True).metric(tree, "")
    after = _identity(again)
    if after != before or _Writer(code).metric(again, "") != tree:
        names = [name for name in before[0] if before[0][name] != after[0].get(name)]
        raise InputError(
            f"metric {metric.spec().name!r} cannot be written without loss: what is read back is "
            f"another metric{(names and f' (nodes {names!s:.200})') or ''}"
        )
    return {"$schema": SCHEMA, **tree}


def text_of(document: Any) -> str:
    """A document as the text of a file, in an order that reviews can follow."""
    return json.dumps(document, ensure_ascii=False, indent=2) + "\n"


def _identity(metric: Metric) -> Any:
    """All definitions of a metric, and who is asked: the same of two metrics that are the same."""
    plan = compile_metrics(metric)
    return definitions(plan, plan.metrics[0]), [scope.spec.model for scope in plan.scopes]


class _Writer:
    """Writes one document."""

    def __init__(self, code: Code) -> None:
        self._code = code

    def metric(self, metric: Metric, where: str) -> dict[str, Any]:
        """A metric of the catalogue by its arguments, any other one as a tree."""
        source: Any = metric
        while source is not None and metric_kind(type(source).__name__) is not type(source):
            # A copy, maybe with changes: the proof says whether it has some.
            source = getattr(source, "original", getattr(source, "metric", None))
        tree = source is None or "dag" in parameters_of(type(source))
        if source is not metric:
            spec, kind, own = metric.spec(), metric_kind("DAGMetric"), dict[str, Any]()
            for name in parameters_of(kind):
                if hasattr(spec, _SPEC.get(name, name)):
                    own[name] = getattr(spec, _SPEC.get(name, name))
            metric = kind(**own) if tree or source is None else source
        settings: dict[str, Any] = {}
        for name, parameter in parameters_of(type(metric)).items():
            value = _attribute(metric, name, parameter.default)
            if name == "dag" or is_same(value, parameter.default):
                continue
            if name == "model" and not isinstance(value, str):
                raise InputError(
                    f"metric {metric.spec().name!r}: its judge is a {type(value).__name__}, which "
                    "no document holds: name a model, or give the judge to the run"
                )
            settings[name] = write_value(value, parameter, key(where, name), self._code)
        if tree:
            return {**settings, **self.graph(metric.spec().graph, where)}
        return {"type": "metric", "metric_class": type(metric).__name__, "kwargs": settings}

    def graph(self, graph: Graph, where: str) -> dict[str, Any]:
        """The roots and the nodes of a tree."""
        nodes: dict[str, BaseNode] = {}
        for node in graph.nodes():
            if node.kind != "verdict":
                title = shorten(node.title, 100) or node.kind
                nodes[free_name(title, nodes, " ")] = node
        ids = {node: name for name, node in nodes.items()}
        return {
            "roots": list(map(ids.__getitem__, graph.root_nodes)),
            "nodes": {
                name: self._node(node, ids, key(where, "nodes", name))
                for name, node in nodes.items()
            },
        }

    def _node(self, node: BaseNode, ids: Mapping[BaseNode, str], where: str) -> dict[str, Any]:
        """A node by its arguments, with what follows it."""
        kind = type(node)
        if KINDS.get(kind.__name__) is not kind:
            raise InputError(f"{where} is a {kind.__name__}; documents hold {', '.join(KINDS)}")
        if node.panel is not None or node.around:
            raise InputError(f"{where} asks otherwise than its tree says (votes, another judge)")
        data: dict[str, Any] = {"type": kind.__name__}
        for name, parameter in parameters_of(kind).items():
            value = _attribute(node, name, parameter.default)
            default = ids[node] if name == "name" else parameter.default
            if name in _EDGES or is_same(value, default):
                continue
            if name == "inputs":
                data[name] = list(map(ids.__getitem__, value))
            elif isinstance(value, BaseNode):
                data[name] = {"type": "node", "ref": ids[value]}
            else:
                data[name] = write_value(value, parameter, key(where, name), self._code)
        if node.successors():
            data["children"] = list(map(ids.__getitem__, node.successors()))
        for branch in node.branches():
            way = {"verdict": branch.verdict, **self._target(branch.target, ids, where)}
            data.setdefault("then", []).append(way)
        return data

    def _target(self, target: Any, ids: Mapping[BaseNode, str], where: str) -> dict[str, Any]:
        """The keys of a verdict for what it leads to."""
        if target is None or isinstance(target, int):
            return {"score": target}
        if isinstance(target, BaseNode):
            return {"child": {"type": "node", "ref": ids[target]}}
        return {"child": {"type": "dag", **self.metric(target, key(where, "then"))}}


def _attribute(owner: Any, name: str, default: Any) -> Any:
    """The value of an argument that an object was made with."""
    if name in _QUOTES:
        return getattr(getattr(owner, "quoting", None), _QUOTES[name], default)
    if not isinstance(owner, BaseNode):
        value = getattr(owner, name, default)
        value = value.pattern if isinstance(value, re.Pattern) else value
        return default if default is None and value == () else value
    if name == "path":
        return owner.evaluation_params[0]
    if name == "inputs":
        return owner.inputs[isinstance(getattr(owner, "over", None), BaseNode) :] or default
    if name in ("evaluation_params", "turn_window"):
        return _fields_read(owner)[name == "turn_window"] or default
    value = getattr(owner, name, default)
    return getattr(value, "parser", value) if name == "parser" else value


def _fields_read(node: BaseNode) -> tuple[list[str], tuple[int, int] | None]:
    """The fields that a node was told to read, and the window of turns, if there is one."""
    over = getattr(node, "over", None)
    fields = list(node.evaluation_params[over is not None and not isinstance(over, BaseNode) :])
    for window in filter(None, map(_TURNS.match, fields)):
        turns = (int(window[1]), int(window[2]))
        plain = [path.replace(window[0], "turns", 1).removeprefix("turns.") for path in fields]
        if field_paths(plain, turns) == tuple(fields):
            return plain, turns
    return fields, None
