"""Are the runs of a case repeats of each other? If not, neither votes nor blame follow from them.

Repeats may change places within a case without changing anything. So the table of runs is compared
with tables whose rows are shuffled: an exact test, whatever the cases are like. What is looked for:
answers that were copied from the run before or from the first one (a cache, a memory), results that
move over the runs (a model that was updated), and one run that stands apart (a broken one).
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import compress
from typing import Any, Literal

from dagengine.reliability.statistics.paired_comparisons import holm
from dagengine.reliability.statistics.sums import Groups, Table, groups_of, indices, numpy

FALSE_ALARMS = 0.02
"""How many of 100 benchmarks of repeats are said not to be repeats, all tests together."""

_SHUFFLES = 999
# What is not shown, but is rarer than this by chance when it is looked at alone, may be there:
# copies shorten intervals of flips, and shocks move votes and blame.
_COPIES, _SHOCK = 0.1, 0.01
# Numbers held at once while shuffling.
_CELLS = 1_000_000
# Copies make neighbours alike in few cases; below this many that vary, nothing can be seen.
_LEAST_VARYING = 3

Way = Literal[
    "copied from the run before",
    "copied from the first run",
    "moved",
    "stands apart",
    "differs from run to run",
]


@dataclass(frozen=True, slots=True)
class Departure:
    """One way in which runs are not repeats.

    `p` is corrected for all ways that were tested. `run` counts from 0: the run that stands apart,
    or the first one after the results moved. What is only suspected is not `sure`.
    """

    way: Way
    p: float
    run: int | None = None
    sure: bool = True

    @property
    def is_copy(self) -> bool:
        """Return whether answers were copied from other runs."""
        return self.way.startswith("copied")


def departures(table: Table, *, groups: Groups = None) -> list[Departure]:
    """Departures of a table's runs from repeats, the clearest first; empty if nothing shows it.

    One row per case, a column per run in the order of asking. Rows that never vary, and rows that
    lack an answer, tell nothing. False in at most 2 of 100 benchmarks. The numerator of
    Cochran's Q (1950, https://doi.org/10.2307/2332378) sees all runs together; a single run that
    stands apart, or a single place where results moved, is seen better by looking at each.
    """
    chosen = _varying(table)
    rows = [*compress(table, chosen)]
    names = [*compress(groups_of(groups, len(table)), chosen)]
    if len(set(names)) < _LEAST_VARYING or len(rows[0]) < 3:
        return []
    # Answers as numbers that are only equal or not.
    coded, numbers = numpy.array([*map(indices, rows)]), numpy.array([*map(_numbers, rows)])
    ways = _test_ways(coded, numbers, names)
    sure = {departure.way: departure for departure in ways if departure.sure}
    apart = sure.get("stands apart")
    if apart is None or len(rows[0]) < 4:
        # Shocks make runs alike, and copies make later runs like earlier ones: results seem to
        # move. What follows from another departure is none by itself.
        has_shock = bool(_SHOCKS & sure.keys())
        causes = [departure for departure in sure.values() if departure.is_copy is not has_shock]
        return causes or [*sure.values()] or ways
    # A run that stands apart makes its neighbours seem alike: what do the others say without it?
    del sure["stands apart"]
    fewer = numpy.delete(coded, apart.run, 1), numpy.delete(numbers, apart.run, 1)
    lasting = {departure.way for departure in _test_ways(*fewer, names) if departure.sure}
    return [apart, *(departure for way, departure in sure.items() if way in lasting)]


def _varying(table: Table) -> list[bool]:
    """Whether each row is complete and varies; of several lengths only those of the commonest."""
    widths = [len(row) * (None not in row and len(set(row)) > 1) for row in table]
    ((width, _),) = Counter(filter(None, widths)).most_common(1) or [(0, 0)]
    return [0 < own == width for own in widths]


_SHOCKS = {"stands apart", "differs from run to run"}
_SUSPECTED: dict[Way, float] = {
    "copied from the run before": _COPIES,
    "moved": _SHOCK,
    "stands apart": _SHOCK,
    "differs from run to run": _SHOCK,
}


def _test_ways(coded: Any, numbers: Any, names: Sequence[Hashable]) -> list[Departure]:
    """All tests at once, on tables with shuffled rows."""
    off = numbers - numbers.mean(-1, keepdims=True)
    values = _statistics(coded, off)
    counts = dict.fromkeys(values, 0)
    group = indices(names)
    random = numpy.random.default_rng(0)
    step = max(_CELLS // (coded.size * coded.shape[1]), 1)
    for start in range(0, _SHUFFLES, step):
        many = min(step, _SHUFFLES - start)
        # Cases of one group share answers of a run, so their runs change places together.
        order = random.random((many, max(group) + 1, coded.shape[1])).argsort(-1)[:, group]
        shuffled = (numpy.take_along_axis(numpy.broadcast_to(part, order.shape), order, -1)
                    for part in (coded, off))  # fmt: skip
        for way, by_chance in _statistics(*shuffled).items():
            counts[way] += int((by_chance >= values[way] - 1e-9).sum())
    # The table as it is counts as one of its shuffles, so that no p is 0.
    single = {way: (count + 1) / (_SHUFFLES + 1) for way, count in counts.items()}
    ways = [
        Departure(way, p, _run_of(way, coded, off), p <= FALSE_ALARMS)
        for way, p in zip(counts, holm([*single.values()]), strict=True)
        if p <= FALSE_ALARMS or single[way] <= _SUSPECTED.get(way, 0)
    ]
    return sorted(ways, key=lambda departure: departure.p)


def _numbers(row: Sequence[Any]) -> list[float]:
    """Results as numbers: where they have none, whether each is the most common one."""
    if not all(isinstance(value, bool | int | float) for value in row):
        row = [*map(partial(operator.eq, max(row, key=list(row).count)), row)]
    return [*map(float, row)]


def _statistics(coded: Any, off: Any) -> dict[Way, Any]:
    """The statistics of a table, or of many together: the last two axes are cases and runs.

    `coded` are the answers, and `off` how far each result is from the mean of its case.
    """
    moved = off.sum(-2)
    return {
        "copied from the run before": (coded[..., 1:] == coded[..., :-1]).sum((-1, -2)),
        "copied from the first run": (coded[..., 1:] == coded[..., :1]).sum((-1, -2)),
        "moved": _steps(moved).max(-1),
        "stands apart": numpy.maximum(*_apart(coded, off)),
        "differs from run to run": (moved**2).sum(-1),
    }


def _steps(moved: Any) -> Any:
    """Distance of earlier from later runs at each index, in standard errors of a shuffle."""
    earlier = numpy.arange(1, moved.shape[-1])
    later = moved.shape[-1] - earlier
    return numpy.abs(moved.cumsum(-1)[..., :-1] / numpy.sqrt(earlier * later))


def _apart(coded: Any, off: Any) -> tuple[Any, Any]:
    """Distance of the most different run from the others: by results, by agreement."""
    level = numpy.abs(off.sum(-2)).max(-1)
    spread = numpy.sqrt((off**2).sum((-1, -2)) / off.shape[-1])
    rows = _agreeing_rows(coded)
    agreeing = rows.sum(-2)
    centred = agreeing - agreeing.mean(-1, keepdims=True)
    # Only a run that agrees less stands apart. Both in units that shuffling leaves alone.
    own = numpy.sqrt(rows.var(-1).sum(-1))
    return level / numpy.maximum(spread, 1e-12), -centred.min(-1) / numpy.maximum(own, 1e-12)


def _agreeing_rows(coded: Any) -> Any:
    """With how many other runs of its case each run agrees."""
    alike = (coded == kind for kind in range(int(coded.max()) + 1))
    return sum(numpy.where(runs, runs.sum(-1, keepdims=True) - 1, 0) for runs in alike)


def _run_of(way: Way, coded: Any, off: Any) -> int | None:
    """The run that stands apart, or the first one after the results moved."""
    moved = off.sum(-2)
    if way == "moved":
        return int(_steps(moved).argmax()) + 1
    if way != "stands apart":
        return None
    level, agreement = _apart(coded, off)
    by_level = numpy.abs(moved).argmax()
    return int(by_level if level >= agreement else _agreeing_rows(coded).sum(-2).argmin())
