"""What other packages bring by name, as entry points: metrics, judges and readers.

A package is asked for its code only when one of its names is used.
"""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Iterator, Mapping
from configparser import ConfigParser
from configparser import Error as ConfigError
from functools import lru_cache, reduce
from importlib import import_module
from typing import Any

from dagengine.errors import DagengineError, InputError, did_you_mean
from dagengine.unknown import module_words

METRICS, JUDGES, READERS = "dagengine.metrics", "dagengine.judges", "dagengine.readers"


def offers(group: str) -> Mapping[str, Mapping[str, str]]:
    """Return the names of a group: of each, the packages with the `module:name` in them."""
    return _offers(group, tuple(sys.path))


@lru_cache(maxsize=12)
def _offers(group: str, folders: tuple[str, ...]) -> Mapping[str, Mapping[str, str]]:
    names: dict[str, dict[str, str]] = {}
    for package, name, value in _entries(group, folders):
        # The first package of a name is the one that Python imports.
        names.setdefault(name, {}).setdefault(package, value)
    return dict(sorted(names.items()))


def _entries(group: str, folders: tuple[str, ...]) -> Iterator[tuple[str, str, str]]:
    """Package, name and value of each entry point; a mistake in one costs no other."""
    for package in importlib.metadata.distributions(path=[*folders]):
        text = package.read_text("entry_points.txt") or ""
        parser = ConfigParser(delimiters="=", allow_no_value=True, strict=False, interpolation=None)
        parser.optionxform = str  # type: ignore[assignment,method-assign]
        try:
            parser.read_string(text if group in text else "")
        except ConfigError:  # a text before the first group
            continue
        for name, value in parser[group].items() if group in parser else ():
            yield str(package.metadata["Name"]), name, value or ""


def load_offer(group: str, name: str, rival: str = "") -> Any:
    """Return the object of a name; raises InputError if it cannot be loaded, or means two things.

    `rival` says what else has this name.
    """
    kind, offered = _kind(group), offers(group)[name]
    ways = [f"{value} of the package {package}" for package, value in offered.items()]
    if len(ways) + bool(rival) > 1:
        hint = "" if group == READERS else "write the one that is meant, or "
        raise InputError(
            f"the {kind} {name!r} is {' and '.join(ways)}{rival and f' and {rival}'}: "
            f"{hint}uninstall a package"
        )
    (value,) = offered.values()
    return load_value(value, f"the {kind} {name!r}, {ways[0]},")


def load_value(value: str, what: str) -> Any:
    """Return the object of `module:name`; raises InputError for code that fails."""
    module, _, path = value.partition(":")
    try:
        return reduce(getattr, filter(None, path.strip().split(".")), import_module(module.strip()))
    except (Exception, SystemExit) as error:  # its code may do anything
        kind = "" if isinstance(error, DagengineError) else f"{type(error).__name__}: "
        raise InputError(
            f"{what} cannot be loaded: {kind}{module_words(error) or error}"
        ) from error


def is_importable(module: str) -> bool:
    """Return whether there is a module of this name; nothing is imported to know it."""
    folders: Any = None
    parts = module.split(".")
    for end in range(1, len(parts) + 1):
        name = ".".join(parts[:end])
        specs = (finder.find_spec(name, folders) for finder in sys.meta_path)
        spec = next(filter(None, specs), None)
        folders = spec and spec.submodule_search_locations
        if spec is None or (folders is None and end < len(parts)):
            return False
    return all(part.isidentifier() for part in parts)


def installed_words(group: str, name: str) -> str:
    """Return what is near to a name of a group, and what else there is."""
    names = offers(group)
    listed = [f"{each} (of {', '.join(packages)})" for each, packages in names.items()]
    near = did_you_mean(name, names)
    return f"{near + ' ' if near else ''}installed {_kind(group)}s: {', '.join(listed) or 'none'}"


def _kind(group: str) -> str:
    return group.rpartition(".")[2].removesuffix("s")
