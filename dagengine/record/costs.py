"""What single cases cost: money and tokens of the answers that their results rest on."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

from dagengine.gateway.prices import Price
from dagengine.record.values import Manifest
from dagengine.results.outcomes import Step
from dagengine.results.rows import CaseResult, MetricResult

DIGITS = 4
"""Of the seconds in a record: a tenth of a millisecond."""
_FREE = frozenset({"code", "field", "metric"})  # kinds of nodes that ask no question
_PARTS = 100  # of a doubling: quantiles are exact to half a per cent


class StepCosts:
    """What steps cost, by the prices that the record of a run has.

    Answers count in full for every step that rests on them, shared and stored ones, too. A node
    that several judges answer counts at the price of the dearest.
    """

    def __init__(self, manifest: Manifest) -> None:
        prices = [None if j.price is None else Price(*j.price) for j in manifest.judges]
        self._judges = {
            (metric.name, node.name): [prices[judge] for judge in node.judges]
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
            for step in result.steps:
                tokens += step.usage.input_tokens + step.usage.output_tokens
                cost = self._prices.of(result.metric, step)
                self._unpriced = self._unpriced or cost is None
                money += cost or 0.0
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

    def __init__(self, values: Iterable[float] = ()) -> None:
        self._counts: Counter[float] = Counter()
        for value in values:
            self.add(value)

    def add(self, value: float) -> None:
        """Count one number."""
        # By the logarithm: one counter for all numbers of about this size, so that a million cases
        # take no more room than a thousand, and cents are as exact as dollars.
        self._counts[-math.inf if value <= 0 else round(math.log2(value) * _PARTS)] += 1

    def at(self, share: float) -> float | None:
        """The least number that this share of all does not exceed; None of nothing."""
        left = math.ceil(share * self._counts.total())
        for part in sorted(self._counts):
            left -= self._counts[part]
            if left <= 0:
                return float(2.0 ** (part / _PARTS))
        return None
