"""Differences between settings of a card, or two cards, by case; p corrected for their number."""

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
from dagengine.reliability.card.types import (
    CaseKey,
    Contrast,
    Figure,
    JudgeCard,
    MetricCard,
    Setting,
    SettingCard,
    every_setting,
)
from dagengine.reliability.observations import Condition
from dagengine.reliability.statistics.accuracy_and_kappa import label_kappa
from dagengine.reliability.statistics.corrected import corrected_difference
from dagengine.reliability.statistics.intervals import LEAST_GROUPS, Interval, Unknown, clusters_of
from dagengine.reliability.statistics.paired_comparisons import (
    Comparison,
    compare_means,
    compare_measures,
    compare_shares,
    compare_unpaired,
    holm,
)
from dagengine.reliability.statistics.stability import flips_of, icc, missing_rate
from dagengine.reliability.statistics.sums import Sums, by_row, mean_score, numpy, present, quotient
from dagengine.system.terminal_text import text_if

T = TypeVar("T")


@dataclass(frozen=True)
class Side:
    """One side of a comparison: a metric under one setting of one card.

    `random` says that labels are on a random sample of the cases; `scale` has the ends of labels
    that are numbers.
    """

    name: str
    threshold: float | None
    cases: Sequence[CaseKey]
    card: SettingCard
    random: bool = False
    scale: tuple[float, float] | None = None

    @cached_property
    def nodes(self) -> dict[str, Sequence[str]]:
        """The parts of the variance, a text per case, by the name of each node with a share."""
        return {node.node: node.parts for node in self.card.nodes if node.share.value is not None}

    @property
    def refused(self) -> str:
        """Reason to doubt that labels are on a random sample, as the card has it; empty if none."""
        notes = (figure.estimate.note for figure in self.card.corrected)
        return next((note for note in notes if note.endswith(NOT_RANDOM)), "")

    @cached_property
    def numbers(self) -> dict[str, dict[tuple[str, int], int]]:
        """The numbers of the cases by their hashes, once of whole cases and once of inputs.

        Beside the hash is 1 for the first case that has it, 2 for the second, and so on.
        """
        numbers: dict[str, dict[tuple[str, int], int]] = {"case": {}, "input": {}}
        counts = Counter[tuple[str, str]]()
        for number, case in enumerate(self.cases):
            for kind, sha256 in (("case", case.key), ("input", case.about)):
                counts[kind, sha256] += 1
                if sha256:
                    numbers[kind][sha256, counts[kind, sha256]] = number
        return numbers

    def group(self, number: int) -> Hashable:
        """The group of the case with this number; the number itself without one."""
        return self.cases[number].group or number

    @cached_property
    def scores(self) -> list[list[float | None]]:
        """The scores of the runs of every case; None is a run without a score."""
        lines = map(str.split, self.card.outcomes.scores)
        return [[None if text == "-" else float(text) for text in line] for line in lines]

    @cached_property
    def passes(self) -> list[list[float | None]]:
        """The scores as passes (1) and failures (0); no rows if the metric has no threshold."""
        if (least := self.threshold) is None:
            return []
        return [[None if score is None else float(score >= least) for score in row]
                for row in self.scores]  # fmt: skip

    @cached_property
    def values(self) -> dict[str, Any]:
        """An array with a value per case, nan where it is undefined, by the name of the measure."""
        unknown = [None] * len(self.scores)
        return {name: numpy.array(by_case(self) or unknown, float)
                for name, by_case in _MEANS.items()}  # fmt: skip

    @cached_property
    def sums(self) -> Callable[[str, Sequence[int]], Sums]:
        """Sums of a measure over cases by their numbers, kept for comparisons with other sides."""
        return cache(lambda name, numbers: _OF_SUMS[name](self, numbers))


def _flips(row: Sequence[float | None]) -> float | None:
    return flips_of(present(row))


def _share_right(marks: str) -> float | None:
    """The share of right runs among those with a score, 0 without any; see `Outcomes.right`."""
    scored = marks.replace("-", "")
    return scored.count("1") / max(len(scored), 1) if marks else None


