"""What the evaluations of a session came to, over all of its processes."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, starmap
from typing import TypeVar

from dagengine.results import Attempt, OutcomeKind, Totals
from dagengine.results.summary import Share
from dagengine.results.totals import cost_line
from dagengine.system.terminal import counted, one_line, text_if
from dagengine.testing.verdicts import Verdict

T = TypeVar("T")

_NAME = 60  # characters of a metric's name, or of a node's


@dataclass(frozen=True, slots=True)
class Outcome:
    """One metric on the case of one test; `said` is what repeated votes say of the case.

    `number` counts the cases of the test, from 0 on.
    """

    test: str
    number: int
    case: str
    tags: tuple[str, ...]
    metric: str
    score: float | None
    success: bool | None
    kind: str
    decision: str | None = None

    @property
    def label(self) -> str:
        """Name of the case, as of its row in the folder of a run."""
        return label_of(self.test, self.number)

    @property
    def has_not_passed(self) -> bool:
        """Return whether the case failed, or lacks a score that it should have.

        Not so without a threshold, or where there was nothing to judge.
        """
        if self.success is None:
            return self.kind not in ("ok", OutcomeKind.SKIPPED)
        return not self.success


def label_of(test: str, number: int) -> str:
    """Name of the row of a test, whose `number` (from 0 on) it is."""
    return test if not number else f"{test} #{number + 1}"


@dataclass(slots=True)
class Slowness:
    """How long the calls of each node took, in seconds."""

    calls: Counter[str] = field(default_factory=Counter[str])
    seconds: defaultdict[str, float] = field(default_factory=partial(defaultdict, float))

    def __call__(self, attempt: Attempt) -> None:
        """Note one call."""
        if attempt.origin == "live":
            self.calls[attempt.node] += 1
            self.seconds[attempt.node] += attempt.seconds

    def line(self) -> str:
        """The node whose calls take longest."""
        if not self.calls:
            return ""
        mean, slowest = max(
            (self.seconds[node] / calls, node) for node, calls in self.calls.items()
        )
        return f"slowest node: {one_line(slowest, _NAME)} ({mean:.2g} s a call)"


@dataclass(slots=True)
class Summary:
    """Everything that the end of a session tells; workers send theirs, which are added up.

    `outcomes` are by test, so that an attempt that runs again takes the place of the last one.
    """

    outcomes: dict[str, list[Outcome]] = field(default_factory=dict[str, list[Outcome]])
    totals: Totals = field(default_factory=lambda: Totals(cost=0.0))
    replayed: int = 0
    missing: int = 0
    dropped: int = 0
    slowness: Slowness = field(default_factory=Slowness)
    notes: dict[str, None] = field(default_factory=dict[str, None])

    def note(self, test: str, verdict: Verdict) -> None:
        """Count one verdict of a test, an outcome for each of its metrics."""
        outcomes, case = self.outcomes.setdefault(test, []), verdict.row.case
        number = outcomes[-1].number + 1 if outcomes else 0
        decision = verdict.votes.decision if verdict.votes else None
        for result in verdict.row.metrics:
            metric, success, kind = result.metric, result.success, str(result.outcome)
            if result.failure is not None:
                success = None
                kind = "not recorded" if verdict.misses(result) else kind
            elif decision is not None and success is False:
                success = decision == "passed"
            head = (test, number, case, verdict.tags, metric)
            outcomes.append(Outcome(*head, result.score, success, kind, decision))

    def arrange(self, tests: Iterable[str]) -> None:
        """Put outcomes into the order of the tests."""
        self.outcomes = in_order(self.outcomes, tests)

    @property
    def all(self) -> list[Outcome]:
        """Every outcome, in the order of the tests."""
        return list(chain.from_iterable(self.outcomes.values()))

    def add(self, other: Summary) -> None:
        """Add what another process came to."""
        for test, outcomes in other.outcomes.items():
            self.outcomes.setdefault(test, []).extend(outcomes)
        self.totals += other.totals
        self.replayed += other.replayed
        self.missing += other.missing
        self.dropped += other.dropped
        self.slowness.calls.update(other.slowness.calls)
        for node, seconds in other.slowness.seconds.items():
            self.slowness.seconds[node] += seconds
        self.notes |= other.notes

    def lines(self) -> list[str]:
        """Lines for a terminal; nothing without an evaluation."""
        by_metric = defaultdict[str, list[Outcome]](list)
        # By test and case: all metrics of a case were judged again together.
        decisions = dict[tuple[str, int], str]()
        for outcome in self.all:
            by_metric[outcome.metric].append(outcome)
            if outcome.decision is not None:
                decisions[outcome.test, outcome.number] = outcome.decision
        lines = list(starmap(_line, by_metric.items()))
        if decisions:
            counts = Counter(decisions.values())
            words = ", ".join(f"{counts[word]} {word}" for word in ("failed", "passed", "unsure"))
            lines.append(f"{len(decisions)} failed at first and were judged again: {words}")
        if by_metric:
            lines.append(self._calls_line())
        if self.dropped:
            noun, pronoun = ("tests", "them") if self.dropped > 1 else ("test", "it")
            lines.append(f"{self.dropped} {noun} had begun, and nothing is reported of {pronoun}; "
                         "calls in progress are paid")  # fmt: skip
        return [*lines, *self.notes]

    def _calls_line(self) -> str:
        """Say what was asked and recorded, and the slowest node."""
        recorded, parts = self.replayed + self.missing, list[str]()
        if self.totals.asked or not recorded:
            parts.append(cost_line(self.totals))
        if recorded:
            parts.append(f"{self.replayed} of {self.totals.asked + recorded} answers recorded")
        return "; ".join(filter(None, (*parts, self.slowness.line())))


def in_order(found: Mapping[str, T], names: Iterable[str]) -> dict[str, T]:
    """Sort a mapping in the order of the names; others come last."""
    order = dict.fromkeys([*filter(found.__contains__, names), *sorted(found)])
    return {name: found[name] for name in order}


def _line(name: str, outcomes: list[Outcome]) -> str:
    """One metric: how many passed of those with a score, and what has none."""
    successes = Counter(outcome.success for outcome in outcomes)
    passed, results = successes[True], successes[True] + successes[False]
    share = Share.of(passed, results)
    kinds = Counter(outcome.kind for outcome in outcomes if outcome.kind != "ok")
    missing = "".join(f", {count} {kind}" for kind, count in sorted(kinds.items()))
    name = one_line(name, _NAME)
    scores = [outcome.score for outcome in outcomes if outcome.score is not None]
    mean = f"mean score {math.fsum(scores) / len(scores):.3g}" if scores else "no score"
    if share is None:
        return f"{name}: {counted(len(outcomes), 'case')}, {mean}{missing}"
    rate = f"{share.value:.0%}, 95 % interval {share.low:.0%} to {share.high:.0%}"
    scored = text_if(missing, " scored")
    return f"{name}: {passed} of {results}{scored} passed ({rate}), {mean}{missing}"
