"""Many results in a few numbers: means, spreads, distributions, pass rates; the worst cases.

Rows are added one by one and not kept. So a summary of a million rows takes no more memory than one
of a hundred.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import accumulate
from statistics import NormalDist
from typing import Any, TypeVar

from dagengine.results.metric_results import CaseResult, MetricResult, unknown_metric
from dagengine.results.outcomes import ESCALATED, KEPT, OutcomeKind
from dagengine.results.pass_rules import End, Points
from dagengine.system.terminal_text import counted

V = TypeVar("V", int, float)
BINS = 11
"""Bins of a distribution: centred at 0, 0.1, … 1."""
_GRID = 10_000  # scores are counted to so many parts of 1; what is exact to it stays exact
_LEVEL = 0.95
_FEW = 6  # cases, from which on a mean has an interval
# Different tags that are summed up each for itself.
_TAGS = 1000
WORST = 10
# Different ends that are counted; a run that has more is not read end by end.
_ENDS = 1000
_RANK = {"failed": 0, "no_score": 1, "scored": 2, "passed": 2}


@dataclass(frozen=True, slots=True)
class Share:
    """A share with its 95 % confidence interval.

    Wilson's interval (1927, https://doi.org/10.1080/01621459.1927.10502953); cases count as
    independent.
    """

    value: float
    low: float
    high: float

    @classmethod
    def of(cls, part: int, whole: int) -> Share | None:
        """The share of `part` in `whole`; None of nothing."""
        if not whole:
            return None
        # The usual interval, a multiple of the standard error to both sides, has no width when ten
        # of ten passed: it would say 100 % to 100 %.
        z = NormalDist().inv_cdf(0.5 + _LEVEL / 2)
        value, square = part / whole, z * z / whole
        centre = (value + square / 2) / (1 + square)
        half = z / (1 + square) * math.sqrt(value * (1 - value) / whole + square / 4 / whole)
        return cls(value, max(0.0, centre - half), min(1.0, centre + half))


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean over cases with its 95 % confidence interval; None of less than six cases.

    Student's t. Cases count as independent; the criteria of one case do not.
    """

    mean: float
    low: float | None
    high: float | None
    cases: int

    def __str__(self) -> str:
        limits = "" if self.low is None else f" ({self.low:.3f} to {self.high:.3f})"
        return f"{self.mean:.3f}{limits}, {counted(self.cases, 'case')}"


@dataclass(frozen=True, slots=True)
class PointsSummary:
    """The points of a rubric over many cases, as shares of those that were possible.

    `share` is unclipped, and `clipped` is its mean, at least 0. `tags` are those of the criteria.
    """

    share: Mean
    clipped: float
    tags: dict[str, Mean]

    def __str__(self) -> str:
        tags = "".join(f"\n  {tag}: {mean}" for tag, mean in self.tags.items())
        return f"points {self.share}; clipped {self.clipped:.3f}{tags}"


@dataclass(frozen=True, slots=True)
class MetricSummary:
    """One metric over many cases.

    Figures of scores cover only cases with a score; `no_score` counts the others. `spread` is the
    sample standard deviation (None for less than two scores). `median` is exact to four decimals.
    `distribution` counts scores in eleven bins centred at 0, 0.1, … 1. `pass_rate` is the share of
    cases that passed among those that have a score and a threshold, `escalated` that of judgements
    that went to a second judge among those that could (None: none could). `points` are those of a
    rubric. `expected` counts the
    cases that should pass, of which gates take the share: all that had something to judge.
    """

    metric: str
    cases: int
    passed: int
    failed: int
    no_score: int
    mean: float | None
    median: float | None
    spread: float | None
    lowest: float | None
    highest: float | None
    distribution: tuple[int, ...]
    pass_rate: Share | None
    escalated: Share | None = None
    points: PointsSummary | None = None
    expected: int = 0

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.metric!r}: {_figures(self)}>"


