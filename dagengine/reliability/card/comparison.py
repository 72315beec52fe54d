"""Two settings of a card, or two cards: differences by case, corrected for their number."""

from __future__ import annotations

import itertools
import math
import statistics
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace

from dagengine.errors import InputError
from dagengine.reliability.card.figures import shown
from dagengine.reliability.card.values import (
    CaseKey,
    Contrast,
    Figure,
    JudgeCard,
    MetricCard,
    Outcomes,
    Setting,
)
from dagengine.reliability.observations import Condition
from dagengine.reliability.statistics.comparisons import (
    Comparison,
    cases_needed,
    compare_means,
    compare_shares,
    compare_unpaired,
    holm,
    visible_difference,
)
from dagengine.reliability.statistics.intervals import LEAST_GROUPS, Interval, Unknown

Row = Sequence[float | None]
"""The scores of a case, run by run."""


@dataclass(frozen=True)
class Side:
    """One metric under one setting of one card, as it is compared."""

    name: str
    threshold: float | None
    cases: Sequence[CaseKey]
    outcomes: Outcomes

    def values(self, of: Callable[[Side, int], float | None]) -> dict[Hashable, float]:
        """What a measure is for every case that has it, by the key of the case."""
        seen: Counter[str] = Counter()
        found: dict[Hashable, float] = {}
        for number, case in enumerate(self.cases):
            seen[case.key] += 1
            value = of(self, number)
            if value is not None:
                found[case.key, seen[case.key]] = value
        return found

    def groups(self) -> dict[Hashable, Hashable]:
        """What the values of a case are averaged within: its group, or the case itself."""
        seen: Counter[str] = Counter()
        found: dict[Hashable, Hashable] = {}
        for case in self.cases:
            seen[case.key] += 1
            found[case.key, seen[case.key]] = case.group or (case.key, seen[case.key])
        return found

    def scores(self, number: int) -> Row:
        """The scores of a case."""
        texts = self.outcomes.scores[number].split()
        return [None if text == "-" else float(text) for text in texts]

    def passes(self, number: int) -> Sequence[float | None]:
        """Whether the runs of a case pass, as 1 or 0."""
        if self.threshold is None:
            return []
        found, limit = self.scores(number), self.threshold
        return [None if score is None else float(score >= limit) for score in found]


def _flips(row: Row) -> float | None:
    known = [one for one in row if one is not None]
    pairs = math.comb(len(known), 2)
    same = sum(math.comb(count, 2) for count in Counter(known).values())
    return 1 - same / pairs if pairs else None


def _mean(row: Row) -> float | None:
    known = [one for one in row if one is not None]
    return statistics.fmean(known) if known else None


def _missing(row: Row) -> float | None:
    return row.count(None) / len(row) if row else None


def _hit(side: Side, number: int) -> float | None:
    hits = side.outcomes.hits
    return float(hits[number]) if hits and hits[number] != "-" else None


def _right(side: Side, number: int) -> float | None:
    right = side.outcomes.right
    return statistics.fmean(map(int, right[number])) if right and right[number] else None


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


def contrasts(one: Side, other: Side, measures: Collection[str] = MEASURES) -> Iterator[Contrast]:
    """The differences of two sides, those of them that both have; not corrected yet."""
    for name in (name for name in MEASURES if name in measures):
        before, after = one.values(MEASURES[name]), other.values(MEASURES[name])
        if not before or not after:
            continue
        common = [key for key in after if key in before]
        if common:
            groups = other.groups()
            found = _paired(name, [(before[k], after[k], groups[k]) for k in common])
        else:
            found = _unpaired(name, list(before.values()), list(after.values()))
        yield replace(found, one=one.name, other=other.name)


def _paired(name: str, pairs: Sequence[tuple[float, float, Hashable]]) -> Contrast:
    """Verdicts of independent cases by McNemar's mid-p, all else by t over groups of cases."""
    level = f"by case, {len(pairs)} cases on both sides"
    groups = Counter(group for _, _, group in pairs)
    if len(groups) == len(pairs):
        both = [(before, after) for before, after, _ in pairs]
        if name == "accuracy":
            return _contrast(name, compare_shares([(a > 0, b > 0) for a, b in both]), level)
        return _contrast(name, compare_means(both), level)
    if len(groups) < LEAST_GROUPS:
        return _contrast(name, Unknown("too few groups", len(groups), LEAST_GROUPS), level)
    # What each group adds to the mean over cases, times the number of groups.
    weight = len(groups) / len(pairs)
    sums = [
        (
            weight * math.fsum(before for before, _, of in pairs if of == group),
            weight * math.fsum(after for _, after, of in pairs if of == group),
        )
        for group in groups
    ]
    return _contrast(name, compare_means(sums), f"{level} in {len(groups)} independent groups")


