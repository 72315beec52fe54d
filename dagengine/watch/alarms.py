"""When a series of scores has left its baseline: a law without a clock, the same for every reader.

Every metric has several series: the scores of all cases, of each stratum, and how often each path
is taken. The first cases are the baseline. After it a sequence of evidence begins now and
then, and each is compared with the baseline (see `sequences`). An alarm is
raised when one of them shows, at its share of the allowed false alarms, that both have no common
mean. The shares of all sequences that will ever begin add up to `ALPHA`, so a healthy stream of any
length has a false alarm with a probability of at most `ALPHA`.

Weights: the series of all cases takes only traces whose place is below the lowest rate of sampling.
They would have been judged in whatever stratum they are, so they are an equal-probability sample
of the traffic and need no weights. Inside a stratum all rates are equal.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from dagengine.watch.sequences import Bettor, Since
from dagengine.watch.values import Departure, Judged

ALPHA = 0.05
"""The probability of a false alarm in a healthy stream, all series and all times together."""

BASELINE = 1000  # cases
LEAST = 20  # cases of a baseline
_OF_JUDGE = 0.2  # the part of ALPHA for the judge's own drift
_APART = 250  # numbers from one sequence to the next
_KEPT = 8  # sequences of a series: the first one, and the latest
_EVERY = 5  # numbers after which the evidence is looked at
_STRATUM = 30  # cases in the baseline from which on a stratum has its own series
_PATH = 0.05  # of the cases of the baseline
_WINDOW = 2000  # cases that are kept to find the cause


def of_sequence(number: int) -> float:
    """The share of the false alarms for one of endlessly many sequences; they add up to 1."""
    return 1 / ((number + 1) * (number + 2))


def of_baseline(number: int) -> float:
    """The same for baselines, of which there are few: the first one has most."""
    return 0.8 * 0.2**number


@dataclass(slots=True)
class _Sequence:
    since: Since
    limit: float  # of the logarithm of the evidence
    row: int


class Series:
    """Numbers from 0 to 1 that are compared with a baseline, as long as they come."""

    def __init__(
        self, alpha: float, first: Sequence[float] = (), mean: float | None = None
    ) -> None:
        """The baseline is the numbers in `first`, or a `mean` inside of (0, 1) that is known."""
        self._alpha = alpha
        baseline = Bettor(mean)
        for number in first:
            baseline.add(number)
        self.before = baseline.mean if mean is None else mean
        self._against: Any = baseline.sides()
        self._bettor = Bettor(mean)
        self._sequences: list[_Sequence] = []
        self._begun = 0

    def add(self, number: float, row: int) -> _Sequence | None:
        """Take the number of a row; the sequence that shows a change, if one does."""
        if self._bettor.count % _APART == 0:
            limit = math.log(1 / (self._alpha * of_sequence(self._begun)))
            self._sequences.append(_Sequence(self._bettor.since(), limit, row))
            self._begun += 1
            if len(self._sequences) > _KEPT:
                del self._sequences[1]  # the first one has the most to spend
        self._bettor.add(number)
        # A look that is left out makes no alarm false, and each one goes over all means.
        if self._bettor.count % _EVERY:
            return None
        excess = [
            sequence.since.evidence(self._against) - sequence.limit for sequence in self._sequences
        ]
        most = max(excess)
        return self._sequences[excess.index(most)] if most >= 0 else None


Number = Callable[[Judged], float | None]


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
        self._restart()

    def _restart(self) -> None:
        self._begun += 1
        self._first: list[Judged] = []
        self._latest: deque[Judged] = deque(maxlen=_WINDOW)
        self._series: dict[str, tuple[Number, Series]] = {}
        if self._rate is not None:
            share = self._alpha * of_baseline(self._begun)
            self._series["all"] = (self._score, Series(share, mean=self._rate))

    def add(self, case: Judged) -> Departure | None:
        """Take a case; the departure that it shows, after which the next cases are a baseline."""
        if self.metric not in case.scores:
            return None
        if not self._series:
            self._first.append(case)
            if len(self._first) >= self._size:
                self._begin()
            return None
        self._latest.append(case)
        for group, (number, series) in self._series.items():
            value = number(case)
            shown = None if value is None else series.add(value, case.row)
            if shown is not None:
                latest = [late for late in self._latest if late.row >= shown.row]
                mean = shown.since.mean
                departure = Departure(
                    self.metric, group, case.row, series.before, mean, self._first, latest
                )
                self._restart()
                return departure
        return None

    def _begin(self) -> None:
        """The baseline is complete: choose the series, and divide the false alarms among them."""
        counts = Counter(case.stratum for case in self._first)
        strata = {
            f"stratum {name}": self._score_in(name)
            for name, count in counts.items()
            if count >= _STRATUM and len(counts) > 1
        }
        paths = Counter(case.paths[self.metric] for case in self._first)
        common = {
            f"path {name}": self._takes(name)
            for name, count in paths.items()
            if len(paths) > 2 and _PATH <= count / len(self._first) <= 1 - _PATH
        }
        alpha = self._alpha * of_baseline(self._begun)
        # Which paths are common is seen in the baseline itself: all of them count as tested.
        families = [(strata, len(counts)), (common, len(paths))]
        used = [(family, size) for family, size in families if family]
        shares = {"all": alpha * (1 - len(used) / 4)}
        numbers: dict[str, Number] = {"all": self._score}
        for family, size in used:
            numbers |= family
            shares |= dict.fromkeys(family, alpha / 4 / size)
        for group, number in numbers.items():
            values = [value for case in self._first if (value := number(case)) is not None]
            self._series[group] = number, Series(shares[group], values)

    def _score(self, case: Judged) -> float | None:
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

    def _unchanged_series(self, metric: str) -> Series:
        """Changes of the answers to old questions, from -1 to 1: their mean is 0 in any case."""
        share = self._alpha * of_baseline(self._begun[metric])
        self._begun[metric] += 1
        return Series(share, mean=0.5)

    def add(self, case: Judged) -> list[Departure]:
        """Take a case; what has left its baseline now."""
        departures = [metric.add(case) for metric in self._metrics]
        return [departure for departure in departures if departure is not None]

    def add_change(self, metric: str, change: float, row: int) -> tuple[float, int] | None:
        """Take the change of the score of an old case.

        If it shows a drift, the mean change and the number of cases.
        """
        shown = self._changes[metric].add((1 + change) / 2, row)
        if shown is None:
            return None
        self._changes[metric] = self._unchanged_series(metric)
        return 2 * shown.since.mean - 1, shown.since.count
