"""From what happened on one case to the result of a metric. Pure functions of values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any, NamedTuple

from dagengine.compiler.execution_plan import NONE, Plan, PlanSlot
from dagengine.graph.graph import MetricSpec
from dagengine.graph.node_values import Judgement, NodeValue
from dagengine.prompts.quotes import Quote
from dagengine.question import Odds
from dagengine.results import (
    Failure,
    JudgeCall,
    MetricResult,
    OutcomeKind,
    Step,
    Verdict,
    step_output,
)
from dagengine.results.pass_rules import Points, combine_scores, passes, strict_score

Values = Mapping[int, NodeValue]


class Took(NamedTuple):
    """What a unit took: seconds, and the calls of questions that needed several."""

    seconds: float | None = None
    calls: tuple[tuple[JudgeCall, ...], ...] = ()


_NOTHING = Took()
TookByUnit = Mapping[int, Took]


@dataclass(frozen=True, slots=True)
class Grade:
    """The score of one scope, or why there is none, and the terminals that were reached.

    `success` is what the metric's own code decided (None: it decided nothing).
    """

    score: float | None
    failure: Failure | None
    mode: str | None
    reached: tuple[PlanSlot, ...]
    success: bool | None = None


def grade(plan: Plan, scope: int, values: Values) -> Grade:
    """Combine the terminals of a metric that were reached.

    `values` holds the value of every live slot, by slot number. The scores that code computed its
    own score from do not count beside it.
    """
    part = plan.scopes[scope]
    reached = [plan.slots[number] for number in part.terminals if number in values]
    spent = {number for slot in reached for number in slot.material}
    reached = [slot for slot in reached if slot.index not in spent]

    def fail(name: str, message: str) -> Grade:
        return Grade(None, Failure(OutcomeKind.CODE_ERROR, name, message), None, tuple(reached))

    if not reached:
        return fail(part.spec.name, "the path ended without a score")
    if len(reached) > 1 and part.spec.combine == "error":
        names = ", ".join(repr(slot.name) for slot in reached)
        message = f"{len(reached)} scores were reached, but combine='error' allows one: {names}"
        return fail(part.spec.name, message)
    scores: list[float] = []
    for slot in reached:
        score = values[slot.index].score
        if score is None:
            return fail(slot.name, f"the terminal {slot.name!r} gave no score")
        scores.append(score)
    last = values[reached[-1].index]
    # A node's own `success` counts only with its own score, not with a combined one.
    own = last.success if len(reached) == 1 or part.spec.combine == "last" else None
    return Grade(combine_scores(scores, part.spec.combine), None, last.mode, tuple(reached), own)


def is_strict(spec: MetricSpec, done: Grade) -> bool:
    """Whether only a perfect score counts; what a metric's own code decided stands as it is."""
    return spec.strict and done.success is None


def final_score(spec: MetricSpec, done: Grade) -> float | None:
    """The score that counts for a metric."""
    if done.score is None or not is_strict(spec, done):
        return done.score
    return strict_score(done.score)


def path_taken(plan: Plan, metric: int, values: Values) -> tuple[tuple[str, Verdict], ...]:
    """Every decision that was made, in topological order."""
    turns: list[tuple[str, Verdict]] = []
    for number in plan.metrics[metric].slots:
        value = values.get(number)
        if value is not None and value.verdict is not None and plan.slots[number].kind == "node":
            turns.append((plan.slots[number].name, value.verdict))
    return tuple(turns)


def end_node(
    plan: Plan, scope: int, values: Values, done: Grade
) -> tuple[str, Verdict | None] | None:
    """The node that gave the score, and its verdict (None: it graded).

    Of several scores it is the last, but where the lowest or the highest counts, the last that
    has it. None if no node can be told.
    """
    reached = list(done.reached)
    if plan.scopes[scope].spec.combine in ("min", "max"):
        reached = [slot for slot in reached if values[slot.index].score == done.score]
    if not reached:
        return None
    slot = reached[-1]
    if slot.nested != NONE:
        return end_node(plan, slot.nested, values, grade(plan, slot.nested, values))
    if slot.kind == "node":
        return slot.name, values[slot.index].verdict
    for number in reversed(plan.scopes[scope].slots):
        verdict = values[number].verdict if number in values else None
        if verdict is not None and slot.index in plan.slots[number].branches.get(verdict, ()):
            return plan.slots[number].name, verdict
    return None


def composed_reason(plan: Plan, slots: Sequence[int], values: Values) -> str | None:
    """The reasons that nodes recorded on the path taken, in topological order, as one text."""
    ran = [number for number in slots if number in values and plan.slots[number].kind == "node"]
    speaking = [values[n] for n in ran if values[n].reason or values[n].verdict is not None]
    if whole := _whole_reason(speaking):
        return whole
    lines: list[str] = []
    for number in ran:
        slot, value = plan.slots[number], values[number]
        reason = f": {value.reason}" if value.reason else ""
        if value.verdict is not None:
            lines.append(f"{slot.name} → {value.verdict}{reason}")
        elif value.score is not None and (slot.grades or reason):
            lines.append(f"{slot.name} → {value.score:.4g}{reason}")
    return "\n".join(lines) or None


