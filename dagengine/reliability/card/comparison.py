"""Two settings of a card, or two cards: differences by case, corrected for their number."""

from __future__ import annotations

import itertools
import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace

from dagengine.errors import InputError
from dagengine.question import judge_name
from dagengine.reliability.card.figures import shown
from dagengine.reliability.card.values import (
    CaseKey,
    Contrast,
    Figure,
    JudgeCard,
    MetricCard,
    Outcomes,
    Setting,
    SettingCard,
)
from dagengine.reliability.observations import Condition
from dagengine.reliability.statistics.comparisons import (
    Comparison,
    compare_means,
    compare_measures,
    compare_shares,
    compare_unpaired,
    holm,
)
from dagengine.reliability.statistics.corrected import corrected_difference
from dagengine.reliability.statistics.intervals import LEAST_GROUPS, Interval, Unknown
from dagengine.reliability.statistics.labels import label_kappa
from dagengine.reliability.statistics.spread import icc
from dagengine.reliability.statistics.sums import Sums

Row = Sequence[float | None]
"""The scores of a case, run by run."""


@dataclass(frozen=True)
class Side:
    """One metric under one setting of one card, as it is compared.

    `nodes` are the parts of the variance by node and case, of nodes whose share is known. `random`
    says that labels are on a random sample of the cases; `scale` has the ends of labels that are
    numbers.
    """

    name: str
    threshold: float | None
    cases: Sequence[CaseKey]
    outcomes: Outcomes
    nodes: Mapping[str, Sequence[str]] = field(default_factory=dict)
    random: bool = False
    scale: tuple[float, float] | None = None

    def places(self, of: Callable[[CaseKey], str]) -> dict[tuple[str, int], int]:
        """The places of the cases by what tells them apart; equal cases by their order."""
        seen: Counter[str] = Counter()
        numbers: dict[tuple[str, int], int] = {}
        for number, case in enumerate(self.cases):
            name = of(case)
            seen[name] += 1
            if name:
                numbers[name, seen[name]] = number
        return numbers

    def group(self, number: int) -> Hashable:
        """What the values of a case are averaged within: its group, or the case itself."""
        return self.cases[number].group or number

    def scores(self, number: int) -> Row:
        """The scores of a case."""
        texts = self.outcomes.scores[number].split()
        return [None if text == "-" else float(text) for text in texts]

    def passes(self, number: int) -> Sequence[float | None]:
        """Whether the runs of a case pass, as 1 or 0."""
        if self.threshold is None:
            return []
        scores, limit = self.scores(number), self.threshold
        return [None if score is None else float(score >= limit) for score in scores]


def _flips(row: Row) -> float | None:
    scores = [score for score in row if score is not None]
    pairs = math.comb(len(scores), 2)
    same = sum(math.comb(count, 2) for count in Counter(scores).values())
    return 1 - same / pairs if pairs else None


def _mean(row: Row) -> float | None:
    values = [value for value in row if value is not None]
    return statistics.fmean(values) if values else None


def _missing(row: Row) -> float | None:
    return row.count(None) / len(row) if row else None


def _hit(side: Side, number: int) -> float | None:
    hits = side.outcomes.hits
    return float(hits[number]) if hits and hits[number] != "-" else None


def _right(side: Side, number: int) -> float | None:
    """Over the runs with a score; a case without any counts as a miss."""
    right = side.outcomes.right
    if not right or not right[number]:
        return None
    marks = [int(mark) for mark in right[number] if mark != "-"]
    return statistics.fmean(marks) if marks else 0.0


MEASURES: Mapping[str, Callable[[Side, int], float | None]] = {
    "flip-rate": lambda side, number: _flips(side.passes(number)),
    "pass-rate": lambda side, number: _mean(side.passes(number)),
    "score-flip-rate": lambda side, number: _flips(side.scores(number)),
    "mean-score": lambda side, number: _mean(side.scores(number)),
    "accuracy": _hit,
    "single-run-accuracy": _right,
    "unscored": lambda side, number: _missing(side.scores(number)),
}
"""Measures that are compared: the mean over cases of what each is for one case."""


