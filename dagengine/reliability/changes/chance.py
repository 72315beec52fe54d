"""How much of what changed between two runs is chance: a paired test, and what a card foretells."""

from __future__ import annotations

from dataclasses import dataclass

from dagengine.errors import InputError
from dagengine.record.changes.run_comparison import MetricComparison
from dagengine.reliability.card.values import JudgeCard
from dagengine.reliability.statistics.comparisons import compare_means, compare_shares, holm
from dagengine.reliability.statistics.intervals import Unknown
from dagengine.reliability.statistics.sums import present, stats

_CHANCE = 0.05


@dataclass(frozen=True, slots=True)
class PairedTest:
    """Whether the new run is better or worse by more than chance.

    `what` is "pass rate", or "mean score" of a metric without a threshold. `p` is two-sided, and
    corrected by Holm's method where the direction of answers to the same questions is tested, too.
    `shift` counts the flips (worse, better) to which the same questions were answered differently,
    if these go in one direction by more than chance: the whole run was judged otherwise.
    """

    what: str
    difference: float
    p: float
    test: str
    differing: int
    shift: tuple[int, int] | None = None

    @property
    def chance(self) -> bool:
        """Return whether so large a difference comes about by chance in more than 5 of 100 runs."""
        return self.p > _CHANCE

    @property
    def words(self) -> tuple[str, ...]:
        """Result of the test in the words of every screen."""
        chance = "could be chance" if self.chance else "more than chance"
        p = "p < 0.001" if self.p < 0.001 else f"p = {self.p:.2g}"
        test = f"{chance} (paired, {self.test}, {p})"
        if self.shift is None:
            return (test,)
        worse, better = self.shift
        return (
            test,
            f"the same questions got other answers in one direction ({worse:,} worse, {better:,} "
            "better): perhaps one of the runs was judged otherwise as a whole",
        )


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

    def words(self, flips: int, test: PairedTest | None) -> str:
        """Return whether asking again alone would give so many flips, as every screen says it.

        Asking again flips cases in both directions alike. So flips that go in one direction by more
        than chance are not explained by it, however few they are.
        """
        bounds = f"{self.low:,} to {self.high:,} of {self.cases:,}"
        stale = f"; {self.stale}" if self.stale else ""
        rate = f"the card: {100 * self.rate:.1f} % of cases flip, {bounds}{stale}"
        if flips > self.high:
            return f"{flips:,} flips are more than asking again alone would give ({rate})"
        if test is not None and not test.chance:
            return f"asking again alone could give as many flips, but not in one direction ({rate})"
        return f"not more flips than asking again alone would give ({rate})"


def paired_test(found: MetricComparison) -> PairedTest | None:
    """The test for the cases that both runs scored; None if it would compare what is all equal.

    McNemar's mid-p for pass or fail, the paired t test (or changes of sign) for scores of a
    metric without a threshold. Raises MissingExtraError without the extra `benchmark`.
    """
    if not found.kinds:
        return None
    decided = {"passed", "failed"}
    pairs: list[tuple[bool, bool]] = []
    for (old, new), count in found.states.items():
        if old in decided and new in decided:
            pairs += [(old == "passed", new == "passed")] * count
    result = compare_shares(pairs) if pairs else compare_means(found.pairs())
    if isinstance(result, Unknown) or not result.differing:
        return None
    # Flips where the same question got another answer are noise, which has no direction: more one
    # way than chance allows says that a whole run was judged otherwise.
    same = [change.kind for change in found.changes if change.first.cause == "same"]
    worse, better = same.count("worse"), same.count("better")
    moved = compare_shares([(True, False)] * worse + [(False, True)] * better)
    # Two tests of one metric are one look: each may be wrong in half of the cases alone.
    p, *of_shift = holm([test.p for test in (result, moved) if not isinstance(test, Unknown)])
    shift = (worse, better) if of_shift and of_shift[0] <= _CHANCE else None
    measure = "pass rate" if pairs else "mean score"
    return PairedTest(measure, result.value, p, result.test, result.differing, shift)


def noise(card: JudgeCard, found: MetricComparison) -> Noise:
    """Noise that a card foretells for a metric; raises InputError without it."""
    value, low, high = _flip_rate(card, found.name)
    binom = stats.binom
    # Nodes that the card measured with another definition than the new run has
    measured = card.binding.metrics.get(found.name, {})
    now = {node.name: node.hash for node in found.trees.new.every_node()}
    changed = [name for name, digest in now.items() if measured.get(name) != digest]
    return Noise(
        value,
        low,
        high,
        found.scored,
        int(binom.ppf(0.025, found.scored, low)),
        int(binom.ppf(0.975, found.scored, high)),
        f"{' and '.join(changed)} changed since" if changed else "",
    )


def _flip_rate(card: JudgeCard, name: str) -> tuple[float, float, float]:
    """The flip rate of a metric on a card, with its interval; raises InputError without one."""
    metric = next((measured for measured in card.metrics if measured.metric == name), None)
    if metric is None:
        names = ", ".join(measured.metric for measured in card.metrics)
        raise InputError(f"the card has no metric {name!r}; it has {names}")
    rates = (under.figure("flip-rate") for under in metric.settings)
    rate = next(iter(present(rates)), None)
    if rate is None or rate.value is None:
        why = "the metric has no threshold" if rate is None else rate.note
        raise InputError(f"the card has no flip rate of {name!r}: {why}")
    low = rate.value if rate.low is None else rate.low
    return rate.value, low, rate.value if rate.high is None else rate.high
