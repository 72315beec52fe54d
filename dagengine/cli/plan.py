"""`dagengine plan`: estimate the calls, tokens, cost and time of a run before it starts."""

from __future__ import annotations

import copy
import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

from typer import Option

from dagengine.cli.common import options as shared
from dagengine.cli.common.files import Reads
from dagengine.cli.common.output import report, wants_json, warn

if TYPE_CHECKING:
    from dagengine.compiler.execution_plan import Plan
    from dagengine.data.cases import Cases
    from dagengine.estimate.estimate_report import Assumptions
    from dagengine.estimate.estimate_types import Speeds
    from dagengine.graph.graph import Metric
    from dagengine.graph.node import BaseNode
    from dagengine.question import Judge
    from dagengine.results import CaseResult
    from dagengine.test_case import TestCase

LATENCY = 2.0  # seconds of a call, if nothing else is known
TIMES = 20  # that a benchmark asks each question, if nothing else is said


@dataclass(frozen=True, kw_only=True)
class PlanOptions(shared.CaseOptions, shared.QuoteOptions, shared.JudgeOptions):
    """The options of one estimate, as they were typed."""

    store: Annotated[Path | None, Reads()] = None
    """Count how many questions this store already answers."""
    results: Annotated[Path | None, Reads()] = None
    """An earlier run, or its rows; its verdicts give the probabilities."""
    items: Annotated[int, Option(min=1)] = 10
    """Assumed length of the lists that a judge writes."""
    latency: Annotated[float | None, Option(min=0)] = None
    """Assumed duration of one call, in seconds. Default: the speed that `judge check` saved, else
    2; of a server of your own it is not known.
    """
    detectable: Annotated[bool, Option("--detectable")] = False
    """Also say which difference between two judges this number of cases can detect."""

    def pace(self, judges: Sequence[Judge]) -> tuple[float | None, Speeds | None]:
        """Seconds of one call (None: of a server of one's own), and the default judge's speed."""
        from dagengine.estimate.estimate_types import Speeds
        from dagengine.judges.default import judge_settings
        from dagengine.judges.resolve import as_judge
        from dagengine.judges.wire.server_facts import is_provider

        if self.latency is not None:
            return self.latency, None
        tuning = judge_settings(self.judge, self.base_url).tuning
        speeds = None
        if tuning.write_speed and {judge.identity for judge in judges} == {as_judge().identity}:
            speeds = Speeds(tuning.read_speed, tuning.write_speed)
        for judge in judges:
            address = getattr(judge, "base_url", None)
            has_places = getattr(judge, "places", None) is not None  # a model file
            if has_places or (address is not None and not is_provider(address)):
                return None, speeds
        return LATENCY, speeds


def plan(options: PlanOptions) -> None:
    """Estimate the judge calls, tokens, cost and time of a run. Makes no judge calls.

    Shows the least, the likely and the greatest number of questions. The bounds hold if every
    metric gets a score; retries come on top. Code nodes that read only the case are run, as in the
    run itself.
    """
    from dagengine.compiler.execution_plan import compile_metrics
    from dagengine.data.cases import read_cases, valid_cases
    from dagengine.estimate.case_warnings import example_lines, fields_before, too_long_cases
    from dagengine.estimate.estimate_report import Assumptions, as_dict, print_estimate
    from dagengine.estimate.estimator import estimate, judges_of, verdicts_of
    from dagengine.execution.local_executor import check_cases
    from dagengine.record.reader import rows_at

    results = options.results
    loaded = options.load_metrics(options.metrics)
    compiled = compile_metrics(loaded)
    model, limits, store = options.chosen_judge(), options.limits(), options.store
    judges = judges_of(compiled, model)
    cases = options.cases()
    if cases.count() is None and store is not None:
        cases = read_cases(list(cases))  # of a pipe, which can be read only once
    check_cases(compiled, cases.check())
    compiled, notes = _with_escalations(compiled, results)
    readable: Iterable[Any] = [] if cases.count() is None else cases
    lacking = fields_before(compiled, readable)
    odds = verdicts_of(rows_at(results)) if results else {}
    learnt = not {own.spec.name for own in compiled.metrics}.isdisjoint(name for name, _ in odds)
    settings: dict[str, Any] = {
        "judges": judges,
        "items": options.items,
        "odds": odds,
        "max_in_flight": limits.max_in_flight,
    }
    forecast = estimate(compiled, cast("Iterable[TestCase]", valid_cases(cases)), **settings)
    latency, speeds = options.pace(judges)
    answered, lost = (None, []) if store is None else _stored_answers(loaded, cases, model, store)
    budget = Assumptions(
        options.prices(), latency, limits.max_in_flight, options.items, learnt, answered, speeds,
    )  # fmt: skip
    long = too_long_cases(compiled, enumerate(readable), judges)
    notes += lost + _in_batches(loaded, cases, settings, budget)
    if options.detectable and forecast.cases:
        from dagengine.reliability.card.sentences import could_be_seen

        notes.append(could_be_seen(forecast.cases, 1, more=TIMES))
    warnings = [*map(str, (*lacking, *long, *example_lines(compiled, enumerate(readable))))]
    report(**as_dict(forecast, budget), notes=notes, too_long=long, warnings=warnings)
    print_estimate(forecast, budget, more=notes)
    if not wants_json():  # the document has them
        warn(*warnings)