def _label_kappa(side: Side, numbers: Sequence[int]) -> Sums:
    labels, verdicts = side.card.outcomes.labels, side.card.outcomes.said
    pairs = list[tuple[str | None, str | None]]()
    for number in numbers:
        is_labelled = verdicts and labels[number]
        pairs.append((labels[number], verdicts[number]) if is_labelled else (None, None))
    return label_kappa.sums(pairs)


_MEANS: dict[str, Callable[[Side], Sequence[float | None]]] = {
    "flip-rate": lambda side: by_row(_flips, side.passes),
    "pass-rate": lambda side: by_row(mean_score, side.passes),
    "score-flip-rate": lambda side: by_row(_flips, side.scores),
    "mean-score": lambda side: by_row(mean_score, side.scores),
    "accuracy": lambda side: [*map({"0": 0.0, "1": 1.0}.get, side.card.outcomes.hits)],
    "single-run-accuracy": lambda side: [*map(_share_right, side.card.outcomes.right)],
    "unscored": lambda side: [missing_rate([row]) for row in side.scores],
}
"""Means over cases, by their values per case: None without a value, empty without the measure."""

_OF_SUMS: dict[str, Callable[[Side, Sequence[int]], Sums]] = {
    "kappa": _label_kappa,
    "test-retest": lambda side, numbers: icc.sums([side.scores[number] for number in numbers]),
}
"""Measures that are no means, but functions of sums over cases."""

COMPARED = (
    *_MEANS, *_OF_SUMS, "variance-share", "corrected-pass-rate", "corrected-mean-score"
)  # fmt: skip
"""The names of the measures that two settings, or two cards, are compared by."""


@dataclass(frozen=True)
class Pair:
    """Two sides, the numbers of equal cases on either, and the groups of these cases.

    `by` says what is equal: "case" or "input". It is empty if the sides have nothing in common.
    """

    left: Side
    right: Side
    left_cases: Sequence[int] = ()
    right_cases: Sequence[int] = ()
    by: str = ""
    groups: Sequence[Hashable] = ()

    @classmethod
    def of(cls, left: Side, right: Side) -> Pair:
        """Pair equal cases; if there are none, cases with equal inputs, as two systems answer them.

        Inputs that a side has several times tell no cases apart.
        """
        for by, old in left.numbers.items():
            new = right.numbers[by]
            repeated = any(count > 1 for _, count in (*old, *new))
            pairs = [(old[key], number) for key, number in new.items() if key in old]
            if pairs and not (repeated and by == "input"):
                left_cases, right_cases = zip(*pairs, strict=True)
                groups = [*map(right.group, right_cases)]
                return cls(left, right, left_cases, right_cases, by, groups)
        return cls(left, right)

    def contrasts(self, measures: Collection[str] = COMPARED) -> Iterator[Contrast]:
        """The differences of the measures that both sides have; not corrected yet."""
        for contrast in self._differences(measures):
            names = contrast.one or self.left.name, contrast.other or self.right.name
            yield replace(contrast, one=names[0], other=names[1])

    def _differences(self, measures: Collection[str]) -> Iterator[Contrast]:
        """The differences, most of them without the names of the two sides."""
        for name in filter(measures.__contains__, COMPARED):
            if name in _MEANS:
                yield from self._of_means(name)
            elif name in _OF_SUMS and self.by:
                old = self.left.sums(name, self.left_cases)
                new = self.right.sums(name, self.right_cases)
                if None not in (old.value(), new.value()):
                    comparison = compare_measures(old, new, groups=self.groups)
                    cases = sum(map(operator.and_, old.adds, new.adds))
                    yield contrast_of(name, comparison, _level(self.by, cases))
        if self.by and "variance-share" in measures:
            yield from self._variance_shares()
        if self.by:
            yield from self._corrected(measures)

    def _of_means(self, name: str) -> Iterator[Contrast]:
        """The difference of means over cases; nothing if a side has no value."""
        old_values, new_values = self.left.values[name], self.right.values[name]
        changes = new_values[list(self.right_cases)] - old_values[list(self.left_cases)]
        if (~numpy.isnan(changes)).any():
            yield _paired_contrast(name, changes.tolist(), self.groups, self.by)
            return
        # No case has a value on both sides.
        old, new = (numbers[~numpy.isnan(numbers)].tolist() for numbers in (old_values, new_values))
        if old and new:
            contrast = contrast_of(name, compare_unpaired(old, new), _UNPAIRED)
            yield replace(contrast, paired=False)

    def _variance_shares(self) -> Iterator[Contrast]:
        """The differences of the shares of the noise, of nodes that both sides have."""
        level = _level(self.by, len(self.right_cases))
        for node in filter(self.right.nodes.__contains__, self.left.nodes):
            old_parts, new_parts = self.left.nodes[node], self.right.nodes[node]
            if old_parts and new_parts:
                old = share_of(old_parts, self.left_cases)
                new = share_of(new_parts, self.right_cases)
                comparison = compare_measures(old, new, groups=self.groups)
                names = [f"{side.name}, node {node}" for side in (self.left, self.right)]
                contrast = contrast_of("variance-share", comparison, level)
                yield replace(contrast, one=names[0], other=names[1])

    def _corrected(self, measures: Collection[str]) -> Iterator[Contrast]:
        """The difference by the human standard, if labels are on a random sample of both."""
        name, scale = _corrected_kind(self.left)
        if (name, scale) != _corrected_kind(self.right) or name not in measures or scale is None:
            return
        level = f"{_level(self.by, len(self.right_cases))}, from labels of a random sample"
        if refused := self.left.refused or self.right.refused:
            yield Contrast("", "", Figure(name, None, level=level, note=refused))
            return
        old = _scores_and_labels(self.left, self.left_cases, *scale)
        new = _scores_and_labels(self.right, self.right_cases, *scale)
        result = corrected_difference(old, new, random=True, groups=clusters_of(self.groups))
        if isinstance(result, Unknown):
            yield contrast_of(name, result, level)
            return
        # The difference is of values from 0 to 1; the figure has it on the scale of the labels.
        size, change = scale[1] - scale[0], result.estimate
        value, low, high = (size * part for part in (change.value, change.low, change.high))
        scaled = replace(change, value=value, low=low, high=high)
        yield Contrast("", "", figure_of(name, scaled, level), result.p)


