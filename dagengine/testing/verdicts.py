"""A verdict on one case, and the words of a test that failed by it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from types import TracebackType
from typing import Any, Literal

from dagengine.compiler.execution_plan import Plan, Unit
from dagengine.errors import RecordingMissError
from dagengine.execution.local_executor import Settings
from dagengine.graph.graph import Metric
from dagengine.question import Judge, durable_identity, judge_name
from dagengine.report.pictures.drawing import draw
from dagengine.results import CaseResult, MetricResult, Step
from dagengine.system.terminal_text import one_line, plain, text_if
from dagengine.test_case import read_field

Decision = Literal["failed", "passed", "unsure"]
"""What votes say of a case that failed at first."""
_TEXT = 300  # characters of a question, an answer or a reason
_QUOTES = 5  # of a list
_FIELD = 60  # of a field that a question is about
_YES_NO: Mapping[str | bool, str] = {True: "yes", False: "no"}


@dataclass(frozen=True, slots=True)
class Votes:
    """Further evaluations of a case that failed, the first one included.

    `p` is the probability that the votes are right, by the assumption on noise of the rule that
    stopped them. It is None if the rule makes no such assumption.
    """

    failed: int
    passed: int
    decision: Decision
    p: float | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """The row of one case, the plan and the judges that made it, and votes if there were any.

    `missed` are the messages of failures that tell nothing about the case: a recording lacks an
    answer. `recorded` says whether answers came out of a recording.
    """

    row: CaseResult
    plan: Plan
    judges: Sequence[Judge] = ()
    votes: Votes | None = None
    recorded: bool = False
    missed: Collection[str] = frozenset()

    @property
    def failed(self) -> list[MetricResult]:
        """The results that are below their threshold, or without a score."""
        return [result for result in self.row.metrics if result.state in ("failed", "no_score")]

    @property
    def tags(self) -> tuple[str, ...]:
        """The tags of the case that was judged."""
        return tuple(getattr(self.row.test_case, "tags", None) or ())

    @property
    def is_missing(self) -> bool:
        """Return whether a recording lacks an answer that the case needs."""
        return any(map(self.misses, self.failed))

    def misses(self, result: MetricResult) -> bool:
        """Return whether a recording lacks an answer that a metric needs."""
        return result.failure is not None and result.failure.message in self.missed

    @property
    def is_unjudged(self) -> bool:
        """Return whether nothing is wrong but that some metric has no score."""
        failed = self.failed
        return bool(failed) and all(result.failure is not None for result in failed)

    @property
    def error(self) -> EvaluationFailed | AnswerMissingError | None:
        """The error that it raises in its test; None when every metric passed, or votes say so."""
        passed = not self.failed
        if self.votes is not None:
            passed = self.votes.decision == "passed"
        if passed:
            return None
        return AnswerMissingError(self) if self.is_missing else EvaluationFailed(self)


@dataclass(frozen=True, slots=True, eq=False)
class Assertion:
    """A case that a test asserts to pass metrics; not `at_once`, one node runs at a time."""

    case: Any
    metrics: Sequence[Metric]
    settings: Settings
    at_once: bool = True

    @property
    def names(self) -> list[str]:
        """The names of the metrics."""
        return [metric.spec().name for metric in self.metrics]


@dataclass(slots=True, eq=False)
class Pending:
    """A case handed over by a test: its future verdict, and where the test was then."""

    future: Future[Verdict]
    case: Any
    traceback: TracebackType | None = None


class EvaluationFailed(AssertionError):
    """Raised by `assert_test`; `verdict` holds the row, the metrics and the votes.

    `excuse` names the gates that decide in place of the test, if all that failed is theirs.
    """

    def __init__(self, verdict: Verdict) -> None:
        self.verdict, self.excuse = verdict, ""
        super().__init__(message(verdict))


class AnswerMissingError(RecordingMissError):
    """Raised by `assert_test` if a recording lacks an answer, so that nothing was judged.

    It is not an AssertionError, so that a test that expects a failure
    (`pytest.raises(AssertionError)`) does not pass. `verdict` is as in `EvaluationFailed`.
    """

    def __init__(self, verdict: Verdict) -> None:
        self.verdict = verdict
        super().__init__(message(verdict))


def message(verdict: Verdict) -> str:
    """Why a case failed.

    The first line begins with what matters most: lists of failures are cut after a few words.
    """
    results = verdict.row.metrics
    first, *also = verdict.failed or results[:1]
    passed = [metric for metric in results if metric not in (first, *also)]
    lines = [_headline(verdict, first)]
    lines += (f"  {name:<9} {text}" for name, text in _details(verdict, first))
    for words, rest in (("also failed", also), ("passed", passed)):
        if rest:
            lines.append(f"  {words}: {', '.join(map(partial(_short, verdict), rest))}")
    return plain("\n".join(lines))


def _headline(verdict: Verdict, result: MetricResult) -> str:
    """Score, threshold, metric and node in one line; what votes say in front of it."""
    prefix, votes = "", verdict.votes
    if votes is not None:
        votes_failed = f"{votes.failed} of {votes.failed + votes.passed} votes failed"
        if votes.p is not None:
            votes_failed = f"p = {votes.p:.2f}, {votes_failed}"
        prefix = f"{votes.decision} ({votes_failed}): "
    failure = result.failure
    if failure is not None:
        # What a recording lacks tells nothing about the judge.
        kind = "" if verdict.misses(result) else f"{failure.kind}: "
        why = one_line(failure.message, 3 * _TEXT)
        return f"{prefix}{kind}{result.metric}: {failure.node}: {why}"
    node = _deciding_step(result)
    return f"{prefix}{_score(result)} {result.metric}{f': {node.node}' if node else ''}"


def _deciding_step(result: MetricResult) -> Step | None:
    """The step that gave the score, a decision or a rating."""
    return result.by_node().get(result.last[0])


def tree_sections(verdict: Verdict) -> list[tuple[str, str]]:
    """The tree of each metric that failed, with the path of the case, as Mermaid; by a title."""
    results = zip(verdict.plan.metrics, verdict.row.metrics, strict=True)
    return [
        (f"Tree of {result.metric} (Mermaid)", draw(metric.spec, result=result).mermaid)
        for metric, result in results
        if result in verdict.failed
    ]


def _score(result: MetricResult) -> str:
    score = f"{result.score:.4g}"
    threshold = result.threshold
    if isinstance(threshold, int | float) and result.score is not None:
        if result.score < threshold:
            return f"{score} < {threshold:.4g}"
        if result.raw_score is not None and result.raw_score != result.score:
            return f"{score} < 1 (strict)"
    return f"{score} is not enough for"


def _short(verdict: Verdict, result: MetricResult) -> str:
    if result.failure is not None:
        kind = "not recorded" if verdict.misses(result) else result.failure.kind
        return f"{result.metric} ({kind})"
    if result.success is False:
        return f"{result.metric} {_score(result)}"
    return f"{result.metric} {result.score:.4g}"


def _details(verdict: Verdict, result: MetricResult) -> Iterable[tuple[str, str]]:
    """Details beside the first line, by name."""
    step, failure = _deciding_step(result), result.failure
    if getattr(verdict.row.test_case, "name", None):
        yield "case", one_line(verdict.row.case, _TEXT)
    if result.path and failure is None:
        turns = [f"{node} = {_plain(reply)}" for node, reply in result.path]
        yield "path", one_line(" > ".join([*turns, f"{result.score:.4g}"]), _TEXT)
    node: str | None = getattr(failure or step, "node", None)
    unit = _unit_of(verdict.plan, result.metric, node)
    if unit is not None and unit.node.text:
        yield "question", _question(verdict, unit)
    if failure is None:
        yield from _judgement(verdict, result, step, unit)
    elif failure.raw:
        yield "answer", one_line(failure.raw, _TEXT)


def _question(verdict: Verdict, unit: Unit) -> str:
    """The question, with the beginning of what the node read of the case."""
    case = verdict.row.test_case
    texts = list[str]()
    for path in unit.reads:
        if case is not None and (value := read_field(case, path)):
            texts.append(f"{path}: {one_line(repr(value), _FIELD)}")
    fields = text_if(texts, f" ({', '.join(texts)})")
    return f"{one_line(unit.node.text, _TEXT)}{fields}"


def _judgement(
    verdict: Verdict, result: MetricResult, step: Step | None, unit: Unit | None
) -> Iterable[tuple[str, str]]:
    """The answer to the node that decided, with the reason and the quotes."""
    if answer := _answer(step):
        origin = " · recorded" * verdict.recorded
        if unit is not None and unit.node.asks and verdict.judges:
            judge = verdict.judges[unit.judges[0]]
            name = judge_name(durable_identity(judge) or judge.identity)
            origin += f" · judge {one_line(name, 2 * _FIELD)}"
        yield "answer", f"{answer}{origin}"
    if reason := getattr(step, "reason", None) or result.reason:
        yield "reason", one_line(reason, 3 * _TEXT)
    # A list that code scored has no deciding verdict: then the quotes of its items are shown.
    quotes = getattr(step, "quotes", ())
    if not quotes:
        items = chain.from_iterable(part.item_quotes for part in result.steps)
        quotes = tuple(islice(chain.from_iterable(items), _QUOTES))
    for quote in quotes:
        yield "quote", one_line(str(quote), _TEXT)


def _unit_of(plan: Plan, metric: str, node: str | None) -> Unit | None:
    """The unit of a node of a metric; None if the node's name is not known there."""
    own = next(own for own in plan.metrics if own.spec.name == metric)
    for slot in plan.slots[own.slots.start : own.slots.stop]:
        if slot.unit >= 0 and plan.units[slot.unit].name == node:
            return plan.units[slot.unit]
    return None


def _answer(step: Step | None) -> str:
    if step is None or (step.verdict is None and step.score is None):
        return ""
    if step.verdict is None:
        return f"{step.score:.4g}"
    words = _plain(step.verdict)
    return words if step.confidence is None else f"{words} (p = {step.confidence:.2f})"


def _plain(verdict: str | bool) -> str:
    return _YES_NO.get(verdict, str(verdict))
