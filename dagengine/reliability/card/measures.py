"""The table of all measures of a judge card, and functions that make figures of them.

Accuracy is a measure, and a `Figure` is its value on one card. Sections of the card compute
measures by name. Words, conditions (`--fail-if`), comparisons and both faces read the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from typing import Literal, TypeVar

from dagengine.reliability.card.types import Figure
from dagengine.reliability.statistics.intervals import Interval, Unknown, bootstrap
from dagengine.reliability.statistics.sums import Groups, Sums, groups_of

Unit = Literal["share", "number", "coefficient"]
"""A share is from 0 to 1 and shown in per cent, a coefficient from -1 to 1, a number any number."""


@dataclass(frozen=True, slots=True)
class Measure:
    """One measure of the card.

    `level` is what it is computed from, if that is always the same. Some intervals need runs that
    are repeats of each other. `repeats` says which doubt about that takes the interval away. A
    measure that is `per_label` is on the card once for every label.
    """

    name: str
    title: str
    unit: Unit = "share"
    level: str = ""
    repeats: Literal["", "shown", "suspected"] = ""
    per_label: bool = False


_PAIRS = "pairs of runs of one case"
_RUNS = "runs, averaged over cases"
_ALL = "all cases, from labels of a random sample"
_PEOPLE = "cases with labels of several people"
_LABELLED = "mean scores of cases with a label"
_GROUPS = "mean scores, averaged over groups of cases"
_NEXT, _AGREES = "the next run takes the same path", "the human label agrees"

CIRCUMSTANCES = (
    ("position", "orders", "order"),
    ("judge", "judges", "judge"),
    ("temperature", "temperatures", "temperature"),
    ("seed", "seeds", "seed"),
    ("paraphrase", "wordings", "paraphrase"),
)
"""Circumstances of a run: name in measures, plural in words, field of `Condition`."""

MEASURES = {measure.name: measure for measure in (
    Measure("flip-rate", "flip rate (pass or fail)", level=f"pass or fail, {_PAIRS}",
            repeats="suspected"),
    Measure("pass-rate", "pass rate", level=_RUNS),
    Measure("score-flip-rate", "flip rate (score)", level=f"scores, {_PAIRS}",
            repeats="suspected"),
    Measure("mean-score", "mean score", "number", _RUNS),
    Measure("unscored", "runs without a score", level="all runs"),
    Measure("test-retest", "test-retest reliability, ICC(1,1)", "coefficient",
            "single scores: share of the variance that is between cases", "shown"),
    Measure("variance-share", "share of the noise", level="variance within cases"),
    Measure("corrected-pass-rate", "pass rate by the human standard", level=_ALL),
    Measure("corrected-mean-score", "mean score by the human standard", "number", _ALL),
    # Would I get this score again?
    Measure("score-spread", "standard deviation of the score", "number",
            "runs of one case, averaged over cases", "shown"),
    Measure("drift", "drift: slope of the score over the runs", "coefficient",
            "slope of a line through the runs of a case, first to last", "shown"),
    Measure("total-agreement", "all runs give the same score (TARa)",
            level="cases: all runs, the same score"),
    Measure("raw-agreement", "all runs give the same text (TARr)",
            level="cases: all runs, the same text"),
    Measure("path-agreement", "all runs take the same path",
            level="cases: all runs, the same path"),
    Measure("path-flip-rate", "flip rate (path)", level=f"paths, {_PAIRS}"),
    Measure("majority-share", "share of the most common score", level="scores, runs of one case"),
    Measure("entropy", "entropy of the score", "number", "scores in bits, runs of one case"),
    Measure("unscored-effect", "flip rate added by runs without a score",
            level="flip rate with runs without a score as an outcome, minus the flip rate without "
            "them"),
    # Which node is to blame, and what would it cost to be sure?
    Measure("node-flip-rate", "flip rate of a node's answers",
            level="pairs of answers to one question"),
    Measure("flip-effect", "score change per flip", "number",
            "pairs of runs that first differ here"),
    Measure("repeat-alpha", "agreement of a node's answers in several runs, Krippendorff's alpha",
            "coefficient", "answers to one question in several runs"),
    Measure("unsupported-rate", "unsupported verdicts (no true quote)",
            level="runs in which the node answered, averaged over cases"),
    # Does the judge agree with people?
    Measure("accuracy", "accuracy of the majority of runs"),
    Measure("single-run-accuracy", "accuracy of a single run"),
    Measure("kappa", "kappa (agreement beyond chance)", "coefficient"),
    Measure("ac1", "Gwet's AC1 (agreement beyond chance)", "coefficient"),
    Measure("balanced-accuracy", "balanced accuracy"),
    Measure("baseline", "baseline: always the most common label"),
    Measure("sensitivity", "sensitivity: correct among cases with the label", per_label=True),
    Measure("specificity", "specificity: correct among all other cases", per_label=True),
    Measure("ceiling", "agreement with one person that no judge exceeds",
            level=f"{_PEOPLE}; one person's label"),
    Measure("person-accuracy", "agreement of the judge with one person",
            level=f"{_PEOPLE}; one person's label"),
    Measure("people-agreement", "agreement of a person with the other people", level=_PEOPLE),
    Measure("node-accuracy", "accuracy of a node's answers",
            level="majority of a case's runs, cases that people and judge answered"),
    Measure("unsupported-effect",
            "accuracy of results on unsupported verdicts, minus that of the others",
            level="single runs, cases with a label"),
    Measure("pearson", "Pearson correlation", "coefficient", _LABELLED),
    Measure("spearman", "Spearman rank correlation", "coefficient", _LABELLED),
    Measure("kendall", "Kendall rank correlation", "coefficient", _LABELLED),
    Measure("within-group-spearman", "Spearman correlation within groups", "coefficient", _GROUPS),
    Measure("within-group-kendall", "Kendall correlation within groups", "coefficient", _GROUPS),
    Measure("repeat-brier", "Brier score against the next run", "number", _NEXT),
    Measure("repeat-calibration-error", "calibration error against the next run", level=_NEXT),
    Measure("label-brier", "Brier score against human labels", "number", _AGREES),
    Measure("label-calibration-error", "calibration error against human labels", level=_AGREES),
    # Which of several candidates has the highest mean score?
    Measure("best-wrong", "the best candidate is the right one (a tie is wrong)"),
    Measure("best-share", "the best candidate is the right one (a tie is shared)"),
    Measure("best-ties", "ties of the best candidates"),
    Measure("best-gain", "right more often with more scores"),
    Measure("best-flip-rate", "flip rate of the best candidate"),
    Measure("best-kappa", "right beyond drawing a candidate", "coefficient"),
    # Several settings together, and what should not change a score.
    *(Measure(f"{name}-flip-rate", f"flip rate (score) between {several}",
              level=f"scores, {_PAIRS} that differ in {field}")
      for name, several, field in CIRCUMSTANCES),
    Measure("cohen-kappa", "agreement of two judges, Cohen's kappa", "coefficient"),
    Measure("fleiss-kappa", "agreement of judges, Fleiss' kappa", "coefficient"),
    Measure("alpha", "agreement of judges, Krippendorff's alpha", "coefficient"),
    Measure("score-alpha", "agreement of judges' scores, Krippendorff's alpha", "coefficient",
            "distances of scores, single runs"),
    Measure("position-consistency", "same verdict in both orders"),
    Measure("position-preference", "preference for the first place, if the orders disagree"),
    Measure("first-wins", "the input shown first wins"),
    Measure("position-consistency-of-options", "same verdict with options reversed"),
    Measure("position-preference-of-options",
            "preference for the first option, if the orders disagree"),
    Measure("first-wins-of-options", "the first option wins"),
    Measure("length-bias", "correlation of score and length", "coefficient"),
    Measure("list-bias", "correlation of verdict and place in the list", "coefficient"),
    Measure("longer-wins", "the longer answer wins",
            level="comparisons of two contestants that have a winner"),
)}  # fmt: skip


def measure_of(name: str) -> Measure:
    """The measure of that name; one without a title if a card of another version has it."""
    return MEASURES.get(name) or Measure(name, name)


T = TypeVar("T")

NOT_RANDOM = "so they are not a random sample"
"""End of every note that labels, stated to be a random sample, are none."""


def figure(
    name: str,
    items: Sequence[T],
    statistic: Callable[[Sequence[T]], Sums | float | None],
    note: str,
    groups: Groups = None,
    level: str = "",
    confidence: float = 0.95,
) -> Figure:
    """The figure of a statistic of items, with its interval.

    `note` says why the value may be undefined, `level` what it is computed from if the table does
    not. Items of equal `groups` (such as their case) stay together when resampling. `Figure.items`
    counts the groups, or without `groups` the items, that add to the value.
    """
    level = level or measure_of(name).level
    result = statistic(items)
    value = result.value() if isinstance(result, Sums) else result
    if value is None:
        return Figure(name, None, level=level, note=note)
    names = groups_of(groups, len(items))
    if isinstance(result, Sums):  # a plain function does not say which items add something
        names = [*compress(names, result.adds)]
    count = len(set(names))
    # Sums are resampled as they are: no item is computed again.
    resampled = result if isinstance(result, Sums) else statistic
    interval = bootstrap(items, resampled, groups=groups, level=confidence)
    if interval is None:
        return Figure(name, value, items=count, level=level)
    return Figure(name, value, interval.low, interval.high, interval.level, count, level)


def figure_over_sides(sides: Iterable[Figure]) -> Figure:
    """The first figure, with an interval that also contains those of the others.

    The first leaves missing answers out; in the others they count as wrong, and as right.
    """
    answered, *bounds = sides
    if answered.value is None or not bounds:
        return answered
    ends: list[float] = []
    for side in (answered, *bounds):
        if side.value is not None:
            ends += (side.value if end is None else end for end in (side.low, side.high))
    return replace(answered, low=min(ends), high=max(ends))


_REASONS = {
    "undefined": "it is not defined for these cases",
    "too few items": "too few cases",
    "too few groups": "too few groups of cases",
    "no variation within items": "the runs of a case never differ",
    "no variation between items": "all cases have the same mean score",
    "one item varies": "only one case makes the runs, or the cases, differ",
    "no variation": "all values are equal",
    "too few labels": "too few labels",
    "labels are not random": "the labelled cases are not a random sample",
}


def figure_of(
    name: str, result: Interval | Unknown | None, level: str = "", note: str = ""
) -> Figure:
    """The figure of an interval; of an unknown one, its note is `note`, or else the reason."""
    level = level or measure_of(name).level
    if isinstance(result, Interval):
        bounds = result.low, result.high, result.level
        return Figure(name, result.value, *bounds, items=result.items, level=level)
    if result is None:
        return Figure(name, None, level=level, note=note)
    needed = "" if result.needed is None else f"; {result.needed} are needed"
    note = note or f"{_REASONS[result.reason]} (n = {result.items}{needed})"
    count = 0 if result.reason == "undefined" else result.items
    return Figure(name, None, items=count, level=level, note=note)