_UNPAIRED = "unpaired: no case is on both sides"


def share_of(parts: Sequence[str], cases: Sequence[int]) -> Sums:
    """A node's share of the noise over cases, from the texts of `NodeCard.parts` (`"0.04 0.1"`)."""
    names = "part", "whole"
    rows = [dict(zip(names, map(float, parts[case].split()), strict=True)) for case in cases]
    return quotient(rows, *names)


def _corrected_kind(side: Side) -> tuple[str, tuple[float, float] | None]:
    """The corrected measure that a side has, and the scale of its labels; "" if it has none."""
    labels = {*side.card.outcomes.labels}
    if not side.random or not any(labels):
        return "", None
    if not side.card.outcomes.said:
        return "corrected-mean-score", side.scale
    return "corrected-pass-rate" if labels <= {"pass", "fail", ""} else "", (0.0, 1.0)


def _scores_and_labels(
    side: Side, cases: Sequence[int], low: float, high: float
) -> tuple[list[float | None], list[float | None]]:
    """The judge's scores and the human labels, both from 0 to 1; labels had `low` to `high`."""
    labels = list[float | None]()
    for label in map(side.card.outcomes.labels.__getitem__, cases):
        # A label as a card has it: pass or fail, a number, or nothing.
        number = float(_PASS_OR_FAIL.get(label, label)) if label else None
        labels.append(None if number is None else (number - low) / (high - low))
    if verdicts := side.card.outcomes.said:
        return [_PASS_OR_FAIL.get(verdicts[case]) for case in cases], labels
    return [mean_score(side.scores[case]) for case in cases], labels


_PASS_OR_FAIL = {"pass": 1.0, "fail": 0.0}


def _level(by: str, cases: int) -> str:
    return f"by {by}, {cases} {by}s on both sides"


