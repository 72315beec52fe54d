"""Second answers: what a case reached only once is asked again, by itself.

How much a node flips on a case cannot be told from one answer. A node behind a decision may have
run once in all runs of a case. It would take many whole runs to reach it again. So it is asked by
itself, on what it read in the run that reached it. The nodes before it are not asked again; their
answers are recorded. If an answer leads to a node that no run reached, that node is asked twice.
This goes on until every node that the answers lead to has two answers.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain

import anyio
import networkx as nx

from dagengine.compiler.execution_plan import Plan, Unit
from dagengine.execution.cases_and_rows import JudgedCase
from dagengine.execution.node_run import read_inputs, together
from dagengine.graph.graph import Metric
from dagengine.graph.node_values import NodeValue
from dagengine.reliability.counterfactual import Counterfactual
from dagengine.reliability.perturbations import later
from dagengine.results import Failure, Step
from dagengine.semantics.case_scoring import step_of
from dagengine.semantics.scheduler import CaseState

_ANSWERS = 2
# Cases whose second answers are in progress at once; limits of calls hold besides.
_AT_ONCE = 256

MOST_MORE = 1 / 8
"""The most second answers, by answers of the runs, that are likely."""

LEAST_ASKED = 10
"""As many of the cases that lack an answer are asked in any case, or their noise is not known."""

Values = Mapping[int, NodeValue]


@dataclass(frozen=True, slots=True)
class SecondAnswer:
    """What one node said when it was asked by itself.

    `sample` is that of its condition, beyond those of the runs; `raw` is what could not be
    read, `question` the digest of what was asked.
    """

    step: Step
    sample: int
    raw: str | None = None
    question: str | None = None


@dataclass(frozen=True, slots=True)
class Lack:
    """What one case lacks: the nodes, in order, the calls that are likely, a digest of the case.

    Of what these nodes may lead to and no run reached, one call each is likely: two, every
    second time.
    """

    nodes: tuple[int | str, ...]
    calls: int
    digest: str


def chosen_cases(lacks: Mapping[int, Lack], answers: int) -> list[int]:
    """Choose cases that lack an answer, for at most `MOST_MORE` calls.

    `answers` is how many answers the runs have. All where that is enough. Otherwise each case has
    the same chance, whatever it said. It is a systematic sample: every so many cases from a random
    start, in the order of what they lack. So no kind of case is left out. Equal cases are chosen
    again, whatever was answered first.
    """
    calls = sum(lack.calls for lack in lacks.values())
    many = len(lacks)
    if calls <= MOST_MORE * answers or many <= LEAST_ASKED:
        return sorted(lacks)
    count = max(LEAST_ASKED, int(many * MOST_MORE * answers / calls))
    order = sorted(
        lacks, key=lambda case: (lacks[case].calls, lacks[case].nodes, lacks[case].digest, case)
    )
    digests = "".join(lacks[case].digest for case in order)
    start = int.from_bytes(hashlib.sha256(digests.encode()).digest()[:7]) / 2**56
    return sorted(order[int((start + index) * many / count)] for index in range(count))


class SecondAnswers:
    """The runs of one metric under one setting, in the plan of all runs.

    `metrics` are the numbers that its repetitions have in the plan, `metric` is the first of
    them. Only repetitions with a score count.
    """

    def __init__(self, plan: Plan, metrics: Sequence[int], metric: Metric) -> None:
        self.replay = Counterfactual(metric)
        self.plan = self.replay.plan
        self.speaking = {unit.index for unit in self.plan.units if self.replay.speaks(unit)}
        self._answers = 0  # of a judge, in all runs
        self._lacking: dict[int, tuple[Lack, _Asking]] = {}
        # By the number of a repetition in the plan, the first of its slots.
        self._starts = {number: plan.metrics[number].slots.start for number in metrics}
        # The same metric compiled alone has its slots in the same order.
        self._units = [
            plan.units[plan.slots[self._starts[metrics[0]] + unit.slots[0]].unit]
            for unit in self.plan.units
        ]

    def note(self, case: JudgedCase) -> None:
        """Take in a case that has its runs."""
        runs = list(self.runs(case.state))
        self._answers += self._count_questions(chain.from_iterable(runs))
        asking = _Asking(self, case, runs)
        if units := asking.lacking():
            again = [self.replay.units_to_run(self.plan.units[unit]) for unit in units]
            # An answer that is not the first one may lead to what no run with a score has reached.
            behind = set[int]().union(*(nx.descendants(self.plan.graph, unit) for unit in units))
            calls = self._count_questions(chain(*again, behind.difference(*runs)))
            self._lacking[case.index] = Lack(tuple(units), calls, case.case.content_hash()), asking

    async def ask(self, timeout: float | None) -> list[tuple[int, list[SecondAnswer]]]:
        """Ask what the chosen cases lack; answers in their order, none if that takes too long."""

        async def answer(_: int, case: int) -> tuple[int, list[SecondAnswer]]:
            with anyio.move_on_after(timeout):
                return case, await self._lacking[case][1].answers()
            return case, []

        lacks = {case: lack for case, (lack, _) in self._lacking.items()}
        return await together(answer, chosen_cases(lacks, self._answers), _AT_ONCE)

    def again(self, unit: int, sample: int) -> Unit:
        """A unit as another run would ask it; `sample` counts on from the runs."""
        original = self._units[unit]
        return replace(original, node=later(original.node, sample))

    @property
    def times(self) -> int:
        """Number of runs of each case."""
        return len(self._starts)

    def runs(self, state: CaseState) -> Iterator[dict[int, NodeValue]]:
        """Values of the units in each run with a score."""
        results, values = state.results(), state.values
        for number, start in self._starts.items():
            if results[number].score is not None:
                yield {
                    unit.index: values[start + slot]
                    for unit in self.plan.units
                    for slot in unit.slots
                    if start + slot in values
                }

    def _count_questions(self, units: Iterable[int]) -> int:
        return sum(self.plan.units[unit].node.asks for unit in units)


class _Asking:
    """One case in progress: how many answers each unit has, and in which run it was reached."""

    def __init__(self, setting: SecondAnswers, case: JudgedCase, runs: Iterable[Values]) -> None:
        self._setting, self._case = setting, case
        self._heard: Counter[int] = Counter()
        self._alone: Counter[int] = Counter()
        self._reached: dict[int, Values] = {}
        for values in runs:
            for unit in setting.speaking.intersection(values):
                self._heard[unit] += 1
                self._reached.setdefault(unit, values)

    def lacking(self) -> list[int]:
        """The units that the runs reached, and that have fewer than two answers."""
        return [unit for unit in sorted(self._reached) if self._heard[unit] < _ANSWERS]

    async def answers(self) -> list[SecondAnswer]:
        """Every answer, in an order that does not depend on which came first."""
        answers: list[SecondAnswer] = []
        # All of a round are counted before the first is asked; what they reach is the next round.
        while due := list(self.next_round()):
            for batch, values in await together(self.answer_again, due):
                answers += batch
                await self.follow(values)
        return answers

    def next_round(self) -> Iterator[tuple[int, int]]:
        """Units with fewer than two answers, and the sample of the next one; counts them in."""
        for unit in self.lacking():
            while self._heard[unit] < _ANSWERS:
                yield unit, self._setting.times + self._alone[unit]
                self._heard[unit] += 1
                self._alone[unit] += 1

    async def answer_again(
        self, _: int, due: tuple[int, int]
    ) -> tuple[list[SecondAnswer], dict[int, NodeValue]]:
        """A unit's next answer, and everything said in its run with that in place."""
        unit, sample = due
        reached, units = self._reached[unit], self._setting.plan.units
        renewed = [
            number
            for number in self._setting.replay.units_to_run(units[unit])
            if number == unit or number in reached  # what the run did not reach is not read
        ]
        values = {number: value for number, value in reached.items() if number not in renewed}
        answers: list[SecondAnswer] = []
        for number in renewed:
            outcome = await self._ask(number, sample, values)
            if isinstance(outcome, Failure):
                return [*answers, self._second(number, sample, outcome)], {}
            values[number] = outcome
            # A unit's value as the metric takes it: with its score, where it gives one
            taken = self._walk(values)[0].values
            in_slots = (taken[slot] for slot in units[number].slots if slot in taken)
            values[number] = next(in_slots, outcome)
            answers.append(self._second(number, sample, values[number]))
        return answers, values

    async def follow(self, values: dict[int, NodeValue]) -> None:
        """Note which units an answer leads to that no run reached."""
        if not values:
            return
        while waiting := [n for n in self._walk(values)[1] if n not in self._setting.speaking]:
            for unit in waiting:
                outcome = await self._ask(unit, self._setting.times, values)
                if isinstance(outcome, Failure):
                    return
                values[unit] = outcome
        for unit in self._walk(values)[1]:
            self._reached.setdefault(unit, values)

    async def _ask(self, unit: int, sample: int, values: Values) -> NodeValue | Failure:
        inputs = partial(
            read_inputs, self._setting.plan.units[unit], self._case.case, self._walk(values)[0]
        )
        return await self._case.ask(self._setting.again(unit, sample), inputs)

    def _walk(self, values: Values) -> tuple[CaseState, list[int]]:
        """The state that these values lead to, and the units that would run then."""
        state = CaseState(self._setting.plan)
        waiting: list[int] = []
        while state.ready:
            unit = state.ready.pop()
            if unit in values:
                state.complete(unit, values[unit])
            else:
                waiting.append(unit)
        return state, sorted(waiting)

    def _second(self, unit: int, sample: int, outcome: NodeValue | Failure) -> SecondAnswer:
        original = self._setting.plan.units[unit]
        if isinstance(outcome, Failure):
            step = Step(original.name, original.node.kind, outcome.kind, reason=outcome.message)
            return SecondAnswer(step, sample, outcome.raw)
        step = step_of(original.name, original.node.kind, outcome)
        return SecondAnswer(step, sample, question=outcome.question)
