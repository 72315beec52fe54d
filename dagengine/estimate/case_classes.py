"""Classes of cases: what is looked ahead of one case holds for its whole class."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain

from dagengine.compiler.plan import NONE, Plan
from dagengine.estimate.estimates import Bounds
from dagengine.estimate.lookahead import Lookahead, UnitEstimate
from dagengine.estimate.paths import Paths, UnitForecast, Walker
from dagengine.graph.graph import nothing_to_judge
from dagengine.graph.values import QuestionCount
from dagengine.test_case import TestCase, read_field

# Classes of cases kept at hand.
_CLASSES = 10_000
_NONE = QuestionCount.exactly(0)


@dataclass(slots=True)
class CaseClass:
    """Everything that is equal for the cases of one class."""

    paths: dict[int, Paths]
    metrics: dict[int, Bounds]  # without what follows
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
        self._plan, self._walker, self._lookahead = plan, walker, lookahead
        # The units of each metric in order; none of one that puts no question.
        self.units_of: list[tuple[int, ...]] = []
        for metric in plan.metrics:
            slots = (plan.slots[number] for number in metric.slots)
            units = sorted({slot.unit for slot in slots if slot.unit != NONE})
            nodes = [plan.units[unit].node for unit in units]
            asks = any(n.asks or (n.whole_case and n.grades) for n in nodes)
            self.units_of.append(tuple(units) if asks else ())
        self._known: dict[object, CaseClass] = {}
        self._find_paths = lru_cache(_CLASSES)(self._paths)
        self._wanted_by = lru_cache(_CLASSES)(self._wanted_metrics)

    def look(self, case: TestCase) -> tuple[CaseClass, Mapping[int, UnitEstimate]]:
        """The class of a case, and the estimates of its units."""
        metrics = tuple(
            metric.index
            for metric in self._plan.metrics
            if all(read_field(case, path) is not None for path, _ in metric.required)
            and nothing_to_judge(metric.spec.judged, case) is None
        )
        estimates = self._lookahead.look(case, self._wanted_by(metrics))
        key = metrics, tuple((p.forecast, p.asked, len(p.keys)) for p in estimates.values())
        case_class = self._known.get(key)
        if case_class is None:
            if len(self._known) >= _CLASSES:
                self._known.clear()
            case_class = self._known[key] = self._case_class(metrics, estimates)
        return case_class, estimates

    def _wanted_metrics(self, metrics: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(sorted({unit for metric in metrics for unit in self.units_of[metric]}))

    def _paths(self, metric: int, forecasts: tuple[UnitForecast, ...]) -> Paths:
        units = self.units_of[metric]
        return self._walker.paths(metric, dict(zip(units, forecasts, strict=True)))

    def _case_class(
        self, metrics: tuple[int, ...], estimates: Mapping[int, UnitEstimate]
    ) -> CaseClass:
        paths = {
            metric: self._find_paths(
                metric, tuple(estimates[u].forecast for u in self.units_of[metric])
            )
            for metric in metrics
            if self.units_of[metric]
        }
        asked = dict.fromkeys(estimates, _NONE)
        words = dict.fromkeys(estimates, _NONE)
        for unit, estimate in estimates.items():
            if not self._plan.units[unit].constant:
                asked[unit], words[unit] = estimate.asked, QuestionCount.exactly(len(estimate.keys))
        chances = _joint_chances(paths.values())
        sure = frozenset().union(*(ways.sure for ways in paths.values()))
        reasons = {metric: self._reason(metric, paths.get(metric)) for metric in metrics}
        return CaseClass(
            paths=paths,
            metrics={
                metric: _joint({metric: ways}, asked, ways.chances())
                for metric, ways in paths.items()
            },
            reasons=reasons,
            whole=_joint(paths, asked, chances) + sum(reasons.values(), Bounds()),
            worded=_joint(paths, words, chances).least,
            units={
                u: Bounds(p.asked.least * (u in sure), chances[u] * p.asked.likely, p.asked.most)
                if u in chances
                else Bounds()
                for u, p in estimates.items()
            },
            chances=chances,
            sure=sure,
            depth=max((ways.depth for ways in paths.values()), default=0)
            + sum(reason.most or 0 for reason in reasons.values()),
        )

    def _reason(self, metric: int, paths: Paths | None) -> Bounds:
        """The last question of a metric whose reason the judge writes."""
        plan, spec = self._plan, self._plan.metrics[metric].spec
        if not (spec.judged_reason and spec.include_reason):
            return Bounds()
        ways = paths.paths if paths else ()
        fails = [path.weight for path in ways if path.fails]
        slots = [plan.slots[number] for number in plan.metrics[metric].slots]
        ends = [plan.units[slot.unit].node for slot in slots if slot.grades and slot.unit != NONE]
        # Code at the end may find that there is nothing to judge: no score, and no reason for it.
        least = not fails and all(node.asks for node in ends)
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
    paths: Mapping[int, Paths], asked: Mapping[int, QuestionCount], chances: Mapping[int, float]
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
    # Each metric has its own least and most, over its own paths. Their sums count a unit that they
    # share once for each. Let two metrics share `u`, the first on every path, the second on some:
    #
    #     most    counts it twice. Only certain starts are double for sure: sure - 1 are taken off
    #     least   may count it twice, and must not be too high: possible - 1 are taken off
    sure = Counter(chain.from_iterable(ways.sure for ways in paths.values()))
    possible = Counter(chain.from_iterable(ways.possible for ways in paths.values()))
    least = sum(map(low.__getitem__, sure))
    if any(asked[unit].most is None for unit in possible):
        return Bounds(least, likely, None)
    least_of_each = sum(ways.least(low) for ways in paths.values())
    most_of_each = sum(ways.most(high) for ways in paths.values())
    return Bounds(
        max(least, least_of_each - _excess(possible, high)),
        likely,
        most_of_each - _excess(sure, high),
    )


def _excess(metrics: Mapping[int, int], weight: Mapping[int, int]) -> int:
    """The excess of sums over metrics: units that so many `metrics` share count once for each."""
    return sum((count - 1) * weight[unit] for unit, count in metrics.items())
