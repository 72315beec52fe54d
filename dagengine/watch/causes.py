"""Why a series has left its baseline: the application, its traffic, or the judge.

Two parts of the change can be measured. The judge's: the mean change of the scores of old cases
that were asked again. The traffic's: what the change would be if every kind of case (stratum and
length of the input) had kept its score and only the mix of kinds had moved (Kitagawa, 1955). How
many traces have an error is not traffic, but what the application does. The application is what
remains. A cause is named if what was measured fits it, and does not fit the others.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from dagengine.reliability.statistics.intervals import needs
from dagengine.watch.sampling import ERRORS, OTHERS
from dagengine.watch.values import Alert, Cause, Departure, Judged, Pair

_FITS = 2.5  # standard errors
_DRAWS = 200
_LENGTHS = 3  # classes of equal size in the baseline


def explained(departure: Departure, pairs: Sequence[Pair]) -> Alert:
    """The alarm of a departure; `pairs` are old questions that were asked again because of it."""
    change = departure.now - departure.before
    is_path = departure.group.startswith("path ")
    judge = None if is_path else _mean_change(pairs)
    traffic = _of_traffic(departure)
    return Alert(
        departure.row,
        departure.metric,
        departure.group,
        departure.before,
        departure.now,
        len(departure.latest),
        cause_of(change, judge, traffic),
        judge,
        traffic,
        len(pairs),
        _most_moved(departure),
    )


def cause_of(
    change: float, judge: tuple[float, float] | None, traffic: tuple[float, float] | None
) -> Cause:
    """The only cause that fits both parts, each with its standard error; else `not known`."""
    causes: dict[Cause, tuple[float, float]] = {
        "app": (0.0, 0.0),
        "judge": (change, 0.0),
        "traffic": (0.0, change),
    }
    fitting = [
        cause
        for cause, (of_judge, of_traffic) in causes.items()
        if _fits(judge, of_judge) and _fits(traffic, of_traffic)
    ]
    return fitting[0] if len(fitting) == 1 else "not known"


def _fits(part: tuple[float, float] | None, value: float) -> bool:
    return part is None or abs(part[0] - value) <= _FITS * part[1]


def _mean_change(pairs: Sequence[Pair]) -> tuple[float, float] | None:
    """The weighted mean change, and its standard error, which is never 0; None without a pair."""
    if not pairs:
        return None
    weights = sum(pair.weight for pair in pairs)
    mean = sum(pair.weight * pair.change for pair in pairs) / weights
    # One more case that has changed as much as it can: a few equal answers are no certainty.
    heaviest = max(pair.weight for pair in pairs)
    squares = sum((pair.weight * (pair.change - mean)) ** 2 for pair in pairs) + heaviest**2
    return mean, math.sqrt(squares) / weights


def _of_traffic(departure: Departure) -> tuple[float, float] | None:
    """What the mix of kinds explains, and its standard error by bootstrap over cases."""
    if not departure.first or not departure.latest:
        return None
    numpy = needs("numpy")
    kinds = _kinds(departure.first)
    sides = [_table(cases, departure, kinds) for cases in (departure.first, departure.latest)]
    names = sorted({name for side in sides for name in side[0]})
    place = {name: number for number, name in enumerate(names)}
    generator = numpy.random.default_rng(0)
    sums = []
    for labels, values, weights in sides:
        cells = numpy.eye(len(names))[[place[label] for label in labels]]
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
    of_kinds = numpy.nan_to_num((later_share - share) * (mean + later_mean) / 2)
    parts = of_kinds.sum(axis=1)
    return float(parts[0]), float(parts[1:].std()) + 1e-9


def _kinds(first: Sequence[Judged]) -> list[int]:
    """The lengths that divide the baseline into classes of equal size."""
    lengths = sorted(case.characters for case in first)
    return [lengths[len(lengths) * part // _LENGTHS] for part in range(1, _LENGTHS)]


def _table(
    cases: Sequence[Judged], departure: Departure, limits: Sequence[int]
) -> tuple[list[tuple[str, int]], Any, Any]:
    """Of every case of the group: its kind, its number, and its weight."""
    numpy = needs("numpy")
    family, _, name = departure.group.partition(" ")
    inside = [case for case in cases if family != "stratum" or case.stratum == name]
    labels = [
        (
            "" if case.stratum in (ERRORS, OTHERS) else case.stratum,
            sum(case.characters >= limit for limit in limits),
        )
        for case in inside
    ]
    metric = departure.metric
    values = [
        float(case.paths[metric] == name) if family == "path" else case.scores[metric]
        for case in inside
    ]
    weights = numpy.array([1 / case.probability for case in inside])
    return labels, numpy.array(values), weights


def _most_moved(departure: Departure) -> str | None:
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
