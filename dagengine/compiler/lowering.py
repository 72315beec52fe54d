"""Checked metrics numbered into one plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

from dagengine.compiler.checks import check, require_no_errors
from dagengine.compiler.liveness import Scope, Slot
from dagengine.compiler.plan import (
    ALWAYS,
    NONE,
    Plan,
    PlanMetric,
    PlanScope,
    PlanSlot,
    Unit,
    place_of,
)
from dagengine.compiler.wiring import Wiring
from dagengine.errors import Problem
from dagengine.graph.graph import Metric, as_metrics
from dagengine.graph.node import BaseNode
from dagengine.prompts.evidence import canonical_place


def compile_metrics(metrics: Sequence[Metric] | Metric) -> Plan:
    """Check metrics and compile them together.

    Raises GraphError listing every problem, and InputError for something that is not a metric.
    """
    problems: list[Problem] = []
    wirings: list[Wiring] = []
    sources = as_metrics(metrics)
    specs = [metric.spec() for metric in sources]
    problems += name_problems([spec.name for spec in specs])
    for spec in specs:
        mistakes, wiring = check(spec)
        problems += mistakes
        if wiring is not None:
            wirings.append(wiring)
    require_no_errors(problems)
    return _Compiler(wirings, sources).plan(tuple(dict.fromkeys(problems)))


def name_problems(names: Sequence[str]) -> list[Problem]:
    """Names by which results cannot be told apart, or that no file can hold."""
    hint = "give every metric its own name, in whole characters"
    problems: list[Problem] = []
    for name, count in Counter(names).items():
        whole = name.encode(errors="ignore").decode() == name  # no lone surrogate
        if count > 1 or not name.strip() or not whole:
            words = f"{count} metrics have this name" if whole else "a character is half of one"
            words = words if name.strip() else "the name is empty"
            problems.append(Problem("metric-name", f"metric {name!r}", words, hint))
    return problems


class _Compiler:
    """Numbers slots, scopes and units."""

    def __init__(self, wirings: Sequence[Wiring], sources: Sequence[Metric]) -> None:
        self.wirings, self.sources = wirings, sources
        self.slots = [slot for wiring in wirings for slot in wiring.slots]
        self.number = {slot: index for index, slot in enumerate(self.slots)}
        self.scopes = list(dict.fromkeys(slot.scope for slot in self.slots))
        self.scope_number = {scope: index for index, scope in enumerate(self.scopes)}
        self.metric_of = [i for i, wiring in enumerate(wirings) for _ in wiring.slots]
        self.models: list[Any] = [None]

    def plan(self, warnings: tuple[Problem, ...]) -> Plan:
        units = with_shares(self._units())
        unit_of = {slot: unit.index for unit in units for slot in unit.slots}
        metrics, start = [], 0
        for index, wiring in enumerate(self.wirings):
            # A metric's slots are numbered in a row, those of the metrics nested in it among them.
            span = range(start, start + len(wiring.slots))
            start = span.stop
            required: list[tuple[str, str]] = []  # what is read whatever the verdicts are
            for slot in wiring.slots:
                if slot.always:
                    required += ((path, slot.name) for path in slot.fields)
            scope = self.scope_number[wiring.scope]
            source = self.sources[index]
            metrics.append(
                PlanMetric(index, wiring.scope.spec, scope, span, tuple(required), source)
            )
        return Plan(
            metrics=tuple(metrics),
            scopes=tuple(
                PlanScope(
                    index=self.scope_number[scope],
                    spec=scope.spec,
                    owner=NONE if scope.owner is None else self.number[scope.owner],
                    slots=tuple(sorted(self.numbers(scope.slots.values()))),
                    terminals=self.numbers(scope.terminals),
                )
                for scope in self.scopes
            ),
            slots=tuple(self._slots(unit_of)),
            units=tuple(units),
            models=tuple(self.models),
            warnings=warnings,
        )

    def _units(self) -> list[Unit]:
        """Slots grouped by what they run, certain to read the same."""
        groups: dict[Any, list[Slot]] = {}
        numbers: dict[Slot, int] = {}
        constant: list[bool] = []
        for slot in self.slots:  # sources come first
            if slot.node is None:
                continue
            sources = tuple((s.label, numbers[s.slot]) for s in slot.sources)
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
            members = groups.setdefault(key, [])
            numbers[slot] = numbers[members[0]] if members else len(groups) - 1
            members.append(slot)
        return [
            self._unit(index, key, slots, numbers, constant[index])
            for index, (key, slots) in enumerate(groups.items())
        ]

    def _unit(
        self, index: int, key: Any, slots: list[Slot], numbers: dict[Slot, int], constant: bool
    ) -> Unit:
        slot = slots[0]
        assert slot.node is not None
        models = (None,) if slot.node.panel is None else slot.node.panel.models
        # Whether a node runs code that is not this library's, and may measure other metrics
        codes = [getattr(slot.node, name, None) for name in ("function", "wording", "metric")]
        return Unit(
            index=index,
            name=slot.name,
            metric=self.wirings[self.metric_of[self.number[slot]]].scope.spec.name,
            node=slot.node,
            judges=tuple(key[1] if model is None else self._number_of(model) for model in models),
            reads=slot.fields,
            sources=tuple(
                (s.label, numbers[s.slot], ALWAYS if s.certain else self.number[s.slot])
                for s in slot.sources
            ),
            slots=self.numbers(slots),
            constant=constant,
            foreign=any(
                not str(getattr(code, "__module__", "")).startswith("dagengine.")
                for code in (type(slot.node), *codes)
                if code is not None
            ),
            urgency=(slot.node.asks, self.number[slot]),
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

    def numbers(self, slots: Iterable[Slot]) -> tuple[int, ...]:
        """The numbers of slots."""
        return tuple(map(self.number.__getitem__, slots))

    def _slots(self, unit_of: Mapping[int, int]) -> Iterable[PlanSlot]:
        causes: list[list[int]] = [[] for _ in self.slots]
        feeds: list[list[int]] = [[] for _ in self.slots]
        for slot in self.slots:
            for target in slot.leads_to():
                causes[self.number[target]].append(self.number[slot])
            for source in slot.sources:
                feeds[self.number[source.slot]].append(self.number[slot])
        for index, slot in enumerate(self.slots):
            branches: dict[Any, tuple[int, ...]] = dict.fromkeys(slot.verdicts(), ())
            for verdict, target in slot.branches:
                branches[verdict] += (self.number[target],)
            yield PlanSlot(
                index=index,
                metric=self.metric_of[index],
                scope=self.scope_number[slot.scope],
                kind=slot.kind,
                name=slot.name,
                unit=unit_of.get(index, NONE),
                score=slot.score,
                grades=slot.grades,
                nested=NONE if slot.nested is None else self.scope_number[slot.nested],
                root=slot.root,
                branches=branches,
                targets=self.numbers(slot.targets()),
                activates=self.numbers((*slot.activates, *slot.pulls())),
                feeds=tuple(feeds[index]),
                causes=len(causes[index]),
                reads=self.numbers(slot.reads()),
                tangle=tuple(sorted(self.numbers(slot.tangle))),
                made_by=tuple(causes[index]) if slot.tangle else (),
                material=self.numbers(slot.material),
            )


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
        shared = (b for b in beginnings[unit.index] for j in unit.judges if readers[j, b] > 1)
        sharing.append(replace(unit, shares=next(shared, ())))
    return sharing
