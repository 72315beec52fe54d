"""Why a series has left its baseline: the application, its traffic, or the judge.

Two parts of the change can be measured. The judge's: the mean change of the scores of old cases
that were asked again. The traffic's: what the change would be if every kind of case (stratum and
length of the input) had kept its score and only the mix of kinds had moved (Kitagawa, 1955). How
many traces have an error is not traffic, but what the application does. The application is what
remains. A cause is named if what was measured fits it, and does not fit the others.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from dagengine.reliability.statistics.sums import numpy
from dagengine.system.terminal_text import text_if
from dagengine.watch.alarms import SeriesDeparture
from dagengine.watch.trace_sampling import ERRORS, OTHERS, JudgedTrace

Cause = Literal["app", "traffic", "judge", "not known"]
_FITS = 9.2  # squared standard errors: of two that are normal 1 % are as large
_LIKELIER = 6.0  # 2 · log 20
_DRAWS = 200
_LENGTHS = 3  # classes of equal size in the baseline


@dataclass(frozen=True, slots=True)
class ScoreChange:
    """An old question asked again: the change of a score, and the weight of its case.

    `row` is the case, `asked` how many rows there were when it was asked again.
    """

    row: int
    asked: int
    metric: str
    change: float
    weight: float


@dataclass(frozen=True, slots=True)
class Again:
    """An old case that was asked again: its row, and what changed; one line of `again.jsonl`."""

    row: int
    pairs: list[ScoreChange]


@dataclass(frozen=True, slots=True)
class Alert:
    """One alarm: what left its baseline at which row, and why; one line of `alerts.jsonl`.

    `judge` and `traffic` are the parts of the change that they explain, each with its standard
    error in points of the score; None if nothing is known. `again` is how many old questions the
    cause rests on.
    """

    row: int
    metric: str
    group: str
    before: float
    now: float
    cases: int
    cause: Cause
    judge: tuple[float, float] | None = None
    traffic: tuple[float, float] | None = None
    again: int = 0
    path: str | None = None

    @property
    def key(self) -> tuple[int, str, str]:
        """Key of an alarm in its stream."""
        return self.row, self.metric, self.group

    def __str__(self) -> str:
        words = [f"alarm at row {self.row}: {self.metric}, {self.group}"]
        if self.group == "judge":
            words.append(f"{self.again} old questions are answered {_points(self.now)} on average")
        else:
            words.append(f"{self.before:.3f} → {self.now:.3f} in {self.cases} cases")
        words.append(
            f"cause: {self.cause}{text_if(self.cause == 'app', ', if cases are independent')}"
        )
        for name in ("judge", "traffic"):
            part = getattr(self, name)
            if part is not None and self.group != "judge":
                words.append(f"{name} {_points(part[0])} (± {200 * part[1]:.1f})")
        if self.path:
            words.append(f"most moved: {self.path}")
        return "; ".join(words)


def _points(change: float) -> str:
    return f"{100 * change:+.1f} points"


Part = tuple[float, float]
"""A part of a change, and its standard error."""


def alarm_of(departure: SeriesDeparture, pairs: Sequence[ScoreChange]) -> Alert:
    """The alarm of a departure; `pairs` are old questions that were asked again because of it."""
    judge: Part | None = None
    # Changes of scores say nothing about the paths that cases take.
    if pairs and not departure.group.startswith("path "):
        weights = sum(pair.weight for pair in pairs)
        mean = sum(pair.weight * pair.change for pair in pairs) / weights
        # One more case that has changed as much as it can: a few equal answers are no certainty.
        heaviest = max(pair.weight for pair in pairs)
        squares = sum((pair.weight * (pair.change - mean)) ** 2 for pair in pairs) + heaviest**2
        judge = mean, math.sqrt(squares) / weights
    traffic, inside = _divide(departure)
    return Alert(
        departure.row,
        departure.metric,
        departure.group,
        departure.before,
        departure.now,
        len(departure.latest),
        cause_of(judge, traffic, inside),
        judge,
        traffic,
        len(pairs),
        _most_moved(departure),
    )


def cause_of(judge: Part | None, traffic: Part | None, inside: Part) -> Cause:
    """The only cause that fits what was measured, 20 times likelier than any other one.

    `traffic` is what the mix of kinds explains, `inside` the change inside of the kinds, and
    `judge` what the judge explains of that. Each has its standard error; None: not measured.
    """
    (change, error) = inside
    misfits: dict[Cause, float] = {
        "app": _squared_distance(traffic) + _squared_distance(judge),
        "judge": _squared_distance(traffic),
        "traffic": _squared_distance(judge)
        + (0.0 if traffic is None else _squared_distance(inside)),
    }
    if judge is not None:
        # The change may be diluted by cases from before it; the judge's is that of now.
        same = judge[0] * change > 0 and abs(judge[0]) >= abs(change)
        both = math.hypot(judge[1], error)
        misfits["judge"] += 0.0 if same else ((judge[0] - change) / both) ** 2
    first, second = sorted(misfits, key=lambda cause: misfits[cause])[:2]
    fits = misfits[first] <= _FITS and misfits[second] - misfits[first] >= _LIKELIER
    return first if fits else "not known"


def _squared_distance(part: Part | None) -> float:
    """Squared distance of a part from nothing, in standard errors."""
    return 0.0 if part is None else (part[0] / part[1]) ** 2


def _divide(departure: SeriesDeparture) -> tuple[Part | None, Part]:
    """Divide a change into the mix of kinds and the change within them, by bootstrap over cases."""
    change = departure.now - departure.before
    if not departure.first:  # a mean that is known says nothing of its traffic
        count = len(departure.latest)
        return None, (change, math.sqrt((departure.now * (1 - departure.now) + 1 / count) / count))
    # The lengths that divide the baseline into classes of equal size
    lengths = sorted(case.characters for case in departure.first)
    kinds = [lengths[len(lengths) * part // _LENGTHS] for part in range(1, _LENGTHS)]
    sides = [_table(cases, departure, kinds) for cases in (departure.first, departure.latest)]
    names = sorted({name for side in sides for name in side[0]})
    numbers = dict(zip(names, itertools.count()))
    generator = numpy.random.default_rng(0)
    sums = []
    for labels, values, weights in sides:
        cells = numpy.eye(len(names))[[numbers[label] for label in labels]]
        # The first draw takes every case once: the estimate itself.
        draws = generator.multinomial(len(labels), [1 / len(labels)] * len(labels), _DRAWS)
        draws = numpy.concatenate((numpy.ones((1, len(labels))), draws)) * weights
        total = draws @ cells
        with numpy.errstate(invalid="ignore", divide="ignore"):
            means = (draws * values) @ cells / total
        sums.append((total / total.sum(axis=1, keepdims=True), means))
    (share, mean), (later_share, later_mean) = sums
    # A kind that is on one side only has the score of that side.
    mean = numpy.where(numpy.isnan(mean), later_mean, mean)
    later_mean = numpy.where(numpy.isnan(later_mean), mean, later_mean)
    of_mix = numpy.nan_to_num((later_share - share) * (mean + later_mean) / 2).sum(axis=1)
    of_kinds = numpy.nan_to_num((later_mean - mean) * (share + later_share) / 2).sum(axis=1)
    # One case more or less, so that no part is certain.
    least = 1 / len(sides[1][0])
    traffic, inside = (
        (float(parts[0]), math.hypot(float(parts[1:].std()), least)) for parts in (of_mix, of_kinds)
    )
    return traffic, inside


def _table(
    cases: Sequence[JudgedTrace], departure: SeriesDeparture, limits: Sequence[int]
) -> tuple[list[tuple[str, int]], Any, Any]:
    """Of every case of the group: its kind, its number, and its weight."""
    family, _, name = departure.group.partition(" ")
    labels: list[tuple[str, int]] = []
    numbers: list[tuple[float, float]] = []
    for case in cases:
        if family == "stratum" and case.stratum != name:
            continue
        stratum = "" if case.stratum in (ERRORS, OTHERS) else case.stratum
        labels.append((stratum, bisect_right(limits, case.characters)))
        value = case.scores[departure.metric]
        if family == "path":
            value = float(case.paths[departure.metric] == name)
        numbers.append((value, 1 / case.probability))
    values, weights = numpy.array(numbers).reshape(-1, 2).T
    return labels, values, weights


def _most_moved(departure: SeriesDeparture) -> str | None:
    """The path whose share of the cases has changed most, with both shares."""
    sides = []
    for cases in (departure.first, departure.latest):
        counts: dict[str, float] = defaultdict(float)
        for case in cases:
            counts[case.paths[departure.metric]] += 1 / case.probability
        total = sum(counts.values()) or 1.0
        sides.append({path: count / total for path, count in counts.items()})
    before, now = sides
    if not before or not now:
        return None
    paths = sorted({*before, *now})
    path = max(paths, key=lambda name: abs(now.get(name, 0) - before.get(name, 0)))
    return f"{path} ({before.get(path, 0):.0%} → {now.get(path, 0):.0%})"
