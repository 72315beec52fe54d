"""The ways through a case, found by driving the scheduler: paths of a metric, packs of decisions.

What a unit will do is foretold by its `UnitForecast`; only verdicts that are not known yet
fork a path. Verdicts that lead to the same nodes are one fork: which score they end in
makes no difference to what is asked.

Packs follow the rules of runs. A pack leaves when no node at work may bring another question
(`speculation.bringing`). What later verdicts may want is sent with it (`speculation.ahead`).
"""

from __future__ import annotations

import heapq
import math
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Generic, TypeVar

from dagengine.compiler.execution_plan import NONE, Plan, Unit
from dagengine.estimate.estimate_types import Travel
from dagengine.estimate.lookahead import UnitEstimate, UnitForecast, text_tokens
from dagengine.graph.node import AskingNode
from dagengine.graph.node_values import NodeValue
from dagengine.prompts.decisions import state_json, writer_of
from dagengine.question import Judge, Packs
from dagengine.results import Failure, OutcomeKind, Verdict
from dagengine.semantics.scheduler import CaseState
from dagengine.semantics.speculation import ahead, bringing, deciding_units
from dagengine.test_case import TestCase

# Beyond this number of paths bounds are taken from the graph, and likelihoods from a sample.
MOST_PATHS, SAMPLE = 1_000, 200
# Up to so many ways to pack the decisions of a case are followed; of more, so many are drawn.
_PACKINGS = 64
# The failure of units that are foretold to fail, and of metrics that are left out of a walk.
FORECAST = Failure(OutcomeKind.SKIPPED, "", "forecast")

T = TypeVar("T")
Choose = Callable[[Sequence[float]], int | None]
"""Takes a turn, by the likelihoods of all turns at a fork; None if the unit is left open."""
Odds = Mapping[tuple[str, str], Mapping[Verdict, float]]  # by (metric, node)


@dataclass(frozen=True, slots=True)
class Path:
    """One path of a metric, with the units that ask on it, in the order of their start.

    A path that `fails` ends early, at a node that may depend on timing: `units` are then all that
    may have started.
    """

    units: tuple[int, ...]
    weight: float  # its likelihood
    depth: int  # rounds of questions
    fails: bool


@dataclass(frozen=True, slots=True)
class Paths:
    """The paths of one metric; if there are too many (not `exact`) a sample of them.

    `sure` units start on every path, `possible` ones on some.
    """

    paths: tuple[Path, ...]
    exact: bool
    sure: frozenset[int]
    possible: frozenset[int]

    @property
    def depth(self) -> int:
        """The most questions in a row on a path."""
        return max(map(attrgetter("depth"), self.paths), default=0)

    def least(self, counts: Mapping[int, int]) -> int:
        """The least sum over all paths of what `counts` has for their units."""
        if self.exact:
            return min(
                0 if path.fails else sum(map(counts.__getitem__, path.units)) for path in self.paths
            )
        return sum(map(counts.__getitem__, self.sure))

    def most(self, counts: Mapping[int, int]) -> int:
        """The greatest sum over all paths of what `counts` has for their units."""
        if self.exact:
            return max(sum(map(counts.__getitem__, path.units)) for path in self.paths)
        return sum(map(counts.__getitem__, self.possible))

    def chances(self) -> dict[int, float]:
        """The likelihood of every unit to start."""
        chances = dict.fromkeys(sorted(self.possible), 0.0)
        for path in self.paths:
            for unit in path.units:
                chances[unit] += path.weight
        return chances | dict.fromkeys(self.sure, 1.0)


