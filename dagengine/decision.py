"""What a question decides, told apart from the words in which a chat model is asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from dagengine.frozen import quick_init

Kind = Literal["predicate", "choice", "score"]
Odds = tuple[tuple[Any, float], ...]
"""What an answer may be, each with its probability (0 to 1).

Together they are 1. If some options are not known exactly, each has the least that its probability
may be, and what is missing from 1 is unknown. Empty odds are wholly unknown.
"""


@dataclass(frozen=True, slots=True)
class Option:
    """One answer that may be given, and when it applies, where that is said."""

    value: str | bool
    description: str | None = None


YES_NO = (Option(True), Option(False))


@quick_init
@dataclass(frozen=True, slots=True, eq=False)
class Decision:
    """A question whose answer is one of some options, as its node describes it.

    `predicate` is true or false, `choice` one of the options, `score` one of ordered levels, the
    worst first. `instructions` say what is to be decided. `case` is the test case, or None if there
    is none. `fields` are what the question is about, as (path, value). `material` is what it reads
    besides: (label, value) of earlier nodes, or an item of a list. With a `text` this is all that
    is shown, in the place of the case.
    """

    kind: Kind
    instructions: str
    options: tuple[Option, ...]
    case: Any = None
    fields: tuple[tuple[str, Any], ...] = ()
    material: tuple[tuple[str, Any], ...] = ()
    text: str | None = None
