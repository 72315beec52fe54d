"""Names that are not here: the nearest one, the room that has it, or what is done in its place.

The names of other libraries stand far above, in `compat`. They are asked for by name, and only when
something is missing: whoever finds all names never loads them.
"""

from __future__ import annotations

import sys
from abc import ABCMeta
from collections.abc import Callable, Mapping
from enum import EnumType
from importlib import import_module
from importlib.machinery import PathFinder
from types import FrameType
from typing import TYPE_CHECKING, Any

# Where a name of ours is looked for that was asked of another module, in this order.
_FACES = (
    "dagengine",
    "dagengine.metrics",
    "dagengine.metrics.dag",
    "dagengine.test_case",
    "dagengine.dataset",
    "dagengine.judges",
    "dagengine.voting",
    "dagengine.models",
    "dagengine.synthesizer",
    "dagengine.results",
    "dagengine.record",
    "dagengine.reliability",
    "dagengine.errors",
)


def absent_names(module: str) -> Callable[[str], Any]:
    """Return the `__getattr__` of a module of ours that answers missing names in words.

    What it raises for names that are elsewhere, and for all in `from module import name`, is an
    ImportError: that statement replaces an AttributeError by its own.
    """

    def missing(name: str) -> Any:
        if not name.startswith("__"):
            why = _foreign_names().answer_name(module, name)
            if why is None and (face := _face_with(name, module)):
                why = f"write `from {face} import {name}`"
            hint = f": {why}" if why else _what_is_there(module, name)
            # What is among the modules Python finds by itself, after an AttributeError.
            if hint and (why or (f"{module}.{name}" not in sys.modules and _is_imported())):
                raise ImportError(f"{module} has no {name}{hint}", name=module)
        raise AttributeError(f"module {module!r} has no attribute {name!r}")

    return missing


def answer_absent(module: str, homes: Mapping[str, str] | None = None) -> None:
    """Let a module answer missing names in words; type checkers do not see that it does.

    `homes` has the modules of names that the module loads when they are first used.
    """
    names, missing, later = vars(sys.modules[module]), absent_names(module), homes or {}

    def load(name: str) -> Any:
        if name not in later:
            return missing(name)
        return names.setdefault(name, getattr(import_module(later[name]), name))

    names["__getattr__"] = load
    if later:
        names["__dir__"] = lambda: names["__all__"]


def absent_attributes(hints: Mapping[str, str] | None = None) -> Callable[[Any, str], Any]:
    """Return the `__getattr__` of a public class, or of its type, that answers in words.

    `hints` says of some attributes, words of a key, where they are, before what is known of other
    libraries. Of any other attribute it says what the class has.
    """
    by_name: dict[str, str] = {}
    for names, hint in (hints or {}).items():
        by_name |= dict.fromkeys(names.split(), hint)

    def refuse_attribute(owner: Any, name: str) -> Any:
        if not isinstance(owner, type) and hasattr(type(owner), name):
            return object.__getattribute__(owner, name)  # a property: its own error counts
        raise AbsentAttributeError(owner, name, by_name.get(name))

    return refuse_attribute


class AbsentAttributeError(AttributeError):
    """Raised for an attribute that a class lacks; whoever only asks for it waits for no words."""

    def __init__(self, owner: Any, name: str, hint: str | None = None) -> None:
        # With another object, so that Python adds no guess of its own
        super().__init__(name=name, obj=object())
        self._owner, self._name, self._hint = owner, name, hint

    def __reduce__(self) -> tuple[Any, ...]:
        return AttributeError, (str(self),)

    def __str__(self) -> str:
        is_class = isinstance(self._owner, type)
        kind = self._owner if is_class else type(self._owner)
        shown = f"type object {kind.__name__!r}" if is_class else f"{kind.__name__!r} object"
        message = f"{shown} has no attribute {self._name!r}"
        if self._name.startswith("__"):
            return message
        if hint := self._hint or answer_attribute(self._name):
            return f"{message}; {hint}"
        parts = vars(kind)
        names = parts.get("__pydantic_fields__") or parts.get("_member_map_") or dir(self._owner)
        return f"{message}; it has {', '.join(name for name in names if not name.startswith('_'))}"


