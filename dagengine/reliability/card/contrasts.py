"""Two settings of a card, or two cards: differences by case, corrected for their number."""

from __future__ import annotations

import itertools
import math
import operator
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from dataclasses import astuple, dataclass, replace
from functools import cache, cached_property
from typing import Any, TypeVar

from dagengine.errors import InputError
from dagengine.question import judge_name
from dagengine.reliability.card.measures import NOT_RANDOM, figure_of
from dagengine.reliability.card.values import (
    CaseKey,
    Contrast,
    Figure,
    JudgeCard,
    MetricCard,
    Outcomes,
    Setting,
    SettingCard,
    every_setting,
)
from dagengine.reliability.observations import Condition
from dagengine.reliability.statistics.agreement import flips_of, icc, missing_rate
from dagengine.reliability.statistics.comparisons import (
    Comparison,
    compare_means,
    compare_measures,
    compare_shares,
    compare_unpaired,
    holm,
)
from dagengine.reliability.statistics.confusion import label_kappa
from dagengine.reliability.statistics.corrected import corrected_difference
from dagengine.reliability.statistics.intervals import (
    LEAST_GROUPS,
    Interval,
    Unknown,
    clusters_of,
)
from dagengine.reliability.statistics.sums import Sums, by_row, mean_score, numpy, present, quotient
from dagengine.system.terminal import text_if

T = TypeVar("T")


@dataclass(frozen=True)
class Side:
    """One metric under one setting of one card, as it is compared.

    `random` says that labels are on a random sample of the cases; `scale` has the ends of labels
    that are numbers.
    """

    name: str
    threshold: float | None
    cases: Sequence[CaseKey]
    under: SettingCard
    random: bool = False
    scale: tuple[float, float] | None = None

    @property
    def outcomes(self) -> Outcomes:
        """The results by case."""
        return self.under.outcomes

    @cached_property
    def nodes(self) -> dict[str, Sequence[str]]:
        """The parts of the variance by node and case, of nodes whose share is known."""
        return {node.node: node.parts for node in self.under.nodes if node.share.value is not None}

    @property
    def refused(self) -> str:
        """Why the card does not believe that labels are on a random sample; empty if it does."""
        notes = (figure.estimate.note for figure in self.under.corrected)
        return next((note for note in notes if note.endswith(NOT_RANDOM)), "")

    @cached_property
    def places(self) -> dict[str, dict[tuple[str, int], int]]:
        """By what cases are the same: the place of each case; equal cases count in their order."""
        kinds: dict[str, dict[tuple[str, int], int]] = {"case": {}, "input": {}}
        seen = Counter[tuple[str, str]]()
        for number, case in enumerate(self.cases):
            for by, name in (("case", case.key), ("input", case.about)):
                seen[by, name] += 1
                if name:
                    kinds[by][name, seen[by, name]] = number
        return kinds

    def group(self, number: int) -> Hashable:
        """Group within which values are averaged: its group, or the case itself."""
        return self.cases[number].group or number

    @cached_property
    def scores(self) -> list[list[float | None]]:
        """The scores of the runs of every case; None is a run without a score."""
        lines = map(str.split, self.outcomes.scores)
        return [[None if text == "-" else float(text) for text in line] for line in lines]

    @cached_property
    def passes(self) -> list[list[float | None]]:
        """The same as passes (1) and failures (0); no rows if the metric has no threshold."""
        if (limit := self.threshold) is None:
            return []
        return [[None if score is None else float(score >= limit) for score in row]
                for row in self.scores]  # fmt: skip

    @cached_property
    def values(self) -> dict[str, Any]:
        """Measures of every case, as arrays by name; nan where they are undefined."""
        unknown = [None] * len(self.scores)
        return {name: numpy.array(each(self) or unknown, float) for name, each in _EACH.items()}

    @cached_property
    def sums(self) -> Callable[[str, Sequence[int]], Sums]:
        """Sums of a measure over cases by their numbers, computed once for many other sides."""
        return cache(lambda name, numbers: _RATIOS[name](self, numbers))


def _flips(row: Sequence[float | None]) -> float | None:
    return flips_of(present(row))


def _share_right(marks: str) -> float | None:
    """Over the runs with a score; a case without any counts as a miss."""
    scored = marks.replace("-", "")
    return scored.count("1") / max(len(scored), 1) if marks else None