@dataclass(frozen=True, slots=True)
class Summary:
    """The figures of a run: cases by outcome, metrics, and metrics by tag.

    A case failed if a metric is below its threshold, whatever the others say. `no_score` counts the
    cases in which a metric gave no score, those that failed in another among them. `pass_rate` is
    the share that passed among the cases that passed or failed. `expected` counts all cases but
    those that neither passed nor failed because a metric had nothing to judge.
    """

    cases: int
    passed: int
    failed: int
    no_score: int
    pass_rate: Share | None
    metrics: tuple[MetricSummary, ...]
    tags: dict[str, tuple[MetricSummary, ...]]
    expected: int

    def __repr__(self) -> str:
        lines = [f"{metric.metric}: {_figures(metric)}" for metric in self.metrics]
        if self.tags:
            lines.append(f"{counted(len(self.tags), 'tag')} in .tags")
        head = f"<{type(self).__name__} of {counted(self.cases, 'case')}"
        return "\n  ".join([head, *lines]) + ">"

    def __getitem__(self, metric: str) -> MetricSummary:
        """The figures of one metric; raises InputError when there is none of this name."""
        summaries = {summary.metric: summary for summary in self.metrics}
        if metric not in summaries:
            raise unknown_metric(metric, summaries)
        return summaries[metric]

    def __iter__(self) -> Iterator[MetricSummary]:
        return iter(self.metrics)

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready form, as in `summary.json`."""
        return asdict(self)


def escalated_line(metric: MetricSummary) -> str | None:
    """Sentence on the share of judgements of the second judge; None if none could."""
    if (share := metric.escalated) is None:
        return None
    value, low, high = (f"{100 * part:.0f}" for part in (share.value, share.low, share.high))
    return f"{metric.metric}: {value} % of the judgements escalated ({low} to {high})"


def _figures(metric: MetricSummary) -> str:
    """Counts of passed and failed cases, and the mean, in one line."""
    outcomes = {"passed": metric.passed, "failed": metric.failed, "no score": metric.no_score}
    parts = [counted(metric.cases, "case")]
    parts += [f"{count:,} {outcome}" for outcome, count in outcomes.items() if count]
    if (rate := metric.pass_rate) is not None:
        low, high = 100 * rate.low, 100 * rate.high
        parts.append(f"pass rate {100 * rate.value:.0f} % ({low:.0f} to {high:.0f})")
    return ", ".join(parts if metric.mean is None else [*parts, f"mean {metric.mean:.2f}"])


class _Scores:
    """The running sums of one metric."""

    def __init__(self) -> None:
        self.states: Counter[str] = Counter()
        self.turns: Counter[str] = Counter()
        self._grid: Counter[int] = Counter()
        self._count = self.skipped = 0
        self._mean = self._squares = 0.0
        self._lowest, self._highest = math.inf, -math.inf
        # The points of a rubric, as shares: all of them (None), and by tag
        self._points: dict[str | None, _Scores] = {}

    def add_points(self, points: Points) -> None:
        """Count the points of one case."""
        shares: dict[str | None, float] = {None: points.share}
        shares |= {tag: won / best for tag, (won, best) in points.tags.items()}
        for tag, share in shares.items():
            if tag in self._points or len(self._points) <= _TAGS:
                self._points.setdefault(tag, _Scores()).count(share)

    def mean(self) -> Mean:
        """The mean with its interval."""
        if self._count < _FEW:
            return Mean(self._mean, None, None, self._count)
        z, free = NormalDist().inv_cdf(0.5 + _LEVEL / 2), self._count - 1
        # Student's t by Cornish and Fisher's expansion: to 1 % from six cases on
        t = z + (z**3 + z) / (4 * free) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * free**2)
        half = t * math.sqrt(self._squares / free / self._count)
        return Mean(self._mean, self._mean - half, self._mean + half, self._count)

    def add(self, result: MetricResult) -> None:
        self.states[result.state] += 1
        self.skipped += result.outcome == OutcomeKind.SKIPPED
        for node in result.steps:
            if node.mode == KEPT or node.mode == ESCALATED:
                self.turns[node.mode] += 1
        if result.score is not None:
            self.count(result.score)
        if result.points is not None:
            self.add_points(result.points)

    def count(self, score: float) -> None:
        """Take one score into the figures of scores."""
        self._count += 1
        self._grid[round(score * _GRID)] += 1
        self._lowest, self._highest = min(self._lowest, score), max(self._highest, score)
        step = score - self._mean  # Welford's way: no difference of large sums
        self._mean += step / self._count
        self._squares += step * (score - self._mean)

    def summary(self, metric: str) -> MetricSummary:
        passed, failed = self.states["passed"], self.states["failed"]
        mean = median = spread = lowest = highest = None
        if self._count:
            mean, lowest, highest = self._mean, self._lowest, self._highest
            # Counted on a grid and not kept: a million scores are at most 10,001 counts, and judges
            # give few different ones, so that the median is exact where it is looked at.
            low = value_at(self._grid, (self._count - 1) // 2) / _GRID
            median = (low + value_at(self._grid, self._count // 2) / _GRID) / 2
        if self._count > 1:
            spread = math.sqrt(self._squares / (self._count - 1))
        bins = [0] * BINS
        for part, count in self._grid.items():
            bins[min(max((2 * part * (BINS - 1) + _GRID) // (2 * _GRID), 0), BINS - 1)] += count
        return MetricSummary(
            metric=metric,
            cases=self.states.total(),
            passed=passed,
            failed=failed,
            no_score=self.states["no_score"],
            mean=mean,
            median=median,
            spread=spread,
            lowest=lowest,
            highest=highest,
            distribution=tuple(bins),
            pass_rate=Share.of(passed, passed + failed),
            escalated=Share.of(self.turns[ESCALATED], self.turns.total()),
            points=self.points_summary(),
            expected=self.states.total() - self.states["scored"] - self.skipped,
        )

    def points_summary(self) -> PointsSummary | None:
        """The figures of the points; None without any."""
        if not self._points:
            return None
        whole = self._points[None].mean()
        tags = {str(tag): scores.mean() for tag, scores in self._points.items() if tag is not None}
        return PointsSummary(whole, min(max(whole.mean, 0.0), 1.0), dict(sorted(tags.items())))


def value_at(counts: Mapping[V, int], index: int) -> V:
    """The value at an index of the sorted values that were counted."""
    values = sorted(counts)
    return values[bisect_right(list(accumulate(map(counts.__getitem__, values))), index)]


class Summing:
    """Adds up rows as they come; `result` may be asked at any time."""

    def __init__(self, rows: Iterable[CaseResult] = ()) -> None:
        self._states: Counter[str] = Counter()
        self._no_score = self._skipped = 0
        self._metrics = defaultdict[str, _Scores](_Scores)
        self._tags: dict[str, defaultdict[str, _Scores]] = {}
        for row in rows:
            self.add(row)

    def add(self, row: CaseResult) -> None:
        """Count one row; its tags are those of its test case."""
        self._states[row.state] += 1
        lost = {result.outcome for result in row.metrics if result.score is None}
        self._skipped += (row.state, lost) == ("no_score", {OutcomeKind.SKIPPED})
        self._no_score += any(result.score is None for result in row.metrics)
        tags = getattr(row.test_case, "tags", None) or ()
        parts = [self._metrics]
        # Tags are free text. Somebody who puts an id into them shall not have sums for every case.
        for tag in dict.fromkeys(tags):
            if tag in self._tags or len(self._tags) < _TAGS:
                parts.append(self._tags.setdefault(tag, defaultdict(_Scores)))
        for result in row.metrics:
            for part in parts:
                part[result.metric].add(result)

    def result(self) -> Summary:
        """The figures of the rows so far."""
        passed, failed = self._states["passed"], self._states["failed"]
        return Summary(
            cases=self._states.total(),
            passed=passed,
            failed=failed,
            no_score=self._no_score,
            pass_rate=Share.of(passed, passed + failed),
            metrics=_summaries(self._metrics),
            tags={tag: _summaries(part) for tag, part in sorted(self._tags.items())},
            expected=self._states.total() - self._states["scored"] - self._skipped,
        )


def _summaries(part: dict[str, _Scores]) -> tuple[MetricSummary, ...]:
    return tuple(scores.summary(metric) for metric, scores in part.items())


def worst_result(row: CaseResult) -> MetricResult | None:
    """The result that says most about a row: failed with the lowest score, else without one."""
    return min(row.metrics, key=_badness, default=None)


def badness(row: CaseResult) -> tuple[int, float, int]:
    """The order of rows from the worst on: failed by score, without a score, then the lowest."""
    worst = worst_result(row)
    rank, score = (3, 1.0) if worst is None else _badness(worst)
    return rank, score, row.index


def _badness(result: MetricResult) -> tuple[int, float]:
    return _RANK[result.state], 0.0 if result.score is None else result.score


class Worst:
    """The worst rows of those that were added, from the worst on."""

    def __init__(self, size: int = WORST) -> None:
        self._size = size
        self._heap: list[tuple[tuple[float, ...], CaseResult]] = []

    def add(self, row: CaseResult) -> bool:
        """Take one row; returns whether it is one of the worst so far."""
        rank, score, index = badness(row)
        # Negative, so that the heap drops what is least bad. With the index no two are equal: rows
        # cannot be compared, and of rows that are equally bad the earlier ones stay.
        entry = ((-rank, -score, -index), row)
        if len(self._heap) < self._size:
            heapq.heappush(self._heap, entry)
        elif self._heap and entry[0] > self._heap[0][0]:
            heapq.heapreplace(self._heap, entry)
        else:
            return False
        return True

    @property
    def rows(self) -> list[CaseResult]:
        """The worst rows so far."""
        return [row for _, row in sorted(self._heap, key=lambda entry: entry[0], reverse=True)]


@dataclass(slots=True)
class Place:
    """Where cases failed or got no score: how many, the first's reason, and if all share it."""

    end: End
    cases: int
    first: str
    reason: str
    shared: bool = True


class EndCounts:
    """Counts of ends, failures first."""

    def __init__(self) -> None:
        self._places: dict[End, Place] = {}

    def add(self, row: CaseResult) -> None:
        """Count every result of a row that failed or has no score."""
        for result in row.metrics:
            if result.state not in ("failed", "no_score"):
                continue
            end, why = result.end, result.why
            if group := self._places.get(end):
                group.cases += 1
                group.shared &= group.reason == why
            elif len(self._places) < _ENDS:
                self._places[end] = Place(end, 1, row.case, why)

    def ranking(self) -> list[Place]:
        """All places, the commonest first; of as many cases failures before missing scores."""
        return sorted(self._places.values(), key=lambda at: (-at.cases, _RANK[at.end.state]))
