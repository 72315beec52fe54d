"""Many metrics compiled into one immutable plan.

A *unit* is something that runs at most once per case. Slots of different metrics share a
unit when they are the same node, ask the same judge and read the same things. The plan
is all tuples and integers: the scheduler walks it without looking at a node.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, product
from operator import attrgetter, itemgetter
from typing import Any

import networkx as nx

from dagengine.compiler.checks import check, require_no_errors
from dagengine.compiler.dependencies import Scope, Slot, SlotKind, Wiring, reach
from dagengine.errors import Problem
from dagengine.graph.graph import Metric, MetricSpec, as_metrics
from dagengine.graph.node import BaseNode
from dagengine.prompts.evidence import canonical_place

NONE = -1
"""In the place of a number: there is no such unit, scope or slot."""
ALWAYS = -1
"""In the place of a source's slot: the source is there whenever its reader runs."""


@dataclass(frozen=True, slots=True, eq=False)
class Unit:
    """One node as it runs: what it reads, and which judge it asks.

    `metric` is the first metric that it belongs to. `judges` are those that it asks: the metric's
    own, or its panel's. `sources` are (label, unit, slot) of what it reads. If a source may be
    dead, its slot says whether it is there (`ALWAYS`: it always is). `constant` units are equal for
    every case; `foreign` ones run code that is not this library's. Of a case's units that are ready
    the one with the least `urgency` starts first: those that ask nothing, then by place. `shares`
    are the fields that its prompts begin with, as those of other questions to the same judge do.
    """

    index: int
    name: str
    metric: str
    node: BaseNode
    judges: tuple[int, ...]
    reads: tuple[str, ...]
    sources: tuple[tuple[str, int, int], ...]
    slots: tuple[int, ...]
    constant: bool
    foreign: bool
    urgency: tuple[bool, int]
    shares: tuple[str, ...] = ()

    @property
    def inputs(self) -> tuple[int, ...]:
        """Indices of the units that it reads."""
        return tuple(map(itemgetter(1), self.sources))


@dataclass(frozen=True, slots=True, eq=False)
class PlanSlot:
    """One place of one metric, with everything that follows from it as slot numbers.

    Numbers follow the topological order within a metric. `reads` are the slots waited for, `feeds`
    those that wait for this one, and `activates` those that it makes live without a verdict.
    Slots of a `tangle` (this one among them) may make each other live; `made_by` are all
    the causes of such a slot. `material` are scores that this one is computed from. `unit` is
    `NONE` for a slot that runs nothing, `nested` is the scope of a nested metric, else `NONE`.
    """

    index: int
    metric: int
    scope: int
    kind: SlotKind
    name: str
    unit: int
    score: float | None
    grades: bool
    nested: int
    root: bool
    branches: Mapping[Any, tuple[int, ...]]
    targets: tuple[int, ...]
    activates: tuple[int, ...]
    feeds: tuple[int, ...]
    causes: int
    reads: tuple[int, ...]
    tangle: tuple[int, ...]
    made_by: tuple[int, ...]
    material: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class PlanScope:
    """A metric or a nested metric: its settings, slots and terminals (in order).

    `owner` is the slot that a nested metric is in, `NONE` for a metric at the top.
    """

    index: int
    spec: MetricSpec
    owner: int
    slots: tuple[int, ...]
    terminals: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class PlanMetric:
    """A top-level metric: its scope, its slots in topological order, what it always reads.

    `source` is the metric that was compiled.
    """

    index: int
    spec: MetricSpec
    scope: int
    slots: range
    required: tuple[tuple[str, str], ...]
    source: Metric | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """What the scheduler runs on every case.

    `models` are the judges asked for by metrics, as given (None: the run's judge).
    `warnings` are findings that do not keep the plan from running.
    """

    metrics: tuple[PlanMetric, ...]
    scopes: tuple[PlanScope, ...]
    slots: tuple[PlanSlot, ...]
    units: tuple[Unit, ...]
    models: tuple[Any, ...]
    warnings: tuple[Problem, ...]

    @property
    def graph(self) -> nx.DiGraph[int]:
        """All metrics as one graph of unit numbers; an edge leads to what comes later."""
        graph: nx.DiGraph[int] = nx.DiGraph()
        for unit in self.units:
            graph.add_node(unit.index, name=unit.name, kind=unit.node.kind)
            graph.add_edges_from(product(unit.inputs, [unit.index]))
        for slot in self.slots:
            if slot.unit == NONE:
                continue
            entered: list[PlanSlot] = []  # a nested metric is entered by its roots
            for target in self.slots_at((*slot.targets, *slot.activates)):
                entered += [target] if target.nested == NONE else self.slots_at(target.activates)
            for target in entered:
                # A pull runs from reader to source; its edge is there already.
                if target.unit not in (NONE, *self.units[slot.unit].inputs):
                    graph.add_edge(slot.unit, target.unit)
        return graph

    def slots_at(self, numbers: Iterable[int]) -> Iterator[PlanSlot]:
        """The slots that have these numbers."""
        return map(self.slots.__getitem__, numbers)

    def judge_of(self, model: Any) -> int:
        """The place in `models` of a judge as a metric names it."""
        index = place_of(model, self.models)
        if index is None:
            raise LookupError(f"no metric of the plan asks {model!r:.80}")
        return index

    @property
    def asked(self) -> list[int]:
        """Indices in `models` of the judges that some node asks, sorted."""
        return sorted({judge for unit in self.units if unit.node.asks for judge in unit.judges})

    @property
    def fields(self) -> tuple[str, ...]:
        """Every case field that some node reads, sorted."""
        return tuple(sorted({path for unit in self.units for path in unit.reads}))


