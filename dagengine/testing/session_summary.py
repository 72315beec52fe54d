"""What the evaluations of a session came to, over all processes, and the shares that must pass."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, starmap
from typing import TypeVar

from dagengine.errors import InputError, did_you_mean
from dagengine.results import OutcomeKind, Spent, Totals
from dagengine.results.summary import Share
from dagengine.results.usage_totals import cost_line
from dagengine.system.terminal_text import counted, few, one_line, text_if
from dagengine.testing.verdicts import Verdict

T = TypeVar("T")

_NAME = 60  # characters of a metric's name, or of a node's
_FORM = re.compile(
    r"(?P<metric>.+?)(?:\[(?P<tag>[^\[\]]+)\])?\s*>=\s*(?P<least>\d+\.?\d*|\.\d+)(?P<sign>%?)"
)
_EXAMPLES = "'Faithfulness>=0.9', or 'Faithfulness[billing]>=0.9' for the cases with that tag"


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
class Summary:
    """Everything that the end of a session tells; workers send theirs, which are added up.

    `outcomes` are by test, so that an attempt that runs again takes the place of the last one.
    """

    outcomes: dict[str, list[Outcome]] = field(default_factory=dict[str, list[Outcome]])
    totals: Totals = field(default_factory=lambda: Totals(cost=0.0))
    spent: list[Spent] = field(default_factory=list[Spent])
    replayed: int = 0
    missing: int = 0
    dropped: int = 0
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
        self.spent += other.spent
        self.replayed += other.replayed
        self.missing += other.missing
        self.dropped += other.dropped
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
        calls, seconds = Counter[str](), defaultdict[str, float](float)
        for part in self.spent:
            calls[part.node] += part.calls
            seconds[part.node] += part.seconds
        means = [(seconds[node] / count, node) for node, count in calls.items() if count]
        if means:
            mean, slowest = max(means)
            parts.append(f"slowest node: {one_line(slowest, _NAME)} ({mean:.2g} s a call)")
        return "; ".join(parts)


@dataclass(frozen=True, slots=True)
class Gate:
    """The share of cases (0 to 1) that must pass by a metric, of all or of those with a tag."""

    text: str
    metric: str
    tag: str | None
    least: float

    @classmethod
    def read(cls, text: str) -> Gate:
        """From what the user typed; raises InputError."""
        if (match := _FORM.fullmatch(text.strip())) is not None:
            least = float(match["least"]) / (100 if match["sign"] else 1)
            if least <= 1:
                return cls(text, match["metric"].strip(), match["tag"], least)
        raise InputError(
            f"--evals-min {text!r} needs a metric and a share from 0 to 1, for instance {_EXAMPLES}"
        )

    def covers(self, metric: str, tags: Collection[str]) -> bool:
        """Return whether a metric counts for this gate on a case with these tags."""
        return metric == self.metric and (self.tag is None or self.tag in tags)

    def check(self, outcomes: Sequence[Outcome]) -> tuple[bool, str]:
        """Return whether the gate holds, and what to say about it; nothing judged does not hold."""
        mine = [outcome for outcome in outcomes if self.covers(outcome.metric, outcome.tags)]
        passed = sum(outcome.success is True for outcome in mine)
        not_passed = [outcome for outcome in mine if outcome.has_not_passed]
        cases = passed + len(not_passed)
        if not cases:
            return False, f"--evals-min {self.text}: nothing was judged{self._hint(outcomes)}"
        holds = passed >= self.least * cases - 1e-9
        word = "holds" if holds else "does not hold"
        share = f"{passed} of {cases} passed ({passed / cases:.0%})"
        lost = sum(outcome.success is None for outcome in not_passed)
        share += text_if(lost, f", {lost} without a score among them")
        failed = few([outcome.label for outcome in not_passed])
        listed = text_if(not holds, f"; not passed: {failed}")
        return holds, f"--evals-min {self.text}: {word}, {share}{listed}"

    def _hint(self, outcomes: Sequence[Outcome]) -> str:
        """Name what there is in place of the name: tags of the metric, or metrics."""
        metrics = sorted({outcome.metric for outcome in outcomes})
        if self.metric in metrics:
            tags = sorted({tag for outcome in outcomes for tag in outcome.tags})
            listed = ", ".join(map(repr, tags)) or "none"
            return f" with the tag {self.tag!r}; tags are {listed}"
        listed = "metrics are " + ", ".join(map(repr, metrics))
        return f" by this metric; {did_you_mean(self.metric, metrics) or listed}"


def excuse(gates: Sequence[Gate], verdict: Verdict) -> str:
    """The gates that decide in place of a test which failed by metrics of theirs alone, or ""."""
    deciding: list[Gate] = []
    for result in verdict.row.metrics:
        mine = [gate for gate in gates if gate.covers(result.metric, verdict.tags)]
        if result.failure is not None or (result.success is False and not mine):
            return ""
        if result.success is False:
            deciding += mine
    return " and ".join(f"--evals-min {gate.text}" for gate in dict.fromkeys(deciding))


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