RATIOS: Mapping[str, Callable[[Side, Sequence[int]], Sums]] = {
    "kappa": lambda side, numbers: label_kappa.sums([_pair(side, case) for case in numbers]),
    "test-retest": lambda side, numbers: icc.sums([side.scores(case) for case in numbers]),
}
"""Measures that are not means over cases: functions of what the cases given add up to."""

COMPARED = (*MEASURES, *RATIOS, "variance-share", "corrected-pass-rate", "corrected-mean-score")
"""Everything that can be compared."""


def _pair(side: Side, number: int) -> tuple[str | None, str | None]:
    outcomes = side.outcomes
    if not outcomes.said or not outcomes.labels[number]:
        return None, None
    return outcomes.labels[number], outcomes.said[number]


@dataclass(frozen=True)
class Common:
    """The places of the cases that two sides have in common, and by what they are the same."""

    pairs: Sequence[tuple[int, int]]
    by: str


def common(one: Side, other: Side) -> Common:
    """Equal cases; if there are none, cases with equal inputs, as two systems answer them.

    Inputs that a side has several times tell no cases apart.
    """
    for by, of in _SAME:
        before, after = one.places(of), other.places(of)
        repeated = any(count > 1 for _, count in (*before, *after))
        pairs = [(before[key], place) for key, place in after.items() if key in before]
        if pairs and not (repeated and by == "input"):
            return Common(pairs, by)
    return Common((), "")


_SAME: Sequence[tuple[str, Callable[[CaseKey], str]]] = (
    ("case", lambda case: case.key),
    ("input", lambda case: case.about),
)


def contrasts(one: Side, other: Side, measures: Collection[str] = COMPARED) -> Iterator[Contrast]:
    """The differences of two sides, those of them that both have; not corrected yet."""
    shared = common(one, other)
    for contrast in _each(one, other, shared, measures):
        first, second = contrast.one or one.name, contrast.other or other.name
        yield replace(contrast, one=first, other=second)


def _each(left: Side, right: Side, shared: Common, measures: Collection[str]) -> Iterator[Contrast]:
    for name in (name for name in MEASURES if name in measures):
        of = MEASURES[name]
        pairs = [(of(left, a), of(right, b), right.group(b)) for a, b in shared.pairs]
        rows = [(x, y, group) for x, y, group in pairs if x is not None and y is not None]
        if rows:
            yield _paired(name, rows, shared.by)
        else:
            values = [[of(side, k) for k in range(len(side.cases))] for side in (left, right)]
            sides = [[value for value in row if value is not None] for row in values]
            if all(sides):
                yield _unpaired(name, *sides)
    if shared.pairs:
        yield from _ratios(left, right, shared, measures)
        yield from _shares(left, right, shared) if "variance-share" in measures else ()
        yield from _corrected(left, right, shared, measures)


def _ratios(
    left: Side, right: Side, shared: Common, measures: Collection[str]
) -> Iterator[Contrast]:
    groups = [right.group(number) for _, number in shared.pairs]
    for name in (name for name in RATIOS if name in measures):
        first = RATIOS[name](left, [a for a, _ in shared.pairs])
        second = RATIOS[name](right, [b for _, b in shared.pairs])
        if first.value() is not None and second.value() is not None:
            comparison = compare_measures(first, second, groups=groups)
            used = sum(bool(a and b) for a, b in zip(first.items, second.items, strict=True))
            yield _contrast(name, comparison, _level(shared.by, used))


def _shares(left: Side, right: Side, shared: Common) -> Iterator[Contrast]:
    """Shares of the noise of nodes that both sides have, where both are known."""
    groups = [right.group(number) for _, number in shared.pairs]
    for node, before in left.nodes.items():
        after = right.nodes.get(node)
        if after is None or not before or not after:
            continue
        first = share_of([before[a] for a, _ in shared.pairs])
        second = share_of([after[b] for _, b in shared.pairs])
        comparison = compare_measures(first, second, groups=groups)
        made = _contrast("variance-share", comparison, _level(shared.by, len(shared.pairs)))
        yield replace(made, one=f"{left.name}, node {node}", other=f"{right.name}, node {node}")