def answer_argument(name: str) -> str | None:
    """Return what is done here in the place of an argument of another library."""
    why: str | None = _foreign_names().ARGUMENTS.get(name)
    return why


def answer_attribute(name: str) -> str | None:
    """Return what is done here in the place of an attribute of another library's class."""
    why: str | None = _foreign_names().answer_member(name)
    return why


def module_words(error: BaseException) -> str:
    """Return what there is in the place of a module that was not found, of ours or of a library
    that `migrate` knows; "" for others.
    """
    name = str(getattr(error, "name", "")) if isinstance(error, ModuleNotFoundError) else ""
    package, _, last = name.rpartition(".")
    why = _foreign_names().answer_module(name) if name else None
    if why is None and package.partition(".")[0] != "dagengine":
        return ""
    return f"there is no {name}{f': {why}' if why else _what_is_there(package, last)}"


class AnsweringType(ABCMeta):
    """The type of classes whose missing attributes are answered in words.

    It is one of abstract classes, so that a class may have both as its bases.
    """

    __instancecheck__ = type.__instancecheck__  # that of abstract classes costs a call
    __subclasscheck__ = type.__subclasscheck__
    if not TYPE_CHECKING:  # type checkers shall not take any name for an attribute
        __getattr__ = absent_attributes()


class Answering(metaclass=AnsweringType):
    """A class whose missing attributes are answered in words."""

    __slots__ = ()

    if not TYPE_CHECKING:
        __getattr__ = absent_attributes()


class AnsweringEnum(EnumType):
    """The type of enumerations whose missing members are answered in words."""

    if not TYPE_CHECKING:  # type checkers shall not take any name for a member

        def __getattr__(cls, name: str) -> Any:
            if not name.startswith("_") and name in cls.__members__:
                return cls.__members__[name]
            return absent_attributes()(cls, name)


def _foreign_names() -> Any:
    return import_module("dagengine.compat.names")


def _is_imported() -> bool:
    """Return whether `from module import name` asks, after it has looked for a module."""
    from opcode import opmap  # only a mistake needs it

    frame: FrameType | None = sys._getframe(1)
    while frame is not None and str(frame.f_globals.get("__name__")).split(".")[0] == "dagengine":
        frame = frame.f_back
    return frame is not None and frame.f_code.co_code[frame.f_lasti] == opmap["IMPORT_FROM"]


def _what_is_there(module: str, name: str) -> str:
    """Return the end of a message on a name that a module of ours lacks: the nearest, or all."""
    import difflib  # only a mistake needs it

    if name.startswith("_"):
        return ""
    public = _public_of(module)
    for face in _FACES:
        package, _, last = face.rpartition(".")
        if package == module:
            public.append(last)
    near = difflib.get_close_matches(name, public, n=1)
    if near:
        return f": did you mean {near[0]!r}?"
    return f": it has {', '.join(public)}" if public else ""


def _face_with(name: str, module: str) -> str | None:
    """Return the module of ours that has the name; None for no module, or a module's own name."""
    folders = getattr(sys.modules.get(module), "__path__", [])
    # `from dagengine import estimate` asks for the name first, and imports the module after it.
    if name.startswith("_") or PathFinder.find_spec(f"{module}.{name}", folders) is not None:
        return None
    for face in _FACES:
        import_module(face)
        if name in _public_of(face) and face != module:
            return face
    return None


def _public_of(module: str) -> list[str]:
    """Return the public names of a module; without `__all__` those that were made in it."""
    names = vars(sys.modules[module]) if module in sys.modules else {}
    made = (name for name, value in names.items() if getattr(value, "__module__", None) == module)
    return list(names.get("__all__") or (name for name in made if not name.startswith("_")))
