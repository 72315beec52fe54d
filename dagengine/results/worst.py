"""The worst cases of a run, and where cases failed; bounded, whatever the size of the run."""

from __future__ import annotations

import heapq
from collections import Counter
from dataclasses import dataclass

from dagengine.results.passing import End
from dagengine.results.rows import CaseResult, MetricResult

WORST = 10
# Different ends that are counted; a run that has more is not read end by end.
_ENDS = 1000
_RANK = {"failed": 0, "no_score": 1, "scored": 2, "passed": 2}


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


@dataclass(frozen=True, slots=True)
class Place:
    """Where cases failed or got no score: how many, and the first of them with its reason."""

    end: End
    cases: int
    first: str
    reason: str


class EndCounts:
    """Counts of ends, failures first."""

    def __init__(self) -> None:
        self._counts: Counter[End] = Counter()
        self._first: dict[End, tuple[str, str]] = {}

    def add(self, row: CaseResult) -> None:
        """Count every result of a row that failed or has no score."""
        for result in row.metrics:
            if result.state not in ("failed", "no_score"):
                continue
            end = result.end
            if end not in self._counts and len(self._counts) < _ENDS:
                self._first[end] = (row.case, result.why)
            if end in self._first:
                self._counts[end] += 1

    def ranking(self) -> list[Place]:
        """All places, the commonest first; of as many cases failures before missing scores."""
        counted = sorted(self._counts.items(), key=lambda pair: (-pair[1], _RANK[pair[0].state]))
        return [Place(end, count, *self._first[end]) for end, count in counted]
