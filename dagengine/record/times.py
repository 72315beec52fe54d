"""How long every case took: in its own file, so that rows do not depend on the clock."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from dagengine.data.json_lines import value_of
from dagengine.results import CaseResult, Step

_DIGITS = 4  # a tenth of a millisecond
_LONGEST = 1e10  # seconds; a file that says more is damaged
_INDEX = re.compile(rb'\{"index": (\d+)')


def times_line(row: CaseResult) -> dict[str, Any]:
    """The line of one row."""
    return {"index": row.index, **times_of(row)}


def times_of(row: CaseResult) -> dict[str, Any]:
    """The seconds of a case, and of every step by metric and node."""
    steps = {
        result.metric: {
            step.node: _rounded(step.seconds) for step in result.steps if step.seconds is not None
        }
        for result in row.metrics
    }
    return {"seconds": _rounded(row.seconds), "steps": steps}


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, _DIGITS)


def timed(row: CaseResult, line: dict[str, Any] | None) -> CaseResult:
    """A row that was just read, now with the times of its line; as it is without one."""
    if line is None:
        return row
    steps = _mapping(line.get("steps"))
    for result in row.metrics:
        seconds = _mapping(steps.get(result.metric))
        for step in result.steps:
            _set_seconds(step, seconds.get(step.node))
    _set_seconds(row, line.get("seconds"))
    return row


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _set_seconds(read: CaseResult | Step, seconds: Any) -> None:
    valid = isinstance(seconds, int | float) and 0 <= seconds < _LONGEST
    # Nobody else has it yet, and a changed copy of all would take 20 times as long.
    object.__setattr__(read, "seconds", seconds if valid else None)


def with_times(rows: Iterable[CaseResult], lines: Iterable[bytes]) -> Iterator[CaseResult]:
    """Rows with their times; both are in the same order, and lines may be missing.

    Only the lines of these rows are read. Raises InputError as the rows do; a damaged line of
    times is passed over.
    """
    left = iter(lines)
    line = next(left, None)
    for row in rows:
        while line is not None and index_in(line) < row.index:
            line = next(left, None)
        mine = line is not None and index_in(line) == row.index
        yield timed(row, _value(line) if mine and line is not None else None)


def index_in(line: bytes) -> int:
    """The index at the beginning of a line of a run folder; -1 without one."""
    match = _INDEX.match(line)
    return int(match[1][:18]) if match else -1


def _value(line: bytes) -> dict[str, Any] | None:
    try:
        value = value_of(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
