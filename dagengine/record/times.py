"""What every case took: in its own file, so that rows do not depend on the clock."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Annotated, Any

from annotated_types import MinLen
from pydantic import TypeAdapter, ValidationError

from dagengine.data.json_lines import value_of
from dagengine.question import NO_USAGE, Usage
from dagengine.record.costs import DIGITS
from dagengine.results import CaseResult, JudgeCall, Step

_LONGEST = 1e10  # seconds; a file that says more is damaged
_INDEX = re.compile(rb'\{"index": (\d+)')


def times_line(row: CaseResult) -> dict[str, Any]:
    """The line of one row."""
    return {"index": row.index, **times_of(row)}


def times_of(row: CaseResult) -> dict[str, Any]:
    """The seconds of a case and of every step, by metric and node.

    With them is what else belongs to this run and not to its answers, where there is any: the calls
    of questions that needed several, and tokens that the provider had in its cache.
    """
    steps = {
        result.metric: {
            step.node: _rounded(step.seconds) for step in result.steps if step.seconds is not None
        }
        for result in row.metrics
    }
    line: dict[str, Any] = {"seconds": _rounded(row.seconds), "steps": steps}
    for result in row.metrics:
        for step in result.steps:
            if step.calls:
                calls = [list(map(call_record, calls)) for calls in step.calls]
                line.setdefault("calls", {}).setdefault(result.metric, {})[step.node] = calls
            if step.usage.cached_tokens:
                cached = line.setdefault("cached_tokens", {}).setdefault(result.metric, {})
                cached[step.node] = step.usage.cached_tokens
    return line


def call_record(call: JudgeCall) -> dict[str, Any]:
    """One call as JSON has it, without what is not there."""
    record: dict[str, Any] = {"outcome": str(call.outcome), "seconds": _rounded(call.seconds)}
    if waited := _rounded(call.waited):
        record["waited"] = waited
    if call.usage != NO_USAGE:
        record["usage"] = dataclasses.asdict(call.usage)
    return record if call.message is None else {**record, "message": call.message}


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, DIGITS)


def timed(row: CaseResult, line: dict[str, Any] | None) -> CaseResult:
    """A row that was just read, now with the times of its line; as it is without one."""
    if line is None:
        return row
    for result in row.metrics:
        seconds, calls, cached = (
            _mapping(_mapping(line.get(name)).get(result.metric))
            for name in ("steps", "calls", "cached_tokens")
        )
        for step in result.steps:
            _set_seconds(step, seconds.get(step.node))
            if step.node in calls:
                object.__setattr__(step, "calls", _calls(calls[step.node]))
            if step.node in cached:
                object.__setattr__(step, "usage", _with_cached(step.usage, cached[step.node]))
    _set_seconds(row, line.get("seconds"))
    return row


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _set_seconds(read: CaseResult | Step, seconds: Any) -> None:
    valid = isinstance(seconds, int | float) and 0 <= seconds < _LONGEST
    # Nobody else has it yet, and a changed copy of all would take 20 times as long.
    object.__setattr__(read, "seconds", seconds if valid else None)


def _calls(value: Any) -> tuple[tuple[JudgeCall, ...], ...]:
    """The calls of a step; none where they are damaged."""
    try:
        return _questions().validate_python(value)
    except ValidationError:
        return ()


@cache
def _questions() -> TypeAdapter[tuple[tuple[JudgeCall, ...], ...]]:
    return TypeAdapter(tuple[Annotated[tuple[JudgeCall, ...], MinLen(2)], ...])


def _with_cached(usage: Usage, tokens: Any) -> Usage:
    valid = isinstance(tokens, int) and 0 <= tokens <= usage.input_tokens
    return dataclasses.replace(usage, cached_tokens=tokens) if valid else usage


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
