"""The case that a row of labels or verdicts is about, and a digest of what judges read of a case.

Such a row calls its case by name or by place (its number in the data set, from 0). All rows of one
file do it in the same way. Two cases are equal to a judge if everything that it reads of them is
equal; their names do not matter.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any

from dagengine.errors import near_hint
from dagengine.prompts.evidence import as_data
from dagengine.test_case import TestCase, case_label, read_field

_LISTED = 4  # places that a message lists
_NAME, _PLACE = "the name of a case", "only a place (from 0)"  # what a cell is, in messages
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


def is_gap(cell: Any) -> bool:
    """Whether a cell says nothing: None, an empty text, or NaN."""
    return cell is None or cell == "" or (isinstance(cell, float) and math.isnan(cell))


def named_cells(row: Mapping[Any, Any], names: Sequence[str]) -> dict[str, Any]:
    """The cells in the columns called `names`, by name; None for a gap, nothing without a column.

    `names` are in small letters; the letters of columns may be capital, with blanks around them.
    Raises ValueError if a name may mean two columns.
    """
    cells = {name: row[column] for name, column in _columns_of(tuple(names), tuple(row)).items()}
    return {name: None if is_gap(cell) else cell for name, cell in cells.items()}


@lru_cache(64)  # All rows of a table have the same columns.
def _columns_of(names: tuple[str, ...], columns: tuple[Any, ...]) -> dict[str, Any]:
    """The column that each name means; names without a column are left out."""
    by_spelling: dict[str, list[Any]] = {}
    for column in columns:
        by_spelling.setdefault(str(column).strip().casefold(), []).append(column)
    columns_by_name: dict[str, Any] = {}
    for name in names:
        matches = [name] if name in columns else by_spelling.get(name, [])
        if len(matches) > 1:
            raise ValueError(f"{' and '.join(map(repr, matches))} may both be `{name}`: rename one")
        if matches:
            columns_by_name[name] = matches[0]
    return columns_by_name


class Places:
    """The places of cases, by what the rows of one file call them: all by name, or all by place."""

    def __init__(self, cases: Sequence[TestCase]) -> None:
        self._end = len(cases) or math.inf  # without any cases every whole number is a place
        self._by_name: dict[str, list[int]] = {}
        # By names that are whole numbers, in all their forms (7, "007"); None is never a key.
        self._by_number: dict[int | None, list[int]] = {}
        self._by_cell: dict[str, int] = {}  # what `of` has answered
        self._first_rows: dict[str, str] = {}  # in words, the first by name and the first by place
        for index, case in enumerate(cases):
            name = case_label(case, index)
            self._by_name.setdefault(name, []).append(index)
            if (number := whole_number(name)) is not None:
                self._by_number.setdefault(number, []).append(index)

    def has_name(self, cell: Any) -> bool:
        """Return whether a case is called so."""
        return bool(self._places_of_name(cell))

    def _places_of_name(self, cell: Any) -> list[int]:
        """All cases of a name; the very same text goes before another form of the number."""
        return self._by_name.get(str(cell)) or self._by_number.get(whole_number(cell), [])

    def of(self, cell: Any, where: str = "a row") -> int:
        """The place of the case that a cell calls by name or by place.

        `where` is the position of the row in its file. Raises ValueError for what is no name and no
        place, for the name of several cases, and for a name after rows with places, or the reverse.
        """
        if isinstance(cell, str) and cell in self._by_cell:
            return self._by_cell[cell]
        if cell is None or cell == "":
            raise ValueError("`case` is empty or missing")
        name, number = str(cell), whole_number(cell)
        named = self._places_of_name(cell)
        if len(named) > 1:
            first = ", ".join(map(str, named[:_LISTED]))
            more = ", …" if len(named) > _LISTED else ""
            raise ValueError(
                f"{len(named)} cases are called {name!r}: write a place ({first}{more}) instead, "
                "in every row"
            )
        if named:
            kind, opposite, number = _NAME, _PLACE, named[0]
        elif number is not None and number < self._end:
            kind, opposite = _PLACE, _NAME
        else:
            hint = near_hint(name, self._by_name)
            raise ValueError(f"no case has the name or the place {name!r}{hint}")
        if opposite in self._first_rows:
            raise ValueError(
                f"{name!r} is {kind}, but {self._first_rows[opposite]}: write names in all rows, "
                "or places in all rows"
            )
        self._first_rows.setdefault(kind, f"{name!r} ({where}) is {kind}")
        return self._by_cell.setdefault(name, number)


def read_digest(case: TestCase, paths: Collection[str], *, blanks: bool = True) -> str:
    """SHA-256 (hex) of what is read of a case: its values at `paths`; if there are none, `JUDGED`.

    Equal in every process. Without `blanks`, texts that differ in blanks only have one digest.
    """
    text = json.dumps([as_data(read_field(case, path)) for path in sorted(paths) or JUDGED])
    if not blanks:
        # JSON writes line breaks and tabs inside of a text as \n, \r and \t.
        text = re.sub(r"(?:\\[nrt]|\s)+", "", text)
    return hashlib.sha256(text.encode()).hexdigest()
