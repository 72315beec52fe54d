"""What changed between two runs as plain data, and how much of it is chance.

A paired test says whether one run is better, and a judge card foretells what asking again changes.
`dagengine diff --format json` and the page show all of it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

from dagengine.errors import InputError, MissingExtraError
from dagengine.record.changes.flip_causes import CAUSES, CaseChange, MetricComparison, RunComparison
from dagengine.record.run_json_types import Manifest
from dagengine.reliability.card.types import JudgeCard
from dagengine.reliability.statistics.intervals import Unknown
from dagengine.reliability.statistics.paired_comparisons import compare_means, compare_shares, holm
from dagengine.reliability.statistics.sums import present, stats
from dagengine.system.terminal_text import counted, text_if

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
        stale = text_if(self.stale, f"; {self.stale}")
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
    sides = {"passed": True, "failed": False}
    pairs: list[tuple[bool, bool]] = []
    for states, count in found.states.items():
        if sides.keys() >= {*states}:
            pairs += [(sides[states[0]], sides[states[1]])] * count
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
    """Noise that a card foretells for a metric; raises InputError without its flip rate."""
    name, metrics = found.name, {measured.metric: measured for measured in card.metrics}
    if name not in metrics:
        raise InputError(f"the card has no metric {name!r}; it has {', '.join(metrics)}")
    rates = (under.figure("flip-rate") for under in metrics[name].settings)
    rate = next(iter(present(rates)), None)
    if rate is None or rate.value is None:
        why = "the metric has no threshold" if rate is None else rate.note
        raise InputError(f"the card has no flip rate of {name!r}: {why}")
    low, high = rate.ends or (rate.value, rate.value)
    # Nodes that the card measured with another definition than the new run has
    measured = card.binding.metrics.get(name, {})
    now = {node.name: node.hash for node in found.trees.new.every_node()}
    changed = [node for node, digest in now.items() if measured.get(node) != digest]
    return Noise(
        rate.value,
        low,
        high,
        found.scored,
        int(stats.binom.ppf(0.025, found.scored, low)),
        int(stats.binom.ppf(0.975, found.scored, high)),
        text_if(changed, f"{' and '.join(changed)} changed since"),
    )


# The report.


def change_report(found: RunComparison, card: JudgeCard | None = None) -> dict[str, Any]:
    """All of a comparison in a JSON-ready form; `card` is the judge card of the newer run.

    Pairs are old and new; `passed` and `mean` are of the `scored` cases, which have a score in both
    runs. `headline`, `result` and `scores` are sentences that every screen shows. `nodes` contains
    every node that made a flip, with its flips by cause. `changes` contains every flip, lost and
    gained score, then other changes (the first 10,000).
    """
    return {
        "old": _run(found.old),
        "new": _run(found.new),
        "agrees": found.agrees,
        "cases": {
            "common": found.cases,
            "renamed": found.renamed,
            "changed": found.changed,
            "new": found.counts["new"],
            "missing": found.counts["missing"],
        },
        "new_cases": found.new_cases,
        "missing_cases": found.missing_cases,
        "added_metrics": found.added,
        "removed_metrics": found.removed,
        "metrics": [_metric(comparison, card) for comparison in found.metrics],
    }


def _run(run: Manifest) -> dict[str, Any]:
    totals = run.totals
    return {
        "started": run.started.isoformat(),
        "finished": run.finished,
        "judges": [judge.identity for judge in run.judges],
        "data": run.data.file,
        "seconds": run.seconds,
        "cost": None if totals is None else totals.cost,
        "calls": None if totals is None else totals.calls,
    }


def _metric(comparison: MetricComparison, card: JudgeCard | None) -> dict[str, Any]:
    # Tests need an extra and noise a fitting card: without them the rest is still reported.
    test: PairedTest | None = None
    tested: dict[str, Any] | None = None
    foretold: dict[str, Any] | None = None
    hint = silent = ""
    try:
        if (test := paired_test(comparison)) is not None:
            tested = {**asdict(test), "chance": test.chance, "words": list(test.words)}
    except MissingExtraError as error:
        hint = str(error)
    if card is not None:
        try:
            expected: Noise = noise(card, comparison)
            foretold = {**asdict(expected), "words": expected.words(comparison.flips, test)}
        except (InputError, MissingExtraError) as error:
            silent = str(error)
    # Nodes that decide or made a flip, in topological order; "" is the metric itself.
    parting = {node for node, _ in comparison.first}
    order, decides = comparison.trees.order, comparison.trees.decides
    nodes = [name for name in ("", *order) if name in parting or (name and decides(name))]
    return {
        "metric": comparison.name,
        "cases": comparison.cases,
        "scored": comparison.scored,
        "headline": _headline(comparison),
        "result": _result(comparison, test, hint),
        "scores": _moved_scores(comparison),
        "threshold": [comparison.trees.old.threshold, comparison.trees.new.threshold],
        "passed": comparison.passed(),
        "without_score": comparison.without_score(),
        "mean": comparison.means(),
        "flips": comparison.flips,
        **{kind: comparison.kinds[kind] for kind in ("worse", "better", "lost", "gained")},
        "other_score": comparison.kinds["score"],
        "other_path": comparison.kinds["path"],
        "same": comparison.same,
        "causes": comparison.by_cause(),
        "nodes": [
            {"node": name, **{cause: comparison.first[name, cause] for cause in CAUSES}}
            for name in nodes
        ],
        "tree": list(map(asdict, comparison.trees.changes())),
        "test": tested,
        "test_missing": hint,
        "noise": foretold,
        "noise_missing": silent,
        "changes": list(map(_change, comparison.changes)),
    }


def _change(change: CaseChange) -> dict[str, Any]:
    row = asdict(change)
    first: dict[str, Any] = row.pop("first")
    return row | first


def _headline(found: MetricComparison) -> str:
    """The answer in one sentence; scores that were lost or won go first."""
    kinds, moved, cases = found.kinds, _moved_scores(found), f"{found.cases:,}"
    flips = text_if(found.flips, f"flipped: {kinds['worse']:,} worse, {kinds['better']:,} better")
    scores = text_if(kinds["score"], f"; {kinds['score']:,} with a different score")
    if moved:
        rest = f"{found.flips:,} {flips}" if flips else f"none flipped{scores}"
        return moved + text_if(found.scored, f"; of the {found.scored:,} with both scores {rest}")
    if flips:
        return f"{found.flips:,} of {cases} cases {flips}"
    if scores:
        return f"No case of {cases} flipped{scores}"
    if kinds["path"]:
        return f"All {cases} scores are the same; {kinds['path']:,} by a different path"
    return f"All {cases} cases: the same answer at every node, the same score"


def _moved_scores(found: MetricComparison) -> str:
    """Count lost scores, with the main cause, and won ones; empty if there are none."""
    lost = Counter(f"{change.first.answer[1]} at {change.first.node or 'the settings'}"
                   for change in found.changes if change.kind == "lost")  # fmt: skip
    ((why, count),) = lost.most_common(1) or [("", 0)]
    most = text_if(count != lost.total(), f"{count:,} of them ")
    whose = "its" if lost.total() == 1 else "their"
    moved = {
        f"lost {whose} score ({most}{why})": lost.total(),
        "won a score": found.kinds["gained"],
    }
    cases = counted(found.cases, "case")
    return ", ".join(f"{n:,} of {cases} {what}" for what, n in moved.items() if n)


def _result(found: MetricComparison, test: PairedTest | None, hint: str) -> list[str]:
    """Passes and means of the same cases, each before the test that is about it."""
    words = list(test.words) if test else [f"no paired test: {hint}"] if hint else []
    scores = ["none" if mean is None else f"{mean:.2f}" for mean in found.means()]
    parts = [f"mean {' → '.join(scores)}", *words]
    if None not in (found.trees.old.threshold, found.trees.new.threshold):
        old, new = found.passed()
        rate = test is not None and test.what == "pass rate"
        parts = [f"{old:,} → {new:,} passed", *(parts[1:] + parts[:1] if rate else parts)]
    if found.scored < found.cases:
        parts[0] = f"of {counted(found.scored, 'case')} with both scores: {parts[0]}"
    return parts
