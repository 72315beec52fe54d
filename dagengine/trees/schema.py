"""The form of documents: which keys there are, how values of arguments and code are written.

Keys are the arguments of constructors, so a new setting is in the form by itself.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import inspect
import json
import re
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import import_module
from operator import attrgetter, itemgetter
from pathlib import Path
from types import GenericAlias, ModuleType
from typing import Any, cast, get_args, get_origin, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError
from pydantic_core import PydanticSerializationError, SchemaError

from dagengine.errors import DagengineError, InputError, did_you_mean
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
from dagengine.system.terminal_text import text_if
from dagengine.unknown import answer_argument, module_words

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
    if name not in catalogue().__all__:
        return None
    kind = getattr(catalogue(), name)
    is_metric = isinstance(kind, type) and hasattr(kind, "spec") and hasattr(kind, "to_dict")
    return kind if is_metric else None


def _parameters_of(kind: type[Any]) -> Mapping[str, inspect.Parameter]:
    """The arguments of a constructor, and of its bases if it hands some on, by name."""
    parameters: dict[str, inspect.Parameter] = {}
    lacking, by_name = set[str](), False
    for owner in kind.__mro__:
        lacking.update(vars(owner).get("lacks", ()))
        constructor = vars(owner).get("__init__")
        if not inspect.isfunction(constructor):
            continue
        _, *own = inspect.signature(constructor).parameters.values()
        hints = get_type_hints(inspect.unwrap(constructor), include_extras=True)
        for parameter in own:
            if parameter.kind not in _VARIABLE and parameter.name not in lacking:
                hint = hints.get(parameter.name, parameter.annotation)
                form = parameter.KEYWORD_ONLY if by_name else parameter.kind
                parameter = parameter.replace(annotation=hint, kind=form)
                parameters.setdefault(parameter.name, parameter)
        forms = {parameter.kind for parameter in own}
        if inspect.Parameter.VAR_KEYWORD not in forms:  # so what its bases take cannot be given
            break
        by_name |= inspect.Parameter.VAR_POSITIONAL not in forms
    by_position_first = sorted(parameters.values(), key=attrgetter("kind"))
    return {parameter.name: parameter for parameter in by_position_first}


Parameters = Callable[[type[Any]], Mapping[str, inspect.Parameter]]
parameters_of = cast("Parameters", functools.cache(_parameters_of))


def key(where: str, *names: str | int) -> str:
    """The path of a key of an object, or of an item of a list, below `where`."""
    for name in names:
        plain = isinstance(name, str) and name.lstrip("$").isidentifier()
        where += text_if(where, ".") + f"{name:.80}" if plain else f"[{name!r:.80}]"
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
        named = next((name for name, kind in _TYPES.items() if kind == value), "")
        return named or code.name_of(value, where)
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
        words = " or ".join(dict.fromkeys(map(itemgetter("msg"), wrong[:4])))
        raise InputError(f"{key(where, *path)}: {words}; got {wrong[0]['input']!r:.80}") from None
    if isinstance(value, list) and isinstance(parameter.default, type):  # a tuple of verdicts
        return tuple(value)
    return data if value == data else value  # a whole number stays one


def names_code(parameter: inspect.Parameter) -> bool:
    """Whether the argument takes a type or a function: a text then names it."""
    takes_type = isinstance(parameter.default, type) and parameter.default is not parameter.empty
    return takes_type or _is_code(parameter.annotation)


def _is_code(hint: Any) -> bool:
    """Return whether a type or a function is among what a hint names."""
    named = get_origin(hint) in (Callable, type) or getattr(hint, "_is_protocol", False)
    return named or any(map(_is_code, get_args(hint)))


@functools.cache
def _adapter(hint: Any) -> TypeAdapter[Any]:
    try:
        config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")
        return TypeAdapter(hint, config=config)
    except PydanticUserError:  # a class of plain data has a configuration of its own
        return TypeAdapter(hint)
    except SchemaError:  # a protocol; the constructor looks for itself
        return TypeAdapter(Any)


def load_module(path: Path) -> ModuleType:
    """Run a Python file; raises InputError that names the line when it fails.

    It may import the files beside it, as a script may.
    """
    if path.is_dir():
        raise InputError(f"{path} is a folder; choose a Python file in it")
    if not path.is_file():
        raise InputError(f"there is no file {path}")
    # Named after the whole path: two files may share their last part.
    name = "dagengine_user_" + re.sub(r"\W", "_", str(path.resolve()))
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise InputError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module.__name__] = module
    folder = str(path.resolve().parent)
    sys.path.insert(0, folder)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the file may do anything
        own = spec.origin
        lines = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == own]
        line = f" line {lines[-1].lineno}" if lines else ""
        kind = "" if isinstance(error, DagengineError) else f"{type(error).__name__}: "
        raise InputError(f"{path}{line}: {kind}{module_words(error) or error}") from None
    finally:
        sys.path.remove(folder)
    return module


class Code:
    """The code beside one document, or installed.

    `folder` is where names of files start (None, in writing: the folder of the first file with
    code). Reading runs the code, and only with `allow_code`.
    """

    def __init__(
        self, folder: str | Path | None = None, *, allow_code: bool = False, **_: bool
    ) -> None:
        self.folder = None if folder is None else Path(folder).resolve()
        self._allowed = allow_code
        self._known: dict[str, Any] = {}

    def name_of(self, thing: Any, where: str) -> str:
        """The name of a function or a class in documents; raises InputError if it has none."""
        title = getattr(thing, "__qualname__", "")
        module = sys.modules.get(getattr(thing, "__module__", None) or "")
        named = None if module is None else _lookup(module, title)
        # A file that is loaded twice, as one with a judge, has every function twice.
        codes = {getattr(function, "__code__", None) for function in (named, thing)}
        same = type(named) is type(thing) and len(codes) == 1
        if not title or module is None or not same:
            raise InputError(
                f"{where} is {title or thing!r:.80}, which no file can name: write a function or a "
                "class at module level (no lambda, no object, none inside of a function)"
            )
        file, name = Path(getattr(module, "__file__", None) or "").resolve(), module.__name__
        if not _is_installed(name):
            self.folder = self.folder or file.parent
            if not file.is_relative_to(self.folder):
                raise InputError(
                    f"{where} is in {file}, outside of the folder of the document, {self.folder}: "
                    "write the document beside its code"
                )
            name = file.relative_to(self.folder).as_posix()
        self._known[f"{name}:{title}"] = thing
        return f"{name}:{title}"

    def read(self, name: str, where: str) -> Any:
        """The function or class of a name; raises InputError if it is not there, or not allowed."""
        if name not in self._known:
            if not self._allowed:
                raise InputError(
                    f"{where} names code, {name!r:.80}, and reading it would run that code: if you "
                    "trust it, allow it (--allow-code; in Python allow_code=True)"
                )
            file, _, title = name.partition(":")
            value = _lookup(self._module(file, where), title)
            if not callable(value):
                raise InputError(f"{where}: {file:.80} has no function or class {title!r:.80}")
            self._known[name] = value
        return self._known[name]

    def _module(self, file: str, where: str) -> ModuleType:
        if _is_installed(file):
            try:
                return importlib.import_module(file)
            except ImportError as error:
                raise InputError(f"{where}: {error}") from None
        path = (self.folder or Path()) / file
        # A document that was sent to somebody shall run nothing but what came with it.
        inside = self.folder is not None and path.is_relative_to(self.folder) and "\0" not in file
        if not inside or not file.endswith(".py") or path.resolve() != path:
            raise InputError(
                f"{where} names {file!r:.80}, which is neither installed nor a Python file in the "
                "folder of the document (no links, no '..', no absolute path)"
            )
        module: ModuleType = self._known.get(file) or load_module(path)
        self._known[file] = module
        return module


def _lookup(module: ModuleType, name: str) -> Any:
    """The thing that a dotted name of a module leads to; None if it leads nowhere."""
    value: Any = module
    for part in name.split("."):
        value = getattr(value, part, None)
    return value


def _is_installed(module: str) -> bool:
    """Whether a module is of Python, of an installed package, or of dagengine."""
    top = module.partition(".")[0]
    if not top.isidentifier() or module.endswith(".py") or top in ("__main__", "dagengine"):
        return top == "dagengine"
    spec = importlib.util.find_spec(top)
    origin = getattr(spec, "origin", None) or ""
    folders = [Path(path).resolve() for path in sysconfig.get_paths().values()]
    inside = any(Path(origin).resolve().is_relative_to(folder) for folder in folders)
    return inside or origin in ("built-in", "frozen")