def share_of(parts: Sequence[str]) -> Sums:
    """A node's share of the noise, from its part and the whole of each case (`"0.04 0.1"`)."""
    items = [dict(zip(("part", "whole"), map(float, part.split()), strict=True)) for part in parts]
    return Sums(items, lambda all_: all_["part"] / all_["whole"])


def _corrected(
    left: Side, right: Side, shared: Common, measures: Collection[str]
) -> Iterator[Contrast]:
    """The difference by the human standard, if labels are on a random sample of both."""
    sides = left, right
    if not all(side.random and any(side.outcomes.labels) for side in sides):
        return
    names = {_corrected_name(side) for side in sides}
    name = names.pop()
    if names or name not in measures:
        return
    scales = {(0.0, 1.0) if name == "corrected-pass-rate" else side.scale for side in sides}
    if len(scales) > 1 or (scale := scales.pop()) is None:
        return
    low, high = scale
    first, second = (
        _by_people(side, places, low, high)
        for side, places in zip(sides, zip(*shared.pairs, strict=True), strict=True)
    )
    groups = [right.group(number) for _, number in shared.pairs]
    clusters = groups if len(set(groups)) < len(groups) else None
    result = corrected_difference(first, second, random=True, groups=clusters)
    level = f"{_level(shared.by, len(shared.pairs))}, from labels of a random sample"
    if isinstance(result, Unknown):
        yield Contrast("", "", shown(name, result, level))
        return
    size, bounds = high - low, result.estimate
    ends = size * bounds.low, size * bounds.high
    scaled = replace(bounds, value=size * bounds.value, low=ends[0], high=ends[1])
    yield Contrast("", "", shown(name, scaled, level), result.p)


def _corrected_name(side: Side) -> str:
    """What labels and judge say can be corrected to; nothing if labels are other verdicts."""
    if not side.outcomes.said:
        return "corrected-mean-score"
    return "corrected-pass-rate" if {*side.outcomes.labels} <= {"pass", "fail", ""} else ""


def _by_people(
    side: Side, places: Sequence[int], low: float, high: float
) -> tuple[list[float | None], list[float | None]]:
    """The judge's score and human label of each case, from 0 to 1; labels go `low` to `high`."""
    labels = [_number(side.outcomes.labels[place]) for place in places]
    shares = [None if label is None else (label - low) / (high - low) for label in labels]
    if side.outcomes.said:
        return [_AS_NUMBER.get(side.outcomes.said[place]) for place in places], shares
    return [_mean(side.scores(place)) for place in places], shares


def _number(label: str) -> float | None:
    """A label as a card has it: pass or fail, or a number."""
    if label in _AS_NUMBER:
        return _AS_NUMBER[label]
    return float(label) if label else None


_AS_NUMBER = {"pass": 1.0, "fail": 0.0}


def _level(by: str, cases: int) -> str:
    return f"by {by}, {cases} {by}s on both sides"


def _paired(name: str, pairs: Sequence[tuple[float, float, Hashable]], by: str) -> Contrast:
    """Verdicts of independent cases by McNemar's mid-p, all else by t over groups of cases."""
    level = _level(by, len(pairs))
    groups = {group for _, _, group in pairs}
    if len(groups) == len(pairs):
        changes = [(before, after) for before, after, _ in pairs]
        if name == "accuracy":
            return _contrast(name, compare_shares([(a > 0, b > 0) for a, b in changes]), level)
        return _contrast(name, compare_means(changes), level)
    if len(groups) < LEAST_GROUPS:
        return _contrast(name, Unknown("too few groups", len(groups), LEAST_GROUPS), level)
    # What each group adds to the mean over cases, times the number of groups.
    weight = len(groups) / len(pairs)
    members: defaultdict[Hashable, list[tuple[float, float]]] = defaultdict(list)
    for before, after, group in pairs:
        members[group].append((before, after))
    sums = [
        (weight * math.fsum(before), weight * math.fsum(after))
        for before, after in (zip(*changes, strict=True) for changes in members.values())
    ]
    return _contrast(name, compare_means(sums), f"{level} in {len(groups)} independent groups")


