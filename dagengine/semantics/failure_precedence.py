"""Which failure counts when several things fail, whatever finished first. Pure.

Everything that happened to a slot gets a *precedence*. That is its own place in the topological
order, or that of the latest thing it depends on followed by its own. What depends on something
always comes after it, so precedences do not depend on timing. The failure with the lowest one ends
the metric; only what comes before it counts.
"""

from __future__ import annotations

import heapq
from collections.abc import Container, Mapping
from dataclasses import dataclass, field

from dagengine.compiler.execution_plan import NONE, Plan, unfounded_slots
from dagengine.graph.node_values import NodeValue

Precedence = tuple[int, ...]
# At one precedence: what becomes live may still support a tangle that has lost a cause.
_LIVE, _LOST, _DEAD, _VALUE = 0, 1, 2, 3


@dataclass(frozen=True, slots=True)
class Ruling:
    """What a failing metric still needs.

    `failed` is the slot whose failure is reported. `counted` are the slots that come before it and
    have a value, `pending` those that come before it and have yet to run.
    """

    failed: int
    counted: frozenset[int]
    pending: frozenset[int]


@dataclass(slots=True)
class Walk:
    """A walk over all that is known of one metric in which a slot has failed, in precedence order.

    `ready` holds the live slots that have all they read, but neither value nor failure. The walk
    goes through the case as if nodes ran one by one in the order of the plan. It stops at the
    first failure that it meets. Whatever the real order was, it meets the same one. In this graph
    (slots numbered in topological order) both 1 and 3 have failed::

        0 ──▶ 1 ✗           1 has the precedence (1,): it is met first, and reported
        └───▶ 2 ──▶ 3 ✗     3 has the precedence (3,): it is never met, so 2 need not run

    A slot may depend on one with a *greater* number: a reader makes live what it reads. Its own
    number alone would then put it before what it waits for. So its precedence is that of the latest
    thing it depends on, followed by its own number: `(5, 2)` comes after `(5,)` and before `(6,)`.

    The heap contains what becomes known at a precedence: a slot is live, has lost a cause, is dead,
    or has its value. At one precedence they come in this order, since what becomes live may still
    support a tangle that has lost a cause. A slot that is met without a value or failure is
    `pending`. It comes before the failure, so it has to run before the ruling can be final.
    """

    plan: Plan
    metric: int
    values: Mapping[int, NodeValue]
    failures: Container[int]
    ready: Container[int]
    live: dict[int, Precedence] = field(default_factory=dict)
    settled: dict[int, Precedence] = field(default_factory=dict)
    lost: dict[int, int] = field(default_factory=dict)
    pending: set[int] = field(default_factory=set)
    heap: list[tuple[Precedence, int, int]] = field(default_factory=list)

    def ruling(self) -> Ruling:
        """Walk to the first failure."""
        for number in self.plan.metrics[self.metric].slots:
            if self.plan.slots[number].root:
                heapq.heappush(self.heap, ((), _LIVE, number))
        while True:
            precedence, event, number = heapq.heappop(self.heap)
            if event == _LIVE:
                self._now_live(number, precedence)
            elif event == _LOST:
                self._lose(number, precedence)
            elif event == _DEAD:
                self._now_dead(number, precedence)
            elif number in self.failures:
                counted = frozenset(slot for slot in self.settled if slot in self.values)
                return Ruling(number, counted, frozenset(self.pending))
            elif number not in self.values:
                # It has all it reads and did not run yet. The walk goes on without what it leads
                # to: that is decided by the next ruling, when it has run.
                self.pending.add(number)
            elif number not in self.settled:
                self._now_settled(number, precedence)

    def _now_live(self, number: int, precedence: Precedence) -> None:
        if number in self.live:
            return
        self.live[number] = precedence
        for target in self.plan.slots[number].activates:
            heapq.heappush(self.heap, (precedence, _LIVE, target))
        self._look(number)

    def _look(self, number: int) -> None:
        """See whether a live slot has everything that it waits for."""
        slot = self.plan.slots[number]
        if number not in self.live or number in self.settled:
            return
        awaited = slot.reads if slot.nested == NONE else self.plan.scopes[slot.nested].slots
        if slot.nested != NONE and number in self.failures:
            awaited = ()  # its parts are settled, or never began: there was nothing to judge
        if any(source not in self.settled for source in awaited):
            return
        # Tuples compare in the order of that run. 7 reads 3, and comes at its own number. 5 makes 6
        # live, which reads 2: so 2 runs after 5, and before 6.
        #
        #     (3,) < (5,) < (5, 2) < (6,) < (7,)
        after = [self.live[number], *(self.settled[source] for source in awaited)]
        latest = max(after)
        precedence = (number,) if not latest or number > latest[0] else (*latest, number)
        if number in self.values or number in self.failures or number in self.ready:
            heapq.heappush(self.heap, (precedence, _VALUE, number))

    def _now_settled(self, number: int, precedence: Precedence) -> None:
        self.settled[number] = precedence
        slot = self.plan.slots[number]
        # What decides nothing may have given anything at all as its verdict.
        chosen = slot.branches[self.values[number].verdict] if slot.branches else ()
        for target in slot.targets:
            event = _LIVE if target in chosen else _LOST
            heapq.heappush(self.heap, (precedence, event, target))
        self._tell_readers(number)

    def _lose(self, number: int, precedence: Precedence) -> None:
        self.lost[number] = self.lost.get(number, 0) + 1
        slot = self.plan.slots[number]
        if number in self.live or slot.root:
            return
        if self.lost[number] == slot.causes:
            heapq.heappush(self.heap, (precedence, _DEAD, number))
        elif slot.tangle:
            still_open, live = (lambda slot: slot not in self.settled), self.live.__contains__
            for member in unfounded_slots(self.plan, slot.tangle, still_open, live):
                heapq.heappush(self.heap, (precedence, _DEAD, member))

    def _now_dead(self, number: int, precedence: Precedence) -> None:
        if number in self.live or number in self.settled:
            return
        slot = self.plan.slots[number]
        self.settled[number] = precedence
        for target in (*slot.activates, *slot.targets):
            heapq.heappush(self.heap, (precedence, _LOST, target))
        for part in self.plan.scopes[slot.nested].slots if slot.nested != NONE else ():
            heapq.heappush(self.heap, (precedence, _DEAD, part))
        self._tell_readers(number)

    def _tell_readers(self, number: int) -> None:
        slot = self.plan.slots[number]
        for reader in slot.feeds:
            self._look(reader)
        owner = self.plan.scopes[slot.scope].owner
        if owner != NONE:
            self._look(owner)
