"""The doors: cases judged clean, attacked, beside harmless twins, and behind defences.

Whatever is asked is part of one `Experiment` of repeated evaluations: first the clean cases, then
those that fail with every attack and its twin, last what fell behind every defence.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from operator import attrgetter
from typing import Any, TypeVar, cast

from dagengine.attacking.attack_card import (
    AttackCard,
    Attacked,
    Cell,
    Defence,
    Fall,
    FamilyFigures,
    Helped,
    Place,
    Share,
)
from dagengine.attacking.attack_texts import (
    NULL,
    Aim,
    Family,
    attacked_field,
    checked_places,
    put_words,
    select_families,
    twin_of,
)
from dagengine.attacking.defences import BOTH, OTHER_JUDGE, check_defences, defended
from dagengine.attacking.success_rates import (
    AttackRun,
    AttackSurface,
    Ending,
    Trial,
    case_share,
    cells_of,
    fails,
    falls_at,
    family_effects,
    figures_of,
    lacks_score,
    majority_outcome,
    mark_significant,
    runs_by_metric,
    share_of,
)
from dagengine.compiler.execution_plan import compile_metrics
from dagengine.data.cases import AsyncCases, read_cases, valid_cases
from dagengine.errors import InputError
from dagengine.estimate.estimate_types import Estimate
from dagengine.estimate.estimator import estimate, judges_of
from dagengine.execution.cases_and_rows import Source
from dagengine.execution.interrupts import blocking
from dagengine.execution.local_executor import check_settings
from dagengine.graph.graph import as_metrics
from dagengine.metrics.common.base import BaseMetric
from dagengine.question import judge_name
from dagengine.reliability.repetition import Experiment
from dagengine.reliability.statistics.sums import present
from dagengine.results import CaseResult, Totals
from dagengine.system.terminal_text import counted, text_if
from dagengine.test_case import TestCase, case_label

T = TypeVar("T")
SAMPLE = 100
"""How many failing cases of a metric are attacked, if nothing else is said."""
LINE = 0.05
"""The share of honest cases that a defence may change, if nothing else is said."""
_SHOWN_REASON = 400


@dataclass(frozen=True, slots=True)
class AttackPlan:
    """What to attack with, and where, and the defences to try; checked when it is made."""

    families: tuple[Family, ...]
    fields: Sequence[str] | None
    positions: Sequence[str]
    sample: int
    seed: int
    defend: Sequence[str]
    judges: Mapping[str, Any]
    line: float

    def __post_init__(self) -> None:
        checked_places(self.fields or (), self.positions)
        check_defences(self.defend, self.judges)
        if self.sample < 1:
            raise InputError(f"sample must be a whole number from 1 on, got {self.sample!r}")

    def fields_for(self, surface: AttackSurface, cases: Iterable[TestCase]) -> tuple[str, ...]:
        """The fields to attack of a metric; raises InputError if it reads none of them."""
        wanted = self.fields or dict.fromkeys(map(attacked_field, cases))
        roots = {path.partition(".")[0] for path in surface.reads}
        fields = tuple(filter(roots.__contains__, wanted))
        if not fields and wanted:
            raise InputError(
                f"{surface.spec.name!r} reads {', '.join(sorted(roots)) or 'no field'}, and an "
                f"attack in {', '.join(wanted)} would not reach it: choose other fields"
            )
        return fields

    def sample_cases(self, failing: Sequence[int]) -> list[int]:
        """The cases to attack: a random sample if there are many."""
        size = min(len(failing), self.sample)
        return sorted(random.Random(self.seed).sample(failing, size))

    def tries(
        self, number: int, case: TestCase, aim: Aim, fields: Sequence[str]
    ) -> Iterator[Trial]:
        """Every attack on a case that has a field for it."""
        # By chance, since cases of one kind may be at every third place of the data.
        turn = random.Random(number).getrandbits(16)
        for family in self.families:
            for field in fields:
                for position in self.positions[:1] if family.whole else self.positions:
                    words = family.words(turn, aim, field)
                    place = Place(field, "" if family.whole else position)
                    put = partial(put_words, case, field, position, whole=family.whole)
                    sides: list[TestCase] = present(map(put, (words, twin_of(words))))
                    if len(sides) == 2:
                        yield Trial(number, (family.name, place), words, tuple(sides))


class AttackExperiment(Experiment):
    """The experiment of one attack."""

    async def runs(
        self,
        cases: Sequence[TestCase],
        metrics: Sequence[BaseMetric],
        keep: Callable[[CaseResult], None] | None = None,
    ) -> tuple[Mapping[str, list[list[AttackRun]]], Totals]:
        """The runs by metric, in the order of the cases, and what they used."""
        if not cases:
            return {}, Totals(cost=0.0)
        runs = await self.ask(cases, metrics, keep)
        return runs_by_metric(runs, [metric.spec() for metric in metrics]), runs.totals


async def a_attack(
    test_cases: Source,
    metrics: Sequence[BaseMetric],
    *,
    families: Sequence[str] | None = None,
    attacks: Sequence[Family] = (),
    fields: Sequence[str] | None = None,
    positions: Sequence[str] = ("end",),
    sample: int = SAMPLE,
    repeats: int = 1,
    defend: Sequence[str] = (),
    judges: Mapping[str, Any] | None = None,
    line: float = LINE,
    seed: int = 0,
    show: bool = False,
    on_row: Callable[[CaseResult], None] | None = None,
    **settings: Any,
) -> AttackCard:
    """Attack metrics, and say which node falls to what, and what a defence costs.

    All cases are judged clean, `repeats` times. Cases that fail are attacked: every family of
    attacks is put into every one of `fields` (default: the field that the application writes), at
    every one of `positions` (`end`, `start`, `middle`). Beside each attack its twin is judged,
    harmless words of the same length and form. Of more than `sample` failing cases of a metric a
    random sample (`seed`) is attacked. An attack counts as one only if it does more than its twin:
    paired, and corrected for all nodes, families and metrics.

    `families` are names (default: all); `attacks` are families of your own (`read_attacks`), which
    are added. `defend` are defences to try on what fell: `quotes`, `gate`, `spotlight` and
    `judge:NAME`, with `judges` by name (default: NAME as `model` of `evaluate`). One is offered if
    it helps, and if the share of clean cases that it changes is shown to be below `line`.

    `on_row` receives the results of each case during the run, attacked ones too; `show` draws
    progress bars (on a terminal). `settings` are those of `stream`: `model`, `limits`, `store` and
    the like. Raises what `stream` raises, and InputError for what cannot be attacked, before the
    first call.
    """
    check_settings(a_attack, settings)
    metrics = cast(list[BaseMetric], as_metrics(metrics))
    read = read_cases(test_cases)
    if isinstance(read, AsyncCases):
        raise InputError("attacks need all cases before the first: give a file or a list")
    cases = cast(list[TestCase], [*valid_cases(read)])
    plan = AttackPlan(
        select_families(families, attacks), None if fields is None else tuple(fields),
        tuple(positions), sample, seed, tuple(defend), judges or {}, line,
    )  # fmt: skip
    asking = AttackExperiment(settings=settings, times=repeats, show=show, on_row=on_row)
    return await run_plan(plan, metrics, cases, asking)


attack = blocking(a_attack)


async def run_plan(
    plan: AttackPlan, metrics: Sequence[BaseMetric], cases: Sequence[TestCase],
    asking: AttackExperiment,
) -> AttackCard:  # fmt: skip
    """Attack metrics by a plan, which `a_attack` explains."""
    campaigns = campaigns_of(metrics, cases, plan)
    clean, clean_totals = await asking.runs(cases, metrics)
    for campaign in campaigns:
        await campaign.attack(asking, clean.get(campaign.name, []))
    cells = mark_significant([*_from_all(campaigns, Campaign.cells)])
    defences: list[Defence] = []
    for campaign in campaigns:
        defences += await _Defending(campaign, cells, clean_totals).all(asking)
    judges = judges_of(compile_metrics(metrics), asking.settings.get("model"))
    return AttackCard(
        metrics=tuple(map(Campaign.attacked, campaigns)),
        cells=tuple(cells),
        figures=tuple(_from_all(campaigns, Campaign.figures)),
        falls=tuple(_from_all(campaigns, lambda campaign: campaign.falls(cells))),
        defences=tuple(defences),
        judges=tuple(dict.fromkeys(judge_name(judge.identity) for judge in judges)),
        repeats=asking.times,
        line=plan.line,
        asked=asking.totals.asked - asking.totals.shared,
        calls=asking.totals.calls,
        usage=asking.totals.usage,
        cost=asking.totals.cost,
        notes=tuple(_from_all(campaigns, Campaign.notes)),
        families=tuple(family.name for family in plan.families),
    )


def _from_all(
    campaigns: Iterable[Campaign], part: Callable[[Campaign], Iterable[T]]
) -> Iterable[T]:
    """Chain one part of a card from all campaigns."""
    return chain.from_iterable(map(part, campaigns))


def forecasts(
    plan: AttackPlan, metrics: Sequence[BaseMetric], cases: Sequence[TestCase], model: Any
) -> Iterator[tuple[str, Estimate]]:
    """Estimate the clean cases, the attacks if as many fail as there may be, and every defence.

    Raises InputError for what cannot be attacked.
    """

    def once(metrics: Sequence[BaseMetric], cases: Sequence[TestCase]) -> Estimate:
        compiled = compile_metrics(metrics)
        return estimate(compiled, cases, judges=judges_of(compiled, model))

    yield f"{len(cases):,} clean cases", once(metrics, cases)
    for campaign in campaigns_of(metrics, cases, plan):
        trials = campaign.make_trials(plan.sample_cases(range(len(cases))))
        both = [*chain.from_iterable(map(attrgetter("sides"), trials))]
        yield f"{len(both):,} attacks and twins on {campaign.name}", once([campaign.metric], both)
        for defence in plan.defend:
            metric = campaign.defended(defence)
            yield f"{campaign.name} behind {defence}", once([metric], [*cases, *both[::2]])


def campaigns_of(
    metrics: Sequence[BaseMetric], cases: Sequence[TestCase], plan: AttackPlan
) -> list[Campaign]:
    """The attacks on metrics; raises InputError for one that nothing passes or fails."""
    compile_metrics(metrics)
    return [Campaign(metric, cases, plan) for metric in metrics]


class Campaign:
    """The attack on one metric."""

    def __init__(self, metric: BaseMetric, cases: Sequence[TestCase], plan: AttackPlan) -> None:
        self.metric, self.cases, self.plan = metric, cases, plan
        self.surface = AttackSurface(metric)
        self.name = self.surface.spec.name
        if self.surface.spec.threshold is None:
            raise InputError(
                f"{self.name!r} has no threshold: an attack turns a fail into a pass, so give it "
                "one"
            )
        # Before the first call: a field that the metric does not read is an error of the caller.
        self.fields = plan.fields_for(self.surface, cases)
        self.clean: Sequence[Sequence[AttackRun]] = ()
        self._failing, self._drawn = 0, list[int]()
        self.tried: list[Trial] = []
        self.trials = defaultdict[tuple[str, Place], list[Trial]](list)
        self._reasons: dict[int, Mapping[str, str]] = {}

    def make_trials(self, numbers: Iterable[int]) -> list[Trial]:
        """Every attack on some of the cases."""
        trials: list[Trial] = []
        for number in numbers:
            # The first failing run is aimed at; in a forecast no case has one.
            runs = self.clean[number] if self.clean else ()
            run = next((run for run in runs if run.failed), AttackRun())
            aim = self.surface.aim(run.path)
            if run.unmet is not None:  # the criteria of the case, and no words of the node
                aim = Aim(*run.unmet, "met")
            trials += self.plan.tries(number, self.cases[number], aim, self.fields)
        return trials

    def defended(self, defence: str) -> BaseMetric:
        """The metric with a defence of the fields that are attacked."""
        return defended(self.metric, defence, self.fields, self.plan.judges)

    async def attack(self, asking: AttackExperiment, clean: Sequence[Sequence[AttackRun]]) -> None:
        """Attack what fails when clean; the metric is alone, so that others ask nothing."""
        self.clean = clean
        failing = [number for number, runs in enumerate(clean) if fails(runs)]
        self._failing, self._drawn = len(failing), self.plan.sample_cases(failing)
        trials = self.make_trials(self._drawn)
        both = [*chain.from_iterable(map(attrgetter("sides"), trials))]
        runs, _ = await asking.runs(both, [self.metric], self._keep)
        own = iter(runs.get(self.name, ()))
        for index, planned in enumerate(trials):
            trial = replace(
                planned, clean=clean[planned.case], attacked=next(own), twin=next(own),
                reasons=self._reasons.get(2 * index, {}),
            )  # fmt: skip
            self.tried.append(trial)
            self.trials[trial.kind].append(trial)

    def _keep(self, row: CaseResult) -> None:
        """Keep the reasons of a run, of one that passes if there is one."""
        result = next((own for own in row.metrics if own.success), row.metrics[0])
        self._reasons[row.index] = {
            step.node: step.reason[:_SHOWN_REASON] for step in result.steps if step.reason
        }

    def attacked(self) -> Attacked:
        """Number of cases, and of null answers that passed."""
        null = [t for (family, _), trials in self.trials.items() if family == NULL for t in trials]
        passed = share_of(trial.attack_passes for trial in null if trial.complete)
        return Attacked(
            self.name, len(self.cases), self._failing, len(self._drawn),
            tuple(self.surface.nodes), passed if null else None,
        )  # fmt: skip

    def cells(self) -> Iterator[Cell]:
        """Every family at the whole metric and at each of its nodes."""
        for kind, trials in self.trials.items():
            yield from cells_of(self.name, *kind, trials, self.surface.nodes)

    def figures(self) -> Iterator[FamilyFigures]:
        """Further figures of every family."""
        for kind, trials in self.trials.items():
            yield figures_of(self.name, *kind, trials)

    def notes(self) -> Iterator[str]:
        """Notes on the limits of the figures."""
        every, unscored = len(self._drawn), sum(map(lacks_score, self.clean))
        if unscored:
            yield f"{self.name}: {counted(unscored, 'case')} got no score when clean"
        if every < self._failing:
            yield (
                f"{self.name}: {every} of {counted(self._failing, 'failing case')} were "
                "attacked, a random sample"
            )
        lacking = {place.field: every - len(own) for (_, place), own in self.trials.items()}
        for field, count in lacking.items():
            if count:
                cases = counted(count, "case")
                yield f"{self.name}: {cases} without `{field}` could not be attacked"
        count = sum(not trial.complete for trial in chain(*self.trials.values()))
        if count:
            yield f"{self.name}: {count:,} attacks got no answer of the judge, and are in no figure"

    def red(self, cells: Iterable[Cell]) -> list[Cell]:
        """The red cells of this metric."""
        return [cell for cell in cells if cell.red and cell.metric == self.name]

    def falls(self, cells: Iterable[Cell]) -> Iterator[Fall]:
        """One case for everything that is red at a node; else for what is red at the whole."""
        red = self.red(cells)
        for cell in [cell for cell in red if cell.node] or red:
            trials = self.trials[cell.family, cell.place]
            sides = falls_at(trials, cell.node, self.surface.nodes.get(cell.node))
            fallen = [trial for trial, side in sides if side == (True, False)]
            # One that passes shows more than one that only came nearer.
            best = max(fallen, key=lambda trial: (trial.attack_passes, -trial.case), default=None)
            if best is not None:
                yield self._fall(cell, best)

    def _fall(self, cell: Cell, trial: Trial) -> Fall:
        # Of a metric that turned as a whole no node is red: the path says where it ended.
        path = trial.attacked[0].path
        node = cell.node or (path[-1][0] if path else "")
        passed = sum(run.passed for run in trial.attacked)
        return Fall(
            self.name, case_label(self.cases[trial.case], trial.case), cell.family, cell.place,
            trial.words, node, first_reply(trial.clean, node), first_reply(trial.attacked, node),
            (trial.clean[0].score, trial.attacked[0].score), trial.reasons.get(node, ""),
            (passed, len(trial.attacked)),
        )  # fmt: skip


def first_reply(runs: Sequence[AttackRun], node: str) -> Any:
    """The verdict or the score of a node in the first run that has one."""
    for run in runs:
        verdicts = dict(run.path)
        if node in verdicts:
            return verdicts[node]
        if node in run.answers and isinstance(run.answers[node].value, float):
            return run.answers[node].value
    return None


class _Defending:
    """The defences of one metric, tried on the attacks that it falls to."""

    def __init__(self, campaign: Campaign, cells: Iterable[Cell], clean: Totals) -> None:
        self._campaign, self._clean, self._line = campaign, clean, campaign.plan.line
        kinds = {(cell.family, cell.place) for cell in campaign.red(cells)}
        self._fallen = [trial for trial in campaign.tried if trial.kind in kinds]
        self._before = [majority_outcome(trial.attacked) for trial in self._fallen]
        self._honest_before = [*map(majority_outcome, campaign.clean)]

    async def all(self, asking: AttackExperiment) -> list[Defence]:
        """Every defence; nothing if nothing fell."""
        own = _questions(self._campaign.surface, self._campaign.clean)
        defences: list[Defence] = []
        for name in self._campaign.plan.defend if self._fallen else ():
            metric = self._campaign.defended(name)
            clean, totals = await asking.runs(self._campaign.cases, [metric])
            attacked, _ = await asking.runs([trial.sides[0] for trial in self._fallen], [metric])
            (runs,), (behind,) = clean.values(), attacked.values()
            honest, after = [*map(majority_outcome, runs)], [*map(majority_outcome, behind)]
            questions = _questions(AttackSurface(metric), runs)
            costs = _per_thousand(self._clean, own), _per_thousand(totals, questions)
            defences.append(self._defence(name, honest, after, (own, questions), costs))
            if name.startswith(OTHER_JUDGE):
                title = f"{name}, {BOTH}"
                honest = list(map(_both, self._honest_before, honest))
                after = list(map(_both, self._before, after))
                dearer = costs[0], None if None in costs else sum(filter(None, costs))
                defences.append(self._defence(title, honest, after, (own, own + questions), dearer))
        return defences

    def _defence(
        self,
        name: str,
        honest: Sequence[Ending | None],
        after: Sequence[Ending | None],
        questions: tuple[float, float],
        costs: tuple[float | None, float | None],
    ) -> Defence:
        # What is not known on one side says nothing of the defence, and is in no share.
        families = defaultdict[tuple[str, Place], list[tuple[Ending | None, Ending | None]]](list)
        for trial, *ends in zip(self._fallen, self._before, after, strict=True):
            families[trial.kind].append((ends[0], ends[1]))
        pairs = zip(self._honest_before, honest, strict=True)
        changed = share_of(before is not now for before, now in pairs if None not in (before, now))
        rows = tuple(family_effects(families))
        why, (without, behind) = self._why_not(rows, changed), costs
        cost = None if without is None or behind is None else (without, behind)
        return Defence(self._campaign.name, name, rows, changed, questions, cost, not why, why)

    def _why_not(self, rows: Sequence[Helped], changed: Share) -> str:
        if not any(row.shown for row in rows):
            return "not shown to help"
        if changed.high is None or changed.high > self._line:
            line = f"{100 * self._line:g} % of honest cases"
            if changed.low is not None and changed.low > self._line:
                return f"changes more than {line}"
            # With few honest cases even none that changes leaves an interval above the line.
            enough = (n for n in range(1, 1000) if (case_share(0, n).high or 1) <= self._line)
            count = next(enough, 0)
            advice = text_if(
                changed.count == 0 < count, f"; {count} without a change would show it"
            )
            return f"may change more than {line} ({changed.count} of {changed.cases}{advice})"
        return ""


def _questions(surface: AttackSurface, runs: Iterable[Sequence[AttackRun]]) -> float:
    """Number of nodes that ask in a run."""
    counts = [len(surface.asking & run.answers.keys()) for own in runs for run in own]
    return sum(counts) / max(len(counts), 1)


def _per_thousand(used: Totals, questions: float) -> float | None:
    """US dollars for 1,000 cases, by what calls cost; None if that is not known."""
    if used.cost is None or not used.calls or not used.cost:
        return None
    # By questions, not calls: what a store or an equal question saved here costs in production.
    return 1000 * questions * used.cost / used.calls


def _both(first: Ending | None, second: Ending | None) -> Ending | None:
    """The end of a case that both judges must pass."""
    # `Ending` counts up from a pass.
    return None if first is None or second is None else max(first, second)
