"""Metrics, judges and readers that packages offer by name, imported when a name is used."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from functools import lru_cache, reduce
from importlib import import_module, metadata
from importlib.machinery import PathFinder
from importlib.util import find_spec
from typing import Any

from dagengine.errors import DagengineError, InputError, did_you_mean
from dagengine.system.terminal_text import text_if
from dagengine.unknown import module_words

METRICS, JUDGES, READERS = "dagengine.metrics", "dagengine.judges", "dagengine.readers"
_GROUPS = re.compile(r"^\s*\[(.+)\]\s*$", re.MULTILINE)


def offers(group: str) -> Mapping[str, Mapping[str, str]]:
    """Return the names of a group: of each, the packages with the `module:name` in them."""
    return _offers(group, tuple(sys.path))


@lru_cache(maxsize=12)
def _offers(group: str, folders: tuple[str, ...]) -> Mapping[str, Mapping[str, str]]:
    names: dict[str, dict[str, str]] = {}
    for package in metadata.distributions(path=[*folders]):
        # Read line by line: a mistake in one costs no other, of this package or of the next.
        _, *parts = _GROUPS.split(package.read_text("entry_points.txt") or "")
        for line in dict(zip(parts[::2], parts[1::2], strict=True)).get(group, "").splitlines():
            name, _, value = map(str.strip, line.partition("="))
            if name and not name.startswith("#"):
                # The first package of a name is the one that Python imports.
                names.setdefault(name, {}).setdefault(package.metadata["Name"], value)
    return dict(sorted(names.items()))


def load_offer(group: str, name: str, rival: str = "") -> Any:
    """Return the object of a name; raises InputError if it fails, or if a `rival` has the name."""
    values = offers(group)[name]
    ways = [f"{value} of the package {package}" for package, value in values.items()]
    if len(ways) + bool(rival) > 1:
        raise InputError(
            f"{str(name)!r} is {' and '.join(filter(None, [*ways, rival]))} ({group}): write which "
            "of them instead of this name, or uninstall a package"
        )
    (value,) = values.values()
    return load_value(value, f"{str(name)!r} ({group}), {ways[0]},")


def load_value(value: str, what: str) -> Any:
    """Return the object of `module:name`; raises InputError for code that fails."""
    module, _, path = map(str.strip, value.partition(":"))
    try:
        return reduce(getattr, filter(None, path.split(".")), import_module(module))
    except (Exception, SystemExit) as error:  # its code may do anything
        kind = text_if(not isinstance(error, DagengineError), f"{type(error).__name__}: ")
        words = module_words(error) or error
        raise InputError(f"{what} cannot be loaded: {kind}{words}") from error


def is_importable(module: str) -> bool:
    """Return whether there is a module of this name; nothing is imported to know it."""
    top, *parts = module.split(".")
    spec = find_spec(top) if top.isidentifier() else None
    for part in parts:
        if spec is None or spec.submodule_search_locations is None:
            return False
        spec = PathFinder.find_spec(f"{spec.name}.{part}", spec.submodule_search_locations)
    return spec is not None


def installed_words(group: str, name: str) -> str:
    """Return what is near to a name that no package offers, and the names that there are."""
    names = [f"{each} (of {', '.join(packages)})" for each, packages in offers(group).items()]
    listed = f"installed {group.rpartition('.')[2]}: {', '.join(names) or 'none'}"
    return " ".join(filter(None, [did_you_mean(name, offers(group)), listed]))