class Walker:
    """Finds the paths of a plan's metrics."""

    def __init__(self, plan: Plan, odds: Odds | None = None) -> None:
        """`odds` weigh verdicts; those of a node without odds are equally likely."""
        # Several scores may be an error of a metric; what was asked by then was asked all the same.
        scopes = (replace(s, spec=replace(s.spec, combine="last")) for s in plan.scopes)
        self._plan = replace(plan, scopes=tuple(scopes))
        self._odds = odds or {}
        every = range(len(plan.metrics))
        self._skipped = [dict.fromkeys({*every} - {index}, FORECAST) for index in every]

    def paths(self, metric: int, units: tuple[tuple[int, UnitForecast], ...]) -> Paths:
        """All paths of one metric; `units` are all of it, with their forecasts."""
        forecasts = dict(units)
        merged: dict[object, Path] = {}
        routes, exact = ways(
            lambda choose: self._drive(metric, forecasts, choose), MOST_PATHS, SAMPLE
        )
        for path, weight in routes:
            # Paths that ask the same are one.
            key = frozenset(path.units), path.depth, path.fails
            earlier = merged.get(key, replace(path, weight=0.0))
            merged[key] = replace(earlier, weight=earlier.weight + weight)
        paths = tuple(merged.values())
        if exact:
            kept = [frozenset(() if path.fails else path.units) for path in paths]
            possible = frozenset[int]().union(*(path.units for path in paths))
            return Paths(paths, True, frozenset.intersection(*kept), possible)
        fails = any(forecast.fails for forecast in forecasts.values())
        # A walk that takes no turn anywhere: what starts on it starts on every path. A failure is
        # met early or late, depending on timing, so that nothing is sure then.
        certain = self._drive(metric, forecasts, lambda weights: None).run()
        sure = frozenset(() if fails else certain.units)
        possible = frozenset(unit for unit, forecast in forecasts.items() if forecast.rounds)
        return Paths(paths, False, sure, possible)

    def _drive(self, metric: int, forecasts: Mapping[int, UnitForecast], choose: Choose) -> _Drive:
        state = CaseState(self._plan, self._skipped[metric])
        return _Drive(state, self._odds, choose, metric, forecasts)


def ways(
    begin: Callable[[Choose], Walk[T]], most: int, sample: int
) -> tuple[list[tuple[T, float]], bool]:
    """Walk all ways; return the end and the likelihood of each, and whether these are all ways.

    Of more than `most` ways a random `sample` is drawn, by the odds of turns.
    """
    results: list[tuple[T, float]] = []
    waiting: list[tuple[int, ...]] = [()]
    for _ in range(most):
        walk = begin(chooser(waiting.pop()))
        results.append((walk.run(), walk.weight))
        waiting += turns_left(walk.taken)
        if not waiting:
            return results, True
    dice = random.Random(0)
    drawn = (begin(lambda weights: dice.choices(range(len(weights)), weights)[0])
             for _ in range(sample))  # fmt: skip
    return [(walk.run(), 1 / sample) for walk in drawn], False


def chooser(turns: Sequence[int]) -> Choose:
    """Return what takes these turns at the first forks, and turn 0 at all later ones."""
    left = iter(turns)
    return lambda weights: next(left, 0)


def turns_left(taken: Sequence[tuple[int, int]]) -> list[tuple[int, ...]]:
    """The turns not taken, each behind the turns to its fork; those of earlier walks are left out.

    `taken` has (turn, number of turns) of every fork of a walk.
    """
    # A walk is told its first turns, the last of which is not 0, and takes turn 0 from there on. It
    # leaves the turns that it did not take after those. So no two walks leave the same turns. With
    # two turns at each of three forks:
    #
    #     told ()      takes 0 0 0, leaves (1), (0 1), (0 0 1)
    #     told (0 1)   takes 0 1 0, leaves (0 1 1) only: (1) is left already
    turns = [turn for turn, _ in taken]
    first = max((position for position, turn in enumerate(turns, 1) if turn), default=0)
    return [
        (*turns[:position], next_turn)
        for position, (_, count) in enumerate(taken)
        if position >= first
        for next_turn in range(1, count)
    ]


