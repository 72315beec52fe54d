"""Classes of cases: what is looked ahead of one case holds for its whole class."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from operator import attrgetter

from dagengine.compiler.execution_plan import NONE, Plan
from dagengine.estimate.estimate_types import Bounds
from dagengine.estimate.lookahead import Lookahead, UnitEstimate
from dagengine.estimate.paths import Paths, Walker
from dagengine.graph.graph import nothing_to_judge
from dagengine.graph.node_values import QuestionCount
from dagengine.test_case import TestCase, read_field

# Classes of cases kept at hand.
_CLASSES = 10_000
_NONE = QuestionCount.exactly(0)


@dataclass(slots=True)
class CaseClass:
    """Everything that is equal for the cases of one class.

    By metric: its `paths`, the questions of its nodes (`metrics`) and that for its reason. By unit:
    its questions, the chance that it starts, and whether that is `sure`. Of the case: the `whole`
    of its questions, how many are sure and known word for word (`worded`), and its `depth`.
    """

    paths: dict[int, Paths]
    metrics: dict[int, Bounds]
    reasons: dict[int, Bounds]
    whole: Bounds
    worded: int
    units: dict[int, Bounds]
    chances: dict[int, float]
    sure: frozenset[int]
    depth: int


class CaseClasses:
    """The classes of the cases of a plan; cases with equal forecasts are of one class."""

    def __init__(self, plan: Plan, walker: Walker, lookahead: Lookahead) -> None:
        self._plan, self._lookahead = plan, lookahead
        # The units of each metric in order; none of one that puts no question.
        self.units_of: list[tuple[int, ...]] = []
        for metric in plan.metrics:
            units = sorted(set(map(attrgetter("unit"), plan.slots_at(metric.slots))) - {NONE})
            nodes = (plan.units[unit].node for unit in units)
            asks = any(node.asks or (node.whole_case and node.grades) for node in nodes)
            self.units_of.append(tuple(units) if asks else ())
        self._known: dict[object, CaseClass] = {}
        self._find_paths = lru_cache(_CLASSES)(walker.paths)

    def look(self, case: TestCase) -> tuple[CaseClass, Mapping[int, UnitEstimate]]:
        """The class of a case, and the estimates of its units."""
        metrics = tuple(
            metric.index
            for metric in self._plan.metrics
            if all(read_field(case, path) is not None for path, _ in metric.required)
            and nothing_to_judge(metric.spec.judged, case) is None
        )
        wanted = set[int]().union(*map(self.units_of.__getitem__, metrics))
        estimates = self._lookahead.look(case, sorted(wanted))
        key = metrics, tuple((p.forecast, p.asked, len(p.keys)) for p in estimates.values())
        case_class = self._known.get(key)
        if case_class is None:
            if len(self._known) >= _CLASSES:
                self._known.clear()
            case_class = self._known[key] = self._case_class(metrics, estimates)
        return case_class, estimates

    def _case_class(
        self, metrics: tuple[int, ...], estimates: Mapping[int, UnitEstimate]
    ) -> CaseClass:
        paths, alone, reasons = dict[int, Paths](), dict[int, Bounds](), dict[int, Bounds]()
        asked = dict.fromkeys(estimates, _NONE)
        words = dict.fromkeys(estimates, _NONE)
        for unit, estimate in estimates.items():
            if not self._plan.units[unit].constant:
                asked[unit], words[unit] = estimate.asked, QuestionCount.exactly(len(estimate.keys))
        for metric in metrics:
            if units := self.units_of[metric]:
                ways = self._find_paths(metric, tuple((u, estimates[u].forecast) for u in units))
                paths[metric], alone[metric] = ways, _joint([ways], asked, ways.chances())
            reasons[metric] = self._reason(metric, paths.get(metric))
        every = [*paths.values()]
        chances = _joint_chances(every)
        sure = frozenset[int]().union(*(ways.sure for ways in every))
        reason = sum(reasons.values(), Bounds())
        bounds = dict.fromkeys(estimates, Bounds())
        for unit, chance in chances.items():
            count = estimates[unit].asked
            bounds[unit] = Bounds(count.least * (unit in sure), chance * count.likely, count.most)
        return CaseClass(
            paths=paths,
            metrics=alone,
            reasons=reasons,
            whole=_joint(every, asked, chances) + reason,
            worded=_joint(every, words, chances).least,
            units=bounds,
            chances=chances,
            sure=sure,
            depth=max(map(attrgetter("depth"), every), default=0) + (reason.most or 0),
        )

    def _reason(self, metric: int, paths: Paths | None) -> Bounds:
        """The last question of a metric whose reason the judge writes."""
        plan, spec = self._plan, self._plan.metrics[metric].spec
        if not (spec.judged_reason and spec.include_reason):
            return Bounds()
        ways = paths.paths if paths else ()
        fails = [path.weight for path in ways if path.fails]
        slots = plan.slots_at(plan.metrics[metric].slots)
        ends = {slot.unit for slot in slots if slot.grades} - {NONE}
        # Code at the end may find that there is nothing to judge: no score, and no reason for it.
        least = not fails and all(plan.units[unit].node.asks for unit in ends)
        return Bounds(int(least), 1 - sum(fails), int(not ways or len(fails) < len(ways)))


def _joint_chances(paths: Iterable[Paths]) -> dict[int, float]:
    """The chance of each unit that some metric starts it.

    Whether several metrics go together is not known, so each is taken by itself: the unit stays
    idle only if none of them starts it.
    """
    chances: dict[int, float] = {}
    for ways in paths:
        for unit, chance in ways.chances().items():
            chances[unit] = 1 - (1 - chances.get(unit, 0.0)) * (1 - chance)
    return chances


def _joint(
    paths: Sequence[Paths], asked: Mapping[int, QuestionCount], chances: Mapping[int, float]
) -> Bounds:
    """Questions of several metrics on one case, units that they share counted once."""
    low = {unit: count.least for unit, count in asked.items()}
    high = {unit: count.most or 0 for unit, count in asked.items()}
    likely = sum(chance * asked[unit].likely for unit, chance in chances.items())
    # Each metric has its own least and most, over its own paths. Their sums count a unit that they
    # share once for each. Let two metrics share `u`, the first on every path, the second on some:
    #
    #     most    counts it twice. Only certain starts are double for sure: sure - 1 are taken off
    #     least   may count it twice, and must not be too high: possible - 1 are taken off
    sure = Counter(chain.from_iterable(ways.sure for ways in paths))
    possible = Counter(chain.from_iterable(ways.possible for ways in paths))
    least = sum(map(low.__getitem__, sure))
    if any(asked[unit].most is None for unit in possible):
        return Bounds(least, likely, None)
    least = max(least, sum(ways.least(low) for ways in paths) - _excess(possible, high))
    return Bounds(least, likely, sum(ways.most(high) for ways in paths) - _excess(sure, high))


def _excess(metrics: Mapping[int, int], weight: Mapping[int, int]) -> int:
    """The excess of sums over metrics: units that so many `metrics` share count once for each."""
    return sum((count - 1) * weight[unit] for unit, count in metrics.items())
