"""Which case a row of another table is about, and which cases are one and the same to a judge.

Labels and verdicts are joined to cases by name, or by place, never by both in one file. Two cases
are equal if everything that is read of them is equal; their names do not matter.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any

from dagengine.errors import near_hint
from dagengine.prompts.evidence import as_data
from dagengine.test_case import TestCase, case_label, read_field

# Places that a message lists.
_LISTED = 4
_NAME, _PLACE = "the name of a case", "only a place (from 0)"
# Also of a column with gaps (3.0), and with zeros that a spreadsheet takes away (007).
_WHOLE = re.compile(r"\s*\+?0*(\d+)(?:\.0*)?\s*")
JUDGED = (
    "input", "actual_output", "expected_output", "context", "retrieval_context", "tools_called",
    "expected_tools", "spans", "turns", "chatbot_role", "scenario", "expected_outcome",
    "user_description", "contestants",
)  # fmt: skip
"""The fields that a judge may read, without names, tags, metadata and figures."""


def whole_number(cell: Any) -> int | None:
    """The number of a cell that is a whole number from 0 on (3, "3", 3.0, "007"), else None."""
    if isinstance(cell, float) and cell.is_integer():
        cell = int(cell)
    match = None if isinstance(cell, bool) else _WHOLE.fullmatch(str(cell))
    return int(match[1]) if match else None


def read_digest(case: TestCase, paths: Collection[str], *, blanks: bool = True) -> str:
    """SHA-256 (hex) of what is read of a case: its values at `paths`, or all of `JUDGED`.

    Equal in every process. Without `blanks`, texts that differ in blanks only have one digest.
    """
    text = json.dumps([as_data(read_field(case, path)) for path in sorted(paths) or JUDGED])
    if not blanks:
        text = re.sub(r"(?:\\[nrt]|\s)+", "", text)
    return hashlib.sha256(text.encode()).hexdigest()


def is_gap(cell: Any) -> bool:
    """Whether a cell says nothing: none, an empty text, not a number."""
    return cell != cell if isinstance(cell, float) else cell is None or cell == ""


def named_cells(row: Mapping[Any, Any], names: Sequence[str]) -> dict[str, Any]:
    """The cells of those columns `names` that are there, None for one that says nothing.

    Small and capital letters are one. Raises ValueError if two columns may be meant.
    """
    cells: dict[str, Any] = {}
    for name, column in _meant(tuple(row), tuple(names)):
        cell = row[column]
        cells[name] = None if is_gap(cell) else cell
    return cells


@lru_cache(64)
def _meant(columns: tuple[Any, ...], names: tuple[str, ...]) -> tuple[tuple[str, Any], ...]:
    """Names with the columns that they mean: rows of a table have the same columns."""
    spelt: dict[str, list[Any]] = {}
    for column in columns:
        spelt.setdefault(str(column).strip().casefold(), []).append(column)
    meant = {name: [name] if name in columns else spelt[name] for name in names if name in spelt}
    for name, own in meant.items():
        if len(own) > 1:
            raise ValueError(f"{' and '.join(map(repr, own))} may both be `{name}`: rename one")
    return tuple((name, column) for name, (column,) in meant.items())


class Places:
    """The places of cases, from 0, by what the rows of one file call them: names, or places."""

    def __init__(self, cases: Sequence[TestCase]) -> None:
        self._count = len(cases)
        self._named: dict[str | int | None, list[int]] = {}
        self._first: dict[str, str] = {}  # row of each kind
        self._known: dict[str, int] = {}
        for index, case in enumerate(cases):
            name = case_label(case, index)
            # A whole number is also a name, in each of its forms; the very same text goes first.
            for key in (name, whole_number(name)):
                self._named.setdefault(key, []).append(index)

    def has_name(self, given: Any) -> bool:
        """Whether a case is called so."""
        return str(given) in self._named or whole_number(given) in (self._named.keys() - {None})

    def of(self, given: Any, where: str = "a row") -> int:
        """The place of the case; without any cases every whole number is one.

        `where` is the place of the row in its file. Raises ValueError for what is no name and no
        place, for the name of several cases, and where rows before have named cases otherwise.
        """
        if isinstance(given, str) and given in self._known:
            return self._known[given]
        if given is None or given == "":
            raise ValueError("`case` is empty or missing")
        name, number = str(given), whole_number(given)
        named = self._named.get(name) or self._named.get(-1 if number is None else number, [])
        if len(named) > 1:
            first = ", ".join(map(str, named[:_LISTED]))
            more = ", …" if len(named) > _LISTED else ""
            raise ValueError(
                f"{len(named)} cases are called {name!r}: write a place ({first}{more}) instead, "
                "in every row"
            )
        if named:
            kind, number = _NAME, named[0]
        elif number is None or number >= self._count > 0:
            hint = near_hint(name, (key for key in self._named if isinstance(key, str)))
            raise ValueError(f"no case has the name or the place {name!r}{hint}")
        else:
            kind = _PLACE
        self._require_one_kind(f"{name!r}", where, kind)
        return self._known.setdefault(name, number)

    def _require_one_kind(self, name: str, where: str, kind: str) -> None:
        before = self._first.get(_NAME if kind == _PLACE else _PLACE)
        if before is not None:
            raise ValueError(
                f"{name} is {kind}, but {before}: write names in all rows, or places in all rows"
            )
        self._first.setdefault(kind, f"{name} ({where}) is {kind}")
