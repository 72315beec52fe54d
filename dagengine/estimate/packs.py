"""In how many requests the decisions of a case will travel, found by driving the scheduler.

The rules are those of runs. A pack leaves when no node at work may bring another question
(`speculation.bringing`). What later verdicts may want is sent with it (`speculation.ahead`).
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dagengine.compiler.plan import NONE, Plan, Unit
from dagengine.estimate.estimates import Travel
from dagengine.estimate.lookahead import UnitEstimate, text_tokens
from dagengine.estimate.paths import FORECAST, Choose, Odds, Walk, follow, throw, turnings
from dagengine.execution.scheduler import CaseState
from dagengine.execution.speculation import ahead, bringing, deciding_units
from dagengine.graph.node import AskingNode
from dagengine.prompts.decisions import state_json, writer_of
from dagengine.question import Judge, Packs
from dagengine.test_case import TestCase

# Up to so many ways through a case are followed; of more, so many are drawn.
_WALKS = 64


class PackWalker:
    """Counts requests of cases under one plan; `judges` are in the order of `plan.models`."""

    def __init__(self, plan: Plan, judges: Sequence[Judge], odds: Odds, max_in_flight: int) -> None:
        self._plan, self._odds, self._most = plan, odds, max_in_flight
        self._deciding = {
            unit.index: packs
            for unit in deciding_units(plan, judges)
            for packs in (judges[unit.judges[0]].capabilities.packs,)
            if packs is not None and not unit.constant
        }
        self._bringing = bringing(plan, judges)
        self._known: dict[object, Travel] = {}

    def travel(self, case: TestCase, estimates: Mapping[int, UnitEstimate]) -> Travel:
        """Pack the decisions of one case; what is equal to another case's counts."""
        if not self._deciding:
            return Travel()
        key = tuple(
            (unit, estimate.forecast, estimate.asked.likely) for unit, estimate in estimates.items()
        )
        shape = self._known.get(key)
        if shape is None:
            shape = self._known[key] = self._average(estimates)
        tokens = text_tokens(state_json(case))
        spared = (shape.questions - shape.requests) * tokens
        return Travel(
            shape.questions, shape.requests, shape.unneeded, shape.requests * tokens, spared
        )

    def _average(self, estimates: Mapping[int, UnitEstimate]) -> Travel:
        """The likely travel over all ways through a case, or over some of many."""
        total, waiting = Travel(), list[tuple[int, ...]]([()])
        for _ in range(_WALKS):
            walk = self._walk(estimates, follow(waiting.pop()))
            total += walk.run(self._most).times(walk.weight)
            waiting += turnings(walk.taken)
            if not waiting:
                return total
        thrown = throw(random.Random(0))
        walks = (self._walk(estimates, thrown).run(self._most) for _ in range(_WALKS))
        return sum(walks, Travel()).times(1 / _WALKS)

    def _walk(self, estimates: Mapping[int, UnitEstimate], choose: Choose) -> _PackWalk:
        lacking = {
            metric.index: FORECAST
            for metric in self._plan.metrics
            if any(
                slot.unit != NONE and slot.unit not in estimates
                for slot in self._plan.slots[metric.slots.start : metric.slots.stop]
            )
        }
        state = CaseState(self._plan, lacking)
        return _PackWalk(state, self._odds, choose, estimates, self._deciding, self._bringing)


@dataclass(slots=True)
class _PackWalk(Walk):
    """One way through one case, all metrics at once."""

    estimates: Mapping[int, UnitEstimate]
    deciding: Mapping[int, Packs]
    bringing: frozenset[int]
    open: list[tuple[int, int]] = field(default_factory=list, init=False)
    waiting: list[int] = field(default_factory=list, init=False)
    ridden: dict[int, float] = field(default_factory=dict, init=False)

    def run(self, most: int) -> Travel:
        # Three things may happen next, in the order of a run. All that is ready starts. A pack
        # leaves when nothing open may bring another question for it. Otherwise time goes on until
        # the next open unit ends, which may make others ready.
        #
        #     ready ──▶ start ──▶ waiting (decisions)  ──▶ depart together, one round
        #                    └──▶ open (other questions) ──▶ finish after their rounds
        state, total = self.state, Travel()
        while True:
            if state.ready:
                unit = min(state.ready, key=lambda number: state.plan.units[number].urgency)
                state.ready.remove(unit)
                total += self._start(unit)
            elif self.waiting and not any(unit in self.bringing for _, unit in self.open):
                total += self._depart(most)
                self.now += 1
            elif self.open:
                self.now, unit = heapq.heappop(self.open)
                self._end(unit)
            else:
                return total + Travel(unneeded=sum(self.ridden.values()))
            for unit in state.cancel:
                state.allow_restart(unit)
            state.cancel.clear()

    def _start(self, unit: int) -> Travel:
        estimate = self.estimates[unit]
        if estimate.forecast.fails:
            self.state.fail(unit, FORECAST)
        elif not estimate.forecast.rounds:
            self._end(unit)
        elif unit not in self.deciding:
            heapq.heappush(self.open, (self.now + estimate.forecast.rounds, unit))
        # It was asked ahead of time, in a request that left anyway: its answer is there.
        elif unit in self.ridden:
            del self.ridden[unit]
            self._end(unit)
            return Travel(questions=estimate.asked.likely)
        else:
            self.waiting.append(unit)
        return Travel()

    def _depart(self, most: int) -> Travel:
        """Send waiting decisions; those that could be asked already ride along."""
        packs = self.deciding[self.waiting[0]]
        size = min(packs.questions, most)
        count = sum(self.estimates[unit].asked.likely for unit in self.waiting)
        requests = math.ceil(count / size)
        room = min(requests * size - count, packs.ahead - sum(self.ridden.values()))
        units = [self.state.plan.units[unit] for unit in self.deciding if unit not in self.ridden]
        # What rides along is free only while it fills requests that leave anyway: a last request
        # that is not full, and no more than the judge takes ahead of time.
        for unit in ahead(self.state, units):
            estimate = self.estimates.get(unit.index)
            if estimate is not None and 0 < estimate.asked.likely <= room:
                self.ridden[unit.index] = estimate.asked.likely
                room -= estimate.asked.likely
        leaving, self.waiting = self.waiting, []
        for number in leaving:
            self._end(number)
        return Travel(questions=count, requests=requests)

    def _end(self, unit: int) -> None:
        slot = self.state.plan.slots[self.state.plan.units[unit].slots[0]]
        self.finish(slot.metric, unit, self.estimates[unit].forecast.verdict)


def with_writers(judges: Sequence[Judge]) -> list[Judge]:
    """Judges, and behind them those that write for the ones that only decide."""
    all_judges = list(judges)
    for judge in judges:
        writer = writer_of(judge)
        if writer is not None and writer.identity not in {member.identity for member in all_judges}:
            all_judges.append(writer)
    return all_judges


def answering(unit: Unit, place: int, judges: Sequence[Judge]) -> int:
    """The judge that answers a unit's question: this one, or its writer's place."""
    if not judges or not isinstance(unit.node, AskingNode) or not unit.node.writes:
        return place
    writer = writer_of(judges[place])
    names = [judge.identity for judge in judges]
    return place if writer is None else names.index(writer.identity)
