"""`--fail-if` of a run: conditions on its figures."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from dagengine.errors import InputError
from dagengine.record.costs import Costs
from dagengine.results.conditions import Condition, parse_condition
from dagengine.results.summary import MetricSummary, Share, Summary, unknown_metric
from dagengine.results.totals import Totals

EXAMPLE = "'Faithfulness.mean<0.8'"
_OF_METRICS = (
    *("mean", "median", "spread", "lowest", "highest", "pass-rate"),
    *("passed", "failed", "no-score"),
)
_OF_RUNS = ("pass-rate", "passed", "failed", "no-score", "cases", "cost", "tokens", "calls")
_QUANTILE = re.compile(r"p([1-9][0-9]?)")


@dataclass(frozen=True, slots=True)
class Figures:
    """What conditions may name: the summary of a run, its sums, and the costs of its cases."""

    summary: Summary
    totals: Totals
    costs: Costs


def conditions_of(texts: Sequence[str], metrics: Sequence[str]) -> list[Condition]:
    """The conditions of a run of these metrics.

    Raises InputError, before the first call, for anything else, and for a name that the run
    will not have.
    """
    found = [parse_condition(text, EXAMPLE) for text in texts]
    for one in found:
        _check(one, metrics)
    return found


def _check(one: Condition, metrics: Sequence[str]) -> None:
    if _QUANTILE.fullmatch(one.of) and one.of not in metrics:
        known: Sequence[str] = ("cost", "tokens")
    elif one.of:
        if one.of not in metrics:
            raise InputError(f"--fail-if {one.text!r}: {unknown_metric(one.of, metrics)}")
        known = _OF_METRICS
    else:
        known = _OF_RUNS
    if one.measure not in known:
        raise InputError(
            f"--fail-if {one.text!r}: {one.measure!r} is not a measure here; measures are "
            f"{', '.join(known)}"
        )
    if one.bound != "value" and one.measure != "pass-rate":
        raise InputError(f"--fail-if {one.text!r}: only pass-rate has .low and .high")


def failures(conditions: Sequence[Condition], figures: Figures) -> list[str]:
    """One line for every condition that holds, or whose figure is undefined."""
    lines = []
    for one in conditions:
        value = _value(one, figures)
        if value is None:
            lines.append(f"{one.text}: it is undefined: {_why_undefined(one)}")
        elif one.holds(value):
            lines.append(f"{one.text}: it is {value:.4g}")
    return lines


def _why_undefined(one: Condition) -> str:
    return "no price is known" if one.measure == "cost" else "there are too few scores"


def _value(one: Condition, figures: Figures) -> float | None:
    names = [found.metric for found in figures.summary]
    if one.of in names:
        return _figure(figures.summary[one.of], one)
    quantile = _QUANTILE.fullmatch(one.of)
    if quantile is not None:
        return figures.costs.quantile(one.measure, int(quantile[1]) / 100)
    if one.of:  # no case came, so there is nothing of its metrics
        return None
    used = figures.totals
    sums = {
        "cost": used.cost,
        "tokens": used.usage.input_tokens + used.usage.output_tokens,
        "calls": used.calls,
    }
    return sums[one.measure] if one.measure in sums else _figure(figures.summary, one)


def _figure(found: Summary | MetricSummary, one: Condition) -> float | None:
    value: Share | float | None = getattr(found, one.measure.replace("-", "_"))
    if isinstance(value, Share):
        return float(getattr(value, one.bound))
    return value