def _label_kappa(side: Side, numbers: Sequence[int]) -> Sums:
    labels, verdicts = side.outcomes.labels, side.outcomes.said
    pairs = list[tuple[str | None, str | None]]()
    for number in numbers:
        labelled = verdicts and labels[number]
        pairs.append((labels[number], verdicts[number]) if labelled else (None, None))
    return label_kappa.sums(pairs)


_EACH: dict[str, Callable[[Side], Sequence[float | None]]] = {
    "flip-rate": lambda side: by_row(_flips, side.passes),
    "pass-rate": lambda side: by_row(mean_score, side.passes),
    "score-flip-rate": lambda side: by_row(_flips, side.scores),
    "mean-score": lambda side: by_row(mean_score, side.scores),
    "accuracy": lambda side: [*map({"0": 0.0, "1": 1.0}.get, side.outcomes.hits)],
    "single-run-accuracy": lambda side: [*map(_share_right, side.outcomes.right)],
    "unscored": lambda side: [missing_rate([row]) for row in side.scores],
}
"""Measures by whose mean over cases sides are compared: None for a case without, empty for none."""

_RATIOS: dict[str, Callable[[Side, Sequence[int]], Sums]] = {
    "kappa": _label_kappa,
    "test-retest": lambda side, numbers: icc.sums([side.scores[number] for number in numbers]),
}
"""Measures of sums over cases, which are no such mean."""

COMPARED = (
    *_EACH, *_RATIOS, "variance-share", "corrected-pass-rate", "corrected-mean-score"
)  # fmt: skip
"""The names of the measures that two settings, or two cards, are compared by."""


@dataclass(frozen=True)
class Pair:
    """Two sides, the indices of the cases that both have, by what they are the same, groups."""

    left: Side
    right: Side
    before: Sequence[int] = ()
    after: Sequence[int] = ()
    by: str = ""
    groups: Sequence[Hashable] = ()

    @classmethod
    def of(cls, left: Side, right: Side) -> Pair:
        """Pair equal cases; if there are none, cases with equal inputs, as two systems answer them.

        Inputs that a side has several times tell no cases apart.
        """
        for by, before in left.places.items():
            after = right.places[by]
            repeated = any(count > 1 for _, count in (*before, *after))
            pairs = [(before[key], number) for key, number in after.items() if key in before]
            if pairs and not (repeated and by == "input"):
                first, second = zip(*pairs, strict=True)
                return cls(left, right, first, second, by, [*map(right.group, second)])
        return cls(left, right)

    def contrasts(self, measures: Collection[str] = COMPARED) -> Iterator[Contrast]:
        """The differences of the measures that both sides have; not corrected yet."""
        for contrast in self._each(measures):
            first, second = contrast.one or self.left.name, contrast.other or self.right.name
            yield replace(contrast, one=first, other=second)

    def _each(self, measures: Collection[str]) -> Iterator[Contrast]:
        for name in filter(measures.__contains__, COMPARED):
            if name in _EACH:
                yield from self._of_means(name)
            elif name in _RATIOS and self.after:
                first = self.left.sums(name, self.before)
                second = self.right.sums(name, self.after)
                if None not in (first.value(), second.value()):
                    comparison = compare_measures(first, second, groups=self.groups)
                    used = sum(map(operator.and_, first.adds, second.adds))
                    yield contrast_of(name, comparison, _level(self.by, used))
        if self.after and "variance-share" in measures:
            yield from self._shares()
        if self.after:
            yield from self._corrected(measures)

    def _of_means(self, name: str) -> Iterator[Contrast]:
        """The difference of means over cases; nothing if a side has no value."""
        old, new = self.left.values[name], self.right.values[name]
        change = new[list(self.after)] - old[list(self.before)]
        if (~numpy.isnan(change)).any():
            yield _paired_contrast(name, change.tolist(), self.groups, self.by)
            return
        first, second = (side[~numpy.isnan(side)].tolist() for side in (old, new))
        if first and second:
            contrast = contrast_of(name, compare_unpaired(first, second), _UNPAIRED)
            yield replace(contrast, paired=False)

    def _shares(self) -> Iterator[Contrast]:
        """Shares of the noise of nodes that both sides have, where both are known."""
        places, level = (self.before, self.after), _level(self.by, len(self.after))
        for node in filter(self.right.nodes.__contains__, self.left.nodes):
            parts = self.left.nodes[node], self.right.nodes[node]
            if all(parts):
                comparison = compare_measures(*map(share_of, parts, places), groups=self.groups)
                names = [f"{side.name}, node {node}" for side in (self.left, self.right)]
                contrast = contrast_of("variance-share", comparison, level)
                yield replace(contrast, one=names[0], other=names[1])

    def _corrected(self, measures: Collection[str]) -> Iterator[Contrast]:
        """The difference by the human standard, if labels are on a random sample of both."""
        name, scale = _corrected_kind(self.left)
        if (name, scale) != _corrected_kind(self.right) or name not in measures or scale is None:
            return
        level = f"{_level(self.by, len(self.after))}, from labels of a random sample"
        if refused := self.left.refused or self.right.refused:
            yield Contrast("", "", Figure(name, None, level=level, note=refused))
            return
        first = _by_people(self.left, self.before, *scale)
        second = _by_people(self.right, self.after, *scale)
        result = corrected_difference(first, second, random=True, groups=clusters_of(self.groups))
        if isinstance(result, Unknown):
            yield contrast_of(name, result, level)
            return
        size, bounds = scale[1] - scale[0], result.estimate
        value, low, high = (size * part for part in (bounds.value, bounds.low, bounds.high))
        scaled = replace(bounds, value=value, low=low, high=high)
        yield Contrast("", "", figure_of(name, scaled, level), result.p)


