"""Documents read as metrics: nothing in them is trusted, and every mistake says where it is."""

from __future__ import annotations

import graphlib
import itertools
import warnings
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from dagengine.data.strict_json import FlawError, read_marked
from dagengine.errors import InputError, did_you_mean
from dagengine.graph.node import BaseNode
from dagengine.test_case import MultiTurnParams
from dagengine.trees.schema import (
    KINDS,
    SCHEMA,
    Code,
    catalogue,
    key,
    metric_kind,
    parameters_of,
    read_value,
    require_keys,
)
from dagengine.unknown import answer_argument

# What a document may have: bytes, values, nodes, nodes and all that names them, trees in trees.
_BYTES, _VALUES, _NODES, _PARTS, _DEEPEST = 8_000_000, 1_000_000, 10_000, 50_000, 50
_GREATEST = 10**15
_LONGEST, _WIDEST = 200, 1_000  # characters of an id; children, inputs or verdicts of a node
_TREE = dict.fromkeys(("$schema", "type", "roots", "nodes"))
_LEAF = dict.fromkeys(("$schema", "type", "metric_class", "kwargs"))
_VERDICT = dict.fromkeys(("type", "verdict", "score", "child", "label", "name"))
# What deepeval writes of its metrics, and what changes nothing here.
_THEIRS = ("template_class", "_audio_model")
_NEUTRAL = (None, False, "llm")
_UNNAMED = "the file does not say who judges its inner metrics: the run's judge does"
_OF_TURNS: dict[Any, MultiTurnParams] = {str(field): field for field in MultiTurnParams}
_OF_TALKS = set(_OF_TURNS) - {"retrieval_context", "tools_called", "context", "metadata", "tags"}


def metrics_of(
    text: str, folder: str | Path | None = None, name: str = "", **allowed: bool
) -> list[Any]:
    """The metrics of a document, or of a list of documents.

    `name` is that of its file, for messages, and of its tree; `allowed` as in `Written.from_json`.
    Raises InputError, with the path of the key, for anything that is not the form, and GraphError
    for a tree that cannot be.
    """
    try:
        data, reader = _parse(text), Reader(Code(folder, **allowed), **allowed)
        title = Path(name).stem or "DAG"
        if isinstance(data, list):
            return [reader.metric(each, key("", i), title) for i, each in enumerate(data)]
        return [reader.metric(data, "", title)]
    except InputError as error:
        raise InputError(f"{name}: {error}" if name else str(error)) from None


def read_document(path: Path) -> str:
    """The text of a file; raises InputError for one that cannot be read."""
    try:
        if path.exists() and not path.is_file():  # a pipe has no end
            raise OSError("it is no file")
        with path.open("rb") as file:
            return file.read(_BYTES + 1).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read: {error}") from None


def _parse(text: str) -> Any:
    """The value of a text without a flaw anywhere."""
    if len(text) > _BYTES or sum(map(text.count, ",[{:")) > _VALUES:
        raise InputError(f"it has more than {_BYTES:,} bytes or {_VALUES:,} values: no tree has")
    try:
        data = read_marked(text)
    except FlawError as error:
        raise InputError(str(error)) from None
    # A value, its name, and the same of what it is in: paths cost nothing until there is a flaw.
    waiting: list[tuple[Any, ...]] = [(data,)]
    while waiting:
        own = waiting.pop()
        value = own[0]
        if isinstance(value, dict):
            waiting += [(each, name, own) for name, each in value.items()]
            waiting += [(name, "", own) for name in value if not name.isascii()]
        elif isinstance(value, list):
            waiting += [(each, number, own) for number, each in enumerate(value)]
        elif flaw := _flaw_of(value):
            raise InputError(f"{_path_of(own)}: {flaw}")
    return data


def _flaw_of(value: Any) -> object:
    """The flaw of a value that is no list and no object; empty without one."""
    if isinstance(value, int) and abs(value) > _GREATEST:
        return f"a whole number beyond {_GREATEST:,}"
    if isinstance(value, str) and value.encode(errors="ignore").decode() != value:
        return f"{value!r:.80} has half a character"
    return value if isinstance(value, FlawError) else ""


def _path_of(value: tuple[Any, ...]) -> str:
    """The path of a value that is a tuple of itself, its name, and the same of what it is in."""
    names = list[Any]()
    while len(value) > 1:
        _, name, value = value
        names.insert(0, name)
    return key("", *names) or "the document"