def _unpaired(name: str, before: Sequence[float], after: Sequence[float]) -> Contrast:
    """Welch's t, where no case is on both sides."""
    found = compare_unpaired(before, after)
    return replace(_contrast(name, found, "unpaired: no case is on both sides"), paired=False)


def _contrast(name: str, found: Comparison | Unknown, level: str) -> Contrast:
    if isinstance(found, Unknown):
        return Contrast("", "", shown(name, found, level))
    one, bounds = Figure(name, found.value, items=found.cases, level=level), found.interval
    if isinstance(bounds, Interval):
        one = replace(one, low=bounds.low, high=bounds.high, confidence=bounds.level)
    elif not found.differing:
        one = replace(one, note="no case differs")
    return Contrast("", "", one, found.p, visible=found.visible)


def corrected(found: Sequence[Contrast]) -> tuple[Contrast, ...]:
    """Every contrast with the p that Holm's correction for all of them gives."""
    adjusted = iter(holm([one.p for one in found if one.p is not None]))
    return tuple(one if one.p is None else replace(one, corrected=next(adjusted)) for one in found)


# Settings of one card.


def between_settings(
    metric: MetricCard, settings: Sequence[Setting], cases: Sequence[CaseKey]
) -> tuple[Contrast, ...]:
    """Differences of settings that one circumstance tells apart, on the same cases."""
    sides = [
        Side(under.setting, metric.threshold, cases, under.outcomes) for under in metric.settings
    ]
    places = itertools.combinations(range(len(settings)), 2)
    near = [(i, k) for i, k in places if _apart(settings[i].condition, settings[k].condition) == 1]
    return corrected([one for i, k in near for one in contrasts(sides[i], sides[k])])


def _apart(one: Condition, other: Condition) -> int:
    """In how many circumstances two settings differ."""
    return sum(getattr(one, f.name) != getattr(other, f.name) for f in fields(Condition))


# Two cards.


def between_cards(
    old: JudgeCard, new: JudgeCard, measures: Collection[str] = MEASURES
) -> tuple[Contrast, ...]:
    """Differences of two cards, the newer less the older, metric by metric.

    Settings of equal names are compared; where a metric has one setting on each card, these
    are, whatever their names. Raises InputError when the cards have nothing in common.
    """
    pairs = list(_pairs(old, new))
    if not pairs:
        raise InputError(
            "the cards have no metric under a setting of one name: the first has "
            f"{_shown(old)}, the second {_shown(new)}"
        )
    return corrected([one for a, b in pairs for one in contrasts(a, b, measures)])


def _pairs(old: JudgeCard, new: JudgeCard) -> Iterator[tuple[Side, Side]]:
    before = {metric.metric: metric for metric in old.metrics}
    for metric in new.metrics:
        if metric.metric not in before:
            continue
        sides = _sides(before[metric.metric], old), _sides(metric, new)
        if all(len(one) == 1 for one in sides):
            yield next(iter(sides[0].values())), next(iter(sides[1].values()))
        else:
            yield from ((sides[0][name], sides[1][name]) for name in sides[1] if name in sides[0])


def _sides(metric: MetricCard, card: JudgeCard) -> dict[str, Side]:
    single = len(metric.settings) == 1
    return {
        under.setting: Side(
            metric.metric if single else f"{metric.metric}: {under.setting}",
            metric.threshold, card.cases, under.outcomes,
        )
        for under in metric.settings
    }  # fmt: skip


def _shown(card: JudgeCard) -> str:
    found = (f"{metric.metric} ({u.setting})" for metric in card.metrics for u in metric.settings)
    return ", ".join(found)


# What could be seen.

# How many cases two judges judge otherwise, and how often a judge flips, where nothing is known.
_OTHERWISE, _FLIPPING = 0.15, 0.1


def could_be_seen(cases: int, times: int) -> str:
    """What difference of two judges on the same cases so many cases and runs would show.

    In 80 of 100 benchmarks, where the judges see 15 % of the cases differently and 10 % of two
    runs of a case differ; a mean of runs carries its share of these flips.
    """
    square = _OTHERWISE + _FLIPPING / times
    least = visible_difference(cases, square)
    needed = {
        points: [cases_needed(points / 100, _OTHERWISE + _FLIPPING / runs) for runs in (1, times)]
        for points in (2, 5, 10)
    }
    said = "; ".join(
        f"{points} points: {once:,} cases run once"
        + (f" or {more:,} run {times} times" if times > 1 else "")
        for points, (once, more) in needed.items()
    )
    return (
        f"{cases:,} cases in {times} {'run' if times == 1 else 'runs'} show a difference of two "
        f"judges from about {100 * least:.1f} points on. To see {said}."
    )