def _paired_contrast(
    name: str, changes: Sequence[float], groups: Sequence[Hashable], by: str
) -> Contrast:
    """The mean change of a measure over cases, nan where a side has no value.

    Accuracy of independent cases is tested by McNemar's mid-p, all else by t over groups of cases.
    """
    members = defaultdict[Hashable, list[float]](list)
    for change, group in zip(changes, groups, strict=True):
        if not math.isnan(change):
            members[group].append(change)
    cases, size = sum(map(len, members.values())), len(members)
    level = _level(by, cases)
    # The addend of each group, such that their mean over groups is the mean change over cases.
    addends = [size / cases * math.fsum(own) for own in members.values()]
    if size == cases and name == "accuracy":
        flips = [(addend < 0, addend > 0) for addend in addends]
        return contrast_of(name, compare_shares(flips), level)
    if size < min(cases, LEAST_GROUPS):
        return contrast_of(name, Unknown("too few groups", size, LEAST_GROUPS), level)
    level += text_if(size < cases, f" in {size} independent groups")
    return contrast_of(name, compare_means([*zip(itertools.repeat(0.0), addends)]), level)


def contrast_of(name: str, comparison: Comparison | Unknown, level: str) -> Contrast:
    """The contrast of a comparison, without the names of the two sides."""
    if isinstance(comparison, Unknown):
        return Contrast("", "", figure_of(name, comparison, level))
    figure = Figure(name, comparison.value, items=comparison.cases, level=level)
    bounds = comparison.interval
    if isinstance(bounds, Interval):
        figure = replace(figure, low=bounds.low, high=bounds.high, confidence=bounds.level)
    elif not comparison.differing:
        figure = replace(figure, note="no case differs")
    return Contrast("", "", figure, comparison.p, visible=comparison.visible)


def correct_together(contrasts: Sequence[Contrast]) -> tuple[Contrast, ...]:
    """Every contrast with the p that Holm's correction for all of them gives."""
    adjusted = iter(holm([contrast.p for contrast in contrasts if contrast.p is not None]))
    return tuple(
        contrast if contrast.p is None else replace(contrast, corrected=next(adjusted))
        for contrast in contrasts
    )


def between_settings(
    metric: MetricCard, settings: Sequence[Setting], cases: Sequence[CaseKey]
) -> tuple[Contrast, ...]:
    """Differences between settings that differ in one circumstance, on the same cases."""
    sides = [Side(card.setting, metric.threshold, cases, card) for card in metric.settings]
    conditions = [setting.condition for setting in settings]
    pairs = itertools.starmap(Pair.of, comparable_pairs(sides, conditions))
    return correct_together([contrast for pair in pairs for contrast in pair.contrasts()])


def comparable_pairs(sides: Sequence[T], conditions: Sequence[Condition]) -> Iterator[tuple[T, T]]:
    """Pairs of sides whose conditions differ in one circumstance, such as the judge."""
    rows = zip(sides, map(astuple, conditions), strict=True)
    for (left, old), (right, new) in itertools.combinations(rows, 2):
        if sum(map(operator.ne, old, new)) == 1:
            yield left, right


def between_cards(
    old: JudgeCard,
    new: JudgeCard,
    measures: Collection[str] = COMPARED,
    names: tuple[str, str] = ("old card", "new card"),
) -> tuple[Contrast, ...]:
    """Differences of two cards, the newer minus the older, of every metric that both have.

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
        old_sides = _sides(earlier[metric.metric], old, names[0])
        new_sides = _sides(metric, new, names[1])
        if len(old_sides) == len(new_sides) == 1:
            # Their names may differ, since they contain the judge.
            pairs += map(Pair.of, old_sides.values(), new_sides.values())
        else:
            pairs += (Pair.of(old_sides[name], side) for name, side in new_sides.items()
                      if name in old_sides)  # fmt: skip
    if not pairs:
        raise InputError(
            "the cards have no metric and setting in common: the first has "
            f"{_names_of(old)}; the second has {_names_of(new)}"
        )
    return correct_together([contrast for pair in pairs for contrast in pair.contrasts(measures)])


def _sides(metric: MetricCard, card: JudgeCard, card_name: str) -> dict[str, Side]:
    """A side for each setting of a metric on a card, by the name of the setting."""
    sides: dict[str, Side] = {}
    for own in metric.settings:
        name = metric.metric if len(metric.settings) == 1 else f"{metric.metric}: {own.setting}"
        sides[own.setting] = Side(f"{name} ({card_name})", metric.threshold, card.cases, own,
                                  card.labels_random, card.label_scale)  # fmt: skip
    return sides


def _names_of(card: JudgeCard) -> str:
    return ", ".join(f"{metric.metric} ({own.setting})" for metric, own in every_setting(card))
