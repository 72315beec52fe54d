"""Which units of one case may start now: a pure state machine. No I/O, no await, no clock.

Feed it what finished, take from it what may start. Results do not depend on the order in which
things finish. When a node fails, only what takes precedence over it still runs. The failure with
the highest precedence is reported.

A slot is one place of one metric; a unit is what runs, once, for all slots that share it. A slot
becomes live by one of its *causes*: a verdict that leads to it, or a live slot that needs it. Its
*sources* are what it reads. It is *ready* when it is live and all its sources are settled::

    slot   unknown ──a cause is live──▶ live ──all sources settled──▶ ready: its unit is wanted
              │                           │                                       │
              │ the last cause is lost    ├──the unit gave a value──▶ settled ◀───┤ value known
              ▼                           └──the unit failed────────▶ failed      │ already
            dead ─────────────────────────────────────────────────▶ settled ◀─────┘

    unit   new ──wanted──▶ running ──complete()──▶ done
            ▲                │  └────fail()──────▶ failed
            └─allow_restart()─┘  no metric wants it any longer

A settled slot tells its readers (`feeds`) and takes a cause from each target of a verdict that was
not chosen. It brings its metric one step nearer to its result.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dagengine.compiler.execution_plan import ALWAYS, NONE, Plan, PlanSlot, Unit, unfounded_slots
from dagengine.graph.node_values import NodeValue
from dagengine.results import Failure, MetricResult, OutcomeKind
from dagengine.semantics.case_scoring import Took, failed_result, final_score, grade, metric_result
from dagengine.semantics.failure_precedence import Ruling, Walk

_UNKNOWN, _LIVE, _DEAD = 0, 1, 2  # the liveness of a slot
_NEW, _RUNNING, _DONE, _FAILED = 0, 1, 2, 3  # the state of a unit


class CaseState:
    """The state of one case under one plan; slots, units and metrics have the numbers of the plan.

    `finished` says whether every metric has its result.
    After construction and after every `complete` or `fail`, `ready` lists units to start and
    `cancel` units to stop. The owner takes both lists and empties them.
    """

    def __init__(
        self,
        plan: Plan,
        missing: Mapping[int, Failure] | None = None,
        empty: Mapping[int, Failure] | None = None,
    ) -> None:
        """`missing` says which metrics cannot run on this case at all, and why.

        `empty` says which scopes have nothing to judge in it: they fail once they are live.
        """
        self.plan = plan
        self._empty = empty or {}
        self.finished = not plan.metrics
        self.ready: list[int] = []
        self.cancel: list[int] = []
        self.values: dict[int, NodeValue] = {}  # by slot
        self.took: dict[int, Took] = {}  # by unit; the owner may note it
        self._outputs: dict[int, NodeValue | Failure] = {}  # by unit
        self._life = bytearray(len(plan.slots))
        self._open_causes = [slot.causes for slot in plan.slots]  # by slot: not lost yet
        self._awaited = [len(slot.reads) for slot in plan.slots]  # by slot: sources not settled
        self._unit_states = bytearray(len(plan.units))
        self._slots_left = [len(metric.slots) for metric in plan.metrics]  # by metric: not settled
        self._scope_slots_left = [len(scope.slots) for scope in plan.scopes]
        self._failures: dict[int, Failure] = {}  # by slot
        self._rulings: dict[int, Ruling] = {}  # by metric, once something has failed
        self._to_rule: set[int] = set()  # failing metrics to rule on again
        self._results: dict[int, MetricResult] = {}  # by metric
        # Work for `_spread`, by slot; a slot is in a list once for every source or cause.
        self._made_live: list[int] = []
        self._source_settled: list[int] = []
        self._cause_lost: list[int] = []
        self._to_kill: list[int] = []  # parts of a nested metric that is dead
        for metric in plan.metrics:
            failure = (missing or {}).get(metric.index) or self._empty.get(metric.scope)
            if failure is not None:
                self._end(failed_result(plan, metric.index, failure), metric.index)
                continue
            self._made_live += [number for number in metric.slots if plan.slots[number].root]
        self._spread()

    def results(self) -> tuple[MetricResult, ...]:
        """The results of all metrics, in order, once finished."""
        return tuple(self._results[index] for index in range(len(self.plan.metrics)))

    def is_live(self, slot: int) -> bool:
        """Return whether a slot is known to be live."""
        return self._life[slot] == _LIVE

    def has_output(self, unit: int) -> bool:
        """Return whether a unit has a value."""
        return isinstance(self._outputs.get(unit), NodeValue)

    def output(self, unit: int) -> NodeValue:
        """The value of a unit that is done."""
        value = self._outputs[unit]
        assert isinstance(value, NodeValue)
        return value

    def inputs_of(self, unit: Unit) -> tuple[tuple[str, Any], ...]:
        """Labels and values of what a unit reads from other units; what is dead is left out."""
        inputs: list[tuple[str, Any]] = []
        for label, source, slot in unit.sources:
            if slot == ALWAYS or self._life[slot] == _LIVE:
                inputs.append((label, self.output(source).value))
        return tuple(inputs)

    def may_start(self, unit: int) -> bool:
        """Return whether a unit could start ahead of the verdicts that decide if it is wanted.

        All that one of its slots reads is settled; it is not known yet whether the slot is live.
        """
        return self._unit_states[unit] == _NEW and any(
            self._life[number] == _UNKNOWN and not self._awaited[number] and self._may_count(number)
            for number in self.plan.units[unit].slots
        )

    def complete(self, unit: int, value: NodeValue) -> None:
        """Take the value of a unit; ignore it if the unit was stopped meanwhile."""
        if self._unit_states[unit] != _RUNNING:
            return
        self._unit_states[unit] = _DONE
        self._outputs[unit] = value
        for number in self.plan.units[unit].slots:
            if self._life[number] == _LIVE and not self._awaited[number]:
                self._take_value(number, value)
        self._spread()

    def fail(self, unit: int, failure: Failure) -> None:
        """Take the failure of a unit; ignore it if the unit was stopped meanwhile."""
        if self._unit_states[unit] != _RUNNING:
            return
        self._unit_states[unit] = _FAILED
        self._outputs[unit] = failure
        for number in self.plan.units[unit].slots:
            if self._life[number] == _LIVE and not self._awaited[number]:
                self._fail_slot(number, failure)
        self._spread()

    def allow_restart(self, unit: int) -> None:
        """Note that a unit was stopped before it finished, so that it may start again."""
        # Between the order to stop it and its end another metric may have come to want it.
        if self._unit_states[unit] == _RUNNING:
            self._unit_states[unit] = _NEW
            if self._is_wanted(unit):
                self._start(unit)

    def _may_count(self, number: int) -> bool:
        """Return whether a slot would count if it were live: no failure is in its way."""
        slot = self.plan.slots[number]
        if slot.metric in self._results or slot.metric in self._rulings:
            return False
        scope = slot.scope
        while scope not in self._empty:
            owner = self.plan.scopes[scope].owner
            if owner == NONE:
                return True
            scope = self.plan.slots[owner].scope
        return False

    def _spread(self) -> None:
        """Work through everything that follows, without recursion."""
        # The order of the lists is part of the law. Take a node whose verdict `no` was chosen:
        #
        #     node ──yes──▶ a ◀─────┐        `a` has lost a cause, `c` becomes live.
        #        │          ▼       │        `a` and `b` make each other live: a tangle.
        #        └──no─▶ c ─▶ b ────┘
        #
        # If the loss were looked at first, nothing outside would seem to support `a` and `b`, and
        # both would die, although `c` makes `b` live a moment later. So liveness spreads to its
        # end, then settled sources are counted, then nested metrics that are dead lose their parts,
        # and only then causes are lost. Failures are ruled on last of all: a ruling looks at the
        # whole metric, and would be made again for every step in between. Each list only grows by
        # what the graph has, and no slot goes back, so this ends.
        while True:
            if self._made_live:
                self._become_live(self._made_live.pop())
            elif self._source_settled:
                number = self._source_settled.pop()
                self._awaited[number] -= 1
                if not self._awaited[number] and self._life[number] == _LIVE:
                    self._want_unit(number)
            elif self._to_kill:
                number = self._to_kill.pop()
                if self._life[number] == _UNKNOWN:
                    self._die(number)
            elif self._cause_lost:
                self._lose_cause(self._cause_lost.pop())
            elif self._to_rule:
                self._rule_on_failures()
            else:
                return

    def _become_live(self, number: int) -> None:
        if self._life[number] != _UNKNOWN:
            return
        self._life[number] = _LIVE
        slot = self.plan.slots[number]
        if slot.nested in self._empty:
            self._fail_slot(number, self._empty[slot.nested])
            return
        self._made_live += slot.activates
        if slot.kind == "verdict":
            self._take_value(number, NodeValue(slot.score, score=slot.score))
        elif slot.kind == "node" and not self._awaited[number]:
            self._want_unit(number)

    def _lose_cause(self, number: int) -> None:
        """Take a cause from a slot, which dies if nothing can make it live any more."""
        self._open_causes[number] -= 1
        slot = self.plan.slots[number]
        # A root is live whatever happens. What is live stays live: the verdict that made it so was
        # given, and no other verdict takes it back.
        if self._life[number] != _UNKNOWN or slot.root:
            return
        if not self._open_causes[number]:
            self._die(number)
        elif slot.tangle:
            for member in unfounded_slots(self.plan, slot.tangle, self._is_open, self.is_live):
                self._die(member)

    def _is_open(self, number: int) -> bool:
        return self._life[number] != _DEAD and number not in self.values

    def _die(self, number: int) -> None:
        slot = self.plan.slots[number]
        self._life[number] = _DEAD
        # It will choose none of its verdicts, so all that they lead to loses a cause at once.
        self._cause_lost += (*slot.activates, *slot.targets)
        if slot.nested != NONE:
            self._to_kill += self.plan.scopes[slot.nested].slots
        self._settle(number)

    def _want_unit(self, number: int) -> None:
        """Start the unit of a slot that is ready, or take what it already gave."""
        unit = self.plan.slots[number].unit
        output = self._outputs.get(unit)
        # Another slot of the same unit may have had it run: equal nodes of several metrics are one
        # unit, and its value, or its failure, is that of all of them.
        if isinstance(output, NodeValue):
            self._take_value(number, output)
        elif output is not None:
            self._fail_slot(number, output)
        elif self._unit_states[unit] == _NEW and self._is_needed(number):
            self._start(unit)

    def _start(self, unit: int) -> None:
        self._unit_states[unit] = _RUNNING
        self.ready.append(unit)

    def _is_needed(self, number: int) -> bool:
        """Return whether the metric of a slot still needs what it gives."""
        metric = self.plan.slots[number].metric
        if metric in self._results:
            return False
        ruling = self._rulings.get(metric)
        return ruling is None or number in ruling.pending

    def _take_value(self, number: int, value: NodeValue) -> None:
        """Give a live slot its value: follow its verdict, check its score, settle it."""
        slot = self.plan.slots[number]
        if slot.metric in self._results:
            return
        chosen = _targets_of(slot, value)
        if chosen is None:
            verdicts = ", ".join(map(repr, slot.branches))
            message = f"the verdict is {value.verdict!r}, but the declared verdicts are {verdicts}"
            self._fail_slot(number, Failure(OutcomeKind.CODE_ERROR, slot.name, message))
            return
        if slot.grades:
            value = _with_score(value)
            if value.score is None:
                message = f"the score is {value.value!r}, but it must be a number from 0 to 1"
                self._fail_slot(number, Failure(OutcomeKind.CODE_ERROR, slot.name, message))
                return
        self.values[number] = value
        if slot.branches:
            # Several verdicts may share a target: each edge not chosen is a cause lost.
            self._cause_lost += (target for target in slot.targets if target not in chosen)
            self._made_live += chosen
        self._settle(number)

    def _settle(self, number: int) -> None:
        """Settle a slot that is dead or has its value: tell its readers, scope and metric."""
        slot = self.plan.slots[number]
        self._source_settled += slot.feeds
        self._slots_left[slot.metric] -= 1
        self._scope_slots_left[slot.scope] -= 1
        if not self._scope_slots_left[slot.scope]:
            self._end_nested(slot.scope)
        if not self._slots_left[slot.metric]:
            result = metric_result(self.plan, slot.metric, self.values, self.took)
            self._end(result, slot.metric)
        elif slot.metric in self._rulings and number in self._rulings[slot.metric].pending:
            self._to_rule.add(slot.metric)

    def _end(self, result: MetricResult, metric: int) -> None:
        self._results[metric] = result
        self.finished = len(self._results) == len(self.plan.metrics)

    def _end_nested(self, scope: int) -> None:
        """Give the result of a nested metric, all of whose slots are settled, to its owner."""
        owner = self.plan.scopes[scope].owner
        # The parts of a dead owner are settled, too, since they were killed with it.
        if owner == NONE or self._life[owner] != _LIVE:
            return
        done = grade(self.plan, scope, self.values)
        score = final_score(self.plan.scopes[scope].spec, done)
        if score is None:
            assert done.failure is not None
            self._fail_slot(owner, done.failure)
            return
        self._take_value(owner, NodeValue(score, score=score, mode=done.mode))

    def _fail_slot(self, number: int, failure: Failure) -> None:
        """Note a failure, which settles nothing: a ruling decides what it means for the metric."""
        slot = self.plan.slots[number]
        self._failures[number] = failure
        if slot.metric not in self._results:
            self._to_rule.add(slot.metric)

    def _rule_on_failures(self) -> None:
        """Decide what failing metrics still need, start that, and stop the rest."""
        # One failure does not end a metric at once. While something that comes before it has yet to
        # run, that may fail as well, and would be what is reported:
        #
        #     0 ──▶ 1 (still running)      2 has failed first, but 1 comes before it. So 1 goes on
        #     └───▶ 2 ✗ ──▶ 3              (`pending`), 3 never starts, and the report is the same
        #                                  as if 1 had failed, or ended, before 2.
        to_rule, self._to_rule = sorted(self._to_rule), set()
        for metric in to_rule:
            runnable = {
                number
                for number in self.plan.metrics[metric].slots
                if self._life[number] == _LIVE
                and not self._awaited[number]
                and self.plan.slots[number].unit != NONE
                and number not in self.values
                and number not in self._failures
            }
            ruling = Walk(self.plan, metric, self.values, self._failures, runnable).ruling()
            self._rulings[metric] = ruling
            if not ruling.pending:
                failure = self._failures[ruling.failed]
                counted = {n: v for n, v in self.values.items() if n in ruling.counted}
                result = failed_result(
                    self.plan, metric, failure, counted, ruling.failed, self.took
                )
                self._end(result, metric)
            for number in sorted(ruling.pending):
                self._want_unit(number)
        self._stop_unwanted()

    def _stop_unwanted(self) -> None:
        """Cancel what no metric wants any longer."""
        # Several metrics may want one unit, so the ruling of one alone stops nothing. And a unit
        # that was to be stopped may be wanted again by a later ruling: it simply goes on.
        self.cancel = [unit for unit in self.cancel if not self._is_wanted(unit)]
        for unit in range(len(self._unit_states)):
            if self._unit_states[unit] != _RUNNING or self._is_wanted(unit):
                continue
            if unit in self.ready:
                self.ready.remove(unit)
                self._unit_states[unit] = _NEW
            elif unit not in self.cancel:
                self.cancel.append(unit)

    def _is_wanted(self, unit: int) -> bool:
        return any(
            self._life[number] == _LIVE and not self._awaited[number] and self._is_needed(number)
            for number in self.plan.units[unit].slots
        )


def _with_score(value: NodeValue) -> NodeValue:
    """The value with a score from 0 to 1: its own score, else its value; None if that is none."""
    if type(value.score) is float and 0 <= value.score <= 1:
        return value
    number = value.value if value.score is None else value.score
    fits = isinstance(number, bool | int | float) and 0 <= number <= 1
    return value.with_score(float(number) if fits else None)


def _targets_of(slot: PlanSlot, value: NodeValue) -> tuple[int, ...] | None:
    """The targets of a decision's verdict; None for one that is not declared: 1 is not True."""
    if not slot.branches:
        return ()
    for verdict, targets in slot.branches.items():
        if type(verdict) is type(value.verdict) and verdict == value.verdict:
            return targets
    return None