_UNPAIRED = "unpaired: no case is on both sides"


def share_of(parts: Sequence[str], cases: Sequence[int]) -> Sums:
    """A node's share of the noise, from its part and the whole of each case (`"0.04 0.1"`)."""
    names = "part", "whole"
    rows = [dict(zip(names, map(float, parts[case].split()), strict=True)) for case in cases]
    return quotient(rows, *names)


def _corrected_kind(side: Side) -> tuple[str, tuple[float, float] | None]:
    """Name of a corrected figure and scale of its labels; no name if there is no such figure."""
    labels = {*side.outcomes.labels}
    if not side.random or not any(labels):
        return "", None
    if not side.outcomes.said:
        return "corrected-mean-score", side.scale
    return "corrected-pass-rate" if labels <= {"pass", "fail", ""} else "", (0.0, 1.0)


def _by_people(
    side: Side, cases: Sequence[int], low: float, high: float
) -> tuple[list[float | None], list[float | None]]:
    """The judge's score and human label of each case, from 0 to 1; labels go `low` to `high`."""
    shares = list[float | None]()
    for label in map(side.outcomes.labels.__getitem__, cases):
        # A label as a card has it: pass or fail, a number, or nothing.
        shares.append((float(_AS_NUMBER.get(label, label)) - low) / (high - low) if label else None)
    if verdicts := side.outcomes.said:
        return [_AS_NUMBER.get(verdicts[case]) for case in cases], shares
    return [mean_score(side.scores[case]) for case in cases], shares


_AS_NUMBER = {"pass": 1.0, "fail": 0.0}


def _level(by: str, cases: int) -> str:
    return f"by {by}, {cases} {by}s on both sides"


def _paired_contrast(
    name: str, changes: Sequence[float], groups: Sequence[Hashable], by: str
) -> Contrast:
    """Verdicts of independent cases by McNemar's mid-p, all else by t over groups of cases.

    `changes` are by case, nan where a side has no value.
    """
    members = defaultdict[Hashable, list[float]](list)
    for change, group in zip(changes, groups, strict=True):
        if not math.isnan(change):
            members[group].append(change)
    cases, size = sum(map(len, members.values())), len(members)
    level = _level(by, cases)
    # What each group adds to the mean over cases, times the number of groups.
    sums = [size / cases * math.fsum(own) for own in members.values()]
    if size == cases and name == "accuracy":
        return contrast_of(name, compare_shares([(sum_ < 0, sum_ > 0) for sum_ in sums]), level)
    if size < min(cases, LEAST_GROUPS):
        return contrast_of(name, Unknown("too few groups", size, LEAST_GROUPS), level)
    groups_named = text_if(size < cases, f" in {size} independent groups")
    comparison = compare_means([*zip(itertools.repeat(0.0), sums)])
    return contrast_of(name, comparison, level + groups_named)


