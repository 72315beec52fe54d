"""Replays: recorded calls judged by metrics, and what the results add up to.

The judge of a replay answers from recorded calls alone and counts what it was asked, which shows
that the metrics asked for every recorded call and for nothing else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from recordings import Folder, key_of

from dagengine import evaluate
from dagengine.judges import RecordedJudge, Recording
from dagengine.metrics.common.base import DrawnMetric
from dagengine.question import Question
from dagengine.results import CaseResult, EvaluationResult, MetricResult, OutcomeKind
from dagengine.test_case import TestCase


@dataclass(frozen=True)
class Run:
    """The results of one evaluation by metric and case, and what its judge was asked.

    `metrics` says which classes computed the scores.
    """

    done: EvaluationResult
    recorded: frozenset[str]
    asked: Counter[str]
    metrics: tuple[str, ...]

    def results(self, metric: str) -> dict[str, MetricResult]:
        """One metric's results by case."""
        return {row.case: _of(row, metric) for row in self.done.rows}

    def failures(self, *expected: OutcomeKind) -> tuple[str, ...]:
        """What ended without a score, but for the kinds that were to be expected."""
        found = [result for row in self.done.rows for result in row.metrics if result.failure]
        return tuple(
            f"{result.metric}: {result.failure.message}"
            for result in found
            if result.failure and result.failure.kind not in expected
        )


def _of(row: CaseResult, metric: str) -> MetricResult:
    return next(result for result in row.metrics if result.metric == metric)


def judged(
    cases: Sequence[TestCase],
    metrics: Sequence[DrawnMetric],
    recordings: Mapping[str, str | Recording],
    key: Callable[[Question[Any]], str] = key_of,
) -> Run:
    """Judge cases by metrics, all questions answered from recorded calls."""
    asked: Counter[str] = Counter()

    def counted_key(question: Question[Any]) -> str:
        found = key(question)
        asked[found] += 1
        return found

    done = evaluate(cases, metrics, model=RecordedJudge(recordings, key=counted_key), show=False)
    return Run(done, frozenset(recordings), asked, tuple(dict.fromkeys(map(made_of, metrics))))


def made_of(metric: DrawnMetric) -> str:
    """A metric's class and the kinds of its nodes that ask the judge."""
    nodes = [type(node).__name__ for node in metric.spec().graph.nodes() if node.asks]
    return f"{type(metric).__name__}: {', '.join(sorted(set(nodes)))}"


@dataclass(frozen=True)
class Check:
    """How many records are the same here as in the recording."""

    equal: int
    of: int


@dataclass(frozen=True)
class Replay:
    """The calls that one source made in one way, judged by metrics.

    `figures` have the names of EXPECTED.json, `checks` compare record by record, `metric` says
    what computed the scores behind both. `recorded` are the keys of the calls, `asked` how often
    a judge was asked for each; `failures` are the metrics that ended without a score.
    """

    folder: str
    metric: str = ""
    figures: Mapping[str, float | None] = field(default_factory=dict)
    checks: Mapping[str, Check] = field(default_factory=dict)
    recorded: frozenset[str] = frozenset()
    asked: Mapping[str, int] = field(default_factory=dict)
    failures: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        """Whether every recorded call was used, nothing else asked, and nothing failed."""
        used = self.asked.keys() == self.recorded
        return used and not self.failures and all(c.equal == c.of for c in self.checks.values())


def finished(
    folder: Folder,
    runs: Iterable[Run],
    figures: Mapping[str, float | None],
    checks: Mapping[str, Check],
    expected: Sequence[OutcomeKind] = (),
) -> Replay:
    """The replay that several runs make together."""
    runs = list(runs)
    asked: Counter[str] = Counter()
    for one in runs:
        asked.update(one.asked)
    recorded = frozenset().union(*(one.recorded for one in runs))
    failures = tuple(line for one in runs for line in one.failures(*expected))
    metric = "; ".join(dict.fromkeys(name for one in runs for name in one.metrics))
    return Replay(folder.name, metric, figures, checks, recorded, asked, failures)


def counted(pairs: Iterable[tuple[Any, Any]]) -> Check:
    """How many pairs are equal."""
    return held(ours == stored for ours, stored in pairs)


def held(answers: Iterable[bool]) -> Check:
    """How many answers are yes."""
    found = list(answers)
    return Check(sum(found), len(found))


def near(ours: float | None, stored: float, tolerance: float) -> bool:
    """Whether there is a figure and it is close enough to the stored one."""
    return ours is not None and abs(ours - stored) <= tolerance


def output_of(result: MetricResult, node: str) -> Any:
    """What readers of one node saw, if it ran."""
    return next((step.output for step in result.steps if step.node == node), None)


def on_scale(result: MetricResult, low: float, high: float) -> float | None:
    """A score as the number that the judge was asked for."""
    return None if result.score is None else low + result.score * (high - low)
