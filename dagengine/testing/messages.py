"""What a test says that failed: score, threshold, metric and node first, then why."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain, islice

from dagengine.compiler.plan import Plan, PlanMetric, Unit
from dagengine.errors import RecordingMissError
from dagengine.report.pictures.drawing import draw
from dagengine.results import MetricResult, Step
from dagengine.terminal import one_line, plain
from dagengine.test_case import read_field
from dagengine.testing.values import Verdict, Votes

_TEXT = 300  # characters of a question, an answer or a reason
_QUOTES = 5  # of a list
_FIELD = 60  # of a field that a question is about
_NAMES = ("case", "path", "question", "answer", "reason")


class EvaluationFailed(AssertionError):
    """Raised by `assert_test`; `verdict` holds the row, the metrics and the votes.

    `excuse` names the gates that decide in place of the test, if all that failed is theirs.
    """

    def __init__(self, verdict: Verdict, excuse: str = "") -> None:
        self.verdict, self.excuse = verdict, excuse
        super().__init__(message(verdict))


class AnswerMissingError(RecordingMissError):
    """Raised by `assert_test` if a recording lacks an answer, so that nothing was judged.

    It is not an AssertionError, so that a test that expects a failure
    (`pytest.raises(AssertionError)`) does not pass. `verdict` is as in `EvaluationFailed`.
    """

    def __init__(self, verdict: Verdict) -> None:
        self.verdict = verdict
        super().__init__(message(verdict))


def verdict_error(verdict: Verdict) -> EvaluationFailed | AnswerMissingError | None:
    """The error that a verdict raises in its test; None when it passed."""
    if verdict.passed:
        return None
    return AnswerMissingError(verdict) if verdict.is_missing else EvaluationFailed(verdict)


def message(verdict: Verdict) -> str:
    """Why a case failed.

    The first line begins with what matters most: lists of failures are cut after a few words.
    """
    results = verdict.row.metrics
    failed = [metric for metric in results if _has_failed(metric)] or list(results[:1])
    first, *more = failed
    passed = [metric for metric in results if metric not in failed]
    lines = [headline(first, verdict.votes, verdict.missed)]
    lines += (f"  {name:<9} {text}" for name, text in _details(verdict, first))
    if more:
        lines.append(
            f"  also failed: {', '.join(_short(result, verdict.missed) for result in more)}"
        )
    if passed:
        lines.append(f"  passed: {', '.join(_short(result) for result in passed)}")
    return plain("\n".join(lines))


def headline(
    result: MetricResult, votes: Votes | None = None, missed: frozenset[str] = frozenset()
) -> str:
    """Score, threshold, metric and node in one line; what votes say in front of it."""
    prefix = ""
    if votes is not None:
        p = "" if votes.p is None else f"p = {votes.p:.2f}, "
        cast = votes.failed + votes.passed
        prefix = f"{votes.decision} ({p}{votes.failed} of {cast} votes failed): "
    failure = result.failure
    if failure is not None:
        # What a recording lacks tells nothing about the judge.
        kind = "" if failure.message in missed else f"{failure.kind}: "
        why = one_line(failure.message, 3 * _TEXT)
        return f"{prefix}{kind}{result.metric}: {failure.node}: {why}"
    node = deciding(result)
    return f"{prefix}{_score(result)} {result.metric}{f': {node.node}' if node else ''}"


def deciding(result: MetricResult) -> Step | None:
    """The step that made the score: the last decision taken, or the last that gave a score."""
    steps = {step.node: step for step in result.steps}
    if result.path:
        return steps.get(result.path[-1][0])
    scored = [step for step in result.steps if step.score is not None]
    return scored[-1] if scored else result.steps[-1] if result.steps else None


def tree_sections(verdict: Verdict) -> list[tuple[str, str]]:
    """The tree of each metric that failed, with the path of the case, as Mermaid; by a title."""
    results = zip(verdict.plan.metrics, verdict.row.metrics, strict=True)
    return [
        (f"Tree of {result.metric} (Mermaid)", draw(metric.spec, result=result).mermaid)
        for metric, result in results
        if _has_failed(result)
    ]


def _has_failed(result: MetricResult) -> bool:
    return result.state in ("failed", "no_score")


def _score(result: MetricResult) -> str:
    score = f"{result.score:.4g}"
    threshold = result.threshold
    if isinstance(threshold, int | float) and result.score is not None:
        if result.score < threshold:
            return f"{score} < {threshold:.4g}"
        if result.raw_score is not None and result.raw_score != result.score:
            return f"{score} < 1 (strict)"
    return f"{score} is not enough for"


def _short(result: MetricResult, missed: frozenset[str] = frozenset()) -> str:
    if result.failure is not None:
        kind = "not recorded" if result.failure.message in missed else result.failure.kind
        return f"{result.metric} ({kind})"
    if result.success is False:
        return f"{result.metric} {_score(result)}"
    return f"{result.metric} {result.score:.4g}"


def _details(verdict: Verdict, result: MetricResult) -> Iterable[tuple[str, str]]:
    """Details beside the first line, by name."""
    step, failure = deciding(result), result.failure
    if getattr(verdict.row.test_case, "name", None):
        yield "case", one_line(verdict.row.case, _TEXT)
    if result.path and failure is None:
        turns = [f"{node} = {_plain(reply)}" for node, reply in result.path]
        yield "path", one_line(" > ".join([*turns, f"{result.score:.4g}"]), _TEXT)
    node: str | None = getattr(failure or step, "node", None)
    unit = unit_of(verdict.plan, result.metric, node)
    if unit is not None and unit.node.text:
        yield "question", _question(verdict, unit)
    if failure is None:
        yield from _judgement(verdict, result, step, unit)
    elif failure.raw:
        yield "answer", one_line(failure.raw, _TEXT)


def _question(verdict: Verdict, unit: Unit) -> str:
    """The question, with the beginning of what the node read of the case."""
    case = verdict.row.test_case
    values = [] if case is None else [(path, read_field(case, path)) for path in unit.reads]
    texts = [f"{path}: {one_line(repr(value), _FIELD)}" for path, value in values if value]
    fields = f" ({', '.join(texts)})" if texts else ""
    return f"{one_line(unit.node.text, _TEXT)}{fields}"


def _judgement(
    verdict: Verdict, result: MetricResult, step: Step | None, unit: Unit | None
) -> Iterable[tuple[str, str]]:
    """What the node that decided was answered, with the reason and the quotes."""
    answer = _answer(step) if step else ""
    if answer:
        origin = " · recorded" if verdict.recorded else ""
        if unit is not None and unit.node.asks and verdict.judges:
            origin += f" · judge {one_line(verdict.judges[unit.judges[0]], 2 * _FIELD)}"
        yield "answer", f"{answer}{origin}"
    reason = (step.reason if step else None) or result.reason
    if reason:
        yield "reason", one_line(reason, 3 * _TEXT)
    # A list that code scored has no deciding verdict: then the quotes of its items are shown.
    quotes = step.quotes if step else ()
    if not quotes:
        items = chain.from_iterable(part.item_quotes for part in result.steps)
        quotes = tuple(islice(chain.from_iterable(items), _QUOTES))
    for quote in quotes:
        yield "quote", one_line(str(quote), _TEXT)


def unit_of(plan: Plan, metric: str, node: str | None) -> Unit | None:
    """The unit of a node of a metric; None if the node's name is not known there."""
    planned: PlanMetric | None = next((m for m in plan.metrics if m.spec.name == metric), None)
    for number in planned.slots if planned else ():
        slot = plan.slots[number]
        if slot.unit >= 0 and plan.units[slot.unit].name == node:
            return plan.units[slot.unit]
    return None


def _answer(step: Step) -> str:
    if step.verdict is not None:
        p = "" if step.confidence is None else f" (p = {step.confidence:.2f})"
        return f"{_plain(step.verdict)}{p}"
    return "" if step.score is None else f"{step.score:.4g}"


def _plain(verdict: str | bool) -> str:
    return {True: "yes", False: "no"}[verdict] if isinstance(verdict, bool) else verdict