def contrast_of(name: str, comparison: Comparison | Unknown, level: str) -> Contrast:
    if isinstance(comparison, Unknown):
        return Contrast("", "", figure_of(name, comparison, level))
    figure = Figure(name, comparison.value, items=comparison.cases, level=level)
    bounds = comparison.interval
    if isinstance(bounds, Interval):
        figure = replace(figure, low=bounds.low, high=bounds.high, confidence=bounds.level)
    elif not comparison.differing:
        figure = replace(figure, note="no case differs")
    return Contrast("", "", figure, comparison.p, visible=comparison.visible)


def correct_together(found: Sequence[Contrast]) -> tuple[Contrast, ...]:
    """Every contrast with the p that Holm's correction for all of them gives."""
    adjusted = iter(holm([contrast.p for contrast in found if contrast.p is not None]))
    return tuple(
        contrast if contrast.p is None else replace(contrast, corrected=next(adjusted))
        for contrast in found
    )


# Settings of one card.


def between_settings(
    metric: MetricCard, settings: Sequence[Setting], cases: Sequence[CaseKey]
) -> tuple[Contrast, ...]:
    """Differences of settings that one circumstance tells apart, on the same cases."""
    sides = [Side(under.setting, metric.threshold, cases, under) for under in metric.settings]
    pairs = itertools.starmap(Pair.of, near(sides, [setting.condition for setting in settings]))
    return correct_together([each for pair in pairs for each in pair.contrasts()])


def near(sides: Sequence[T], settings: Sequence[Condition]) -> Iterator[tuple[T, T]]:
    """Pairs of sides whose settings are told apart by one circumstance."""
    values = zip(sides, map(astuple, settings), strict=True)
    for (first, before), (second, after) in itertools.combinations(values, 2):
        if sum(map(operator.ne, before, after)) == 1:
            yield first, second


# Two cards.


def between_cards(
    old: JudgeCard,
    new: JudgeCard,
    measures: Collection[str] = COMPARED,
    names: tuple[str, str] = ("old card", "new card"),
) -> tuple[Contrast, ...]:
    """Differences of two cards, the newer minus the older, metric by metric.

    Settings with equal names are compared. If a metric has one setting on each card, these two
    are compared, whatever their names. The lines name the cards by their judges if these differ,
    otherwise by `names`. Raises InputError if the cards have nothing in common, and for a measure
    that cannot be compared.
    """
    if stray := sorted(set(measures) - set(COMPARED)):
        raise InputError(
            f"the measure {stray[0]} cannot be compared; use one of {', '.join(COMPARED)}"
        )
    if len(old.binding.judges) == len(new.binding.judges) == 1:
        judges = judge_name(old.binding.judges[0]), judge_name(new.binding.judges[0])
        # Names of judges say more than "old" and "new", if they tell the cards apart.
        names = names if judges[0] == judges[1] else judges
    earlier = {metric.metric: metric for metric in old.metrics}
    pairs: list[Pair] = []
    for metric in new.metrics:
        if metric.metric not in earlier:
            continue
        first = _sides(earlier[metric.metric], old, names[0])
        second = _sides(metric, new, names[1])
        if len(first) == len(second) == 1:
            # A judge in the name of the setting would keep two single settings apart.
            pairs += map(Pair.of, first.values(), second.values())
        else:
            pairs += (Pair.of(first[name], second[name]) for name in second if name in first)
    if not pairs:
        raise InputError(
            "the cards have no metric and setting in common: the first has "
            f"{_names_of(old)}; the second has {_names_of(new)}"
        )
    return correct_together([each for pair in pairs for each in pair.contrasts(measures)])


def _sides(metric: MetricCard, card: JudgeCard, called: str) -> dict[str, Side]:
    sides: dict[str, Side] = {}
    for under in metric.settings:
        name = metric.metric if len(metric.settings) == 1 else f"{metric.metric}: {under.setting}"
        sides[under.setting] = Side(f"{name} ({called})", metric.threshold, card.cases, under,
                                    card.labels_random, card.label_scale)  # fmt: skip
    return sides


def _names_of(card: JudgeCard) -> str:
    return ", ".join(f"{metric.metric} ({under.setting})" for metric, under in every_setting(card))