def place_of(model: Any, models: Sequence[Any]) -> int | None:
    """The place in `models` of an equal name or of the very same object; None without one."""
    for index, candidate in enumerate(models):
        if candidate is model or (isinstance(model, str) and candidate == model):
            return index
    return None


def unfounded_slots(
    plan: Plan,
    tangle: Iterable[int],
    is_open: Callable[[int], bool],
    is_live: Callable[[int], bool],
) -> list[int]:
    """Slots of a tangle that nothing can make live any more but each other.

    A node runs when what hands on to it runs, and also when something that runs reads it. So two
    nodes may make each other run:

        gate ── yes ──> words ── hands on to ──> last
                          ^──────── reads ────────┘

    Each of the two is a cause of the other, so neither ever loses its last cause. When the gate
    says no, counting causes would wait for ever. What counts is a cause from outside of the tangle
    that is still open. Whatever such a cause supports, directly or in turn, stays; the rest is
    dead.

    `is_open` says whether a slot is neither dead nor has a value, `is_live` whether it is
    live. (In logic programming: the unfounded set; Van Gelder et al. 1991,
    https://doi.org/10.1145/116825.116838.)
    """
    unknown = {number for number in tangle if is_open(number) and not is_live(number)}

    def supports(cause: int) -> Iterator[int]:
        return (number for number in unknown if cause in plan.slots[number].made_by)

    causes = chain.from_iterable(map(attrgetter("made_by"), plan.slots_at(unknown)))
    stay = set(reach(filter(is_open, set(causes) - unknown), supports))
    return sorted(unknown - stay)


def compile_metrics(metrics: Sequence[Metric] | Metric) -> Plan:
    """Check metrics and compile them; raises GraphError with every problem, and InputError."""
    sources = as_metrics(metrics)
    specs = [metric.spec() for metric in sources]
    problems = name_problems([spec.name for spec in specs])
    wirings: list[Wiring] = []
    for spec in specs:
        mistakes, wiring = check(spec)
        problems += mistakes
        if wiring is not None:
            wirings.append(wiring)
    require_no_errors(problems)
    return Numbering(wirings, sources).plan(tuple(dict.fromkeys(problems)))


