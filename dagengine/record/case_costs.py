"""What single cases cost and took: money and tokens of the answers that they rest on, and seconds.

Seconds are in a file of their own, so that rows do not depend on the clock.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Annotated, Any, NamedTuple, TypeVar

from annotated_types import MinLen
from pydantic import ValidationError

from dagengine.data.written_lines import adapter_of, index_of
from dagengine.question import NO_USAGE
from dagengine.record.run_json_types import Manifest
from dagengine.results.metric_results import CaseResult, MetricResult
from dagengine.results.outcomes import JudgeCall, Step
from dagengine.results.prices import Price

DIGITS = 4
"""Of the seconds in a record: a tenth of a millisecond."""
_FREE = frozenset({"code", "field", "metric"})  # kinds of nodes that ask no question
T = TypeVar("T")
_QUESTIONS = tuple[Annotated[tuple[JudgeCall, ...], MinLen(2)], ...]
_LONGEST = 1e10  # seconds; a file that says more is damaged
_INDEX = re.compile(rb'\{"index": (\d+)')


class StepCosts:
    """What steps cost, by the prices that the record of a run has.

    Answers count in full for every step that rests on them, shared and stored ones, too. A node
    that several judges answer counts at the price of the dearest.
    """

    def __init__(self, manifest: Manifest) -> None:
        prices = [None if j.price is None else Price(*j.price) for j in manifest.judges]
        self._judges = {
            (metric.name, node.name): list(map(prices.__getitem__, node.judges))
            for metric in manifest.metrics
            for node in metric.every_node()
        }

    def prices(self) -> list[list[Any]]:
        """The prices of every node, as data."""
        return [[*names, prices] for names, prices in self._judges.items()]

    def of(self, metric: str, step: Step) -> float | None:
        """US dollars; 0 if nothing was used, None if the price is not known."""
        used = step.usage
        if not used.input_tokens and not used.output_tokens:
            return 0.0
        prices = self._judges.get((metric, step.node)) or [None]
        # The step does not tell which judge of a panel used how much: the dearest is the most.
        costs = [price.of(used) for price in prices if price is not None]
        return max(costs) if len(costs) == len(prices) else None


class Used(NamedTuple):
    """What one result used: tokens, questions, US dollars and seconds (None: not known)."""

    input_tokens: int = 0
    output_tokens: int = 0
    questions: int = 0
    cost: float | None = 0.0
    seconds: float | None = None


def usage_of(result: MetricResult, costs: StepCosts) -> Used:
    """Usage of a result; shared and stored answers count in full, seconds as a record has them."""
    input_tokens, output_tokens, questions = 0, 0, 0
    money: float | None = 0.0
    seconds: float | None = None
    for step in result.steps:
        input_tokens += step.usage.input_tokens
        output_tokens += step.usage.output_tokens
        if step.kind not in _FREE:
            items = step.output if step.kind == "map" else None
            each = len(items) if isinstance(items, list) else 1
            questions += each * max(1, len(step.votes))
        cost = costs.of(result.metric, step)
        money = None if cost is None or money is None else money + cost
        if step.seconds is not None:
            seconds = (seconds or 0.0) + round(step.seconds, DIGITS)
    return Used(input_tokens, output_tokens, questions, money, seconds)


def times_of(row: CaseResult) -> dict[str, Any]:
    """The seconds of a case and of every step, by metric and node.

    With them is what else belongs to this run and not to its answers, where there is any: the calls
    of questions that needed several, and tokens that the provider had in its cache.
    """
    line: dict[str, Any] = {"seconds": _round(row.seconds), "steps": {}}
    for result in row.metrics:
        took = line["steps"][result.metric] = {}
        for step in result.steps:
            if step.seconds is not None:
                took[step.node] = _round(step.seconds)
            if step.calls:
                calls = [list(map(call_record, calls)) for calls in step.calls]
                line.setdefault("calls", {}).setdefault(result.metric, {})[step.node] = calls
            if step.usage.cached_tokens:
                cached = line.setdefault("cached_tokens", {}).setdefault(result.metric, {})
                cached[step.node] = step.usage.cached_tokens
    return line


def call_record(call: JudgeCall) -> dict[str, Any]:
    """One call as JSON has it, without what is not there."""
    record: dict[str, Any] = {"outcome": str(call.outcome), "seconds": _round(call.seconds)}
    if waited := _round(call.waited):
        record["waited"] = waited
    if call.usage != NO_USAGE:
        record["usage"] = dataclasses.asdict(call.usage)
    return record if call.message is None else {**record, "message": call.message}


def _round(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, DIGITS)


def row_with_times(row: CaseResult, line: Any) -> CaseResult:
    """A row that was just read, now with the times of its line; as it is if that is none."""
    if not isinstance(line, dict):
        return row
    for result in row.metrics:
        seconds, calls, cached = (
            _mapping(_mapping(line.get(name)).get(result.metric))
            for name in ("steps", "calls", "cached_tokens")
        )
        for step in result.steps:
            _set_seconds(step, seconds.get(step.node))
            if step.node in calls:
                with suppress(ValidationError):  # a damaged line is no reason to lose its row
                    questions = adapter_of(_QUESTIONS).validate_python(calls[step.node])
                    object.__setattr__(step, "calls", questions)
            # The provider's cache is of this run, not of the answer, so it stands with the times;
            # more cached tokens than there were would make prices negative.
            tokens = cached.get(step.node)
            if isinstance(tokens, int) and 0 <= tokens <= step.usage.input_tokens:
                usage = dataclasses.replace(step.usage, cached_tokens=tokens)
                object.__setattr__(step, "usage", usage)
    _set_seconds(row, line.get("seconds"))
    return row


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _set_seconds(read: CaseResult | Step, seconds: Any) -> None:
    valid = isinstance(seconds, int | float) and 0 <= seconds < _LONGEST
    # Nobody else has it yet, and a changed copy of all would take 20 times as long.
    object.__setattr__(read, "seconds", seconds if valid else None)


def pair_lines(
    rows: Iterable[CaseResult], lines: Iterable[T], index: Callable[[T], int]
) -> Iterator[tuple[CaseResult, T | None]]:
    """Each row with the line of its index; both are in the same order, and lines may be missing."""
    left = iter(lines)
    line = next(left, None)
    for row in rows:
        # Where a run broke off a line may have no row.
        while line is not None and index(line) < row.index:
            line = next(left, None)
        yield row, line if line is not None and index(line) == row.index else None


def index_in(line: bytes) -> int:
    """The index of a line of a run folder; -1 without one."""
    # Mostly without reading the JSON: of a run of a million rows most lines are only passed over.
    # Python refuses thousands of digits, and 18 are more than an index has.
    match = _INDEX.match(line)
    return int(match[1][:18]) if match else index_of(line)
