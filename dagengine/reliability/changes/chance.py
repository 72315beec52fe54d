"""How much of what changed between two runs is chance: a paired test, and what a card foretells."""

from __future__ import annotations

from dataclasses import dataclass

from dagengine.errors import InputError
from dagengine.record.changes.run_comparison import MetricComparison
from dagengine.record.changes.tree_changes import every_node
from dagengine.reliability.card.values import Figure, JudgeCard, MetricCard
from dagengine.reliability.statistics.comparisons import (
    Comparison,
    compare_means,
    compare_shares,
)
from dagengine.reliability.statistics.intervals import Unknown, needs

_CHANCE = 0.05


@dataclass(frozen=True, slots=True)
class PairedTest:
    """Whether the new run is better or worse by more than chance.

    `what` is "pass rate", or "mean score" of a metric without a threshold. `p` is two-sided.
    """

    what: str
    difference: float
    p: float
    test: str
    differing: int

    @property
    def chance(self) -> bool:
        """Whether so large a difference comes about by chance in more than 5 of 100 runs."""
        return self.p > _CHANCE


@dataclass(frozen=True, slots=True)
class Noise:
    """How many cases flip when the same questions are asked again, by a judge card.

    `rate` is the card's flip rate with its interval (shares from 0 to 1). `low` to `high` are
    the numbers of flips that 95 of 100 second runs stay within, the uncertainty of the
    rate included. `stale` names what the card was not made of, in words.
    """

    rate: float
    rate_low: float
    rate_high: float
    cases: int
    low: int
    high: int
    stale: str = ""

    @property
    def expected(self) -> int:
        """The flips to be expected, to the nearest whole number."""
        return round(self.rate * self.cases)

    def of(self, flips: int) -> int:
        """How many of some flips asking again alone would give."""
        return min(self.expected, flips)


def paired_test(found: MetricComparison) -> PairedTest | None:
    """The test for the cases that both runs scored; None if there is nothing to test.

    McNemar's mid-p for pass or fail, the paired t test (or changes of sign) for scores of a
    metric without a threshold. Raises MissingExtraError without the extra `benchmark`.
    """
    if not found.kinds:
        return None
    decided = {"passed", "failed"}
    pairs = [
        (old == "passed", new == "passed")
        for (old, new), count in found.states.items()
        if old in decided and new in decided
        for _ in range(count)
    ]
    result = compare_shares(pairs) if pairs else compare_means(found.pairs())
    if isinstance(result, Unknown):
        return None
    return _told("pass rate" if pairs else "mean score", result)


def _told(measure: str, comparison: Comparison) -> PairedTest:
    return PairedTest(
        measure, comparison.value, comparison.p, comparison.test, comparison.differing
    )


def noise(card: JudgeCard, found: MetricComparison) -> Noise:
    """What a card foretells for a metric; raises InputError if it says nothing of it."""
    metric = next((measured for measured in card.metrics if measured.metric == found.name), None)
    if metric is None:
        names = ", ".join(measured.metric for measured in card.metrics)
        raise InputError(f"the card has no metric {found.name!r}; it has {names}")
    rate = _flip_rate(metric)
    if rate is None or rate.value is None:
        why = "the metric has no threshold" if rate is None else rate.note
        raise InputError(f"the card has no flip rate of {found.name!r}: {why}")
    low = rate.value if rate.low is None else rate.low
    high = rate.value if rate.high is None else rate.high
    binom = needs("scipy.stats").binom
    return Noise(
        rate.value,
        low,
        high,
        found.cases,
        int(binom.ppf(0.025, found.cases, low)),
        int(binom.ppf(0.975, found.cases, high)),
        _stale(card, found),
    )


def _flip_rate(metric: MetricCard) -> Figure | None:
    settings = (under.figure("flip-rate") for under in metric.settings)
    return next((figure for figure in settings if figure is not None), None)


def _stale(card: JudgeCard, comparison: MetricComparison) -> str:
    """Nodes that the card measured with another definition than the new run has."""
    measured = card.binding.metrics.get(comparison.name, {})
    now = {node.name: node.hash for node in every_node(comparison.trees.new)}
    changed = [name for name, digest in now.items() if measured.get(name) != digest]
    return f"{' and '.join(changed)} changed since" if changed else ""
