"""How long a run will still take: from the questions that the plan leaves. No clock, no I/O."""

from __future__ import annotations

from collections import deque

from dagengine.compiler.plan import NONE, Plan
from dagengine.results import CaseResult, Totals

# A slot may make live what stands before it in the plan; a few rounds are near enough.
_ROUNDS = 3
# Seconds over which the speed of a run is taken.
_WINDOW = 30.0


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
    """How many questions were answered for a row; metrics that share a node share its answers."""
    steps = {(step.node, step.answers) for metric in row.metrics for step in metric.steps}
    return sum(len(answers) for _, answers in steps)


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
        self._seen: deque[tuple[float, int]] = deque()

    def add(self, row: CaseResult) -> None:
        """Take a finished row."""
        self._asked += questions_of(row)
        self._rows += 1

    def at(self, seconds: float, totals: Totals, least: float = 0.0) -> float | None:
        """The seconds left after so many, `least` or more; None as long as there is no telling."""
        done = answered(totals)
        self._seen.append((seconds, done))
        while self._seen[0][0] < seconds - _WINDOW:
            self._seen.popleft()
        began, before = self._seen[0]
        if self._total is None or done == before or seconds == began:
            return None
        left = max(0.0, self._asked / self._rows * self._total - done)
        return max(least, left * (seconds - began) / (done - before))


def answered(totals: Totals) -> int:
    """The questions that have their answer, wherever it came from."""
    calls = totals.calls - totals.failed - totals.in_flight
    return totals.shared + totals.cached + calls