@dataclass(slots=True)
class Walk(ABC, Generic[T]):
    """One way through a case under a state of the scheduler. Time is counted in rounds."""

    state: CaseState
    odds: Odds
    choose: Choose
    now: int = field(default=0, init=False)
    weight: float = field(default=1.0, init=False)
    taken: list[tuple[int, int]] = field(default_factory=list, init=False)
    """(turn, number of turns) wherever a verdict could lead to other nodes."""

    @abstractmethod
    def run(self) -> T:
        """Go to the end; returns what the way comes to."""

    def take_ready(self) -> int | None:
        """Take the unit that starts next; None if all wait for what is open."""
        state, units = self.state, self.state.plan.units
        for unit in state.cancel:  # no metric wants its end now, but one may want it again
            state.allow_restart(unit)
        state.cancel.clear()
        if not state.ready:
            return None
        state.ready.sort(key=lambda unit: units[unit].urgency, reverse=True)
        return state.ready.pop()

    def finish(self, metric: int, unit: int, verdict: Verdict | None) -> None:
        """End a unit with its verdict, or, if that is not known, with one by `choose`, or not."""
        if verdict is None and (options := options_of(self.state.plan, metric, unit, self.odds)):
            verdicts, weights = zip(*options, strict=True)
            turn = self.choose(weights) if len(options) > 1 else 0
            if turn is None:
                return
            if len(options) > 1:
                self.taken.append((turn, len(options)))
                self.weight *= weights[turn]
            verdict = verdicts[turn]
        self.state.complete(unit, NodeValue(0.0, verdict=verdict, score=0.0))


@dataclass(slots=True)
class _Drive(Walk[Path]):
    """One way through a metric."""

    metric: int
    forecasts: Mapping[int, UnitForecast]
    units: list[int] = field(default_factory=list, init=False)
    open: list[tuple[int, int, int]] = field(default_factory=list, init=False)
    fails: bool = field(default=False, init=False)

    def run(self) -> Path:
        while True:
            if (unit := self.take_ready()) is not None:
                forecast = self.forecasts[unit]
                if forecast.fails:
                    self.fails = True
                    # Once something was asked, what else starts before the failure depends on
                    # timing. Then it is left open, and all that does not read the unit continues.
                    if not self.units:
                        self.state.fail(unit, FORECAST)
                elif forecast.rounds:
                    self.units.append(unit)
                    heapq.heappush(self.open, (self.now + forecast.rounds, len(self.units), unit))
                else:
                    self.finish(self.metric, unit, forecast.verdict)
            elif self.open:
                self.now, _, unit = heapq.heappop(self.open)
                self.finish(self.metric, unit, self.forecasts[unit].verdict)
            else:
                return Path(tuple(self.units), self.weight, self.now, self.fails)


def options_of(plan: Plan, metric: int, unit: int, odds: Odds) -> list[tuple[Verdict, float]]:
    """One verdict for each set of nodes that verdicts lead to, and its likelihood."""
    slots = [slot for slot in plan.slots_at(plan.units[unit].slots) if slot.metric == metric]
    if not slots[0].branches:
        return []
    # Which score a verdict ends in makes no difference to what is asked. So verdicts are one option
    # if they lead to the same nodes, in all places where the unit stands; their shares add up. A
    # judgement whose verdicts all end in scores is then one way, and the walks stay few.
    seen = odds.get((plan.metrics[metric].spec.name, slots[0].name), {})
    total = sum(seen.get(verdict, 0) for verdict in slots[0].branches)
    options: dict[object, tuple[Verdict, float]] = {}
    for verdict in slots[0].branches:
        share = seen.get(verdict, 0) / total if total else 1 / len(slots[0].branches)
        leads = tuple(
            tuple(t for t in slot.branches[verdict] if plan.slots[t].kind != "verdict")
            for slot in slots
        )
        first, weight = options.get(leads, (verdict, 0.0))
        options[leads] = first, weight + share
    return list(options.values())