def _whole_reason(speaking: Sequence[NodeValue]) -> str | None:
    """The reason of the one node that wrote all of it; None where several nodes speak."""
    # What a node says of a value that it only prepared is for its step.
    deciding = [value for value in speaking if (value.score, value.verdict) != (None, None)]
    reasons = deciding or speaking
    return reasons[0].reason if len(reasons) == 1 and reasons[0].verdict is None else None


def _steps(
    plan: Plan,
    metric: int,
    values: Values,
    took: TookByUnit,
    failed: int = NONE,
    failure: Failure | None = None,
) -> tuple[Step, ...]:
    """One step per node that ran, in topological order."""
    steps: list[Step] = []
    for number in plan.metrics[metric].slots:
        slot = plan.slots[number]
        if slot.unit == NONE:
            continue
        kind, spent = plan.units[slot.unit].node.kind, took.get(slot.unit, _NOTHING)
        if number in values:
            steps.append(step_of(slot.name, kind, values[number], spent))
        elif number == failed and failure is not None:
            message, asked = failure.message, failure.asked
            steps.append(
                Step(
                    slot.name, kind, failure.kind, reason=message, asked=asked,
                    seconds=spent.seconds, calls=spent.calls,
                )
            )  # fmt: skip
    return tuple(steps)


def step_of(name: str, kind: str, value: NodeValue, took: Took = _NOTHING) -> Step:
    """The step of a node in a result."""
    seen, odds = value.value, item_odds(value.value)
    if type(seen) is not Judgement:
        output = step_output(seen)
    elif seen.reason is None:
        output = {"verdict": seen.verdict}
    else:
        output = {"verdict": seen.verdict, "reason": seen.reason}
    return Step(
        name, kind, OutcomeKind.OK, output, value.verdict, value.reason,
        value.score, value.mode, value.usage, value.votes, value.voters, value.answers,
        value.confidence, value.asked, value.odds or None,
        tuple(pairs or None for pairs in odds) if odds and any(odds) else (), took.seconds,
        value.mass, value.spans, took.calls, value.quotes, item_quotes(seen),
    )  # fmt: skip


def item_quotes(seen: Any) -> tuple[tuple[Quote, ...], ...]:
    """The quotes of each judgement in a list, where some have any."""
    if not isinstance(seen, list) or not all(map(isinstance, seen, repeat(Judgement))):
        return ()
    quotes = tuple([judgement.quotes for judgement in seen])
    return quotes if any(quotes) else ()


def item_odds(seen: Any) -> tuple[Odds | None, ...]:
    """The odds of each judgement in a list, where some have any (empty: they are not known)."""
    if not isinstance(seen, list) or not all(map(isinstance, seen, repeat(Judgement))):
        return ()
    odds_of_items = tuple([judgement.odds for judgement in seen])
    return odds_of_items if {*map(type, odds_of_items)} != {type(None)} else ()


def metric_result(plan: Plan, metric: int, values: Values, took: TookByUnit) -> MetricResult:
    """The result of a top-level metric all of whose slots are settled."""
    part = plan.metrics[metric]
    spec = part.spec
    done = grade(plan, part.scope, values)
    score = final_score(spec, done)
    if score is None:
        assert done.failure is not None
        return failed_result(plan, metric, done.failure, values, took=took)
    threshold = 1.0 if is_strict(spec, done) else spec.threshold
    last = values[done.reached[-1].index].value
    path, ended = path_taken(plan, metric, values), end_node(plan, part.scope, values, done)
    return MetricResult(
        metric=spec.name,
        score=score,
        success=passes(score, threshold) if done.success is None else done.success,
        reason=composed_reason(plan, part.slots, values) if spec.include_reason else None,
        threshold=threshold,
        raw_score=done.score,
        mode=done.mode,
        path=path,
        steps=_steps(plan, metric, values, took),
        ended=None if path and path[-1] == ended else ended,
        points=last if isinstance(last, Points) else None,
    )


def failed_result(
    plan: Plan,
    metric: int,
    failure: Failure,
    values: Values | None = None,
    failed: int = NONE,
    took: TookByUnit | None = None,
) -> MetricResult:
    """The result of a metric without a score: the slot `failed`, and `values` that still count."""
    spec = plan.metrics[metric].spec
    steps = _steps(plan, metric, values or {}, took or {}, failed, failure)
    threshold = 1.0 if spec.strict else spec.threshold
    return MetricResult(spec.name, None, None, None, threshold, failure=failure, steps=steps)
