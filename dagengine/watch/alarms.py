"""When a series of scores has left its baseline: a law without a clock, the same for every reader.

Every metric has several series: the scores of all cases, of each stratum, and how often each path
is taken. The first cases are the baseline. After it a sequence of evidence begins now and
then, and each is compared with the baseline (see `confidence_sequences`). An alarm is
raised when one of them shows, at its share of the allowed false alarms, that both have no common
mean. The shares of all sequences that will ever begin add up to `ALPHA`, so a healthy stream of any
length has a false alarm with a probability of at most `ALPHA`.

That holds for numbers that may change places. Cases of one sender, one conversation or one hour may
not: with groups, each series takes the mean of a group in the place of its cases. A baseline whose
neighbours are more alike than chance allows starts no series: its alarms would mean nothing.

Weights: the series of all cases takes only traces whose place is below the lowest rate of sampling.
They would have been judged in whatever stratum they are, so they are an equal-probability sample
of the traffic and need no weights. Inside a stratum all rates are equal.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, takewhile
from statistics import variance
from typing import Any

from dagengine.reliability.statistics.sums import mean_score, numpy, present
from dagengine.watch.confidence_sequences import Bettor, MeanBettor, Since
from dagengine.watch.trace_sampling import JudgedTrace

ALPHA = 0.05
"""The probability of a false alarm in a healthy stream, all series and all times together."""

BASELINE = 1000  # cases
LEAST = 20  # cases, or groups, of a baseline
_OF_JUDGE = 0.2  # the part of ALPHA for the judge's own drift
_APART = 250  # numbers from one sequence to the next
_KEPT = 8  # sequences of a series: the first one, and the latest
_EVERY = 5  # numbers after which the evidence is looked at
_STRATUM = 30  # cases in the baseline from which on a stratum has its own series
_PATH = 0.05  # of the cases of the baseline
_WINDOW = 2000  # cases that are kept to find the cause
_SILENT, _LONGEST = 100, 500  # cases after which a group is complete: of others, of its own
_BLOCKS = (5, 20, 50, 125, 250)  # neighbours in a baseline whose means are compared
_ORDERS, _NUMBERS = 1000, 4000  # random orders, and the numbers of each
# Up to this p a baseline is no baseline, or only whole baselines are compared with it: a part of a
# day must not be held against all of it.
_UNEVEN, _DOUBTFUL = 0.01, 0.5


def of_sequence(number: int) -> float:
    """The share of the false alarms for one of endlessly many sequences; they add up to 1."""
    return 1 / ((number + 1) * (number + 2))


def evenness(numbers: Sequence[float]) -> float:
    """The p value of neighbours that are as much alike as these: senders, hours, a drift.

    The variance of the means of blocks is held against random orders. This is an exact test for
    numbers that may change places, corrected for the sizes of the blocks.
    """
    values = numpy.array(numbers)
    step = max(1, math.ceil(len(values) / _NUMBERS))  # of a long baseline neighbours are one number
    values = values[: len(values) // step * step].reshape(-1, step).mean(axis=1)
    orders = numpy.tile(values, (_ORDERS, 1))
    orders[1:] = numpy.random.default_rng(0).permuted(orders[1:], axis=1)
    sizes = [size for size in _BLOCKS if len(values) // size > 1]
    least = 1.0
    for size in sizes:
        blocks = orders[:, : len(values) // size * size].reshape(_ORDERS, -1, size)
        spreads = blocks.mean(axis=2).var(axis=1)
        least = min(least, float((spreads >= spreads[0] - 1e-12).mean()) * len(sizes))
    return least


def of_baseline(number: int) -> float:
    """The same for baselines, of which there are few: the first one has most."""
    return 0.8 * 0.2**number


@dataclass(frozen=True, slots=True)
class SeriesDeparture:
    """A series that has left its baseline, with the cases on both sides.

    `group` is `all`, `stratum NAME` or `path NODES`; `before` and `now` are the means of the
    series. Without `first` cases the baseline was a rate that somebody stated.
    """

    metric: str
    group: str
    row: int
    before: float
    now: float
    first: Sequence[JudgedTrace] = field(repr=False)
    latest: Sequence[JudgedTrace] = field(repr=False)

    @property
    def key(self) -> tuple[int, str, str]:
        """Key of its alarm."""
        return self.row, self.metric, self.group


@dataclass(slots=True)
class _Sequence:
    since: Since
    limit: float  # of the logarithm of the evidence
    row: int


def _variance(numbers: Sequence[float]) -> float:
    """The variance of numbers, at its upper end: of few it is not well known, and never nothing."""
    if len(numbers) < LEAST:
        return 0.25  # none is larger
    least, few = 0.25 / len(numbers) ** 2, 1 + 2 / math.sqrt(len(numbers))
    return (variance(numbers) + least) * few


class Series:
    """Numbers from 0 to 1 that are compared with a baseline, as long as they come."""

    def __init__(
        self,
        alpha: float,
        first: Sequence[float] = (),
        mean: float | None = None,
        *,
        grouped: bool = False,
        whole: bool = False,
    ) -> None:
        """The baseline is the numbers in `first`, or a `mean` inside of (0, 1) that is known.

        Numbers that are means of groups (`grouped`) are few: each of them is looked at. A sequence
        is looked at after any number, or when it is as long as a `whole` baseline, or several.
        """
        self._alpha = alpha
        self._apart, self._every, self._cycle = _APART, _EVERY, 1
        make: Callable[[float | None], Bettor] = Bettor
        if grouped:
            self._apart, self._every = _APART // 10, 1
            make = partial(MeanBettor, _variance(first))
        if whole:
            self._cycle = max(1, len(first) // self._every) * self._every
        baseline = make(mean)
        for number in first:
            baseline.add(number)
        self.before = baseline.mean if mean is None else mean
        self._against: Any = baseline.sides()
        self._bettor = make(mean)
        self._sequences: list[_Sequence] = []
        self._begun = 0

    def add(self, number: float, row: int) -> _Sequence | None:
        """Take the number of a row; the sequence that shows a change, if one does."""
        if self._bettor.count % self._apart == 0:
            limit = math.log(1 / (self._alpha * of_sequence(self._begun)))
            self._sequences.append(_Sequence(Since(self._bettor), limit, row))
            self._begun += 1
            if len(self._sequences) > _KEPT:
                del self._sequences[1]  # the first one has the most to spend
        self._bettor.add(number)
        # A look that is left out makes no alarm false, and each one goes over all means.
        if self._bettor.count % self._every:
            return None
        looked = [each for each in self._sequences if each.since.count % self._cycle == 0]
        excess = [each.since.evidence(self._against) - each.limit for each in looked]
        most = max(excess, default=-1.0)
        return looked[excess.index(most)] if most >= 0 else None


CaseBlock = list[JudgedTrace]
"""Cases that count as one: those of a group, else one."""
Number = Callable[[JudgedTrace], float | None]


class MetricAlarms:
    """The series of one metric."""

    def __init__(
        self, metric: str, alpha: float, least: float, baseline: int, rate: float | None = None
    ) -> None:
        """`alpha` is the probability of a false alarm in a healthy stream of any length.

        `least` is the lowest rate of sampling. The baseline are the first cases, or a `rate`.
        """
        self.metric = metric
        self._alpha, self._least, self._size, self._rate = alpha, least, baseline, rate
        self._begun = -1  # baselines
        self.off = self._whole = False  # as the last baseline was uneven, or perhaps
        self._restart()

    def _restart(self) -> None:
        self._begun += 1
        self._first: list[CaseBlock] = []
        self._latest: deque[JudgedTrace] = deque(maxlen=_WINDOW)
        self._series: dict[str, tuple[Number, Series]] = {}
        if self._rate is not None:
            share = self._alpha * of_baseline(self._begun)
            self._series["all"] = (self._score, Series(share, mean=self._rate))

    def add(self, cases: CaseBlock) -> SeriesDeparture | None:
        """Take a block; the departure that it shows, after which the next ones are a baseline."""
        block = [case for case in cases if self.metric in case.scores]
        if not block:
            return None
        if not self._series:
            self._first.append(block)
            if len(self._first) >= LEAST and sum(map(len, self._first)) >= self._size:
                p = evenness(self._values(self._score))
                self.off, self._whole = p <= _UNEVEN, p <= _DOUBTFUL
                if self.off:
                    self._first = []  # the next ones may be a baseline
                else:
                    self._begin()
            return None
        self._latest += block
        for group, (number, series) in self._series.items():
            value, row = mean_score(map(number, block)), block[-1].row
            shown = None if value is None else series.add(value, row)
            if shown is not None:
                first = [*chain(*self._first)]
                latest = [case for case in self._latest if case.row >= shown.row]
                means = series.before, shown.since.mean
                departure = SeriesDeparture(self.metric, group, row, *means, first, latest)
                self._restart()
                return departure
        return None

    def _begin(self) -> None:
        """The baseline is complete: choose the series, and divide the false alarms among them."""
        first = [*chain(*self._first)]
        grouped = any(case.group for case in first)
        whole = self._whole and not grouped
        counts = Counter(case.stratum for case in first)
        paths = Counter(case.paths[self.metric] for case in first)
        strata, common = dict[str, Number](), dict[str, Number]()
        for name, count in counts.items():
            if count >= _STRATUM and len(counts) > 1:
                strata[f"stratum {name}"] = self._score_in(name)
        for name, count in paths.items():
            if len(paths) > 2 and _PATH <= count / len(first) <= 1 - _PATH:
                common[f"path {name}"] = self._takes(name)
        alpha = self._alpha * of_baseline(self._begun)
        # A quarter of the false alarms is for each family that there is. Which paths are common is
        # seen in the baseline itself: all of them count as tested.
        all_share = alpha * (1 - (bool(strata) + bool(common)) / 4)
        families: list[tuple[dict[str, Number], float]] = [
            ({"all": self._score}, all_share),
            (strata, alpha / 4 / len(counts)),
            (common, alpha / 4 / len(paths)),
        ]
        for family, share in families:
            for group, number in family.items():
                series = Series(share, self._values(number), grouped=grouped, whole=whole)
                self._series[group] = number, series

    def _values(self, number: Number) -> list[float]:
        """The numbers of the baseline: one of each block that has one."""
        return present(mean_score(map(number, block)) for block in self._first)

    def _score(self, case: JudgedTrace) -> float | None:
        return case.scores[self.metric] if case.share < self._least else None

    def _score_in(self, stratum: str) -> Number:
        return lambda case: case.scores[self.metric] if case.stratum == stratum else None

    def _takes(self, path: str) -> Number:
        return lambda case: (
            float(case.paths[self.metric] == path) if case.share < self._least else None
        )


class Alarms:
    """The alarms of all metrics, and of their judge."""

    def __init__(
        self,
        metrics: Sequence[str],
        least: float = 1.0,
        baseline: int = BASELINE,
        rates: dict[str, float] | None = None,
    ) -> None:
        """`rates` are means that are known, by metric; else the first cases are the baseline."""
        alpha = ALPHA / len(metrics)
        stated = rates or {}
        self._metrics = [
            MetricAlarms(name, alpha * (1 - _OF_JUDGE), least, baseline, stated.get(name))
            for name in metrics
        ]
        self._alpha = alpha * _OF_JUDGE
        self._begun = Counter[str]()
        self._changes = {name: self._unchanged_series(name) for name in metrics}
        # Groups that may go on, those that came last at the end
        self._open: dict[str, CaseBlock] = {}

    @property
    def off(self) -> tuple[str, ...]:
        """The metrics whose last baseline was uneven: an alarm would not mean what it says."""
        return tuple(metric.metric for metric in self._metrics if metric.off)

    def _unchanged_series(self, metric: str) -> Series:
        """Changes of the answers to old questions, from -1 to 1: their mean is 0 in any case."""
        share = self._alpha * of_baseline(self._begun[metric])
        self._begun[metric] += 1
        return Series(share, mean=0.5)

    def add(self, case: JudgedTrace) -> list[SeriesDeparture]:
        """Take a case; what has left its baseline now."""
        blocks = [[case]] if case.group is None else self._complete(case, case.group)
        return present(metric.add(block) for block in blocks for metric in self._metrics)

    def _complete(self, case: JudgedTrace, group: str) -> list[CaseBlock]:
        """The groups that are complete with this case: those that are long, or silent for long."""
        self._open[group] = block = [*self._open.pop(group, []), case]
        names = [] if len(block) < _LONGEST else [group]
        names += takewhile(lambda name: case.row - self._open[name][-1].row > _SILENT, self._open)
        return list(map(self._open.pop, names))

    def add_change(self, metric: str, change: float, row: int) -> tuple[float, int] | None:
        """Take the change of the score of an old case.

        If it shows a drift, the mean change and the number of cases.
        """
        shown = self._changes[metric].add((1 + change) / 2, row)
        if shown is None:
            return None
        self._changes[metric] = self._unchanged_series(metric)
        return 2 * shown.since.mean - 1, shown.since.count