class PackWalker:
    """Counts the requests in which decisions travel; `judges` are in the order of `plan.models`."""

    def __init__(self, plan: Plan, judges: Sequence[Judge], odds: Odds, max_in_flight: int) -> None:
        self._plan, self._odds, self._most = plan, odds, max_in_flight
        self._deciding: dict[int, Packs] = {}
        for unit in deciding_units(plan, judges):
            packs = judges[unit.judges[0]].capabilities.packs
            if packs is not None and not unit.constant:
                self._deciding[unit.index] = packs
        self._bringing = bringing(plan, judges)
        self._travels: dict[object, Travel] = {}

    def travel(self, case: TestCase, estimates: Mapping[int, UnitEstimate]) -> Travel:
        """Pack the decisions of one case, or take the travel of a case with equal forecasts."""
        if not self._deciding:
            return Travel()
        key = tuple(
            (unit, estimate.forecast, estimate.asked.likely) for unit, estimate in estimates.items()
        )
        likely = self._travels.get(key)
        if likely is None:
            packings, _ = ways(lambda choose: self._walk(estimates, choose), _PACKINGS, _PACKINGS)
            likely = sum((travel.times(weight) for travel, weight in packings), Travel())
            self._travels[key] = likely
        tokens = text_tokens(state_json(case))
        spared = (likely.questions - likely.requests) * tokens
        return replace(likely, state_tokens=likely.requests * tokens, spared_tokens=spared)

    def _walk(self, estimates: Mapping[int, UnitEstimate], choose: Choose) -> _PackWalk:
        skipped = dict[int, Failure]()  # metrics without estimates, which do not judge this case
        for metric in self._plan.metrics:
            units = map(attrgetter("unit"), self._plan.slots_at(metric.slots))
            if not {NONE, *estimates}.issuperset(units):
                skipped[metric.index] = FORECAST
        state = CaseState(self._plan, skipped)
        return _PackWalk(state, self._odds, choose, estimates, self._deciding, self._bringing,
                         self._most)  # fmt: skip


@dataclass(slots=True)
class _PackWalk(Walk[Travel]):
    """One way through one case, all metrics together.

    `open` has units by the round in which they end; `waiting` are decisions for the next pack;
    `ridden` has the questions of units that were asked ahead of time, until these start.
    """

    estimates: Mapping[int, UnitEstimate]
    deciding: Mapping[int, Packs]
    bringing: frozenset[int]
    most: int
    open: list[tuple[int, int]] = field(default_factory=list, init=False)
    waiting: list[int] = field(default_factory=list, init=False)
    ridden: dict[int, float] = field(default_factory=dict, init=False)

    def run(self) -> Travel:
        # Three things may happen next, in the order of a run. All that is ready starts. A pack
        # leaves when nothing open may bring another question for it. Otherwise time goes on until
        # the next open unit ends, which may make others ready.
        #
        #     ready ──▶ start ──▶ waiting (decisions)  ──▶ depart together, one round
        #                    └──▶ open (other questions) ──▶ finish after their rounds
        total = Travel()
        while True:
            if (unit := self.take_ready()) is not None:
                total += self._start(unit)
            elif self.waiting and not any(unit in self.bringing for _, unit in self.open):
                total += self._depart()
                self.now += 1
            elif self.open:
                self.now, unit = heapq.heappop(self.open)
                self._end(unit)
            else:
                return total + Travel(unneeded=sum(self.ridden.values()))

    def _start(self, unit: int) -> Travel:
        estimate = self.estimates[unit]
        if estimate.forecast.fails:
            self.state.fail(unit, FORECAST)
        elif not estimate.forecast.rounds:
            self._end(unit)
        elif unit not in self.deciding:
            heapq.heappush(self.open, (self.now + estimate.forecast.rounds, unit))
        elif unit in self.ridden:
            del self.ridden[unit]  # its answer came with an earlier request
            self._end(unit)
            return Travel(questions=estimate.asked.likely)
        else:
            self.waiting.append(unit)
        return Travel()

    def _depart(self) -> Travel:
        """Send waiting decisions; those that could be asked already ride along."""
        packs = self.deciding[self.waiting[0]]
        size = min(packs.questions, self.most)
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
    for writer in map(writer_of, judges):
        if writer is not None and writer.identity not in map(attrgetter("identity"), all_judges):
            all_judges.append(writer)
    return all_judges


def writer_index(judge: int, judges: Sequence[Judge]) -> int:
    """The index of the judge that writes for a judge, which is mostly itself."""
    writer = writer_of(judges[judge]) if judges else None
    if writer is None or writer is judges[judge]:
        return judge
    return [*map(attrgetter("identity"), judges)].index(writer.identity)


def answerer_index(unit: Unit, judge: int, judges: Sequence[Judge]) -> int:
    """The index of the judge that answers a unit's question to a judge: this one, or its writer."""
    writes = isinstance(unit.node, AskingNode) and unit.node.writes
    return writer_index(judge, judges) if writes else judge