def _with_escalations(compiled: Plan, results: Path | None) -> tuple[Plan, list[str]]:
    """The plan with the shares that escalated in an earlier run, and lines on them."""
    from dagengine.record.reader import rows_at
    from dagengine.results import Step
    from dagengine.voting.votes_and_juries import Escalation

    steps = defaultdict[str, list[Step]](list)
    for row in rows_at(results) if results else ():
        for result in row.metrics:
            for step in result.steps:
                steps[step.node].append(step)
    units, lines = list(compiled.units), list[str]()
    for index, unit in enumerate(units):
        if isinstance(panel := unit.node.panel, Escalation):
            node = copy.copy(unit.node)  # what is assumed is part of this plan alone
            node.panel = seen = panel.with_share_of(steps[unit.name])
            units[index] = dataclasses.replace(unit, node=node)
            how = "assumed: --results RUN tells" if seen is panel else "as in the run"
            lines.append(f"{unit.name}: {seen.share:.0%} of judgements escalate ({how}).")
    return dataclasses.replace(compiled, units=tuple(units)), lines


def _in_batches(
    metrics: Sequence[Metric], cases: Cases, settings: Mapping[str, Any], budget: Assumptions
) -> list[str]:
    """A line with the price of rubrics by one call per criterion, and by one for all criteria."""
    from dagengine.compiler.execution_plan import compile_metrics
    from dagengine.data.cases import valid_cases
    from dagengine.estimate.estimator import estimate
    from dagengine.graph.rewriting import Rewriting, SpecMetric
    from dagengine.metrics.rubrics import RubricNode

    prices, rubrics = [], list[Any]()
    for words, size in (("one call per criterion", 1), ("one call for all criteria", None)):

        def batch(node: BaseNode, size: int | None = size) -> None:
            if isinstance(node, RubricNode):
                node.per_call = size
                rubrics.append(node)

        rewriting = Rewriting([batch])
        copies = [SpecMetric(rewriting.spec(metric.spec())) for metric in metrics]
        if not rubrics:
            return []
        readable = cast("Iterable[TestCase]", valid_cases(cases))
        forecast = estimate(compile_metrics(copies), readable, **settings)
        money = forecast.cost(budget.prices)
        paid = "" if money is None else f", {money:,.2f} US dollars"
        prices.append(f"{words}: {forecast.calls.likely:,.0f} calls{paid}")
    return [
        f"Rubrics by {'; by '.join(prices)}, and 1 to 6.5 points of accuracy less as published."
    ]


def _stored_answers(
    metrics: Sequence[Any], cases: Cases, model: Any, path: Path
) -> tuple[int, list[str]]:
    """Number of questions that a store answers, and lines on nodes whose words it does not have."""
    from dagengine.evaluation import stream
    from dagengine.execution.interrupts import sync
    from dagengine.store.answer_journal import Store
    from dagengine.store.cache_misses import REWORDED

    kept, lost = Store(path, replay=True), dict[str, None]()

    def look(row: CaseResult) -> None:
        for result in row.metrics:
            if result.failure is not None and REWORDED in result.failure.message:
                lost[result.failure.message] = None

    done = sync(lambda: stream(cases, metrics, look, model=model, store=kept))
    return done.cached, [*lost]