def _require_kind(data: Any, kind: type[Any], where: str) -> Any:
    """The data, if it is of a kind; else raises InputError."""
    if isinstance(data, kind):
        return data
    words = {"dict": "an object", "list": "a list", "str": "a text"}[kind.__name__]
    raise InputError(f"{where or 'the document'} must be {words}; got {data!r:.80}")


def _construct(kind: Callable[..., Any], values: Mapping[str, Any], where: str) -> Any:
    try:
        return kind(**values)
    except (TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{where or 'the document'}: {error}") from None


class Reader:
    """Reads one document, and the ones in it."""

    def __init__(self, code: Code, *, allow_model: bool = False, **_: bool) -> None:
        self._code, self._allow_model = code, allow_model
        self._nodes = self._parts = self._depth = 0

    def metric(self, data: Any, where: str, title: str = "DAG", talks: bool = False) -> Any:
        """A metric; a tree without a name gets the title, `talks` says that it is about turns."""
        kind = _require_kind(data, dict, where).get("type", "dag")
        schema = data.get("$schema", SCHEMA)
        if schema != SCHEMA:
            raise InputError(
                f"{key(where, '$schema')}: this version reads {SCHEMA}, not {schema!r:.80}; for a "
                "greater number update dagengine"
            )
        if "refused" in data:
            raise InputError(f"{where or 'the document'} has no metric: {data['refused']!s:.500}")
        if kind == "dag":
            self._depth += 1
            if self._depth > _DEEPEST:
                raise InputError(f"{where:.200}: more than {_DEEPEST} trees inside of each other")
            metric = self._tree(data, where, title)
            self._depth -= 1
            return metric
        if kind == "metric":
            require_keys(data, _LEAF, where)
            path = key(where, "kwargs")
            kwargs = _require_kind(data.get("kwargs"), dict, path)
            return self._leaf(_class_of(data, key(where, "metric_class")), kwargs, path)
        if kind == "geval":
            kwargs = {name: each for name, each in data.items() if name not in _LEAF}
            name = "ConversationalGEval" if talks else "GEval"
            return self._leaf(metric_kind(name), kwargs, where)
        raise InputError(f"{key(where, 'type')}: {kind!r:.80} is not dag, metric or geval")

    def _leaf(self, kind: Any, fields: Mapping[str, Any], where: str) -> Any:
        """A metric of the catalogue."""
        parameters, values = parameters_of(kind), dict[str, Any]()
        # The steps decide, in deepeval as here; it writes the criterion beside them.
        unused = ("_include_g_eval_suffix", "criteria" if fields.get("evaluation_steps") else "")
        for name, each in fields.items():
            theirs = name not in parameters and (name in _THEIRS or answer_argument(name))
            neutral = theirs and each in _NEUTRAL
            if name not in unused and not neutral:
                require_keys({name: each}, parameters, where)
                values[name] = self.argument(each, parameters[name], key(where, name))
        return _construct(kind, values, where)

    def argument(self, data: Any, parameter: Any, where: str) -> Any:
        """The value of one argument of a metric or a node."""
        allowed = data is None or (isinstance(data, str) and self._allow_model)
        if parameter.name == "model" and not allowed:
            raise InputError(
                f"{where}: the document chooses the judge, {data!r:.80}, who sees the cases and "
                "is paid: if you want that, allow it (--allow-model; in Python allow_model=True), "
                "or remove it"
            )
        return read_value(data, parameter, where, self._code)

    def _tree(self, data: dict[str, Any], where: str, title: str) -> Any:
        """A tree with the settings of its metric."""
        kind = metric_kind("DAGMetric")
        parameters, settings = dict(parameters_of(kind)), dict[str, Any]()
        del parameters["dag"]
        require_keys(data, {**_TREE, **parameters}, where)
        for name, parameter in parameters.items():
            if name in data:
                settings[name] = self.argument(data[name], parameter, key(where, name))
        graph = _Tree(self, data, where).graph()
        return _construct(kind, {"name": title, **settings, "dag": graph}, where)

    def count(self, nodes: int, parts: int, where: str) -> None:
        """Add to what the document has; raises InputError if that is too much."""
        self._nodes += nodes
        self._parts += nodes + parts
        if self._nodes > _NODES or self._parts > _PARTS:
            most = f"{_NODES:,} nodes, or than {_PARTS:,} nodes, children, inputs and verdicts"
            raise InputError(f"{where}: more than {most} together")


def _class_of(data: Mapping[str, Any], where: str) -> Any:
    """The class of the catalogue that deepeval, too, calls so; raises InputError without one."""
    name = _require_kind(data.get("metric_class"), str, where)
    names = import_module("dagengine.compat.names")
    kind = metric_kind(names.our_name("deepeval", name))
    if kind is not None and "dag" not in parameters_of(kind):
        return kind
    near = names.why_no_name(name, "deepeval") or did_you_mean(name, catalogue().__all__)
    hint = near or "a metric of your own is no data"
    if kind is not None:
        hint = 'a tree in a tree is {"type": "dag", "nodes": …}'
    raise InputError(f"{where}: there is no metric {name!r:.80} in dagengine.metrics; {hint}")


class _Tree:
    """One tree of a document: nodes are made of what they read, then get what follows them."""

    def __init__(self, reader: Reader, data: Mapping[str, Any], where: str) -> None:
        self._reader, self._roots = reader, data.get("roots")
        self._roots_at, self._nodes_at = key(where, "roots"), key(where, "nodes")
        self._specs = _require_kind(data.get("nodes"), dict, self._nodes_at)
        reader.count(len(self._specs), 0, self._nodes_at)
        fields = list(itertools.starmap(self._fields_of, self._specs.items()))
        # deepeval says nowhere that its tree is about turns.
        texts = (field for field in itertools.chain(*fields) if isinstance(field, str))
        self._of_turns = self._roots is None and not _OF_TALKS.isdisjoint(texts)
        self._nodes: dict[str, BaseNode] = {}

    def graph(self) -> Any:
        """The tree itself."""
        sources = {name: self._sources(name) for name in self._specs}
        try:
            order = list(graphlib.TopologicalSorter(sources).static_order())
        except graphlib.CycleError as error:
            cycle = " <- ".join(f"{name:.40}" for name in error.args[1][:20])
            raise InputError(f"{self._nodes_at}: these nodes read each other: {cycle}") from None
        for name in order:
            if self._specs[name]["type"] in KINDS:
                self._nodes[name] = self._node(name)
        targets = set(itertools.chain.from_iterable(sources.values()))
        for name in self._nodes:
            targets.update(self._attach(name))
        roots = self._roots
        if roots is None:
            roots = [name for name in self._specs if name not in targets]
        roots = enumerate(_require_kind(roots, list, self._roots_at))
        nodes = [self._node_at(root, key(self._roots_at, number)) for number, root in roots]
        if not nodes:
            raise InputError(f"{self._roots_at}: no node is a root: each follows another one")
        return catalogue().DeepAcyclicGraph(nodes)

    def _fields_of(self, name: str, spec: Any) -> list[Any]:
        """The fields that a node reads; raises InputError for what is no node, and other keys."""
        where = key(self._nodes_at, name)
        kind = _require_kind(spec, dict, where).get("type")
        if len(name) > _LONGEST:
            raise InputError(f"{where}: an id of {len(name):,} characters; {_LONGEST} at most")
        if kind == "VerdictNode":
            require_keys(spec, _VERDICT, where)
            return []
        if not isinstance(kind, str) or kind not in KINDS:
            near = did_you_mean(str(kind), KINDS) or f"there are {', '.join(KINDS)}"
            raise InputError(f"{key(where, 'type')}: {kind!r:.80} is no type of node; {near}")
        require_keys(spec, {"type": None, **parameters_of(KINDS[kind])}, where)
        for edges in ("children", "then", "inputs"):
            parts = len(_require_kind(spec.get(edges, []), list, key(where, edges)))
            self._reader.count(0, parts, self._nodes_at)
            if parts > _WIDEST:
                raise InputError(f"{key(where, edges)}: {parts:,} of them; {_WIDEST:,} at most")
        fields = spec.get("evaluation_params") or []
        named: list[Any] = _require_kind(fields, list, key(where, "evaluation_params"))
        return [*named, "content"] if spec.get("turn_window") else named

    def _node_at(self, name: Any, where: str) -> BaseNode:
        """The node of an id."""
        if _require_kind(name, str, where) in self._nodes:
            return self._nodes[name]
        near = did_you_mean(name, self._specs) or "it must be the id of a node"
        near = "it is a verdict, not a node to lead to" if name in self._specs else near
        raise InputError(f"{where}: there is no node {name!r:.80}; {near}")

    def _sources(self, name: str) -> list[str]:
        """The ids of what a node reads, which must be made before it."""
        spec, where = self._specs[name], key(self._nodes_at, name)
        ids = {key(where, "inputs", i): each for i, each in enumerate(spec.get("inputs", ()))}
        if isinstance(spec.get("over"), dict):
            ids[key(where, "over")] = _reference(spec["over"], key(where, "over"))
        for path, source in ids.items():
            spec = self._specs.get(_require_kind(source, str, path), _VERDICT)
            if spec["type"] not in KINDS:
                self._node_at(source, path)
        return list(ids.values())

    def _node(self, name: str) -> BaseNode:
        """A node of what it reads, without what follows it."""
        spec, where = self._specs[name], key(self._nodes_at, name)
        kind = KINDS[spec["type"]]
        values: dict[str, Any] = {} if {"name", "label"} & spec.keys() else {"name": name}
        for argument, data in spec.items():
            if argument == "inputs":
                values[argument] = [self._nodes[source] for source in data]
            elif argument == "over" and isinstance(data, dict):
                values[argument] = self._nodes[data["ref"]]
            elif argument not in ("type", "children", "then"):
                parameter, path = parameters_of(kind)[argument], key(where, argument)
                values[argument] = self._reader.argument(data, parameter, path)
        if self._of_turns:
            fields = values.get("evaluation_params") or ()
            values["evaluation_params"] = [_OF_TURNS.get(field, field) for field in fields]
        node: BaseNode = _construct(kind, values, where)
        return node

    def _attach(self, name: str) -> Iterator[str]:
        """Give a node what follows it; the ids of that."""
        spec, node, where = self._specs[name], self._nodes[name], key(self._nodes_at, name)
        ways = [(data, key(where, "then", i)) for i, data in enumerate(spec.get("then", ()))]
        for number, child in enumerate(spec.get("children", ())):
            path = key(where, "children", number)
            yield _require_kind(child, str, path)
            if self._specs.get(child, spec)["type"] == "VerdictNode":
                ways.append((self._specs[child], key(self._nodes_at, child)))
            else:
                node.children.append(self._node_at(child, path))
        for data, path in ways:
            require_keys(_require_kind(data, dict, path), _VERDICT, path)
            verdict, wanted = data.get("verdict"), getattr(node, "verdict_types", ())
            if not isinstance(verdict, wanted):
                words = " or ".join({bool: "true or false", str: "a text"}[each] for each in wanted)
                raise InputError(
                    f"{key(path, 'verdict')}: the verdict of a {type(node).__name__} is "
                    f"{words or 'none: it does not decide'}; got {verdict!r:.80}"
                )
            if verdict in node.then:
                raise InputError(f"{path}: the verdict {verdict!r:.80} is declared twice")
            target = node.then[verdict] = self._target(data, path)
            if isinstance(target, BaseNode):
                yield data["child"]["ref"]

    def _target(self, data: Mapping[str, Any], where: str) -> Any:
        """The score, node or metric that a verdict leads to."""
        score, child = data.get("score"), data.get("child")
        mistake = f"{where}: a verdict has a score or a child; this one has"
        if child is None:
            if "score" not in data:
                raise InputError(f"{mistake} neither")
            if score is not None and (type(score) is not int or not 0 <= score <= 10):
                path = key(where, "score")
                raise InputError(f"{path}: a whole number from 0 to 10; got {score!r:.80}")
            return score
        if score is not None:
            raise InputError(f"{mistake} both")
        path = key(where, "child")
        if _require_kind(child, dict, path).get("type") == "node":
            return self._node_at(_reference(child, path), key(path, "ref"))
        metric = self._reader.metric(child, path, talks=self._of_turns)
        if self._roots is None and "model" not in child.get("kwargs", child):
            # From one line of the program, so that Python says it once.
            warnings.warn(_UNNAMED, stacklevel=1)
        return metric


def _reference(data: dict[str, Any], where: str) -> Any:
    """The id in `{"type": "node", "ref": id}`."""
    if data.keys() != {"type", "ref"} or data["type"] != "node" or not isinstance(data["ref"], str):
        raise InputError(f'{where} must be {{"type": "node", "ref": the id of a node}}')
    return data["ref"]