def _unpaired(name: str, before: Sequence[float], after: Sequence[float]) -> Contrast:
    """Welch's t, where no case is on both sides."""
    comparison = compare_unpaired(before, after)
    return replace(_contrast(name, comparison, "unpaired: no case is on both sides"), paired=False)


def _contrast(name: str, comparison: Comparison | Unknown, level: str) -> Contrast:
    if isinstance(comparison, Unknown):
        return Contrast("", "", shown(name, comparison, level))
    figure = Figure(name, comparison.value, items=comparison.cases, level=level)
    bounds = comparison.interval
    if isinstance(bounds, Interval):
        figure = replace(figure, low=bounds.low, high=bounds.high, confidence=bounds.level)
    elif not comparison.differing:
        figure = replace(figure, note="no case differs")
    return Contrast("", "", figure, comparison.p, visible=comparison.visible)


def corrected(found: Sequence[Contrast]) -> tuple[Contrast, ...]:
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
    sides = [
        Side(under.setting, metric.threshold, cases, under.outcomes, _parts(under))
        for under in metric.settings
    ]
    places = itertools.combinations(range(len(settings)), 2)
    near = [(i, k) for i, k in places if _apart(settings[i].condition, settings[k].condition) == 1]
    return corrected([contrast for i, k in near for contrast in contrasts(sides[i], sides[k])])


def _parts(under: SettingCard) -> dict[str, Sequence[str]]:
    return {node.node: node.parts for node in under.nodes if node.share.value is not None}


def _apart(first: Condition, second: Condition) -> int:
    """In how many circumstances two settings differ."""
    return sum(getattr(first, f.name) != getattr(second, f.name) for f in fields(Condition))


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
    pairs = list(_pairs(old, new, _apart_by(old, new) or names))
    if not pairs:
        raise InputError(
            "the cards have no metric and setting in common: the first has "
            f"{_shown(old)}; the second has {_shown(new)}"
        )
    return corrected([contrast for a, b in pairs for contrast in contrasts(a, b, measures)])


def _apart_by(old: JudgeCard, new: JudgeCard) -> tuple[str, str] | None:
    """The names of the judges of two cards, if they tell the cards apart."""
    judges = [card.binding.judges for card in (old, new)]
    if any(len(names) != 1 for names in judges):
        return None
    before, after = (judge_name(names[0]) for names in judges)
    return None if before == after else (before, after)


def _pairs(old: JudgeCard, new: JudgeCard, names: tuple[str, str]) -> Iterator[tuple[Side, Side]]:
    before = {metric.metric: metric for metric in old.metrics}
    for metric in new.metrics:
        if metric.metric not in before:
            continue
        first, second = names
        sides = _sides(before[metric.metric], old, first), _sides(metric, new, second)
        if all(len(side) == 1 for side in sides):
            yield next(iter(sides[0].values())), next(iter(sides[1].values()))
        else:
            yield from ((sides[0][name], sides[1][name]) for name in sides[1] if name in sides[0])


def _sides(metric: MetricCard, card: JudgeCard, called: str) -> dict[str, Side]:
    single = len(metric.settings) == 1
    return {
        under.setting: Side(
            f"{metric.metric if single else f'{metric.metric}: {under.setting}'} ({called})",
            metric.threshold, card.cases, under.outcomes, _parts(under), card.labels_random,
            card.label_scale,
        )
        for under in metric.settings
    }  # fmt: skip


def _shown(card: JudgeCard) -> str:
    places = (f"{metric.metric} ({u.setting})" for metric in card.metrics for u in metric.settings)
    return ", ".join(places)
