"""How long a run will still take: from the questions that the plan leaves. No clock, no I/O."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from dagengine.compiler.plan import NONE, Plan
from dagengine.results import CaseResult, Totals

# A slot may make live what stands before it in the plan; a few rounds are near enough.
_ROUNDS = 3
# Seconds over which the speed of a run is taken, and at least so many answers: of a slow judge four
# may come at the same time every two minutes.
_WINDOW, _ANSWERS = 30.0, 20


def likely_questions(plan: Plan) -> float:
    """About how many questions a case asks, every verdict being equally likely.

    A node counts as one question, however long its list may be: rows soon tell.
    """
    chances = before = [0.0] * len(plan.slots)
    for _ in range(_ROUNDS):
        chances, before = before, [0.0] * len(plan.slots)
        for slot in plan.slots:
            own = chances[slot.index] = min(1.0, chances[slot.index] + slot.root)
            share = own / max(1, len(slot.branches))
            targets = [(target, share) for ways in slot.branches.values() for target in ways]
            for target, chance in (*targets, *((target, own) for target in slot.activates)):
                (chances if target > slot.index else before)[target] += chance
    units = dict[int, float]()
    for slot in plan.slots:
        if slot.unit != NONE:
            units[slot.unit] = max(units.get(slot.unit, 0.0), chances[slot.index])
    asking = [unit for unit in plan.units if unit.node.asks and not unit.constant]
    return sum(units.get(unit.index, 0.0) for unit in asking)


def questions_of(row: CaseResult) -> int:
    """Number of questions answered for a row; metrics that share a node share its answers."""
    steps = {(step.node, step.answers) for metric in row.metrics for step in metric.steps}
    return sum(len(answers) for _, answers in steps)


class _Seen(NamedTuple):
    """What was answered after some seconds: questions, and tokens of answers."""

    at: float
    done: int
    tokens: int


class Remaining:
    """The seconds that a run will still take.

    `add` takes finished rows, `at` the counts at some moment. Before there are rows the plan
    says how many questions a case asks, afterwards it counts as one row more.
    """

    def __init__(self, total: int | None, per_case: float) -> None:
        """`total` cases (None: not known); each is likely to ask `per_case` questions."""
        self._total = total
        self._asked = per_case
        self._rows = 1
        self._seen: deque[_Seen] = deque()

    def add(self, row: CaseResult) -> None:
        """Take a finished row."""
        self._asked += questions_of(row)
        self._rows += 1

    def at(self, seconds: float, totals: Totals, least: float = 0.0) -> float | None:
        """The seconds left after so many, `least` or more; None as long as there is no telling."""
        self.see(seconds, totals)
        speed = self._speed(seconds)
        if self._total is None or speed is None:
            return None
        left = max(0.0, self._asked / self._rows * self._total - answer_count(totals))
        return max(least, left / speed)

    def see(self, seconds: float, totals: Totals) -> None:
        """Take note of the counts after so many seconds."""
        seen = self._seen
        done = answer_count(totals)
        # Nothing new: the moment of the last answer stays, so that a judge that stopped shows as a
        # gap.
        if seen and seen[-1].done == done:
            return
        seen.append(_Seen(seconds, done, totals.usage.output_tokens))
        while len(seen) > 2 and seen[1].at < seconds - _WINDOW and seen[1].done + _ANSWERS <= done:
            seen.popleft()

    def tokens(self, seconds: float) -> float | None:
        """Tokens of answers per second, as servers count them; None if nobody says."""
        speed = self._speed(seconds)
        if speed is None:
            return None
        first, last = self._seen[0], self._seen[-1]
        return (last.tokens - first.tokens) / (last.at - first.at) or None

    def _speed(self, seconds: float) -> float | None:
        """Answers per second; None before the first ones, and when none came for long."""
        if len(self._seen) < 2:
            return None
        first, last = self._seen[0], self._seen[-1]
        gap = (last.at - first.at) / (len(self._seen) - 1)
        if last.at == first.at or seconds - last.at >= max(_WINDOW, 2 * gap):
            return None
        return (last.done - first.done) / (last.at - first.at)


def answer_count(totals: Totals) -> int:
    """The questions that have their answer, wherever it came from."""
    calls = totals.calls - totals.failed - totals.in_flight
    return totals.shared + totals.cached + calls