def name_problems(names: Sequence[Any]) -> list[Problem]:
    """Names by which results cannot be told apart, or that no file can hold."""
    hint = "give every metric its own name, in whole characters"
    problems: list[Problem] = []
    for index, name in enumerate(names):
        if not isinstance(name, str):
            words = "the name is not a text"
        elif not name.strip():
            words = "the name is empty"
        elif name.encode(errors="ignore").decode() != name:  # a lone surrogate
            words = "a character is half of one"
        elif (count := names.count(name)) > 1 and name not in names[:index]:
            words = f"{count} metrics have this name"
        else:
            continue
        problems.append(Problem("metric-name", f"metric {name!r:.100}", words, hint))
    return problems


class Numbering:
    """Numbers slots, scopes and units."""

    def __init__(self, wirings: Sequence[Wiring], sources: Sequence[Metric | None]) -> None:
        self.wirings, self.sources = wirings, sources
        self.slots: list[Slot] = []
        for index, wiring in enumerate(wirings):
            for slot in wiring.slots:
                slot.number, slot.metric = len(self.slots), index
                self.slots.append(slot)
        self.scopes = list(dict.fromkeys(slot.scope for slot in self.slots))
        for index, scope in enumerate(self.scopes):
            scope.number = index
        self.models: list[Any] = [None]

    def plan(self, warnings: tuple[Problem, ...]) -> Plan:
        units = with_shares(self._units())
        return Plan(
            metrics=tuple(map(self._metric, range(len(self.wirings)))),
            scopes=tuple(
                PlanScope(
                    index=scope.number,
                    spec=scope.spec,
                    owner=NONE if scope.owner is None else scope.owner.number,
                    slots=tuple(sorted(_numbers(scope.slots.values()))),
                    terminals=_numbers(scope.terminals),
                )
                for scope in self.scopes
            ),
            slots=tuple(self._slots()),
            units=tuple(units),
            models=tuple(self.models),
            warnings=warnings,
        )

    def _metric(self, index: int) -> PlanMetric:
        slots, scope = self.wirings[index].slots, self.wirings[index].scope
        # A metric's slots are numbered in a row, those of the metrics nested in it among them.
        span = range(slots[0].number, slots[-1].number + 1)
        required: list[tuple[str, str]] = []  # what is read whatever the verdicts are
        for slot in slots:
            if slot.always:
                required += product(slot.fields, [slot.name])
        source = self.sources[index]
        return PlanMetric(index, scope.spec, scope.number, span, tuple(required), source)

    def _units(self) -> list[Unit]:
        """Slots grouped by what they run, certain to read the same."""
        groups: dict[Any, list[Slot]] = {}
        constant: list[bool] = []
        for slot in self.slots:  # sources come first
            if slot.node is None:
                continue
            sources = tuple((s.label, s.slot.unit) for s in slot.sources)
            alone: object = None
            if not all(s.certain for s in slot.sources):
                # An uncertain source is live for all or for none only where metrics share the
                # very same graph: elsewhere the slot has a unit of its own.
                alone = slot.scope.spec.graph if slot.scope.owner is None else slot
            # One node with one judge that reads the same is one unit, in however many metrics.
            key = (slot.node, self._judge_number(slot.scope), sources, alone, slot.fields)
            if key not in groups:
                fixed = not (slot.fields or slot.node.whole_case)
                steady = all(constant[unit] for _, unit in sources)
                constant.append(fixed and steady and alone is None)
            members = groups.setdefault(key, [slot])
            if members[0] is slot:
                slot.unit = len(groups) - 1
            else:
                slot.unit = members[0].unit
                members.append(slot)
        return [
            self._unit(judge, slots, constant[index])
            for index, ((_, judge, *_), slots) in enumerate(groups.items())
        ]

    def _unit(self, judge: int, slots: list[Slot], constant: bool) -> Unit:
        slot = slots[0]
        assert slot.node is not None
        models = (None,) if slot.node.panel is None else slot.node.panel.models
        # Whether a node runs code that is not this library's, and may measure other metrics
        codes = [getattr(slot.node, name, None) for name in ("function", "wording", "metric")]
        return Unit(
            index=slot.unit,
            name=slot.name,
            metric=self.wirings[slot.metric].scope.spec.name,
            node=slot.node,
            judges=tuple(judge if model is None else self._number_of(model) for model in models),
            reads=slot.fields,
            sources=tuple(
                (s.label, s.slot.unit, ALWAYS if s.certain else s.slot.number) for s in slot.sources
            ),
            slots=_numbers(slots),
            constant=constant,
            foreign=any(
                not str(getattr(code, "__module__", "")).startswith("dagengine.")
                for code in (type(slot.node), *codes)
                if code is not None
            ),
            urgency=(slot.node.asks, slot.number),
        )

    def _judge_number(self, scope: Scope) -> int:
        """The number of a metric's judge; a nested metric without one uses its parent's."""
        model = scope.spec.model
        while model is None and scope.owner is not None:
            scope = scope.owner.scope
            model = scope.spec.model
        return self._number_of(model)

    def _number_of(self, model: Any) -> int:
        index = place_of(model, self.models)
        if index is None:
            index = len(self.models)
            self.models.append(model)
        return index

    def _slots(self) -> Iterator[PlanSlot]:
        causes, feeds = defaultdict[int, list[int]](list), defaultdict[int, list[int]](list)
        for slot in self.slots:
            for target in slot.leads_to():
                causes[target.number].append(slot.number)
            for source in slot.sources:
                feeds[source.slot.number].append(slot.number)
        for slot in self.slots:
            branches: dict[Any, tuple[int, ...]] = dict.fromkeys(slot.verdicts(), ())
            for verdict, target in slot.branches:
                branches[verdict] += (target.number,)
            yield PlanSlot(
                index=slot.number,
                metric=slot.metric,
                scope=slot.scope.number,
                kind=slot.kind,
                name=slot.name,
                unit=slot.unit,
                score=slot.score,
                grades=slot.grades,
                nested=NONE if slot.nested is None else slot.nested.number,
                root=slot.root,
                branches=branches,
                targets=_numbers(slot.targets()),
                activates=_numbers((*slot.activates, *slot.pulls())),
                feeds=tuple(feeds[slot.number]),
                causes=len(causes[slot.number]),
                reads=_numbers(slot.reads()),
                tangle=tuple(sorted(_numbers(slot.tangle))),
                made_by=tuple(causes[slot.number]) if slot.tangle else (),
                material=_numbers(slot.material),
            )


