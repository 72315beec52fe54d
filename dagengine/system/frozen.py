"""A quicker `__init__` for immutable values that are made very often."""

from __future__ import annotations

from dataclasses import fields
from functools import update_wrapper
from operator import attrgetter
from types import new_class
from typing import Any, TypeVar

C = TypeVar("C", bound=type)


def quick_init(cls: C) -> C:
    """Make instances of a frozen dataclass with slots in a third of the time; a class decorator.

    The `__init__` of a frozen dataclass calls `object.__setattr__` for each field, which takes
    1.4 µs for 17 fields. The new one first makes the instance one of `opened`, a class with the
    same slots that is not frozen. It sets the fields, and makes it one of `cls` again: 0.45 µs. An
    instance of a subclass, with slots of its own, is made in the slow way. Fields may have no
    default factories.
    """
    names, slow = list(map(attrgetter("name"), fields(cls))), cls.__dict__["__init__"]
    bases = cls.__dict__.get("__orig_bases__", cls.__bases__)  # with their type arguments
    slots = {"__slots__": cls.__dict__["__slots__"], "__module__": cls.__module__}
    opened = new_class(cls.__name__, bases, exec_body=lambda body: body.update(slots))
    lines = [
        f"def __init__(self, {', '.join(names)}):",
        "    if self.__class__ is not cls:",
        f"        return slow(self, {', '.join(names)})",
        "    set_slowly(self, '__class__', opened)",
        *(f"    self.{name} = {name}" for name in names),
        "    self.__class__ = cls",
    ]
    if hasattr(cls, "__post_init__"):
        lines.append("    self.__post_init__()")
    space: dict[str, Any] = {"set_slowly": object.__setattr__, "slow": slow}
    space |= {"opened": opened, "cls": cls}
    exec("\n".join(lines), space)
    quick = space["__init__"]
    quick.__defaults__ = slow.__defaults__
    # Readers of annotations look names up where the function that is wrapped was made.
    setattr(cls, slow.__name__, update_wrapper(quick, slow))
    return cls
