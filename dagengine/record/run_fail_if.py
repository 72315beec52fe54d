"""`--fail-if` of a run: conditions on its figures, quantiles of what cases cost among them."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from dagengine.errors import InputError
from dagengine.record.case_costs import StepCosts, usage_of
from dagengine.record.run_json_types import Manifest
from dagengine.results.metric_results import CaseResult, unknown_metric
from dagengine.results.pass_rules import Condition, parse_condition
from dagengine.results.summary import MetricSummary, Share, Summary, value_at
from dagengine.results.usage_totals import Totals

EXAMPLE = "'Faithfulness.mean<0.8'"
_OF_METRICS = (
    *("mean", "median", "spread", "lowest", "highest", "pass-rate"),
    *("passed", "failed", "no-score"),
)
# Figures of scores, and a share.
_FROM_0_TO_1 = _OF_METRICS[:6]
_OF_RUNS = ("pass-rate", "passed", "failed", "no-score", "cases", "cost", "tokens", "calls")
_PARTS = 100  # of a doubling: quantiles are exact to half a per cent
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
    conditions = [parse_condition(text, EXAMPLE) for text in texts]
    for condition in conditions:
        if flaw := _flaw_of(condition, metrics):
            raise InputError(f"--fail-if {condition.text!r}: {flaw}")
    return conditions


def _flaw_of(condition: Condition, metrics: Sequence[str]) -> str:
    """Return the flaw of a condition on a run of these metrics; empty if it has none."""
    of, measure = condition.of, condition.measure
    measures: Sequence[str] = _OF_METRICS if of else _OF_RUNS
    # A metric may be called `p95`, too: then that is what the name stands for.
    if _QUANTILE.fullmatch(of) and of not in metrics:
        measures = ("cost", "tokens")
    elif of and of not in metrics:
        return str(unknown_metric(of, metrics))
    if measure not in measures:
        return f"{measure!r} is not a measure here; measures are {', '.join(measures)}"
    if condition.bound != "value" and measure != "pass-rate":
        return "only pass-rate has .low and .high"
    if measure in _FROM_0_TO_1 and not 0 <= condition.limit <= 1:
        return f"{measure} is from 0 to 1; write 0.5 for 50 %"
    return ""


def failures(conditions: Sequence[Condition], figures: Figures) -> list[str]:
    """One line for every condition that holds, or whose figure is undefined."""
    lines = []
    for condition in conditions:
        value = _value(condition, figures)
        if value is None:
            no_price = condition.measure == "cost"
            why = "no price is known" if no_price else "there are too few scores"
            lines.append(f"{condition.text}: it is undefined: {why}")
        elif condition.holds(value):
            lines.append(f"{condition.text}: it is {value:.4g}{_why(condition, figures.summary)}")
    return lines


def _why(condition: Condition, summary: Summary) -> str:
    """The counts of a pass rate where cases without a score make it another one than is shown."""
    if condition.measure != "pass-rate":
        return ""
    counts = summary[condition.of] if condition.of else summary
    scored = counts.passed + counts.failed
    if scored == counts.expected:
        return ""
    missing = f"{counts.expected - scored:,} without a score count as not passed"
    return f" ({counts.passed:,} of {scored:,} scored passed; {missing})"


def _value(condition: Condition, figures: Figures) -> float | None:
    owner: Summary | MetricSummary = figures.summary
    quantile = _QUANTILE.fullmatch(condition.of)
    if condition.of in (row.metric for row in figures.summary):
        owner = figures.summary[condition.of]
    elif quantile is not None:
        return figures.costs.quantile(condition.measure, int(quantile[1]) / 100)
    elif condition.of:  # no case came, so there is nothing of its metrics
        return None
    elif condition.measure == "tokens":
        return figures.totals.usage.input_tokens + figures.totals.usage.output_tokens
    elif condition.measure == "cost":
        return figures.totals.cost
    elif condition.measure == "calls":
        return figures.totals.calls
    value: Share | float | None = getattr(owner, condition.measure.replace("-", "_"))
    if isinstance(value, Share):  # a case that should have a score and has none did not pass
        value = Share.of(owner.passed, owner.expected)
    return float(getattr(value, condition.bound)) if isinstance(value, Share) else value


class Costs:
    """Quantiles of the cost of cases, over any number of them; see `StepCosts`."""

    def __init__(self, manifest: Manifest) -> None:
        self._prices = StepCosts(manifest)
        self._money, self._tokens = Quantiles(), Quantiles()
        self._unpriced = False

    def add(self, row: CaseResult) -> None:
        """Count one case."""
        money, tokens = 0.0, 0
        for result in row.metrics:
            used = usage_of(result, self._prices)
            tokens += used.input_tokens + used.output_tokens
            money += used.cost or 0.0
            self._unpriced = self._unpriced or used.cost is None
        self._money.add(money)
        self._tokens.add(tokens)

    def quantile(self, what: str, share: float) -> float | None:
        """The `cost` in US dollars, or the `tokens`, that this share of cases does not exceed.

        None without cases, and where a price is not known.
        """
        if what == "cost" and self._unpriced:
            return None
        return (self._money if what == "cost" else self._tokens).at(share)


class Quantiles:
    """Quantiles of numbers from 0 on. Only how many are about as large is kept."""

    def __init__(self) -> None:
        self._counts = Counter[float]()

    def add(self, value: float) -> None:
        """Count one number."""
        # By the logarithm: one counter for all numbers of about this size, so that a million cases
        # take no more room than a thousand, and cents are as exact as dollars.
        self._counts[-math.inf if value <= 0 else round(math.log2(value) * _PARTS)] += 1

    def at(self, share: float) -> float | None:
        """The least number that this share of all does not exceed; None of nothing."""
        if not self._counts:
            return None
        part = value_at(self._counts, math.ceil(share * self._counts.total()) - 1)
        return float(2.0 ** (part / _PARTS))