def _numbers(slots: Iterable[Slot]) -> tuple[int, ...]:
    return tuple(map(attrgetter("number"), slots))


def with_shares(units: list[Unit]) -> list[Unit]:
    """The units, each with the fields that its prompts begin with as those of others do.

    Prompts show the fields of the case in one order. A node that may put several questions shares
    all that it reads with itself.
    """
    # Four questions to one judge. The first three begin alike, and the longest beginning that some
    # other question has, too, is what a unit shares. It is made of whole fields, in their order.
    #
    #     context, answer, input     shares (context, answer)
    #     context, answer            shares (context, answer)
    #     context, input             shares (context)
    #     input                      shares nothing
    beginnings: dict[int, list[tuple[str, ...]]] = {}
    readers: Counter[tuple[int, tuple[str, ...]]] = Counter()
    for unit in units:
        fields = sorted(unit.reads, key=canonical_place) if unit.node.asks else []
        own = beginnings[unit.index] = [tuple(fields[:n]) for n in range(len(fields), 0, -1)]
        several = type(unit.node).questions is not BaseNode.questions
        for judge, beginning in product(set(unit.judges), own):
            readers[judge, beginning] += 1 + several
    sharing: list[Unit] = []
    for unit in units:
        pairs = product(beginnings[unit.index], unit.judges)
        shared = next((own for own, judge in pairs if readers[judge, own] > 1), ())
        sharing.append(replace(unit, shares=shared))
    return sharing
