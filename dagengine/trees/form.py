"""The form of documents: which keys there are, and how the values of arguments are written.

Keys are the arguments of constructors, so a new setting is in the form by itself.
"""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import import_module
from types import GenericAlias
from typing import Any, cast, get_args, get_origin, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError
from pydantic_core import PydanticSerializationError, SchemaError

from dagengine.errors import InputError, did_you_mean
from dagengine.graph.list_nodes import MapNode, VerdictListNode
from dagengine.graph.node import BaseNode
from dagengine.graph.nodes import (
    BinaryJudgementNode,
    CodeNode,
    FieldNode,
    NonBinaryJudgementNode,
    RatingNode,
    TaskNode,
)
from dagengine.trees.code import Code
from dagengine.unknown import answer_argument

SCHEMA = "urn:dagengine:tree:1"
_BINARY = (BinaryJudgementNode, NonBinaryJudgementNode)
_NODES = (TaskNode, *_BINARY, RatingNode, CodeNode, FieldNode, MapNode, VerdictListNode)
KINDS: Mapping[str, type[BaseNode]] = {kind.__name__: kind for kind in _NODES}
"""The nodes of documents, by their type."""
_VARIABLE = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
# The types that have a text, such as `dict[str, list[int]] | None`.
_TYPES: dict[str, Any] = {kind.__name__: kind for kind in (str, int, float, bool)}
for _ in range(2):
    _TYPES |= {f"list[{text}]": GenericAlias(list, kind) for text, kind in _TYPES.items()}
    _TYPES |= {
        f"dict[str, {text}]": GenericAlias(dict, (str, kind)) for text, kind in _TYPES.items()
    }
_TYPES |= {f"{text} | None": kind | None for text, kind in _TYPES.items()}


def catalogue() -> Any:
    """The module with all metrics, which stands above this room."""
    return import_module("dagengine.metrics")


def metric_kind(name: str) -> Any:
    """The class of the catalogue with this name; None if there is none."""
    kind = getattr(catalogue(), name, None) if name in catalogue().__all__ else None
    return (
        kind
        if isinstance(kind, type) and hasattr(kind, "spec") and hasattr(kind, "to_dict")
        else None
    )


def _parameters_of(kind: type[Any]) -> Mapping[str, inspect.Parameter]:
    """The arguments of a constructor, with those that it hands on to its bases, by name."""
    parameters: dict[str, inspect.Parameter] = {}
    for owner in kind.__mro__:
        constructor = vars(owner).get("__init__")
        if not inspect.isfunction(constructor):
            continue
        own = [*inspect.signature(constructor).parameters.values()][1:]
        hints = get_type_hints(inspect.unwrap(constructor), include_extras=True)
        for each in own:
            if each.kind not in _VARIABLE:
                hint = hints.get(each.name, each.annotation)
                parameters.setdefault(each.name, each.replace(annotation=hint))
        # It hands nothing on, so what its bases take cannot be given.
        if not any(each.kind is each.VAR_KEYWORD for each in own):
            break
    return parameters


Parameters = Callable[[type[Any]], Mapping[str, inspect.Parameter]]
parameters_of = cast("Parameters", functools.cache(_parameters_of))


def key(where: str, *names: str | int) -> str:
    """The path of a key of an object, or of an item of a list, below `where`."""
    for name in names:
        plain = isinstance(name, str) and name.lstrip("$").isidentifier()
        dot = "." if where else ""
        where += f"{dot}{name:.80}" if plain else f"[{name!r:.80}]"
    return where


def require_keys(data: Mapping[str, Any], keys: Iterable[str], where: str) -> None:
    """Raise InputError for a key that is not known, with the nearest that is."""
    for name in data:
        if name not in keys:
            near = did_you_mean(name, keys) or answer_argument(name)
            hint = near or f"there are {', '.join(keys)}"
            raise InputError(f"{key(where, name)}: there is no such key; {hint}")


def is_same(value: Any, default: Any) -> bool:
    """Whether a value is the default: of the same type, too, which `1 == True` does not ask."""
    return value is default or (type(value) is type(default) and bool(value == default))


def write_value(value: Any, parameter: inspect.Parameter, where: str, code: Code) -> Any:
    """The value of an argument as JSON; raises InputError for what JSON cannot hold."""
    if callable(value) and names_code(parameter):
        texts = [text for text, kind in _TYPES.items() if kind == value]
        return texts[0] if texts else code.name_of(value, where)
    try:
        text = _adapter(parameter.annotation).dump_json(
            value, exclude_defaults=True, warnings=False
        )
    except (PydanticSerializationError, ValueError):
        kind = type(value).__qualname__
        raise InputError(f"{where} is {value!r:.80}, a {kind}, which JSON cannot hold") from None
    data = json.loads(text)
    return value if data == value and type(value) in (int, float, dict) else data  # 1 is no 1.0


def read_value(data: Any, parameter: inspect.Parameter, where: str, code: Code) -> Any:
    """The value of an argument, of the type that its constructor says; raises InputError."""
    try:
        if isinstance(data, str) and names_code(parameter):
            value = _TYPES.get(data) or code.read(data, where)
            return _adapter(parameter.annotation).validate_python(value)
        value = _adapter(parameter.annotation).validate_json(json.dumps(data), strict=True)
        if isinstance(value, Iterator):  # it is read while it is gone over
            value = tuple(value)
    except ValidationError as error:
        wrong = error.errors(include_url=False, include_context=False)
        path = [part for part in wrong[0]["loc"] if isinstance(part, int) or part.isidentifier()]
        words = " or ".join(dict.fromkeys(each["msg"] for each in wrong[:4]))
        raise InputError(f"{key(where, *path)}: {words}; got {wrong[0]['input']!r:.80}") from None
    if isinstance(value, list) and isinstance(parameter.default, type):  # a tuple of verdicts
        return tuple(value)
    return data if value == data else value  # a whole number stays one


def names_code(parameter: inspect.Parameter) -> bool:
    """Whether the argument takes a type or a function: a text then names it."""
    takes_type = isinstance(parameter.default, type) and parameter.default is not parameter.empty
    return takes_type or any(
        get_origin(part) in (Callable, type) or getattr(part, "_is_protocol", False)
        for part in _parts(parameter.annotation)
    )


def _parts(hint: Any) -> Iterator[Any]:
    """Every type that a hint names."""
    yield hint
    for part in get_args(hint):
        yield from _parts(part)


@functools.cache
def _adapter(hint: Any) -> TypeAdapter[Any]:
    try:
        config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")
        return TypeAdapter(hint, config=config)
    except PydanticUserError:  # a class of plain data has a configuration of its own
        return TypeAdapter(hint)
    except SchemaError:  # a protocol; the constructor looks for itself
        return TypeAdapter(Any)
