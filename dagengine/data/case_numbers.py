"""Rows of another table, such as labels or verdicts, joined to cases by name or place."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any

from dagengine.test_case import TestCase

# Places that a message lists.
_LISTED = 4


class Places:
    """The places of cases, from 0, by what a row calls a case: its name, or its place."""

    def __init__(self, cases: Sequence[TestCase]) -> None:
        self._count = len(cases)
        self._by_name: dict[str, list[int]] = {}
        for number, case in enumerate(cases):
            if case.name:
                self._by_name.setdefault(case.name, []).append(number)

    def of(self, given: Any) -> int:
        """The place of the case; without any cases every whole number is one.

        Raises ValueError for what is no name and no place, or the name of several cases.
        """
        if given is None or given == "":
            raise ValueError("`case` is empty or missing")
        name = str(given)
        if named := self._by_name.get(name):
            if len(named) > 1:
                first = ", ".join(map(str, named[:_LISTED]))
                more = ", …" if len(named) > _LISTED else ""
                raise ValueError(
                    f"{len(named)} cases are called {name!r}: write a place ({first}{more}) instead"
                )
            return named[0]
        try:
            number = float(given)  # a column with gaps has made 3.0 of 3
        except (ValueError, TypeError):
            number = -1.0
        if not number.is_integer() or number < 0 or (self._count and number >= self._count):
            near = difflib.get_close_matches(name, self._by_name, 1)
            hint = f" (did you mean {near[0]!r}?)" if near else ""
            raise ValueError(f"no case has the name or the place {name!r}{hint}")
        return int(number)
